"""Settings of playing under a planner, for trainings and games; what they do is SAMA's. No Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from rllib_llm_comm.core.errors import LARGEST, UserError
from rllib_llm_comm.core.settings import Settings, Several

ALL: Final = "all"


class _Planned(Settings):
    planner: str | Mapping[str, Any] | None = None
    """None: nobody plans. `"scripted"` (the game's rules), `"plan4mc"`, or a dict with `name` (`"chat"`, `"cassette"`,
    `"deps"`, ...) and the planner's arguments, as of `rllib_llm_comm.sama.planners.make_planner`."""
    replan: Literal["any", "all"] = "any"
    """`"any"` (ours): plans when any agent's subgoal has ended. `"all"`: when those of all have (SAMA)."""


class RecordedPlanning(_Planned):
    """Who planned for a policy, as `policy.json` tells it; the settings of `PlannedSubgoals`."""

    patience: int = Field(1, ge=1, le=10**6)
    """Game steps after which a subgoal that is not done ends."""
    subgoals_to: str | list[str] = "all"
    """Agents that are told their subgoals."""
    in_vector: bool = False
    """True if subgoals are told behind the vectors."""


class ReflectionSettings(Settings):
    """How episodes are played in rounds."""

    trials: int = Field(3, ge=0, le=LARGEST)
    """Most reflections per round, 0 (none) or more. The attempt after the last one stands as it is; so does a failed
    one for which a language model makes no other plan."""
    recover: Literal["snapshot", "replay"] = "snapshot"
    """"snapshot": the game is put back exactly; "replay": it is reset with the same seed and the actions so far are
    played again (SAMA), which must lead to the same state."""


RECORDED = tuple(RecordedPlanning.model_fields)
"""Settings that a policy folder tells."""


class PlanningSettings(_Planned):
    """A planner says what the agents shall do, as SAMA does; agents that read words find it in `subgoal`.

    In `evaluation_config` these settings are those of the periodic evaluation; where the training games give subgoals
    themselves it plays the same game without them.
    """

    subgoal_reward: float = 1.0
    """Reward of an agent in the game step in which its subgoal is done, beside the game's own rewards (ours)."""
    subgoal_rewards: str | Mapping[str, Any] = "exact"
    """The judge of that. `"exact"` (ours): the game's own tests. A dict with `name` `"code"` (and `path`: reward code
    in a folder or JSON file), `"chat"` (a model writes such code, as in SAMA) or `"judge"`, as of
    `rllib_llm_comm.sama.rewards.subgoal_rewards.make_rewards`. Also for environments that give subgoals themselves;
    then without `planner`."""
    patience: int = Field(40, ge=1)
    """Game steps after which a subgoal that is not done ends (ours)."""
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
