"""Proves or disproves sentences about a state of the game, against the state itself.

Understands what `text` writes and much of what people and language models write instead. What is ambiguous or unknown
is neither true nor false. No machine learning: a table of synonyms, noun phrases and one regular expression per form
of sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from rllib_llm_comm.envs.overcooked_ai.layouts import COUNTER, DISHES, FLOOR, ONIONS, POT, SERVING, Cell
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, KIND_WORDS, SHARED, SIDE, STEPS, Places, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import FULL
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, Item, SoupKitchen

# fmt: off
_NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)
# fmt: on
_DIGITS = {word: number for number, word in enumerate(_NUMBERS)}

_DISH = r"(?:dish|plate)"
_BE = r"(?:is|are|am)"
_SOUP = r"(?:onion )?soup"

# Order matters: longer phrases stand before the words that they are made of.
_WORD_NOUNS: tuple[tuple[str, str], ...] = (
    # Short forms and words that change nothing.
    (r"[\u2018\u2019]", "'"),
    (r"\b(?:can't|cannot)\b", "can not"),
    (r"n't\b", " not"),
    (r"\b(there|that|he|she|it)'s\b", r"\1 is"),
    (r"\b(you|we|they)'re\b", r"\1 are"),
    (r"\bi'm\b", "i am"),
    (r"\b(?:currently|right now|now|at the moment|still|already|yet|so far)\b", " "),
    (r"\bthere (?:is|are) not (?:an?|any)\b", "there is no"),
    (r"\bin (?:his|her|its|their|your|my|the) hands?\b|\bin hand\b", " "),
    # Cooks.
    (r"\b(?:chef|player|agent|cook) 0\b", "alice"),
    (r"\b(?:chef|player|agent|cook) 1\b", "bob"),
    (r"\b(?:chef|player|agent)(s?)\b(?! \d)", r"cook\1"),
    (r"\b(?:nobody|no one|neither alice nor bob|neither bob nor alice)\b", "no cook"),
    (r"\b(?:your|my) (?:partner|teammate|colleague)\b", "the other cook"),
    # Places.
    (r"\b(?:floor|cell|tile|position)(?: at)? \(?(\d+) ?, ?(\d+)\)?", r"floor \1:\2"),
    (r"\b(?:crafting (?:table|station)|stove|cauldron|cooking pot|cooker|kettle)(s?)\b", r"pot\1"),
    (r"\b(?:onion storage(?: room| area)?|storage room|onion room)(s?)\b", r"crate\1"),
    (r"\bonion (?:crate|dispenser|bin|pile|supply|source)(s?)\b|\bonion box(?:e(s))?\b", r"crate\1\2"),
    (rf"\b{_DISH} (?:stack|dispenser|rack|pile|cabinet|cupboard)(s?)\b", r"stack\1"),
    (rf"\b(?:dining cabinet|sideboard|cupboard|cabinet)(s?)\b|\bstack(s?) of {_DISH}e?s\b", r"stack\1\2"),
    (r"\b(?:serving|delivery|service) (?:counter|point|area|window|station|hatch|location|table)(s?)\b", r"serving\1"),
    (r"\b(?:kitchen )?(?:counter|countertop|worktop|bar|table|bench)(s?)\b", r"counter\1"),
    (r"\b(?:top|upper|northern|north|topmost|upmost)(?:-most)? (?=pot|crate|stack|serving|counter|room)", "upper "),
    (r"\b(?:bottom|lower|southern|south|bottommost)(?:-most)? (?=pot|crate|stack|serving|counter|room)", "lower "),
    (r"\b(?:leftmost|left-hand|western|west) (?=pot|crate|stack|serving|counter|room)", "left "),
    (r"\b(?:rightmost|right-hand|eastern|east) (?=pot|crate|stack|serving|counter|room)", "right "),
    # Things. A soup on a plate stays told apart from a soup: it is never in a pot.
    (rf"\b(?:plated {_SOUP}|{_DISH} (?:of|with)(?: an?| the)? {_SOUP})\b", "plated soup"),
    (rf"\b{_SOUP} (?:is )?(?:on|in) a {_DISH}\b", "plated soup"),
    (rf"\b{_SOUP}(s?)\b", r"soup\1"),
    (rf"\b{_DISH}\b", "dish"),
    (rf"\b{_DISH}es\b|\bplates\b", "dishes"),
    (r"\b(?:clean|unused) (?=dish)", "empty "),
    (r"\b(?:finished|completed?|cooked|done|crafted) (?=(?:plated )?soup)", "ready "),
    (r"\b(?:unfinished|half-cooked) (?=soup)", "cooking "),
    (r"\b(?:an item|an object|a thing|some item)\b", "something"),
)
# These read numbers as digits.
_VERBS: tuple[tuple[str, str], ...] = (
    (r"\b(\d+) ?(?:/|out of) ?(\d+)\b", r"\1 of \2"),
    (r"\bfloor (\d+),(\d+)", r"floor \1:\2"),
    (r"\b(?:has|have) (?:\d+ )?(?:empty|free) hands\b", "holds nothing"),
    (r"\b(?:has|have) (?:nothing|no items?)\b", "holds nothing"),
    (rf"\b{_BE} (not )?(?:both )?empty[- ]handed\b", r"holds \1nothing"),
    (rf"\b(alice|bob|your|my)(?:'s)? hands? {_BE} (not )?(?:empty|free)\b", r"\1 holds \2nothing"),
    (r"\byour holds\b", "you holds"),
    (r"\bmy holds\b", "i holds"),
    (rf"\b(?:(?:has|have) been|was|were|{_BE}) (?:delivered|served)\b", "is delivered"),
    (r"\b(?:has|have) (?:delivered|served)\b", "delivered"),
    (r"\b(?:does|do) not (?:hold|carry|have|contain)\b", "holds not"),
    (rf"\b{_BE} not (?:holding|carrying)\b", "holds not"),
    (rf"\b{_BE} (?:holding|carrying|filled with)\b", "holds"),
    (r"\b(?:has|have) (?:finished|stopped) cooking\b", "is ready"),
    (r"\b(?:holds|hold|carries|carry|contains|contain|has got|have got|has|have)\b", "holds"),
    (r"\bholds not (?:anything|something)\b", "holds nothing"),
    (r"\bholds not any\b", "holds no"),
    (rf"\b{_BE} not (?:facing|looking at|looking)\b|\b(?:does|do) not (?:face|look at|look)\b", "faces not"),
    (rf"\b{_BE} (?:facing|looking at|looking)\b|\b(?:faces|face|looks at|look at|looks|look)\b", "faces"),
    (rf"\b(?:{_BE} able to|can) reach\b|\breaches\b", "reaches"),
    (rf"\b(?:can not|{_BE} not able to|{_BE} unable to) reach\b", "reaches not"),
    (rf"\b(?:(?:{_BE}|does|do) )?(not )?(?:lying|lies|lie|sitting|sits|sit|resting|rests|rest|placed|located)"
     r"(?= (?:in|on|at)\b)", r"is \1"),
    (r"\b(?:stands|stand|works|work)(?= (?:in|on|at)\b)", "is"),
    (rf"\b{_BE} (?:standing|working)(?= (?:in|on|at)\b)", "is"),
    (r"\b(pots?(?: \d+)?|soups?|and) (?:cooks?|boils?|simmers?)\b", r"\1 is cooking"),
    (r"\b(?:does|do) not (?:cook|boil|simmer)\b", "is not cooking"),
    (rf"\b{_BE} (not )?(?:making|preparing|boiling|simmering|crafting)\b", r"is \1cooking"),
    (rf"\b{_BE}\b", "is"),
    (r"\bis not (?:done|finished|cooked|complete|completed)\b", "is not ready"),
    (r"\bis (?:done|finished|cooked|complete|completed)(?: cooking)?\b", "is ready"),
    (r"\b(?:needs|need)\b", "needs"),
    (r"\bis cooking,?(?: with| for| and holds| and needs)? (\d+) (?:more )?(?:time ?)?steps?"
     r"(?: left| remaining| more)?\b", r"is cooking for \1 steps"),
    (r"\bis ready in (\d+) (?:more )?(?:time ?)?steps?\b", r"is cooking for \1 steps"),
    (r"\bis cooking,?(?: (?:an?|the))? soups?(?! of)\b", "is cooking"),
    (r"\bwill be ready in (\d+) (?:more )?(?:time ?)?steps?\b", r"is cooking for \1 steps"),
    (r"\bboth (?=alice|bob)", ""),
)  # fmt: skip
_NOUN_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _WORD_NOUNS)
_VERB_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _VERBS)
_WORD_NUMBER = re.compile(rf"\b(?:{'|'.join(_DIGITS)})\b")
_NUMBER_LIST = re.compile(r"(?<=counters )\d+(?:(?:, and |, | and )\d+)*")
_AND = re.compile(r", and |, | and ")
_SENTENCE_END = re.compile(r"[.!\n]+")
_SPLIT = re.compile(
    r"(?:, (?:and|while|but|whereas|with) |; ?(?:and )?|, | and | while | but | whereas | with (?=\d|an? |the ))"
)
_ALLOWED = re.compile(r"[a-z0-9 ,;:'()/+.\-]*")


@lru_cache(maxsize=4096)
def plain(text: str) -> str | None:
    """A text in the fixed vocabulary, as far as its words are known.

    Args:
        text: Some sentences, at most some hundred characters.

    Returns:
        The text, its sentences separated by "."; `None` if it asks something or holds strange signs.
    """
    text = " ".join(_SENTENCE_END.sub(" . ", text.lower()).split())
    for pattern, replacement in _NOUN_RULES:
        text = pattern.sub(replacement, text)
    text = _WORD_NUMBER.sub(lambda match: str(_DIGITS[match[0]]), text)
    for pattern, replacement in _VERB_RULES:
        text = pattern.sub(replacement, text)
    text = " ".join(text.replace(" ,", ",").split())
    text = _NUMBER_LIST.sub(lambda match: _AND.sub("+", match[0]), text)
    return text if _ALLOWED.fullmatch(text) else None


def clauses(text: str) -> list[list[str]]:
    """The clauses of each sentence of a plain text."""
    sentences = (sentence.strip(" ,;") for sentence in text.split("."))
    return [[part.strip() for part in _SPLIT.split(sentence)] for sentence in sentences if sentence]


Truth = bool | None
T = TypeVar("T")

# A word of a noun phrase. What the phrase means is decided by the narrower forms below.
_WORD = r"(?!(?:is|holds|faces|reaches|needs|not|in|on|at|there)\b)[a-z0-9]+ "
PLACE = rf"(?:(?:{_WORD}){{0,5}}(?:pot|counter|crate|stack|serving)s?(?: [0-9+]+)?|floor \d+:\d+)"
COOK = rf"(?:alice|bob|(?:{_WORD}){{0,4}}cooks?)"
ITEM = rf"(?:nothing|something|(?:{_WORD}){{0,5}}(?:onions?|dish(?:es)?|soups?)(?: of \d+ onions?)?)"

_EVERY = ("all", "every", "each", "both")
_NOUNS = {"pot": POT, "counter": COUNTER, "crate": ONIONS, "stack": DISHES, "serving": SERVING}
_DETERMINER = (
    r"(?:(?P<det>the|an?|any|some|\d+|both|all|every|each|no|none|neither)(?: of)?(?: the)?(?: (?P<size>2|3))? )?"
)
_PLACE = re.compile(
    _DETERMINER + r"(?:(?P<side>left|right|upper|lower) )?(?:(?P<family>shared|side) )?"
    r"(?P<noun>pot|counter|crate|stack|serving)(?P<plural>s?)(?: (?P<numbers>\d+(?:\+\d+)*))?"
)
_FLOOR = re.compile(r"floor (\d+):(\d+)")
_COOK = re.compile(_DETERMINER + r"(?P<noun>cook)(?P<plural>s?)")
_ITEM = re.compile(
    r"(?:(?P<det>the|an?|no|any|some|\d+(?: of 3)?) )?(?P<more>more )?"
    r"(?P<how>(?:(?:ready|cooking|plated|empty) )*)"
    r"(?P<kind>onion|dish|soup)(?P<plural>s|es)?(?: of (?P<onions>\d+) onions?)?"
)


def inverse(truth: Truth) -> Truth:
    """Not."""
    return None if truth is None else not truth


def every(truths: Iterable[Truth]) -> Truth:
    """And, where unknown stays unknown unless one is false."""
    seen = set(truths)
    return False if False in seen else None if None in seen else True


def some(truths: Iterable[Truth]) -> Truth:
    """Or, where unknown stays unknown unless one is true."""
    return inverse(every(inverse(truth) for truth in truths))


@dataclass(frozen=True)
class Named(Generic[T]):
    """Referent of a noun phrase.

    Attributes:
        things: Things that it may mean.
        how: "the" (one of them, not told which), "all", "any", "no", or "count".
        count: Number, for "count".
        plural: Whether it stands in the plural.
        free: Whether it has a determiner that does not speak of each thing ("the counters", but not "both counters").
    """

    things: tuple[T, ...]
    how: str
    count: int = 0
    plural: bool = False
    free: bool = False

    def holds(self, predicate: Callable[[T], Truth], negated: bool = False) -> Truth:
        """Truth value of a predicate (or its negation) of the referent.

        Args:
            predicate: Says whether it is true of one thing.
            negated: Whether the sentence says "not".
        """
        truths = [predicate(thing) for thing in self.things]
        how = self.how
        if negated:
            # "All pots are not ready" may mean that none is, or that not all are: true only if both agree.
            if how in ("no", "count"):
                return None
            how = "the" if how == "all" else how
            truths = [inverse(truth) for truth in truths]
        if how == "all":
            return every(truths)
        if how in ("any", "no"):
            return some(truths) if how == "any" else inverse(some(truths))
        if how == "count":
            sure = truths.count(True)
            return counted(self.count, sure, sure + truths.count(None))
        return truths[0] if len(set(truths)) == 1 else None


def counted(number: int, low: int, high: int) -> Truth:
    """Truth value of a count that lies in `low` to `high`; more than said is neither true nor false."""
    if high < number:
        return False
    return True if low == high == number else None


def _how(match: re.Match[str], things: tuple[T, ...]) -> Named[T] | None:
    """A noun phrase's things and what its determiner says of them."""
    det, plural = match["det"], bool(match["plural"])
    if not things or (match["size"] and (int(match["size"]) != len(things) or det == "the" and not plural)):
        return None
    free = det in (None, "the", "a", "an", "any", "some")
    if det in (None, "the"):
        return Named(things, "all" if plural else "the", plural=plural, free=free)
    if det in ("a", "an", "any", "some"):
        return None if plural else Named(things, "any", free=free)
    if det in _EVERY:
        return None if det == "both" and len(things) != 2 else Named(things, "all", plural=plural)
    if det in ("no", "none", "neither"):
        return Named(things, "no", plural=plural)
    return Named(things, "count", count=int(det), plural=plural)


