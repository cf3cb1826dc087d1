"""Files of subgoals that a planner gave: what `subgoal_env(subgoal_file=...)` draws from."""

from __future__ import annotations

import os
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.overcooked_ai.layouts import Layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import Subgoal, parse_subgoal

MOST_BYTES = 16 * 2**20
"""Largest file of subgoals."""
_MADE_BY = "make one with `rllib planning subgoals`"


def kitchen_record(layout: Layout) -> dict[str, Any]:
    """Record of a file's kitchen, JSON-able.

    Args:
        layout: The kitchen.
    """
    return {"layout": layout.name, "rows": list(layout.rows), "starts": [list(start) for start in layout.starts]}


def read_subgoal_file(path: str | os.PathLike[str], layout: Layout) -> frozenset[Subgoal]:
    """The subgoals of a file.

    Args:
        path: A JSON file with the `kitchen` as `kitchen_record` gives it and the list `subgoals`, each an object whose
            `subgoal` is one in words.
        layout: The kitchen that is played.

    Raises:
        UserError: If there is no such file, it holds no subgoals or those of another kitchen, or one cannot be read.
    """
    named = f"`subgoal_file` is {str(path)!r}"
    file = local_path(path, "subgoal_file")
    try:
        record = read_foreign_json(file, MOST_BYTES)
        kitchen, texts = dict(record["kitchen"]), [str(entry["subgoal"]) for entry in record["subgoals"]]
    except OSError as error:
        raise UserError(f"{named}, which cannot be read ({error.strerror}); {_MADE_BY}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named}, which is no data set of subgoals ({type(error).__name__}); {_MADE_BY}.") from error
    if kitchen != kitchen_record(layout):
        raise UserError(
            f"{named}, which is of the kitchen {kitchen.get('layout')!r} with the rows {kitchen.get('rows')!r}, but "
            f"`layout` is {layout.name!r} with {list(layout.rows)!r}; give the file of this kitchen."
        )
    found = {text: parse_subgoal(layout, text) for text in texts}
    unknown = [text for text, subgoal in found.items() if subgoal is None]
    if unknown:
        raise UserError(f"{named}, whose {unknown[0]!r} is no subgoal of {layout.name!r}; remove or correct it.")
    if not found:
        raise UserError(f"{named}, which has no subgoals; {_MADE_BY}.")
    return frozenset(subgoal for subgoal in found.values() if subgoal is not None)
