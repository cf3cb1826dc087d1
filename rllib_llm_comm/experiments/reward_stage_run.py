"""The reward code of a stage: written for the subgoals of a data set, run in the sandbox, held against exact tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rllib_llm_comm.chat.chat_model import ChatModel, begun_at_once
from rllib_llm_comm.chat.turns import side_by_side
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.experiments.console import say, short_path
from rllib_llm_comm.experiments.progress import counting_bar
from rllib_llm_comm.sama.preparation import preparation_of
from rllib_llm_comm.sama.rewards.reward_code import Agreement, checked_reward, told_manual
from rllib_llm_comm.sama.rewards.subgoal_rewards import file_name
from rllib_llm_comm.sama.subgoals.dataset import read_subgoals

AGREEMENT, SUBGOALS = "agreement.json", "subgoals.json"


def run_rewards(
    model: ChatModel,
    folder: Path,
    stage: str,
    *,
    subgoals: str,
    manual: str = "",
    steps: int = 300,
    least_agreement: float = 0.8,
    seed: int = 0,
) -> dict[str, Any]:
    """Has reward code written for the subgoals of a data set, and keeps what agrees with the game's own tests.

    Args:
        model: The chat model.
        folder: Folder of the code, of `agreement.json`, and of `subgoals.json`, the data set's subgoals that have code.
        stage: Name of the stage, for messages.
        subgoals: The data set.
        manual: Manual that the model is shown; empty: the game's own.
        steps: Steps in which code and tests are compared.
        least_agreement: Least share of judgements that agree.
        seed: Of the steps.

    Returns:
        Numbers of `subgoals`, of those `with_code`, without a usable answer (`refused`) and below the least agreement
        (`disagree`), those with code that are done in none of the steps (`never_done`); and over all code that was
        kept `judgements`, their `share` that agrees, `precision` and `recall`.

    Raises:
        ChatError: If a request failed for good.
        UserError: If the data set cannot be read, or no code is left.
    """
    record, game, wanted = read_subgoals(subgoals)
    told = told_manual(game, manual)
    transitions = list(preparation_of(game).steps(steps, seed))
    game.env.reset(seed=seed)
    done: list[str] = []
    with counting_bar("writing rewards") as progress:

        def write(text: str) -> dict[str, Any]:
            source, row = checked_reward(model, game, text, told, transitions, least_agreement)
            path = folder / f"{file_name(text)}.py"
            if source:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, f"# {text}\n{source.strip()}\n")
            else:
                path.unlink(missing_ok=True)
            done.append(text)
            progress(len(done), len(wanted))
            return row

        rows = side_by_side(write, wanted, begun_at_once(model))
    figures = _figures(rows)
    kept = {row["subgoal"] for row in rows if row["kept"]}
    if not kept:
        raise UserError(
            f"`{stage}` has no reward code: of {len(rows)} subgoals {figures['refused']} got no usable code and "
            f"{figures['disagree']} disagree with the game; give another chat model, or lower "
            "`config.least_agreement`."
        )
    left = {**record, "subgoals": [entry for entry in record["subgoals"] if entry["subgoal"] in kept]}
    write_atomically(folder / SUBGOALS, json.dumps(left, indent=1) + "\n")
    write_atomically(folder / AGREEMENT, json.dumps({"figures": figures, "by_subgoal": rows}, indent=1) + "\n")
    say(
        f"{figures['with_code']} of {figures['subgoals']} subgoals have reward code, which agrees with the exact tests "
        f"in {figures['share']:.1%} of {figures['judgements']} judgements; {figures['never_done']} of them are done in "
        f"none of the steps. Code: {short_path(folder)}"
    )
    return figures


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total = Agreement()
    for row in rows:
        total += Agreement(**row["agreement"]) if row["kept"] else Agreement()
    return {
        "subgoals": len(rows),
        "with_code": sum(row["kept"] for row in rows),
        "refused": sum("agreement" not in row for row in rows),
        "never_done": sum(row["kept"] and not row["agreement"]["both"] + row["agreement"]["missed"] for row in rows),
        "disagree": sum("agreement" in row and not row["kept"] for row in rows),
        "judgements": total.steps,
        "share": round(total.share, 6),
        "precision": round(total.precision, 6),
        "recall": round(total.recall, 6),
    }
