"""Effects of actions of the onion-soup kitchen, and the check of words that somebody has for them.

The game knows what an action would really do (`text.target_phrases`, `text.primitive_phrases`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rllib_llm_comm.envs.overcooked_ai.layouts import FLOOR, Cell, Layout
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, places_of
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.envs.overcooked_ai.text import primitive_phrases, target_phrases
from rllib_llm_comm.sama.action_translation import Check
from rllib_llm_comm.sama.games.overcooked_ai import KitchenPlanning, Moment

_LONGEST = 200
_WAYS = "north|south|east|west"
_OTHER_WAYS = {"up": "north", "down": "south", "right": "east", "left": "west"}
_SUBJECT = re.compile(
    rf"^(?:(?:{'|'.join(COOKS)}|the cook|it|you|i|he|she)\b)?\s*(?:would|will|can)?\s*", re.IGNORECASE
)
_VERB = re.compile(
    r"^(fetch|tak|get|grab|collect|pick|put|plac|set|drop|lay|add|fill|deliver|serv|bring|go|walk|mov|turn|keep|stay|"
    r"wait|do|fac|step)(?:es|s|e|)\b",
    re.IGNORECASE,
)
_ENDED = {"tak": "take", "plac": "place", "serv": "serve", "mov": "move", "fac": "face"}
_NOTHING = re.compile(
    r"\b(?:nothing|stays?|wait|keep facing|no effect|not change|no change|out of reach|cannot be reached|not move)\b"
)
_STEP = re.compile(rf"^(?:go|move|walk|step)(?: one step)?(?: to the)? ({_WAYS})$")
_TURN = re.compile(rf"^(?:turn|face)(?: to)?(?: the)? ({_WAYS})$")
_PLACE = re.compile(rf"^((?:go|move|walk|step|turn|face) (?:{_WAYS}))(?: to)?(?: face)?(?: the)? (\w.*)$")


def effect_check(layout: Layout, truth: str, beside: Mapping[str, str] | None = None) -> Check:
    """Check of words against the effect of an action of the onion-soup kitchen.

    Args:
        layout: The kitchen.
        truth: Its true effect, as `text.target_phrases` or `text.primitive_phrases` says it.
        beside: The place on each side of the cook, by direction, for words such as "turn east to face counter 4".
    """
    true = _meaning(layout, truth)

    def check(words: str) -> bool | None:
        named = _PLACE.match(_plain(words)) if beside else None
        said = _meaning(layout, named.group(1) if named else words)
        if said is None:
            return None
        return said == true and (beside is None or named is None or beside[said[1]] == named.group(2))

    return check


def _meaning(layout: Layout, words: str) -> Any:
    """Meaning of words: a subgoal, a direction to go or turn to, or "nothing"; `None` if it cannot be told."""
    text = _plain(words)
    for ways, verb in ((_STEP, "go"), (_TURN, "turn")):
        if match := ways.fullmatch(text):
            return verb, match.group(1)
    return parse_subgoal(layout, text) or ("nothing" if _NOTHING.search(text) else None)


def _plain(words: str) -> str:
    """Words in lower case that begin with the verb as it stands in a subgoal, with the directions of the map."""
    text = _SUBJECT.sub("", " ".join(words[:_LONGEST].split()).rstrip(".").lower())
    if match := _VERB.match(text):
        verb = match.group(1)
        text = _ENDED.get(verb, verb) + text[match.end() :]
    head, _, last = text.rpartition(" ")
    return f"{head} {_OTHER_WAYS[last]}".strip() if last in _OTHER_WAYS else text


def goal_cell_actions(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, Check]:
    """An agent's goal cells that are no floor and in its reach, each with its check.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen, player = game.kitchen(state), COOKS.index(agent)
    layout, places = kitchen.layout, places_of(kitchen.layout)
    near = places.reach[places.room_of[kitchen.cook(player).cell]]
    cells = [cell for cell in _in_order(near) if layout.kind(cell) != FLOOR]
    phrases = target_phrases(kitchen, player, cells)
    names = [f"goal cell {x},{y}: go to {places.names[x, y]} and interact" for x, y in cells]
    return {name: effect_check(layout, phrase) for name, phrase in zip(names, phrases, strict=True)}


def primitive_actions(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, Check]:
    """An agent's six primitive actions, each with its check.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen = game.kitchen(state)
    phrases, beside = primitive_phrases(kitchen, COOKS.index(agent)), surroundings(game, state, agent)
    names = [f"action {number}: {name}" for number, name in enumerate(ACTION_NAMES)]
    return {name: effect_check(kitchen.layout, phrase, beside) for name, phrase in zip(names, phrases, strict=True)}


def surroundings(game: KitchenPlanning, state: Moment, agent: str) -> dict[str, str]:
    """The places on the four sides of an agent, by direction.

    Args:
        game: The kitchen's adapter.
        state: The moment.
        agent: Its name.
    """
    kitchen = game.kitchen(state)
    x, y = kitchen.cook(COOKS.index(agent)).cell
    names = places_of(kitchen.layout).names
    # No cook stands at the edge of a kitchen, so each side has a cell.
    return {way: names[x + dx, y + dy] for way, (dx, dy) in zip(ACTION_NAMES, STEPS, strict=False)}


def _in_order(cells: Any) -> list[Cell]:
    return sorted(cells, key=lambda cell: (cell[1], cell[0]))
