"""Settings by which other episodes of a group take the critic's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.rl.equal_starts import StartAlike
from rllib_llm_comm.verco.advantages import EPISODE, GAE, GRPO, PROMPT, RLOO, SPEAKER
from rllib_llm_comm.verco.language_config import LanguageModelConfigMixin
from rllib_llm_comm.verco.settings import LanguageModelSettings

if TYPE_CHECKING:
    from typing_extensions import Self

_COMPLETE = "complete_episodes"

ADVANTAGE_FLOOR = 0.02
"""Default of language models' `advantage_floor`, which groups have no use for."""


class GroupBaselinesMixin(LanguageModelConfigMixin):
    """Adds `advantages` and the settings of groups to `.training(...)` (docs/algorithms/group_baselines.md)."""

    def _set_group_defaults(self) -> None:
        self.advantages = GAE
        self.group_size = 4
        self.group_by = EPISODE
        self.normalize_by_std = True
        self.normalize_by_length = True

    @override(AlgorithmConfig)
    def training(
        self,
        *,
        advantages: str = NotProvided,
        group_size: int = NotProvided,
        group_by: str = NotProvided,
        normalize_by_std: bool = NotProvided,
        normalize_by_length: bool = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets where advantages come from.

        Args:
            advantages: `"gae"` (default; Verco, TWOSOME): from a critic. `"rloo"` (arXiv 2402.14740): an episode's
                return minus the mean of the others in its group. `"grpo"` (arXiv 2402.03300): minus the group's mean,
                divided by its standard deviation. The last two have no critic and want `batch_mode`
                "complete_episodes".
            group_size: Games side by side that begin alike, >= 2 (with `group_by` "prompt" >= 1, where 1 is different
                starts); `num_envs_per_env_runner` must be a multiple of it. Default 4 (RLOO: 2 and 4; GRPO: 64).
            group_by: `"episode"` (default; RLOO, GRPO): an agent's whole episodes of equal start. `"prompt"` (after the
                step groups of arXiv 2505.10978): an agent's decisions behind equal prompts, by what followed.
            normalize_by_std: With "grpo", whether differences are divided by the group's standard deviation. Default
                yes (GRPO); no is Dr. GRPO (arXiv 2503.20783).
            normalize_by_length: With "grpo", whether each episode counts alike, however many decisions it has. Default
                yes (GRPO, per answer); no is Dr. GRPO: each decision counts alike.
            **kwargs: Other settings of the training.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @property
    def has_critic(self) -> bool:
        """True if advantages come from a critic."""
        return self.advantages == GAE

    @override(LanguageModelConfigMixin)
    def language_model_settings(self, roles: Sequence[str], train_critic: bool) -> LanguageModelSettings:
        """As `LanguageModelConfigMixin`; without a critic where groups take its place."""
        if self.has_critic:
            return super().language_model_settings(roles, train_critic)
        return super().language_model_settings(roles, False).replace(critic_hiddens=None)

    def _validate_groups(self) -> None:
        require_choice("advantages", self.advantages, (GAE, RLOO, GRPO))
        require_choice("group_by", self.group_by, (EPISODE, PROMPT))
        for name in ("normalize_by_std", "normalize_by_length"):
            require_choice(name, getattr(self, name), (False, True))
        least = 1 if self.group_by == PROMPT else 2
        size = self.group_size
        if isinstance(size, bool) or not isinstance(size, int) or size < least:
            raise UserError(
                f"`group_size` is {size!r} but must be a whole number of at least {least} with `group_by` "
                f"{self.group_by!r}."
            )
        if self.has_critic:
            return
        if self.critic_warmup:
            raise UserError(
                f"`critic_warmup` is {self.critic_warmup!r} with `advantages` {self.advantages!r}, which has no "
                "critic; omit it."
            )
        if self.advantage_floor not in (0.0, ADVANTAGE_FLOOR):
            raise UserError(
                f"`advantage_floor` is {self.advantage_floor!r} with `advantages` {self.advantages!r}, which stay in "
                "units of reward or of their group; omit it."
            )
        if self.batch_mode != _COMPLETE:
            raise UserError(
                f"`batch_mode` is {self.batch_mode!r} with `advantages` {self.advantages!r}, which has no critic to "
                f"judge episodes that are cut; set it to {_COMPLETE!r}."
            )
        if self.num_envs_per_env_runner % size:
            raise UserError(
                f"`num_envs_per_env_runner` is {self.num_envs_per_env_runner!r} but must be a multiple of `group_size` "
                f"{size!r}: games of a group stand side by side."
            )
        if self.num_learners > 1:
            raise UserError(
                f"`num_learners` is {self.num_learners!r} with `advantages` {self.advantages!r}, but several learners "
                "would tear the groups apart; set it to 0 or 1."
            )
        credit = getattr(self, "message_credit", SPEAKER)
        if self.group_by == PROMPT and self.train_messages and credit != SPEAKER:
            raise UserError(
                f"`group_by` is {self.group_by!r} with `message_credit` {credit!r}, but decisions behind a prompt are "
                "compared with others that heard the same, so they tell nothing about the message; set `group_by` to "
                f"{EPISODE!r}."
            )
        self._add_callback(StartAlike)