def named_cooks(phrase: str) -> Named[int] | None:
    """The cooks that a phrase names, or `None`."""
    if phrase in COOKS:
        return Named((COOKS.index(phrase),), "the")
    match = _COOK.fullmatch(phrase)
    return _how(match, (0, 1)) if match else None


def named_places(places: Places, phrase: str) -> tuple[int, Named[Cell]] | None:
    """The kind of cell and the cells that a phrase names, or `None`."""
    if floor := _FLOOR.fullmatch(phrase):
        cell = (int(floor[1]), int(floor[2]))
        return (FLOOR, Named((cell,), "the")) if cell in places.room_of else None
    match = _PLACE.fullmatch(phrase)
    if match is None:
        return None
    kind = _NOUNS[match["noun"]]
    cells = _cells(places, kind, match)
    named = _how(match, cells)
    if named is not None and match["numbers"]:
        named = Named(cells, "all" if len(cells) > 1 else "the", plural=len(cells) > 1)
    return None if named is None else (kind, named)


def _cells(places: Places, kind: int, match: re.Match[str]) -> tuple[Cell, ...]:
    cells, word, side = places.fixtures[kind], KIND_WORDS[kind], match["side"]
    if match["family"]:
        if kind != COUNTER:
            return ()
        word = SHARED if match["family"] == "shared" else SIDE
        cells = tuple(cell for cell in cells if places.names[cell].startswith(word))
    if match["numbers"]:
        named = [places.cells.get(f"{word} {number}") for number in match["numbers"].split("+")]
        return tuple(cell for cell in named if cell is not None) if None not in named and not side else ()
    if not side:
        return cells
    if f"{side} {word}" in places.cells:
        return (places.cells[f"{side} {word}"],)
    if len(cells) != 2:
        return ()
    # Of two pots named "upper" and "right" one is the left one as well.
    axis = 0 if side in ("left", "right") else 1
    first, last = sorted(cells, key=lambda cell: cell[axis])
    return () if first[axis] == last[axis] else ((first,) if side in ("left", "upper") else (last,))


