"""Settings of PPO with our learner: semi-Markov advantages, own losses, an optimizer each for actor and critic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tree
from gymnasium import spaces
from pydantic import Field, field_validator, model_validator
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.module_to_env import NormalizeAndClipActions
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES
from ray.rllib.utils.annotations import override
from ray.rllib.utils.spaces.space_utils import get_base_struct_from_space
from typing_extensions import Self

from rllib_llm_comm.core.errors import LARGEST, UserError, shown
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.policies.planning_settings import ALL, RECORDED, PlanningSettings
from rllib_llm_comm.rl.callbacks import EpisodeMetrics, PhaseSeconds, ResultWarnings, WarnOfEntropyCollapse
from rllib_llm_comm.rl.connectors import with_own_connectors
from rllib_llm_comm.rl.env_runner import LeanEnvRunner
from rllib_llm_comm.rl.multi_agent_ppo_learner import MultiAgentPPOLearner
from rllib_llm_comm.rl.partners import PartnersConfigMixin, PartnersSettings
from rllib_llm_comm.rl.rllib_adapter import ensure_registered
from rllib_llm_comm.rl.strict_config import Discount, Schedule, StrictConfigMixin, require_schedule, shared_policy

if TYPE_CHECKING:
    from ray.rllib.core.learner import Learner

_NO_KL_LOSS = {"use_kl_loss": False, "kl_coeff": 0.0, "kl_target": None}
"""RLlib's settings of a loss on the KL divergence, as they are without one."""
_APPLY = "rllib_llm_comm.sama.planning_config:apply_planning"
_FROM_ANYWHERE = "rllib_llm_comm.sama.planners:from_anywhere"


class PlanningConfigMixin(StrictConfigMixin):
    """Adds `.planning(...)`: a planner gives the agents subgoals.

    Attributes:
        subgoals_in_vector: True if agents read numbers, so that subgoals are told behind their vectors.
    """

    subgoals_in_vector: ClassVar[bool] = False

    def planning(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets who plans; the settings are those of `PlanningSettings`."""
        return self.assign("planning", settings, values)

    def planning_settings(self) -> dict[str, Any]:
        """All of them as arguments of `PlannedSubgoals`."""
        return {
            **{name: getattr(self, name) for name in PlanningSettings.model_fields},
            "in_vector": self.subgoals_in_vector,
        }

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the planning, as far as a file can hold it."""
        record = super().policy_record()
        if isinstance(self.planner, str | Mapping):
            settings = {**self.planning_settings(), "planner": load(_FROM_ANYWHERE)(self.planner)}
            record["planning"] = {name: settings[name] for name in RECORDED}
        return record

    def _validate_planning(self) -> None:
        config: Any = self
        if self.planner is None and self.subgoals_to != ALL and not config.in_evaluation:
            raise UserError(f"`subgoals_to` is {self.subgoals_to!r} but nobody plans; set `planner`, or omit it.")
        if self.planner is not None or self.subgoal_rewards != "exact":
            load(_APPLY)(self)


class PPOTraining(Discount):
    """The optimisation. Verco gives no number for any of it; TWOSOME's stand for comparison.

    Schedules are pairs [decisions, value], interpolated linearly. Decisions of all agents together count, as in
    `train_batch_size_per_learner` and in the stop rule `decisions`.
    """

    lr: Schedule = 5e-5
    """Learning rate of the actor (of a language model: its action adapter), or a schedule. TWOSOME with LLaMA-7B:
    5e-7."""
    critic_lr: Schedule = 1e-3
    """Learning rate of the critic, or a schedule. 1e-3 (ours); TWOSOME: 1e-5."""
    anneal: int | None = Field(None, ge=0, le=LARGEST)
    """Decisions over which both rates fall linearly to 0; None: constant rates. TWOSOME: the whole run."""
    critic_warmup: int = Field(0, ge=0, le=LARGEST)
    """Decisions at the start from which the critic learns alone; worth an iteration or two where the actor begins with
    cloned actions and the critic with nothing (ours)."""
    advantage_floor: float = Field(0.0, ge=0)
    """Advantages are divided by their standard deviation, but by no less than this, in units of reward. 0 (common
    practice), of language models 0.02 (ours). Where rewards are rare, a critic's errors are all that advantages hold
    until the first one comes; scaled up to unit variance they collapse the entropy of a policy that has learned
    nothing."""
    value_clip_mode: Literal["max", "min"] = "max"
    """`"max"` (TWOSOME, common PPO) or `"min"` (the paper's Eq. 5 to the letter)."""
    clip_param: float = Field(0.2, gt=0)
    """Largest deviation of the probability ratio from 1 (TWOSOME)."""
    vf_clip_param: float | None = Field(0.2, gt=0)
    """Largest change of a value from the old one that pays (TWOSOME); None: the plain squared error."""
    vf_loss_coeff: float = Field(0.5, ge=0)
    """Weight of the critic's loss (TWOSOME)."""
    entropy_coeff: Schedule = 0.01
    """Weight of the entropy bonus, or a schedule (TWOSOME)."""
    target_kl: Annotated[float, Field(gt=0)] | list[Any] | None = 0.05
    """Approximate KL of a minibatch beyond which the actor's update ends (early stopping), a schedule of it, or None.
    0.05 (ours); TWOSOME: 0.02. (RLlib's `kl_target` is another thing, and not taken: it adapts a weight of the KL.)"""
    lambda_: float = Field(0.95, ge=0, le=1)
    """GAE's lambda per decision (TWOSOME)."""
    grad_clip: float | None = Field(0.5, gt=0)
    """Largest global gradient norm, of actor and critic each (TWOSOME)."""
    num_epochs: int = Field(3, ge=1, le=LARGEST)
    """Passes over a batch. 3 (ours); TWOSOME: 1."""
    minibatch_size: int | None = Field(None, ge=1, le=LARGEST)
    """Decisions per gradient step; None (ours): the whole batch."""
    train_batch_size_per_learner: int = Field(1024, ge=1, le=LARGEST)
    """Decisions (of all agents together) per iteration. 1024 (ours); TWOSOME: 128."""

    @field_validator("target_kl")
    @classmethod
    def _of_positive_numbers(cls, value: Any) -> Any:
        if isinstance(value, list):
            require_schedule("target_kl", value, math.inf, "decision")
            if not all(target > 0 for _, target in value):
                raise UserError(f"`target_kl` is {shown(value)} but all its values must be larger than 0.")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.minibatch_size is not None and self.minibatch_size > self.train_batch_size_per_learner:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size} but must be at most `train_batch_size_per_learner`, which "
                f"is {self.train_batch_size_per_learner}; lower it, or set it to null for the whole batch."
            )
        if self.anneal and (isinstance(self.lr, list) or isinstance(self.critic_lr, list)):
            raise UserError("`anneal` is set but `lr` or `critic_lr` is a schedule already; use one of both.")
        if self.anneal and self.anneal < self.train_batch_size_per_learner:
            raise UserError(
                f"`anneal` is {self.anneal}, which is less than the decisions of one update "
                f"(`train_batch_size_per_learner` {self.train_batch_size_per_learner}); it counts decisions, not "
                "iterations: multiply by the decisions of an iteration."
            )
        return self


