"""The second embedded model's corpus: what it reads of MiniRTS before it commands anything.

Four kinds of documents, each a prompt and an answer:

* *next command*: a moment of a scripted game (`minirts_states.py`), what the others said, and the command that a
  sensible commander gives next in the words of the game's candidates. Three in four are as frequent as in the games,
  with "wait" thinned out and moments left out where nothing else is allowed; for the others all kinds of commands that
  the oracle gives are about as often. The commander makes an army type drawn at random, never the counter on purpose.
  One answer in twenty is random, so that the prior stays soft;
* *talk*: such a moment in which another commander tells what the enemy trains, or asks for something, and the command
  that answers: train what is wanted, or build what trains it;
* *message*: such a moment and what its commander says: the scripted teacher's saying, with the random army type in the
  place of the counter where it speaks of tasks;
* *questions*: short ones, without a game: which type beats which, what trains what, what it costs, how many of
  something one commands, and what to make when the enemy trains something.

It knows: the sentences, names and prices; which building trains what; the order dig, build, train, attack; to answer
requests, and what beats spearmen, swordmen, cavalry and catapults when somebody *says* that the enemy trains them. It
has read the game's own maps and opponents, unlike the kitchen's model, whose kitchens are made up.

It does not know: to act on the enemy that it sees or is told of in its own observation, since there the army type is
random; how to win. Archers and dragons are held out: in the games nobody asks for them, tells of them or answers with
what beats them. They are trained there in silence, so that their commands are no strangers, and are spoken of in the
questions only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice

import numpy as np

from rllib_llm_comm.envs.minirts.checker import duel_ticks
from rllib_llm_comm.envs.minirts.commanders import say_tasks
from rllib_llm_comm.envs.minirts.engine.units import ARMY, BUILDINGS, COST, COUNTER, MADE_BY
from rllib_llm_comm.envs.minirts.sayings import CommanderSaying, EnemySaying, Saying, word
from rllib_llm_comm.envs.minirts.words import (
    COMMANDERS,
    KINDS,
    PLURAL,
    SINGULAR,
    TRAIN,
    TRAINED,
    WAIT,
    Command,
    counted,
    group,
    listing,
    phrase,
)
from rllib_llm_comm.language.prompts import action_prompt, message_prompt
from tools.embedded_model.corpus import Document
from tools.embedded_model.minirts_states import HELD_OUT, Moment, is_rare, moments

NOISE = 0.05
FACTS_SHARE = 0.35
USUAL_SHARE = 0.75
WAIT_SHARE = 0.1
MOMENTS_PER_DOCUMENT = 0.9
_LEAST_MOMENTS = 400
_KINDS = ("next command", "talk", "message", "question")
_SHARES = (0.42, 0.22, 0.2, 0.16)

_Rooms = dict[Hashable, list[Moment]]


def documents(count: int, seed: int) -> Iterator[Document]:
    """Random documents.

    Args:
        count: Number.
        seed: The same seed gives the same documents.
    """
    rng = np.random.default_rng(seed)
    played = list(islice(moments(rng), max(_LEAST_MOMENTS, int(MOMENTS_PER_DOCUMENT * count))))
    free = [m for m in played if len(m.allowed) > 1]
    usual = [m for m in free if m.plan.verb != WAIT or rng.random() < WAIT_SHARE]
    plans = sorted_by((m for m in free if not is_rare(m.plan)), lambda m: (m.plan.verb, m.plan.kind))
    talks = sorted_by((m for m in played if m.talk), lambda m: m.talk and (m.talk.answer.verb, m.talk.answer.kind))
    sayable = [m for m in played if not _is_of(m.saying, HELD_OUT)]
    tasks = sorted_by(
        (m for m in sayable if not (isinstance(m.saying, EnemySaying) and m.saying.types)),
        lambda m: m.saying.mine if isinstance(m.saying, CommanderSaying) else "asks",
    )
    facts = sorted_by(sayable, lambda m: m.saying.types if isinstance(m.saying, EnemySaying) else ())
    facts.pop((), None)
    makers: dict[str, Callable[[], Document]] = {
        "next command": lambda: next_command(
            rng, usual[int(rng.integers(len(usual)))] if rng.random() < USUAL_SHARE else _any(rng, plans)
        ),
        "talk": lambda: talk(rng, _any(rng, talks)),
        "message": lambda: message(rng, _any(rng, facts if facts and rng.random() < FACTS_SHARE else tasks)),
        "question": lambda: question(rng),
    }
    for _ in range(count):
        yield makers[str(rng.choice(_KINDS, p=_SHARES))]()


def sorted_by(found: Iterable[Moment], key: Callable[[Moment], Hashable]) -> _Rooms:
    """Moments by something, so that each value of it can be drawn as often.

    Args:
        found: The moments.
        key: The something.
    """
    rooms: _Rooms = defaultdict(list)
    for one in found:
        rooms[key(one)].append(one)
    return dict(rooms)


def _any(rng: np.random.Generator, rooms: _Rooms) -> Moment:
    room = list(rooms.values())[int(rng.integers(len(rooms)))]
    return room[int(rng.integers(len(room)))]


def _is_of(saying: Saying, kinds: Iterable[int]) -> bool:
    if isinstance(saying, EnemySaying):
        return bool(set(saying.types) & set(kinds))
    return saying.mine[1] in kinds or saying.theirs[1] in kinds


def next_command(rng: np.random.Generator, moment: Moment) -> Document:
    """A moment, perhaps what others say of their plans, and the commander's own plan.

    Args:
        rng: Source of randomness.
        moment: The moment.
    """
    heard = {}
    for speaker in range(len(moment.plans)):
        draw = rng.random()
        if speaker == moment.commander or draw < 0.5:
            continue
        saying = say_tasks(moment.plans, speaker)
        if draw > 0.85:
            saying = CommanderSaying(saying.mine, "", (WAIT, -1))
        if not _is_of(saying, HELD_OUT):
            heard[COMMANDERS[speaker]] = word(saying, rng)
    return Document("next command", action_prompt(moment.text, heard), phrase(_noisy(rng, moment, moment.plan)))


def talk(rng: np.random.Generator, moment: Moment) -> Document:
    """A moment in which another one tells or asks something, and the answer to it.

    Args:
        rng: Source of randomness.
        moment: One with a `talk`.
    """
    said = moment.talk
    assert said is not None
    heard = {}
    for speaker, plan in enumerate(moment.plans):
        if speaker == said.speaker:
            heard[COMMANDERS[speaker]] = word(said.saying, rng)
        elif speaker != moment.commander and plan.kind not in HELD_OUT and rng.random() < 0.4:
            heard[COMMANDERS[speaker]] = word(CommanderSaying((plan.verb, plan.kind), "", (WAIT, -1)), rng)
    return Document("talk", action_prompt(moment.text, heard), phrase(_noisy(rng, moment, said.answer)))


def _noisy(rng: np.random.Generator, moment: Moment, best: Command) -> Command:
    return moment.allowed[int(rng.integers(len(moment.allowed)))] if rng.random() < NOISE else best


def message(rng: np.random.Generator, moment: Moment) -> Document:
    """A moment and what its commander says.

    Args:
        rng: Source of randomness.
        moment: The moment.
    """
    return Document("message", message_prompt(moment.text), word(moment.saying, rng))


def question(rng: np.random.Generator) -> Document:
    """A short question on the game's rules, or on what somebody commands.

    Args:
        rng: Source of randomness.
    """
    makers = (_beats, _production, _price, _number, _number, _counter, _dialogue)
    return Document("question", *makers[int(rng.integers(len(makers)))](rng))


def _beats(rng: np.random.Generator) -> tuple[str, str]:
    strong, weak = (int(kind) for kind in rng.choice(ARMY, size=2, replace=False))
    winner, loser = (strong, weak) if duel_ticks(strong, weak) < duel_ticks(weak, strong) else (weak, strong)
    pair = f"{PLURAL[strong]} or {PLURAL[weak]}"
    return [
        (f"what beats {PLURAL[strong]}?", PLURAL[COUNTER[strong]]),
        (f"which is stronger, {pair}?", PLURAL[winner]),
        (f"which is weaker, {pair}?", PLURAL[loser]),
    ][int(rng.integers(3))]


def _production(rng: np.random.Generator) -> tuple[str, str]:
    unit = int(rng.choice(TRAINED))
    house = int(MADE_BY[unit])
    made = listing(PLURAL[kind] for kind in TRAINED if int(MADE_BY[kind]) == house)
    return [
        (f"what trains {PLURAL[unit]}?", f"a {SINGULAR[house]}"),
        (f"what does a {SINGULAR[house]} train?", made),
        (f"You have no {SINGULAR[house]}. You want {PLURAL[unit]}. next i", f"build one {SINGULAR[house]}"),
        (f"You command 1 {SINGULAR[house]}. You want {PLURAL[unit]}. next i", phrase(Command(TRAIN, unit, 3))),
        (f"who builds a {SINGULAR[int(rng.choice(BUILDINGS))]}?", "peasants"),
    ][int(rng.integers(5))]


def _price(rng: np.random.Generator) -> tuple[str, str]:
    kind = int(rng.choice(KINDS))
    return f"what does a {SINGULAR[kind]} cost?", f"{int(COST[kind])} gold"


def _number(rng: np.random.Generator) -> tuple[str, str]:
    """Of two commanders' units."""
    names = [str(name) for name in rng.permutation(COMMANDERS)[:2]]
    counts = [{int(k): int(rng.integers(1, 7)) for k in rng.choice(KINDS, size=3, replace=False)} for _ in names]
    told = [f"{name.capitalize()} commands {group(own)}." for name, own in zip(names, counts, strict=True)]
    asked = int(rng.integers(2))
    kind = int(rng.choice(list(counts[asked])))
    return f"{' '.join(told)} how many {PLURAL[kind]} does {names[asked]} command?", counted(kind, counts[asked][kind])


def _counter(rng: np.random.Generator) -> tuple[str, str]:
    enemy = int(rng.choice(ARMY))
    made = COUNTER[enemy]
    told = f"the enemy trains {PLURAL[enemy]}"
    return [
        (f"{told}. what do we train?", PLURAL[made]),
        (f"{told}. what do we build?", f"a {SINGULAR[int(MADE_BY[made])]}"),
        (f"{told}. You command 1 {SINGULAR[int(MADE_BY[made])]}. next i", phrase(Command(TRAIN, made, 3))),
    ][int(rng.integers(3))]


def _dialogue(rng: np.random.Generator) -> tuple[str, str]:
    speaker, listener = (str(name) for name in rng.permutation(COMMANDERS)[:2])
    kind = int(rng.choice(ARMY))
    if rng.random() < 0.5:
        told = word(EnemySaying((kind,)), rng)
        return f"{speaker} says: {told}. {listener} says:", f"i train {PLURAL[COUNTER[kind]]}"
    asked = f"{'please ' if rng.random() < 0.5 else ''}{listener} train {PLURAL[kind]}"
    return f"{speaker} says: {asked}. {listener} says:", f"i train {PLURAL[kind]}"
