"""Settings by which any of our algorithms plays under a planner; what they do is SAMA's, loaded when somebody plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.rl.strict_config import StrictConfigMixin

ALL = "all"
_APPLY = "rllib_llm_comm.sama.planning_config:apply_planning"


class PlanningSettings(Settings):
    """A planner says what the agents shall do, as SAMA does; agents that read words find it in `subgoal`.

    In `evaluation_config` these settings are those of the periodic evaluation; where the training games give subgoals
    themselves it plays the same game without them.
    """

    planner: str | Mapping[str, Any] | None = None
    """None: nobody plans. `"scripted"` (the game's rules), `"plan4mc"`, or a dict with `name` (`"chat"`, `"cassette"`,
    `"deps"`, ...) and the planner's arguments, as of `rllib_llm_comm.sama.planners.make_planner`."""
    subgoal_reward: float = 1.0
    """Reward of an agent in the game step in which its subgoal is done, beside the game's own rewards (ours)."""
    subgoal_rewards: str | Mapping[str, Any] = "exact"
    """The judge of that. `"exact"` (ours): the game's own tests. A dict with `name` `"code"` (and `path`: reward code
    in a folder or JSON file), `"chat"` (a model writes such code, as in SAMA) or `"judge"`, as of
    `rllib_llm_comm.sama.rewards.subgoal_rewards.make_rewards`. Also for environments that give subgoals themselves;
    then without `planner`."""
    patience: int = Field(40, ge=1)
    """Game steps after which a subgoal that is not done ends (ours)."""
    replan: Literal["any", "all"] = "any"
    """`"any"` (ours): plans when any agent's subgoal has ended. `"all"`: when those of all have (SAMA)."""
    wait: bool | None = None
    """Whether the games wait for the plan; None: unless the planner asks a server."""
    subgoals_to: str | Sequence[str] = ALL
    """Agents that are told their subgoals: `"all"` (as in SAMA) or a list of names (ours). The planner plans for all;
    who is not told reads no subgoal and is not paid for one."""


class PlanningConfigMixin(StrictConfigMixin):
    """Adds `.planning(...)`: a planner gives the agents subgoals.

    Attributes:
        subgoals_in_vector: True if agents read numbers, so that subgoals are told behind their vectors.
    """

    subgoals_in_vector: ClassVar[bool] = False

    def planning(self, **settings: Any) -> Self:
        """Sets who plans; the settings are those of `PlanningSettings`."""
        return self.assign("planning", settings)

    def planning_settings(self) -> dict[str, Any]:
        """All of them as arguments of `PlannedSubgoals`."""
        return {
            **{name: getattr(self, name) for name in PlanningSettings.names()},
            "in_vector": self.subgoals_in_vector,
        }

    def policy_record(self) -> dict[str, Any]:
        """What a policy folder tells of the training; with the planning, as far as a file can hold it."""
        record = super().policy_record()
        if isinstance(self.planner, str | Mapping):
            settings = self.planning_settings()
            names = ("planner", "patience", "replan", "subgoals_to", "in_vector")
            record["planning"] = {name: settings[name] for name in names}
        return record

    def _validate_planning(self) -> None:
        config: Any = self
        if self.planner is None and self.subgoals_to != ALL and not config.in_evaluation:
            raise UserError(f"`subgoals_to` is {self.subgoals_to!r} but nobody plans; set `planner`, or omit it.")
        if self.planner is not None or self.subgoal_rewards != "exact":
            load(_APPLY)(self)