@dataclass(frozen=True)
class NounPhrase:
    """Things that a noun phrase speaks of.

    Attributes:
        kind: "onion", "dish", "soup", or "something".
        number: Number; `None` for one or more.
        several: Whether "some onions" may mean more than one.
        of_three: Whether it was "2 of 3 onions".
        how: Words before the noun: "ready", "plated", ...
        onions: Of a soup: its onions, if said.
    """

    kind: str
    number: int | None
    several: bool = False
    of_three: bool = False
    how: tuple[str, ...] = ()
    onions: int | None = None

    def range(self, items: Iterable[Item | None]) -> tuple[int, int]:
        """Number of such things among items on counters or in hands: at least, at most.

        A soup is on a plate, so it may or may not count as one; not as an empty one.
        """
        low = high = 0
        for item in items:
            if item is None:
                continue
            if self.kind == "dish" and item.kind == "soup" and "empty" not in self.how:
                high += 1
            elif self.kind in (item.kind, "something") and self._fits(item):
                low, high = low + 1, high + 1
        return low, high

    def _fits(self, item: Item) -> bool:
        if item.kind == "soup" and ("cooking" in self.how or not self._of(item)):
            return False
        return not ("plated" in self.how and item.kind != "soup")

    def _of(self, soup: Item) -> bool:
        """True if a soup is of as many onions as said, and of nothing else."""
        return self.onions is None or (self.onions, 0) == (soup.onions, soup.tomatoes)

    def matches(self, low: int, high: int) -> Truth:
        """Truth value of the claim that `low` to `high` such things are as many as said."""
        if self.number is not None:
            return counted(self.number, low, high) if self.number else (False if low else None if high else True)
        if high == 0:
            return False
        return True if low > (1 if self.several else 0) else None

    def in_pot(self, soup: Item | None) -> Truth:
        """Truth value of the claim that a pot holds so many such things."""
        if self.kind == "something":
            return inverse(soup is None) if self.number is None else soup is None
        if self.kind == "onion":
            return self._onions_in_pot(soup)
        if self.kind == "dish" or "plated" in self.how or soup is None or soup.tick < 0:
            return self.matches(0, 0)
        if not self._of(soup) or ("cooking" if soup.ready else "ready") in self.how:
            return self.matches(0, 0)
        # What cooks may or may not be called a soup, unless the sentence says that it cooks.
        return self.matches(int(soup.ready or "cooking" in self.how), 1)

    def _onions_in_pot(self, soup: Item | None) -> Truth:
        onions = soup.onions if soup is not None else 0
        if self.of_three:
            return self.number == onions and (soup is None or soup.tick < 0)
        if self.number is None:
            right: Truth = None if self.several and onions == 1 else onions > 0
        else:
            right = self.number == onions
        # When a soup is ready its onions are onions no more; while it cooks they are, and can be counted.
        return None if soup is not None and soup.ready and (right is not False or not self.number) else right


