"""Proves or disproves sentences about a state of the game, against the state itself.

Understands what `text` writes and much of what people and language models write instead. What is ambiguous or unknown
is neither true nor false. No machine learning: a table of synonyms (`checker_words`), noun phrases (`checker_things`)
and one regular expression per form of sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from rllib_llm_comm.envs.overcooked_ai.checker_things import (
    COOK,
    ITEM,
    PLACE,
    Named,
    Thing,
    Truth,
    inverse,
    named_cooks,
    named_places,
    some,
    thing,
)
from rllib_llm_comm.envs.overcooked_ai.checker_words import clauses, plain
from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, FLOOR, POT, SERVING, Cell
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, Places, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL
from rllib_llm_comm.envs.overcooked_ai.routes import STEPS
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, Item, Kitchen

LONGEST = 400
"""Longer texts are not read."""


@dataclass(frozen=True)
class _Scene:
    """State that sentences are checked against."""

    kitchen: Kitchen
    places: Places
    soups: int | None


def check_sentence(kitchen: Kitchen, sentence: str, soups: int | None = None, speaker: int | None = None) -> Truth:
    """Truth value of a sentence in a state.

    Args:
        kitchen: The game.
        sentence: One or more sentences in English; all must be true.
        soups: Soups delivered so far, for sentences about them.
        speaker: Player that "you", "I" and "the other cook" are said of or by.

    Returns:
        True or False; `None` if any part of it is not understood, is ambiguous, or needs what was not given.
    """
    text = plain(sentence) if len(sentence) <= LONGEST else None
    if text is None:
        return None
    scene = _Scene(kitchen, places_of(kitchen.layout), soups)
    if speaker is not None:
        text = re.sub(r"\b(?:you|i|me)\b", COOKS[speaker], text)
    return some(_all_true(scene, variant) for variant in _variants(scene, text, speaker))


def _all_true(scene: _Scene, text: str) -> Truth:
    truths: list[Truth] = []
    for parts in clauses(text):
        for clause in _complete(parts):
            truth = _clause(scene, clause) if clause is not None else None
            if truth is None:
                return None
            truths.append(truth)
    return all(truths) if truths else None


_ONE_COOK, _ONE_POT = re.compile(r"\b(?:1|a)(?: of the)? cooks?\b"), re.compile(r"\b(?:1|a)(?: of the)? pots?\b")
_OTHER_COOK = re.compile(r"\b(?:the other(?: of the)?|another) cooks?\b")
_OTHER_POT = re.compile(r"\b(?:the other(?: of the)?|another) pots?\b")


def _variants(scene: _Scene, text: str, speaker: int | None) -> Iterator[str]:
    """The text with each way of who "one cook ... the other cook" (or pot) may be; as it is if that cannot be told."""
    cooks = _pairs(text, _ONE_COOK, _OTHER_COOK, COOKS, () if speaker is None else (COOKS[speaker],))
    pots = _pairs(text, _ONE_POT, _OTHER_POT, [scene.places.names[cell] for cell in scene.places.fixtures[POT]])
    for cook, pot in product(cooks, pots):
        variant = text
        for (one, other), one_pattern, other_pattern in ((cook, _ONE_COOK, _OTHER_COOK), (pot, _ONE_POT, _OTHER_POT)):
            if other:
                variant = one_pattern.sub(one, other_pattern.sub(other, variant))
        yield variant


def _pairs(
    text: str, one: re.Pattern[str], other: re.Pattern[str], names: Sequence[str], known: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Possible meanings of "the one" and "the other" among two names; empty words if that is not said or is unknown."""
    first, second = one.search(text), other.search(text)
    if second is not None and len(names) == 2:
        if first is not None and first.start() < second.start():
            return [(names[0], names[1]), (names[1], names[0])]
        told = {name for name in names if re.search(rf"\b{name}\b", text)} | set(known)
        if first is None and len(told) == 1:
            return [(name, other_name) for name, other_name in (names, names[::-1]) if name in told]
    return [("", "")]


_SUBJECT = re.compile(rf"({COOK}|{PLACE}) (?=(?:is|holds|faces|reaches|needs)\b)")
_BARE = re.compile(rf"{COOK}|{PLACE}")
_VERB = re.compile(r"(?:is|holds|faces|reaches|needs)\b")


def _complete(parts: Sequence[str]) -> Iterator[str | None]:
    """Clauses with the subject or the predicate that they share with the clause beside them."""
    subject, waiting = "", list[str]()
    for part in parts:
        if _BARE.fullmatch(part):
            waiting.append(part)
            continue
        if _VERB.match(part):
            part = f"{subject} {part}"
        found = _SUBJECT.match(part)
        subject = found[1] if found else ""
        if waiting and not found:
            yield None
        for bare in waiting:
            yield f"{bare} {part[found.end() :]}" if found else None
        waiting = []
        yield part
    if waiting:
        yield None


