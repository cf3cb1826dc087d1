"""Free wording to a small fixed vocabulary, before `checker` reads it.

After `plain`: cooks are "alice", "bob" or "cook(s)"; places are "pot", "crate", "stack", "serving", "counter", "floor
x:y"; things are "onion", "dish", "soup"; numbers are digits; the verbs are "is", "holds", "faces", "reaches", "needs".
Each rule is one pass of a regular expression without nested repetition over a text of bounded length.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
_NOUNS: tuple[tuple[str, str], ...] = (
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
_NOUN_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _NOUNS)
_VERB_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _VERBS)
_NUMBER = re.compile(rf"\b(?:{'|'.join(_DIGITS)})\b")
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
    text = _NUMBER.sub(lambda match: str(_DIGITS[match[0]]), text)
    for pattern, replacement in _VERB_RULES:
        text = pattern.sub(replacement, text)
    text = " ".join(text.replace(" ,", ",").split())
    text = _NUMBER_LIST.sub(lambda match: _AND.sub("+", match[0]), text)
    return text if _ALLOWED.fullmatch(text) else None


def clauses(text: str) -> list[list[str]]:
    """The clauses of each sentence of a plain text."""
    sentences = (sentence.strip(" ,;") for sentence in text.split("."))
    return [[part.strip() for part in _SPLIT.split(sentence)] for sentence in sentences if sentence]
