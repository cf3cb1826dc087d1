"""The options by which `rllib evaluate` and `rllib replay` play under a planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Option

from rllib_llm_comm.errors import UserError
from rllib_llm_comm.experiments.experiment_file import load_json_option

PlannerOption = Annotated[
    str | None,
    Option(
        metavar="NAME|JSON",
        help="Who says what agents shall do: scripted, plan4mc, 'none', or a JSON object with name and settings.",
    ),
]
TrialsOption = Annotated[
    int | None, Option(min=0, help="Think failures over: put each failed round back at most so many times.")
]
RecoverOption = Annotated[
    str | None,
    Option(help="How a failed round is put back: snapshot (default) or replay; only with --trials."),
]
PatienceOption = Annotated[int | None, Option(min=1, help="Game steps after which a subgoal counts as not done.")]
NOBODY = "none"


def planning_of_options(planner: str | None, patience: int | None = None) -> dict[str, Any] | None:
    """What the options say, as arguments of `PlannedSubgoals`; `None` if they say nothing.

    Args:
        planner: A name, or a JSON object.
        patience: Game steps.

    Raises:
        UserError: If there is no such planner or it is not allowed.
    """
    text = (planner or "").strip()
    return planning_of_settings(load_json_option("--planner", text) if text.startswith("{") else planner, patience)


def planning_of_settings(planner: str | Mapping[str, Any] | None, patience: int | None = None) -> dict[str, Any] | None:
    """The same of the settings of a stage.

    Args:
        planner: As of `make_planner`; "none": nobody plans; `None`: as in training.
        patience: Game steps.

    Raises:
        UserError: If there is no such planner or it is not allowed.
    """
    from rllib_llm_comm.planning.planners import PLANNERS, make_planner

    given: dict[str, Any] = {} if patience is None else {"patience": patience}
    if planner == NOBODY:
        return {**given, "planner": None}
    if planner is not None:
        try:
            make_planner(planner)
        except UserError as error:
            if isinstance(planner, str) and planner not in PLANNERS:
                raise UserError(f"{str(error).rstrip('.')}, or 'none'.") from None
            raise
        given["planner"] = planner
    return given or None
