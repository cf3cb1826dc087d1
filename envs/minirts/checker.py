"""Proves or disproves sentences about a moment of the game, against the game itself, fog or not.

Understands what `text` writes and common other wordings. What is ambiguous or unknown is neither true nor false. No
machine learning: a table of synonyms and one regular expression per form of sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    ATTACK_TICKS,
    BUILDINGS,
    COST,
    DAMAGE,
    HP,
    IS_BUILDING,
    MADE_BY,
    PEASANT,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.executor import Executor
from rllib_llm_comm.envs.minirts.side import Side, enemy_types, types_of
from rllib_llm_comm.envs.minirts.words import ATTACK, COMMANDERS, DEFEND, KIND_OF, KIND_PATTERN, SCOUT, parse_command

LONGEST = 600
"""Longer texts are not read."""
Truth = bool | None
Groups = dict[str, str | None]


@dataclass(frozen=True)
class _Scene:
    """Moment of a game that sentences are checked against."""

    executor: Executor
    max_tick: int
    speaker: int | None

    @property
    def side(self) -> Side:
        return self.executor.side

    def commander(self, word: str) -> int | None:
        """Commander that a name refers to; `None` if nobody, or if "you" has no meaning."""
        if word in ("you", "your", "yours", "i", "my", "mine"):
            return self.speaker
        name = word.removesuffix("'s")
        return COMMANDERS.index(name) if name in COMMANDERS[: self.side.size] else None


def check_sentence(executor: Executor, sentence: str, max_tick: int = 0, speaker: int | None = None) -> Truth:
    """Truth value of a sentence at a moment.

    Args:
        executor: The side's officers, with the side and its game.
        sentence: One or more sentences in English; all must be true.
        max_tick: Tick at which the game is a draw, for sentences about it; 0 if it is not known.
        speaker: Number of the commander that "you" or "I" is.

    Returns:
        True or False; `None` if any part of it is not understood, is ambiguous, or needs what was not given.
    """
    if len(sentence) > LONGEST:
        return None
    scene = _Scene(executor, max_tick, speaker)
    truths = [_sentence(scene, part) for part in sentences_of(sentence)]
    if not truths or None in truths:
        return None
    return all(truths)


def sentences_of(text: str) -> list[str]:
    """A text's sentences in the checker's words."""
    plain = " ".join(re.sub(r"[.!\n]+(?:\s|$)", " . ", text.lower()).split())
    for pattern, replacement in _RULES:
        plain = pattern.sub(replacement, plain)
    return [part for part in (" ".join(piece.split()).strip(" ,;") for piece in plain.split(" . ")) if part]


def _sentence(scene: _Scene, sentence: str) -> Truth:
    sentence = sentence.removesuffix(" .")
    whole = _clause(scene, sentence)
    if whole is not None:
        return whole
    parts = _JOINED.split(sentence)
    truths = [_clause(scene, part.strip(" ,")) for part in parts] if len(parts) > 1 else []
    return None if not truths or None in truths else all(truths)


def _clause(scene: _Scene, clause: str) -> Truth:
    for pattern, handler in _FORMS:
        if match := pattern.fullmatch(clause):
            return handler(scene, match.groupdict())
    return None


# ---- words -------------------------------------------------------------------------------------------------

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[\u2018\u2019]", "'"),
        (r"\b(?:currently|right now|now|at the moment|already|in total)\b", " "),
        (r"n't\b", " not"),
        *((rf"\b{word}\b", str(number)) for number, word in enumerate(_DIGITS)),
        (r"\b(?:the )?(?:opponent|opposition|other side|foe)\b", "the enemy"),
        (r"\b(?:our side|our team|the team|my team|our army side|we)\b", "team"),
        (r"\b(\d+) (?:coins|money|resources|gold coins|pieces of gold)\b", r"\1 gold"),
        (rf"\b({KIND_PATTERN}) (?:buildings?|units?)\b", r"\1"),
        (r"\b(?:does|do) not (?:have|own|command|control) (?:an?|any)\b", "has no"),
        (r"\b(?:has got|have got|has|have|owns|own|commands|command|controls|control)\b(?!:)", "has"),
        (r"\b(?:is|are)\b", "is"),
        (r"\bis being built\b|\bis in construction\b", "is under construction"),
        (r"\b(?:knows|know|sees|see) (?:of )?", "knows of "),
        (r"\bknows of no enem(?:y|ies)\b", "knows of nothing of the enemy"),
        (r"\b(?:discovered|located|known)\b", "found"),
    )
)
_JOINED = re.compile(r"; | while | whereas | but |, and (?=team|the enemy|you|alice|bob|carol)")
_ITEM = rf"(?:no|an?|some|\d+|at least \d+|more than \d+|less than \d+|fewer than \d+) (?:{KIND_PATTERN})"
_ITEMS = rf"(?:nothing|{_ITEM}(?:(?:, and |, | and ){_ITEM})*)"
_NAME = r"(?:you|i|alice|bob|carol)"
_WHOSE = r"(?:your|yours|my|mine|alice's|bob's|carol's)"
_SPLIT = re.compile(r", and |, | and ")
_ONE_ITEM = re.compile(
    rf"(?P<how>no|an?|some|(?:at least |more than |less than |fewer than )?\d+) (?P<kind>{KIND_PATTERN})"
)


def _fits(items: str | None, counts: Counter[int]) -> Truth:
    """Truth value of claims about numbers of units; numbers without a claim do not matter."""
    if items is None:
        return None
    if items == "nothing":
        return not any(counts.values())
    for part in _SPLIT.split(items):
        match = _ONE_ITEM.fullmatch(part)
        if match is None:
            return None
        kind = KIND_OF[match["kind"]]
        if not _number_fits(match["how"], counts[kind]):
            return False
    return True


def _number_fits(how: str, number: int) -> bool:
    if how == "no":
        return number == 0
    if how in ("a", "an", "some"):
        return number > 0
    said = int(how.split()[-1])
    if how.startswith("at least"):
        return number >= said
    if how.startswith("more"):
        return number > said
    return number < said if how.startswith(("less", "fewer")) else number == said


# ---- forms of sentences ------------------------------------------------------------------------------------


def _has(scene: _Scene, groups: Groups) -> Truth:
    who = groups["who"] or ""
    if who == "team":
        return _fits(groups["items"], scene.side.counts())
    if who == "the enemy":
        return _fits(groups["items"], Counter(types_of(scene.side.game, 1 - scene.side.player)))
    commander = scene.commander(who)
    return None if commander is None else _fits(groups["items"], scene.side.counts(commander))


def _gold(scene: _Scene, groups: Groups) -> Truth:
    return _number_fits(groups["number"] or "", scene.side.money)


def _known(scene: _Scene, groups: Groups) -> Truth:
    return _fits(groups["items"], scene.side.enemy_counts())


def _making(scene: _Scene, groups: Groups) -> Truth:
    counts = Counter(unit.making for unit in scene.side.own if unit.making >= 0)
    return _fits(groups["items"], counts)


def _hall_found(scene: _Scene, groups: Groups) -> Truth:
    return (scene.side.enemy_counts()[TOWN_HALL] > 0) == (groups["not"] is None)


def _threat(scene: _Scene, groups: Groups) -> Truth:
    return bool(scene.side.threats()) == (groups["not"] is None)


def _idle(scene: _Scene, groups: Groups) -> Truth:
    commander = scene.commander(groups["whose"]) if groups["whose"] else -1
    if commander is None:
        return None
    kind = KIND_OF[groups["kind"] or ""]
    units = [u for u in scene.side.own if u.type == kind and commander in (-1, scene.side.owner(u))]
    return _number_fits(groups["number"] or "", sum(unit.order == "IDLE" for unit in units))


def _mining(scene: _Scene, groups: Groups) -> Truth:
    commander = scene.commander(groups["whose"] or "")
    if commander is None:
        return None
    return scene.executor.orders[commander].mining == (groups["not"] is None)


_STANCE = {"attacks": ATTACK, "defends": DEFEND, "scouts": SCOUT}


def _stance(scene: _Scene, groups: Groups) -> Truth:
    commander = scene.commander(groups["whose"] or "")
    if commander is None:
        return None
    return (
        bool(scene.side.army_of(commander))
        and scene.executor.orders[commander].stance == _STANCE[groups["stance"] or ""]
    )


def _open(scene: _Scene, groups: Groups) -> Truth:
    commander = scene.commander(groups["whose"] or "")
    said = [parse_command(part) for part in _SPLIT.split(groups["commands"] or "")]
    if commander is None or None in said:
        return None
    return Counter(said) == Counter(job.command for job in scene.executor.orders[commander].jobs)


def _who(scene: _Scene, groups: Groups) -> Truth:
    return None if scene.speaker is None else groups["name"] == COMMANDERS[scene.speaker]


def _tick(scene: _Scene, groups: Groups) -> Truth:
    if groups["last"] is not None:
        if not scene.max_tick:
            return None
        if int(groups["last"]) != scene.max_tick:
            return False
    return int(groups["tick"] or 0) == scene.side.game.tick


def duel_ticks(attacker: int, target: int) -> float:
    """Ticks until a unit of one type has killed one of another, shooting all the time; infinite if it cannot."""
    damage = int(DAMAGE[attacker, target])
    return -(-int(HP[target]) // damage) * float(ATTACK_TICKS[attacker]) if damage else float("inf")


def _beats(scene: _Scene, groups: Groups) -> Truth:
    strong, weak = (KIND_OF[groups[name] or ""] for name in ("strong", "weak"))
    if strong not in (*ARMY, PEASANT) or weak not in (*ARMY, PEASANT):
        return None
    return (duel_ticks(strong, weak) < duel_ticks(weak, strong)) == (groups["not"] is None)


def _enemy_trains(scene: _Scene, groups: Groups) -> Truth:
    kinds = {KIND_OF[word] for word in _SPLIT.split(groups["kinds"] or "")}
    return kinds == set(enemy_types(scene.side))


def _told(scene: _Scene, groups: Groups) -> Truth:
    if scene.speaker is None or scene.side.told is None:
        return None
    return scene.side.told[scene.speaker] == (groups["not"] is None)


def _price(scene: _Scene, groups: Groups) -> Truth:
    return int(groups["number"] or 0) == int(COST[KIND_OF[groups["kind"] or ""]])


def _trains(scene: _Scene, groups: Groups) -> Truth:
    house = KIND_OF[groups["house"] or ""]
    kinds = [KIND_OF[word] for word in _SPLIT.split(groups["kinds"] or "")]
    if house not in BUILDINGS or any(IS_BUILDING[kind] for kind in kinds):
        return None
    return all(int(MADE_BY[kind]) == house for kind in kinds)


_N = r"(?P<number>no|\d+|(?:at least|more than|less than|fewer than) \d+)"
_KIND = rf"(?:an? |the )?(?P<{{}}>{KIND_PATTERN})"
_FORMS: tuple[tuple[re.Pattern[str], Callable[[_Scene, Groups], Truth]], ...] = tuple(
    (re.compile(pattern), handler)
    for pattern, handler in (
        (rf"(?:team|you|i) has {_N} gold", _gold),
        (rf"(?P<who>{_NAME}|team|the enemy) has (?P<items>{_ITEMS})", _has),
        (rf"(?:you|i|team) knows of (?P<items>{_ITEMS}) of the enemy", _known),
        (rf"(?:peasants build|buildings train) (?P<items>{_ITEMS})", _making),
        (rf"(?P<items>{_ITEM}) is under construction", _making),
        (r"the (?:enemy|enemy's) (?:town ?hall|base) is (?P<not>not )?found", _hall_found),
        (r"(?:the )?enem(?:ies|y) is (?P<not>not )?near (?:your|our|team's)? ?(?:buildings|base|town hall)", _threat),
        (rf"{_N} (?P<kind>{KIND_PATTERN})(?: of (?P<whose>{_WHOSE}))? is idle", _idle),
        (rf"(?P<whose>{_WHOSE}) peasants (?:shall )?(?P<not>(?:shall |do )?not )?(?:mine|dig)", _mining),
        (rf"(?P<whose>{_WHOSE}) army (?P<stance>attacks|defends|scouts)", _stance),
        (rf"(?P<whose>{_WHOSE}) open commands: (?P<commands>.+)", _open),
        (r"(?:you|i) (?:is|am) (?P<name>alice|bob|carol)", _who),
        (r"it is tick (?P<tick>\d+)(?: of (?P<last>\d+))?", _tick),
        (rf"{_KIND.format('strong')} (?P<not>(?:does|do) not )?beats? {_KIND.format('weak')}", _beats),
        (rf"the enemy (?:trains|makes) (?P<kinds>(?:{KIND_PATTERN})(?:(?:, and |, | and )(?:{KIND_PATTERN}))*)",
         _enemy_trains),
        (r"(?:you|i) (?:is|am) (?P<not>not )?told what the enemy trains", _told),
        (rf"{_KIND.format('kind')} costs? (?P<number>\d+)(?: gold)?", _price),
        (rf"{_KIND.format('house')} (?:trains?|makes?) (?P<kinds>(?:{KIND_PATTERN})(?:(?:, and |, | and )"
         rf"(?:{KIND_PATTERN}))*)", _trains),
    )
)  # fmt: skip