def thing(phrase: str) -> NounPhrase | None:
    """Things that a phrase speaks of, or `None`."""
    if phrase in ("nothing", "something"):
        return NounPhrase("something", 0 if phrase == "nothing" else None)
    match = _ITEM.fullmatch(phrase)
    if match is None or match["more"]:
        return None
    how = tuple(match["how"].split())
    allowed = {"onion": (), "dish": ("empty",), "soup": ("ready", "cooking", "plated")}[match["kind"]]
    if any(word not in allowed for word in how) or (match["onions"] and match["kind"] != "soup"):
        return None
    det, plural = match["det"], bool(match["plural"])
    of_three = bool(det) and det.endswith(f" of {FULL}")
    if of_three and match["kind"] != "onion":
        return None
    number = 0 if det == "no" else int(det.split()[0]) if det and det[0].isdigit() else None
    onions = int(match["onions"]) if match["onions"] else None
    return NounPhrase(match["kind"], number, plural and det in ("some", "any"), of_three, how, onions)


LONGEST = 400
"""Longer texts are not read."""


@dataclass(frozen=True)
class _Scene:
    """State that sentences are checked against."""

    kitchen: SoupKitchen
    places: Places
    soups: int | None


def check_sentence(kitchen: SoupKitchen, sentence: str, soups: int | None = None, speaker: int | None = None) -> Truth:
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
        if cells.plural and cells.free and what.number and len(cells.things) > 1:
            return None  # three onions in the pots: each, or together?
        return cells.holds(lambda cell: what.in_pot(scene.kitchen.item(cell)), negated)
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
        """Whether what is said is true of the soup in a pot; `None` if there is none to be said to be not so."""
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
