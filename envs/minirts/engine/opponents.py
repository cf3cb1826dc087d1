"""Scripted opponents by name: simple, medium with one, two or three army types, strong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rllib_llm_comm.core.errors import UserError, did_you_mean, require_choice
from rllib_llm_comm.envs.minirts.engine.opponent_rules import FIXED, STRONG
from rllib_llm_comm.envs.minirts.engine.state import NO_ONE, seed_stream
from rllib_llm_comm.envs.minirts.engine.tick_rules import draw
from rllib_llm_comm.envs.minirts.engine.units import ARCHER, ARMY, CAVALRY, DRAGON, NAMES, SPEARMAN, SWORDMAN, TYPE_OF

LEVELS = ("simple", "medium", "medium2", "medium3", "strong")
"""simple attacks with three units, medium with three to five of one type, medium2 and medium3 mix two or three types,
strong makes what beats what it sees."""
TOWER = "_tower"
"""Ending of a name, such as "medium_tower": up to two guard towers are built, too. strong builds them anyway."""
DRAWN_TYPES = (SPEARMAN, SWORDMAN, CAVALRY, ARCHER, DRAGON)
"""Army types that opponents draw, each as likely."""
_SIMPLE_ARMY = 3


@dataclass(frozen=True)
class Opponent:
    """Scripted opponent as its name describes it.

    Attributes:
        level: One of `LEVELS`.
        towers: Whether it builds guard towers.
        types: Army types that are fixed; the others are drawn for each game.
    """

    level: str
    towers: bool
    types: tuple[int, ...]

    @property
    def num_types(self) -> int:
        """Number of army types that it keeps to; "strong" keeps to none."""
        return {"medium2": 2, "medium3": 3, "strong": 0}.get(self.level, 1)


@dataclass(frozen=True)
class Drawn:
    """Random choices of an opponent for one game.

    Attributes:
        types: Its army types; none for strong.
        least: Size of the army from which on it attacks.
        most: Size up to which the army grows.
    """

    types: tuple[int, ...]
    least: int
    most: int


def parse(name: str) -> Opponent:
    """Reads an opponent's name.

    Args:
        name: A level, perhaps with the ending "_tower", perhaps with army types: "medium_tower:DRAGON",
            "medium2:SPEARMAN+ARCHER".

    Raises:
        UserError: If there is no such opponent.
    """
    level, _, listed = str(name).partition(":")
    towers = level.endswith(TOWER)
    level = level.removesuffix(TOWER)
    if level not in LEVELS:
        raise UserError(
            f"`opponent` is {name!r} but must be one of {', '.join(map(repr, LEVELS))}, perhaps with {TOWER!r} "
            f"behind it and army types, such as 'medium{TOWER}:DRAGON'.{did_you_mean(level, LEVELS)}",
            "unknown",
        )
    kinds = listed.split("+") if listed else []
    for kind in kinds:
        require_choice(f"opponent {name}", kind, [NAMES[army] for army in ARMY])
    opponent = Opponent(level, towers, tuple(TYPE_OF[kind] for kind in kinds))
    if len(kinds) > opponent.num_types:
        raise UserError(
            f"`opponent` is {name!r} with {len(kinds)} army types, but {level!r} takes at most {opponent.num_types}; "
            "leave some out, or take medium2 or medium3."
        )
    return opponent


def enter(record: np.ndarray, player: int, name: str, seed: int, every: int) -> None:
    """Lets a scripted opponent play from now on, every so many ticks; it draws its types and army sizes.

    Both sides may have the same seed.
    """
    opponent = parse(name)
    g = record[0]
    seed_stream(record, player, (player << 20) + seed)
    g["ai_kind"][player] = STRONG if opponent.level == "strong" else FIXED
    g["ai_every"][player], g["ai_towers"][player] = every, opponent.towers
    g["ai_queued"][player] = g["ai_last_army"][player] = NO_ONE
    g["ai_found_base"][player] = 0
    types = list(opponent.types)
    while len(types) < opponent.num_types:
        left = [kind for kind in DRAWN_TYPES if kind not in types]
        types.append(left[draw(g, player, 0, len(left) - 1)])
    if opponent.level == "simple":
        least = most = _SIMPLE_ARMY
    elif opponent.level == "strong":
        least, most = draw(g, player, 3, 5), draw(g, player, 5, 7)
    else:
        most, least = draw(g, player, 5, 7), draw(g, player, 3, 5)
    count = max(1, len(types))
    g["ai_num_types"][player], g["ai_max"][player] = count, most
    g["ai_types"][player, : len(types)] = types
    # The first types make up what cannot be shared out evenly.
    g["ai_mins"][player, :count] = [least // count + (i < least % count) for i in range(count)]


def drawn(record: np.ndarray, player: int) -> Drawn:
    """Random choices of a scripted opponent."""
    g = record[0]
    count = int(g["ai_num_types"][player])
    types = () if g["ai_kind"][player] == STRONG else tuple(g["ai_types"][player, :count].tolist())
    return Drawn(types, int(g["ai_mins"][player, :count].sum()), int(g["ai_max"][player]))
