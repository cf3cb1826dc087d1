"""Settings of PPO with our learner: semi-Markov advantages, own losses, an optimizer each for actor and critic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tree
from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.module_to_env import NormalizeAndClipActions
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES
from ray.rllib.utils.annotations import override
from ray.rllib.utils.spaces.space_utils import get_base_struct_from_space
from ray.rllib.utils.typing import LearningRateOrSchedule

from rllib_llm_comm.core.errors import UserError, require_choice, shown
from rllib_llm_comm.rl.closing_policy import WarnOfClosing
from rllib_llm_comm.rl.direct_actions import BY_TABLE
from rllib_llm_comm.rl.env_registration import ensure_registered
from rllib_llm_comm.rl.episode_metrics import EpisodeMetrics
from rllib_llm_comm.rl.lean import LeanEnvRunner
from rllib_llm_comm.rl.losses import VALUE_CLIP_MODES
from rllib_llm_comm.rl.multi_agent_ppo_learner import MultiAgentPPOLearner
from rllib_llm_comm.rl.partners_config import PartnersConfigMixin
from rllib_llm_comm.rl.phase_seconds import PhaseSeconds
from rllib_llm_comm.rl.planning import PlanningConfigMixin, PlanningSettings
from rllib_llm_comm.rl.strict_config import require_schedule, shared_policy

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner
    from typing_extensions import Self


class MultiAgentPPOConfig(PlanningConfigMixin, PartnersConfigMixin, PPOConfig):
    """Settings that `Verco` and the systems that it is compared with share: one policy, `MultiAgentPPOLearner`.

    The same losses, advantages per game step, masks and counting of decisions for all of them, so that a comparison
    compares what the agents see and say and nothing else.
    """

    settings_models = {"planning": PlanningSettings}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults that all share (ours, unless said otherwise in `training`)."""
        super().__init__(algo_class=algo_class)
        self._set_shared_policy()
        self._set_partner_defaults()
        self.critic_lr: LearningRateOrSchedule = 1e-3
        self.anneal: int | None = None
        self.critic_warmup = 0
        self.advantage_floor = 0.0
        self.value_clip_mode = "max"
        self.clip_param = 0.2
        self.vf_clip_param: float | None = 0.2
        self.vf_loss_coeff = 0.5
        self.entropy_coeff: LearningRateOrSchedule = 0.01
        self.kl_target: LearningRateOrSchedule | None = 0.05
        self.use_kl_loss = False
        self.kl_coeff = 0.0
        self.gamma = 0.99
        self.lambda_ = 0.95
        self.grad_clip = 0.5
        self.grad_clip_by = "global_norm"
        self.train_batch_size_per_learner = 1024
        self.minibatch_size: int | None = None
        self.num_epochs = 3
        self.num_env_runners = 0
        self.env_runner_cls = LeanEnvRunner  # ours; samples what RLlib's own one samples
        self.num_envs_per_env_runner = 16

    @override(PPOConfig)
    def training(
        self,
        *,
        lr: LearningRateOrSchedule = NotProvided,
        critic_lr: LearningRateOrSchedule = NotProvided,
        anneal: int | None = NotProvided,
        critic_warmup: int = NotProvided,
        advantage_floor: float = NotProvided,
        value_clip_mode: str = NotProvided,
        clip_param: float = NotProvided,
        vf_clip_param: float | None = NotProvided,
        vf_loss_coeff: float = NotProvided,
        entropy_coeff: LearningRateOrSchedule = NotProvided,
        kl_target: LearningRateOrSchedule | None = NotProvided,
        gamma: float = NotProvided,
        lambda_: float = NotProvided,
        grad_clip: float | None = NotProvided,
        num_epochs: int = NotProvided,
        minibatch_size: int | None = NotProvided,
        train_batch_size_per_learner: int = NotProvided,
        **kwargs: Any,
    ) -> Self:
        """Sets the optimisation. Verco gives no number for any of it; TWOSOME's stand for comparison.

        Schedules are pairs [decisions, value], with values between them on lines. Decisions of all agents together
        count, as in `train_batch_size_per_learner` and in the stop rule `decisions`.

        Args:
            lr: Learning rate of the actor (of a language model: its action adapter), > 0, or a schedule. Default for
                the embedded model: 2e-3 (ours); TWOSOME with LLaMA-7B: 5e-7.
            critic_lr: Learning rate of the critic. Default 1e-3 (ours); TWOSOME: 1e-5.
            anneal: Decisions over which both rates fall on a line to 0, or `None` (default) for constant rates.
                TWOSOME: the whole run.
            critic_warmup: Decisions at the start from which the critic learns alone, >= 0. Default 0; worth an
                iteration or two where the actor begins with cloned actions and the critic with nothing (ours).
            advantage_floor: Advantages are divided by their standard deviation, but by no less than this, in units of
                reward, >= 0. Default 0 (common practice), of language models 0.02 (ours). Where rewards are rare, a
                critic's errors are all that advantages hold until the first one comes; blown up to unit variance they
                close a policy that has learned nothing.
            value_clip_mode: `"max"` (default; TWOSOME, common PPO) or `"min"` (the paper's Eq. 5 to the
                letter).
            clip_param: Largest deviation of the probability ratio from 1, > 0. Default 0.2 (TWOSOME).
            vf_clip_param: Largest change of a value from the old one that pays, > 0, or `None`
                for the plain squared error. Default 0.2 (TWOSOME).
            vf_loss_coeff: Weight of the critic's loss, >= 0. Default 0.5 (TWOSOME).
            entropy_coeff: Weight of the entropy bonus, >= 0, or a schedule. Default 0.01 (TWOSOME).
            kl_target: Approximate KL of a minibatch beyond which the actor rests until the next roll-out, a schedule of
                it, or `None`. Default 0.05 (ours); TWOSOME: 0.02.
            gamma: Discount per game step (not per decision), in [0, 1]. Default 0.99 (TWOSOME).
            lambda_: GAE's lambda per decision, in [0, 1]. Default 0.95 (TWOSOME).
            grad_clip: Global gradient norm allowed, for actor and critic apart. Default 0.5 (TWOSOME).
            num_epochs: Passes over a batch. Default 3 (ours); TWOSOME: 1.
            minibatch_size: Decisions per gradient step, or `None` (default, ours) for the whole batch.
            train_batch_size_per_learner: Decisions (of all agents together) per iteration. Default 1024
                (ours);
                TWOSOME: 128.
            **kwargs: RLlib's other training settings.

        Returns:
            This config.
        """
        own = {k: v for k, v in locals().items() if k not in ("self", "kwargs", "__class__")}
        super().training(**kwargs)
        return self._assign(own)

    @override(PPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`MultiAgentPPOLearner`."""
        return MultiAgentPPOLearner

    @override(PPOConfig)
    def build_module_to_env_connector(self, env: Any = None, spaces: Any = None) -> Any:
        """RLlib's own; what unsquashes and clips actions is left out where none has bounds, as it copies them all.

        Args:
            env: The games.
            spaces: Their spaces, where there are no games.
        """
        pipeline = super().build_module_to_env_connector(env, spaces)
        added = any(isinstance(one, NormalizeAndClipActions) for one in pipeline.connectors)
        if added and not _has_bounds(pipeline.input_action_space):
            pipeline.remove(NormalizeAndClipActions)
        for piece in list(pipeline.connectors):
            if own := BY_TABLE.get(type(piece)):
                pipeline.insert_after(type(piece), own())
                pipeline.remove(type(piece))
        return pipeline

    @override(PPOConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        """RLlib's own.

        Args:
            env: The games.
            spaces: Their spaces, where there are no games.
            device: As of RLlib.

        Raises:
            UserError: If agents that share a policy have different spaces.
        """
        seen, acts = spaces[INPUT_ENV_SINGLE_SPACES] if env is None and spaces else (None, None)
        seen, acts = getattr(env, "single_observation_space", seen), getattr(env, "single_action_space", acts)
        shared = self.policy_mapping_fn is shared_policy
        if shared:
            _require_equal(acts, "action")
        try:
            return super().build_env_to_module_connector(env=env, spaces=spaces, device=device)
        except ValueError:
            if shared:  # of which RLlib says nothing that a user could act on
                _require_equal(seen, "observation")
            raise

    @override(PPOConfig)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it.

        Raises:
            UserError: If a value is not allowed or settings do not fit together.
        """
        self._validate_training()
        if isinstance(self.env_runner_cls, str):
            raise UserError(
                f"`env_runner_cls` is {self.env_runner_cls!r} but must be a class, or null for RLlib's own one; files "
                "can only say null."
            )
        self._validate_planning()
        ensure_registered(self.env)
        self._validate_partners()
        self._add_callback(EpisodeMetrics)
        self._add_callback(PhaseSeconds)
        self._add_callback(WarnOfClosing)
        super().validate()

    def _validate_training(self) -> None:
        self._validate_counts()
        require_choice("value_clip_mode", self.value_clip_mode, VALUE_CLIP_MODES)
        scheduled = [n for n in ("lr", "critic_lr", "entropy_coeff", "kl_target") if isinstance(getattr(self, n), list)]
        for name in scheduled:
            require_schedule(name, getattr(self, name), math.inf, "decision")
        if "kl_target" in scheduled and not all(target > 0 for _, target in self.kl_target or ()):
            raise UserError(f"`kl_target` is {shown(self.kl_target)} but all its values must be larger than 0.")
        names = [
            "clip_param",
            "vf_loss_coeff",
            "gamma",
            "lambda_",
            "advantage_floor",
            "lr",
            "critic_lr",
            "entropy_coeff",
        ]
        names += [n for n in ("vf_clip_param", "kl_target", "grad_clip", "anneal") if getattr(self, n) is not None]
        names = [name for name in names if name not in scheduled]
        self.require_numbers(names)
        for name in ("clip_param", "vf_clip_param", "kl_target", "grad_clip"):
            value = getattr(self, name)
            if name in names and not value > 0:
                raise UserError(f"`{name}` is {value!r} but must be larger than 0.")
        for name in ("lr", "critic_lr", "vf_loss_coeff", "entropy_coeff", "advantage_floor"):
            if name in names and getattr(self, name) < 0:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be at least 0.")
        for name in ("gamma", "lambda_"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise UserError(f"`{name}` is {getattr(self, name)!r} but must be in [0, 1].")
        if self.anneal and (isinstance(self.lr, list) or isinstance(self.critic_lr, list)):
            raise UserError("`anneal` is set but `lr` or `critic_lr` is a schedule already; use one of both.")
        self.require_whole_setting("critic_warmup", 0)
        if self.anneal is not None:
            self.require_whole_setting("anneal", 0)
            if 0 < self.anneal < self.train_batch_size_per_learner:
                raise UserError(
                    f"`anneal` is {self.anneal}, which is less than the decisions of one update "
                    f"(`train_batch_size_per_learner` {self.train_batch_size_per_learner}); it counts decisions, not "
                    "iterations: multiply by the decisions of an iteration."
                )
        if self.num_learners > 1 and not self.minibatch_size:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size!r} with `num_learners` {self.num_learners}; "
                "several learners must agree on the number of minibatches, so set `minibatch_size`."
            )

    def _validate_counts(self) -> None:
        """Refuses numbers of rows and passes with which no update can be made."""
        for name in ("num_epochs", "num_envs_per_env_runner", "train_batch_size_per_learner"):
            self.require_whole_setting(name, 1)
        if self.minibatch_size is None:
            return
        self.require_whole_setting("minibatch_size", 1)
        if self.minibatch_size > self.train_batch_size_per_learner:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size} but must be at most `train_batch_size_per_learner`, which "
                f"is {self.train_batch_size_per_learner}; lower it, or set it to null for the whole batch."
            )


def _has_bounds(space: spaces.Space[Any]) -> bool:
    return any(isinstance(part, spaces.Box) for part in tree.flatten(get_base_struct_from_space(space)))


def _require_equal(of_agents: Any, kind: str) -> None:
    """Refuses agents of one policy whose spaces differ."""
    if not isinstance(of_agents, spaces.Dict):
        return
    (first, wanted), *others = of_agents.spaces.items()
    for agent, space in others:
        if space == wanted:
            continue
        own: object = space
        other: object = wanted
        part = ""
        if isinstance(space, spaces.Dict) and isinstance(wanted, spaces.Dict):
            name = next(n for n in {**wanted.spaces, **space.spaces} if space.spaces.get(n) != wanted.spaces.get(n))
            own, other, part = space.spaces.get(name), wanted.spaces.get(name), f" (`{name}`)"
        raise UserError(
            f"the {kind} space of agent {agent!r} is {shown(own)} but that of {first!r} is {shown(other)}{part}, and "
            "agents that share a policy need equal ones; fill up the shorter with zeros and masked actions, give each "
            "agent a policy of its own, or train QMIX, which takes both."
        )
