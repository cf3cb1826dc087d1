"""Settings of playing under a planner, for trainings and games; what they do is SAMA's. No Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings, Several

ALL: Final = "all"


class RecordedPlanning(Settings):
    """Who planned for a policy, as `policy.json` tells it; the settings of `PlannedSubgoals`."""

    planner: str | Mapping[str, Any] | None = None
    """Its name, or a mapping with its name and arguments."""
    patience: int = Field(1, ge=1, le=10**6)
    """Game steps after which a subgoal that is not done ends."""
    replan: Literal["any", "all"] = "any"
    """Whose ended subgoals call for a plan."""
    subgoals_to: str | list[str] = "all"
    """Agents that are told their subgoals."""
    in_vector: bool = False
    """True if subgoals are told behind the vectors."""


RECORDED = tuple(RecordedPlanning.model_fields)
"""Settings that a policy folder tells."""


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
    subgoals_to: Literal["all"] | Several[str] = Field(ALL, min_length=1)
    """Agents that are told their subgoals: `"all"` (as in SAMA) or a list of names (ours). The planner plans for all;
    who is not told reads no subgoal and is not paid for one."""

    @field_validator("subgoals_to")
    @classmethod
    def _different(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if len(set(value)) < len(value) and value != ALL:
            raise UserError(f"`subgoals_to` is {list(value)!r} but must name different agents.")
        return value