def _clause(scene: _Scene, clause: str) -> Truth:
    for pattern, handler in _FORMS:
        if match := pattern.fullmatch(clause):
            return handler(scene, match.groupdict())
    return None


Groups = dict[str, str | None]


def _is_lying(scene: _Scene, groups: Groups) -> Truth:
    """Things in a pot or on a counter."""
    what, where = thing(groups["item"] or ""), named_places(scene.places, groups["place"] or "")
    if what is None or where is None:
        return None
    kind, cells = where
    negated = bool(groups.get("not"))
    if kind == POT:
        return _in_pots(scene, what, cells, negated)
    if kind == SERVING:
        # A soup that is brought there is gone, so nothing ever lies there.
        return inverse(what.matches(0, 0)) if negated else what.matches(0, 0)
    if kind != COUNTER:
        return None
    together = cells.free or (what.number is not None and len(cells.things) > 1 and cells.how == "all")
    if together:
        truth = what.matches(*what.range(scene.kitchen.item(cell) for cell in cells.things))
        return inverse(truth) if negated else truth
    return cells.holds(lambda cell: what.matches(*what.range([scene.kitchen.item(cell)])), negated)


def _in_pots(scene: _Scene, what: Thing, cells: Named[Cell], negated: bool) -> Truth:
    if cells.plural and cells.free and what.number and len(cells.things) > 1:
        return None  # three onions in the pots: each, or together?
    return cells.holds(lambda cell: what.in_pot(scene.kitchen.item(cell)), negated)


def _state(scene: _Scene, groups: Groups) -> Truth:
    """A place that is empty, full, occupied, free, cooking or ready."""
    where = named_places(scene.places, groups["place"] or "")
    if where is None:
        return None
    kind, cells = where
    word = groups["state"] or ""
    if word in ("cooking", "ready") and kind == POT:
        return _soup_state(scene, cells, word, groups)
    if kind == POT and word in ("empty", "full"):
        return cells.holds(lambda cell: _filled(scene.kitchen.item(cell), word), bool(groups["not"]))
    if kind == COUNTER and word in ("empty", "free", "full", "occupied"):
        wanted = word in ("full", "occupied")
        return cells.holds(lambda cell: (scene.kitchen.item(cell) is not None) == wanted, bool(groups["not"]))
    return None


def _filled(soup: Item | None, word: str) -> Truth:
    if word == "empty":
        return soup is None
    if soup is None or soup.onions + soup.tomatoes == FULL:
        return soup is not None
    return None if soup.tick >= 0 else False


def _soup_state(scene: _Scene, cells: Named[Cell], word: str, groups: Groups) -> Truth:
    onions, left = groups.get("onions"), groups.get("left")

    def fits(cell: Cell) -> Truth:
        soup = scene.kitchen.item(cell)
        if soup is None or soup.tick < 0:
            # "The soup in the pot is not ready" tells of a soup that is not there.
            return None if groups.get("soup") and groups["not"] else False
        if soup.ready != (word == "ready") or (onions and (int(onions), 0) != (soup.onions, soup.tomatoes)):
            return False
        return left is None or int(left) == soup.left

    return cells.holds(fits, bool(groups["not"]))


def _wants(scene: _Scene, groups: Groups) -> Truth:
    """A pot that needs so many more onions."""
    where = named_places(scene.places, groups["place"] or "")
    if where is None or where[0] != POT or not scene.kitchen.layout.classic:
        return None
    number = int(groups["number"] or 0)

    def fits(cell: Cell) -> Truth:
        soup = scene.kitchen.item(cell)
        return soup is None and number == FULL or (soup is not None and soup.tick < 0 and soup.onions + number == FULL)

    return where[1].holds(fits) if number else None


def _holding(scene: _Scene, groups: Groups) -> Truth:
    cooks, what = named_cooks(groups["cook"] or ""), thing(groups["item"] or "")
    if cooks is None or what is None or what.of_three:
        return None
    return cooks.holds(lambda i: what.matches(*what.range([scene.kitchen.cook(i).held])), bool(groups["not"]))


def _room(scene: _Scene, groups: Groups) -> Truth:
    cooks = named_cooks(groups["cook"] or "")
    rooms = scene.places.room_names
    if cooks is None or groups["room"] not in rooms.values():
        return None
    return cooks.holds(
        lambda i: rooms.get(scene.places.room_of[scene.kitchen.cook(i).cell]) == groups["room"], bool(groups["not"])
    )


def _standing(scene: _Scene, groups: Groups) -> Truth:
    cooks, where = named_cooks(groups["cook"] or ""), named_places(scene.places, groups["place"] or "")
    if cooks is None or where is None or where[0] != FLOOR:
        return None
    return cooks.holds(lambda i: scene.kitchen.cook(i).cell == where[1].things[0], bool(groups["not"]))


def _faced(scene: _Scene, i: int) -> Cell:
    cook = scene.kitchen.cook(i)
    dx, dy = STEPS[cook.facing]
    return cook.cell[0] + dx, cook.cell[1] + dy