class MultiAgentPPOConfig(PlanningConfigMixin, PartnersConfigMixin, PPOConfig):
    """Settings that `Verco` and the systems that it is compared with share: one policy, `MultiAgentPPOLearner`.

    The same losses, advantages per game step, masks and counting of decisions for all of them, so that a comparison
    compares what the agents see and say and nothing else.
    """

    settings_models = {"training": PPOTraining, "planning": PlanningSettings, "partners": PartnersSettings}

    def __init__(self, algo_class: type | None = None) -> None:
        """Sets the defaults that all share (ours, unless `PPOTraining` says otherwise)."""
        super().__init__(algo_class=algo_class)
        self._set_shared_policy()
        for name, value in _NO_KL_LOSS.items():
            setattr(self, name, value)
        self.grad_clip_by = "global_norm"
        self.num_env_runners = 0
        self.env_runner_cls = LeanEnvRunner  # ours; samples what RLlib's own one samples
        self.num_envs_per_env_runner = 16

    @override(PPOConfig)
    def training(self, settings: Settings | None = None, /, **values: Any) -> Self:
        """Sets the optimisation; the settings are those of `settings_models["training"]` and RLlib's own."""
        return self.assign("training", settings, values)

    @override(PPOConfig)
    def get_default_learner_class(self) -> type[Learner] | str:
        """`MultiAgentPPOLearner`."""
        return MultiAgentPPOLearner

    @override(PPOConfig)
    def build_module_to_env_connector(self, env: Any = None, spaces: Any = None) -> Any:
        """RLlib's pipeline, with the pieces of `OWN_CONNECTORS` in place of RLlib's.

        `NormalizeAndClipActions`, which copies all actions, is left out where none has bounds.
        """
        pipeline = super().build_module_to_env_connector(env, spaces)
        added = any(isinstance(one, NormalizeAndClipActions) for one in pipeline.connectors)
        if added and not _has_bounds(pipeline.input_action_space):
            pipeline.remove(NormalizeAndClipActions)
        return with_own_connectors(pipeline)

    @override(PPOConfig)
    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
        """RLlib's pipeline, which batches observations part by part.

        Raises:
            UserError: If agents that share a policy have different spaces.
        """
        seen, acts = spaces[INPUT_ENV_SINGLE_SPACES] if env is None and spaces else (None, None)
        seen, acts = getattr(env, "single_observation_space", seen), getattr(env, "single_action_space", acts)
        shared = self.policy_mapping_fn is shared_policy
        if shared:
            _require_equal(acts, "action")
        try:
            return with_own_connectors(super().build_env_to_module_connector(env=env, spaces=spaces, device=device))
        except ValueError:
            if shared:  # of which RLlib says nothing that a user could act on
                _require_equal(seen, "observation")
            raise

    @override(PPOConfig)
    def validate(self) -> None:
        """Checks all settings; registers the environment with RLlib if PettingZoo knows it."""
        self.check_settings()
        self.validate_training()
        if isinstance(self.env_runner_cls, str):
            raise UserError(
                f"`env_runner_cls` is {self.env_runner_cls!r} but must be a class, or null for RLlib's own one; files "
                "can only say null."
            )
        self._validate_planning()
        ensure_registered(self.env)
        self._validate_partners()
        self.add_callback(EpisodeMetrics)
        self.add_callback(PhaseSeconds)
        self.add_callback(WarnOfEntropyCollapse)
        self.add_callback(ResultWarnings)  # the last, so that it has seen what the others warn of
        super().validate()

    def validate_training(self) -> None:
        """Checks which settings do not fit together, before a game is made; subclasses add their own."""
        for name, value in _NO_KL_LOSS.items():
            if (given := getattr(self, name)) != value:
                raise UserError(
                    f"`{name}` is {given!r}, a setting of RLlib's loss on the KL divergence, which "
                    f"{self.algo_class.__name__} does not have; leave it out, or set `target_kl` to stop updates early."
                )
        self.require_whole_setting("num_envs_per_env_runner", 1)
        if self.num_learners > 1 and not self.minibatch_size:
            raise UserError(
                f"`minibatch_size` is {self.minibatch_size!r} with `num_learners` {self.num_learners}; "
                "several learners must agree on the number of minibatches, so set `minibatch_size`."
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
