"""The macro-actions of a kitchen: names, kinds and the things they go to."""

from __future__ import annotations

from typing import NamedTuple

from rllib_llm_comm.envs.overcooked_text.layouts import MOVES, SHARED_COUNTER_ROWS
from rllib_llm_comm.envs.overcooked_text.rules import Kitchen


class Macro(NamedTuple):
    """A macro-action.

    Attributes:
        name: Its name, such as "get plate 1".
        kind: "stay", "food", "plate", "knife", "deliver", "chop", "counter" or "move".
        goal: Index in `Kitchen.things` of the object it goes to; for a move the primitive action.
    """

    name: str
    kind: str
    goal: int = -1


def macros_of(kitchen: Kitchen, include_moves: bool) -> tuple[Macro, ...]:
    """The macro-actions of a kitchen; those whose object does not exist are left out.

    Args:
        kitchen: The kitchen.
        include_moves: Whether to add the four single steps.
    """
    index = {thing.name: k for k, thing in enumerate(kitchen.things)}
    macros = [Macro("stay", "stay")]
    macros += [Macro(f"get {name}", "food", index[name]) for name in kitchen.foods]
    macros += [Macro(f"get plate {k}", "plate", index[p.name]) for k, p in enumerate(kitchen.plates, 1)]
    macros += [Macro(f"go to knife {k}", "knife", index[n.name]) for k, n in enumerate(kitchen.knives, 1)]
    macros += [Macro("deliver", "deliver", index["delivery"]), Macro("chop", "chop")]
    if SHARED_COUNTER_ROWS[kitchen.map_name]:
        macros.append(Macro("go to counter", "counter"))
    if include_moves:
        macros += [Macro(name, "move", action) for action, name in enumerate(MOVES)]
    return tuple(macros)