def _facing(scene: _Scene, groups: Groups) -> Truth:
    cooks, target = named_cooks(groups["cook"] or ""), groups["target"] or ""
    if cooks is None:
        return None
    negated = bool(groups["not"])
    if target in ACTION_NAMES[:4]:
        way = ACTION_NAMES.index(target)
        return cooks.holds(lambda i: scene.kitchen.cook(i).facing == way, negated)
    if target in COOKS:
        seen = COOKS.index(target)
        if cooks.things == (seen,):
            return None
        return cooks.holds(lambda i: _faced(scene, i) == scene.kitchen.cook(seen).cell, negated)
    where = named_places(scene.places, target)
    if where is None:
        return None
    return cooks.holds(lambda i: where[1].holds(lambda cell: _faced(scene, i) == cell), negated)


def _reach(scene: _Scene, groups: Groups) -> Truth:
    cooks, where = named_cooks(groups["cook"] or ""), named_places(scene.places, groups["place"] or "")
    if cooks is None or where is None:
        return None

    def reaches(i: int) -> Truth:
        cells = scene.places.reachable(scene.kitchen.cook(i).cell)
        return where[1].holds(lambda cell: cell in cells)

    return cooks.holds(reaches, bool(groups["not"]))


def _who(scene: _Scene, groups: Groups) -> Truth:
    return groups["cook"] == groups["name"] if groups["cook"] in COOKS else None


def _time(scene: _Scene, groups: Groups) -> Truth:
    return int(groups["number"] or 0) == max(0, scene.kitchen.horizon - scene.kitchen.time)


def _passed(scene: _Scene, groups: Groups) -> Truth:
    number = groups["number"] or ""
    return scene.kitchen.time == (0 if number == "no" else 1 if number in ("a", "an") else int(number))


def _delivered(scene: _Scene, groups: Groups) -> Truth:
    if scene.soups is None:
        return None
    number = groups["number"] or ""
    if number in ("a", "an"):
        return scene.soups > 0
    return scene.soups == (0 if number == "no" else int(number))


_TEAM = r"(?:the team|the cooks|cooks|both cooks|we|they)"
_NUMBER = r"(?P<number>no|an?|\d+)"
_LEFT = r"(?: of (?P<onions>\d+) onions?)?(?: for (?P<left>\d+) (?:more )?steps?)?"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[_Scene, Groups], Truth]], ...] = tuple(
    (re.compile(pattern), handler)
    for pattern, handler in (
        (rf"(?P<cook>{COOK}) is (?P<name>alice|bob)", _who),
        (rf"(?P<cook>{COOK}) holds (?P<not>not )?(?P<item>{ITEM})", _holding),
        (rf"(?P<cook>{COOK}) is (?P<not>not )?in (?:the )?(?P<room>[a-z']+ room)", _room),
        (rf"(?P<cook>{COOK}) is (?P<not>not )?(?:on|at) (?:the )?(?P<place>floor \d+:\d+)", _standing),
        (rf"(?P<cook>{COOK}) faces (?P<not>not )?(?P<target>north|south|east|west|{COOK}|(?:the )?{PLACE})", _facing),
        (rf"(?P<cook>{COOK}) reaches (?P<not>not )?(?P<place>{PLACE})", _reach),
        (rf"(?P<place>{PLACE}) holds (?P<not>not )?(?P<item>{ITEM})(?: each)?(?: (?:in|on) it)?", _is_lying),
        (rf"(?P<place>{PLACE}) is (?P<not>not )?(?P<state>empty|full|free|occupied|ready)", _state),
        (rf"(?P<place>{PLACE}) is (?P<not>not )?(?P<state>cooking)(?: (?:(?:an? |the )?soups?))?{_LEFT}", _state),
        (rf"(?:an? |the )?(?P<soup>soup) (?:in|on|inside) (?P<place>{PLACE}) is (?P<not>not )?"
         rf"(?P<state>ready|cooking){_LEFT}", _state),
        (rf"(?P<place>{PLACE}) needs (?P<number>\d+) (?:more )?onions?", _wants),
        (rf"(?:there is )?(?P<item>{ITEM}) (?:is )?(?P<not>not )?(?:in|on|at|inside) (?P<place>{PLACE})", _is_lying),
        (rf"(?:in|on|inside) (?P<place>{PLACE}) (?:there )?is (?P<not>not )?(?P<item>{ITEM})", _is_lying),
        (r"(?:there is )?(?P<number>\d+) (?:more )?(?:time ?|game )?steps? "
         r"(?:is )?(?:left|remaining|remains?|to go)(?: in the (?:game|episode))?", _time),
        (rf"{_NUMBER} (?:time ?|game )?steps? (?:holds|is) passed(?: so far)?", _passed),
        (r"(?:the time|it) is (?:(?:time|game) )?(?:step )?(?P<number>\d+)", _passed),
        (rf"{_NUMBER} soups? is delivered", _delivered),
        (rf"{_TEAM} delivered {_NUMBER} soups?", _delivered),
    )
)  # fmt: skip
