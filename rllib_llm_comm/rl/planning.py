"""Settings by which any of our algorithms plays under a planner; what they do is SAMA's, loaded when somebody plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import Self

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.policies.planning_settings import ALL, PlanningSettings
from rllib_llm_comm.rl.strict_config import StrictConfigMixin

RECORDED = ("planner", "patience", "replan", "subgoals_to", "in_vector")
"""Settings that a policy folder tells."""
_APPLY = "rllib_llm_comm.sama.planning_config:apply_planning"


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
            record["planning"] = {name: settings[name] for name in RECORDED}
        return record

    def _validate_planning(self) -> None:
        config: Any = self
        if self.planner is None and self.subgoals_to != ALL and not config.in_evaluation:
            raise UserError(f"`subgoals_to` is {self.subgoals_to!r} but nobody plans; set `planner`, or omit it.")
        if self.planner is not None or self.subgoal_rewards != "exact":
            load(_APPLY)(self)
