"""Reward code of kitchens compared with the exact tests of completion, with a table and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_text, write_atomically
from rllib_llm_comm.experiments.console import print_table, say, say_stand_ins
from rllib_llm_comm.experiments.outputs import require_writable
from rllib_llm_comm.experiments.planner_comparison import PlannerSettings, require_prompts
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.experiments.ray_session import quiet_libraries

_RECORDING, _RECORDED_KITCHEN, _RECORDED_CODE = "claude_reward_code", "cramped_room", Path("results/reward_code")


def compare_reward_code(
    code: Path | None = None,
    planner: PlannerSettings | None = None,
    layouts: Sequence[str] | None = None,
    *,
    steps: int = 300,
    seed: int = 0,
    json_file: Path | None = None,
    markdown_file: Path | None = None,
) -> None:
    """Measures and tells the agreement of reward code with the exact tests, for all subgoals of kitchens.

    Args:
        code: Folder of reward code; code that a model writes is kept there. `None` replays the packaged recording.
        planner: Planner whose chat model writes the code of subgoals that have none; `None` leaves them out.
        layouts: Kitchens; all by default.
        steps: Steps of disturbed scripted cooks per kitchen, >= 1.
        seed: Seed of these steps.
        json_file: File of the figures; its code is not measured again.
        markdown_file: File of the table.

    Raises:
        UserError: If a setting is not allowed.
        ChatError: If a request failed for good.
    """
    quiet_libraries(0)
    require_writable({"--json": json_file, "--markdown": markdown_file})
    from rllib_llm_comm.envs.overcooked_ai.layouts import LAYOUT_NAMES
    from rllib_llm_comm.evaluation.planner_scores import markdown
    from rllib_llm_comm.evaluation.reward_code_scores import RewardCodeScores
    from rllib_llm_comm.evaluation.stand_ins import stand_ins
    from rllib_llm_comm.sama.planners import planner_model

    if code is None:
        code, planner, layouts = _recorded(planner, layouts)
    if planner is not None:
        require_prompts(planner, "written rewards")
    elif not code.is_dir():
        raise UserError(f"--code is {str(code)!r}, which is no folder; give one, or a --planner that writes the code.")
    scores = RewardCodeScores(code, None if planner is None else planner_model(planner), steps, seed)
    if json_file is not None and json_file.exists():
        scores.take_over(read_text(json_file))
    kitchens = layouts or LAYOUT_NAMES
    standing = stand_ins({"planner": planner})
    say_stand_ins(standing)

    def keep(text: str) -> None:
        if json_file is not None:
            write_atomically(json_file, text)

    with counting_bar("comparing") as progress:
        scores.measure(kitchens, keep, progress)
    names, rows = _table({layout: found for layout, found in scores.summary().items() if layout in kitchens})
    print_table([names, *rows])
    say_stand_ins(standing)
    if markdown_file is not None:
        write_atomically(markdown_file, markdown(names, rows, standing))


def _table(summary: dict[str, dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    columns = ["scenario", *next(iter(summary.values()))]
    rows = [[layout, *map(_figure, found.values())] for layout, found in summary.items()]
    return [name.replace("_", " ") for name in columns], rows


def _recorded(
    planner: PlannerSettings | None, layouts: Sequence[str] | None
) -> tuple[Path, dict[str, Any], Sequence[str]]:
    """Folder, planner and kitchen of the reward code that comes with the package.

    Raises:
        UserError: If another planner or kitchen is wanted.
    """
    kitchens = None if layouts is None else ",".join(layouts)
    asked = planner if planner is None or isinstance(planner, str) else json.dumps(planner)
    for option, value, allowed in (("--planner", asked, None), ("--layouts", kitchens, _RECORDED_KITCHEN)):
        if value not in (None, allowed):
            raise UserError(
                f"{option} is {value!r} but --code is not given, without which only the recording {_RECORDING!r} of "
                f"{_RECORDED_KITCHEN!r} is replayed; give --code, a folder of reward code."
            )
    say(
        f"No --code is given: the recording {_RECORDING!r} that comes with the package is replayed for "
        f"{_RECORDED_KITCHEN!r}, and its code kept in {_RECORDED_CODE}."
    )
    return _RECORDED_CODE, {"name": "cassette", "cassette": _RECORDING}, [_RECORDED_KITCHEN]


def _figure(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
