"""Textual observations of a commander: own units, those of the others, the enemy in sight, orders in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rllib_llm_comm.envs.minirts.engine.units import (
    ARMY,
    BUILDINGS,
    COST,
    MADE_BY,
    PEASANT,
    TOWN_HALL,
)
from rllib_llm_comm.envs.minirts.executor import Executor
from rllib_llm_comm.envs.minirts.side import Side, told_sentences
from rllib_llm_comm.envs.minirts.words import (
    COMMANDERS,
    KINDS,
    PLURAL,
    SINGULAR,
    TRAINED,
    Command,
    counted,
    group,
    listing,
    phrase,
)

_DOING = {"attack": "attacks", "defend": "defends", "scout": "scouts"}
_BEATS = (
    "Swordmen beat spearmen, spearmen beat cavalry, cavalry beats swordmen, and all three beat archers. Archers beat "
    "dragons, dragons beat swordmen, spearmen and cavalry. Catapults beat buildings and hurt no army but catapults."
)


def observation_text(executor: Executor, commander: int, max_tick: int = 0) -> str:
    """Textual observation of a commander at a decision; every sentence of it is true of the moment.

    Args:
        executor: The side's officers.
        commander: Its number.
        max_tick: Tick at which the game is a draw; 0 for never.
    """
    side = executor.side
    sentences = [f"You are {COMMANDERS[commander]}.", *told_sentences(side, commander)]
    sentences += situation_sentences(side)
    sentences += commander_sentences(executor, commander, speaker=True)
    for other in range(side.size):
        if other != commander:
            sentences.append(f"{COMMANDERS[other].capitalize()} commands {group(side.counts(other))}.")
    sentences.append(f"It is tick {side.game.tick}{f' of {max_tick}' if max_tick else ''}.")
    return " ".join(sentences)


def situation_sentences(side: Side) -> list[str]:
    """Sentences that all commanders of a side share: money, building sites, the enemy in sight."""
    sentences = [f"The team has {side.money} gold."]
    coming = Counter(unit.making for unit in side.own if unit.making >= 0)
    if any(coming[kind] for kind in BUILDINGS):
        sentences.append(f"Peasants build {group({kind: coming[kind] for kind in BUILDINGS})}.")
    if any(coming[kind] for kind in TRAINED):
        sentences.append(f"Buildings train {group({kind: coming[kind] for kind in TRAINED})}.")
    seen = side.enemy_counts()
    sentences.append(f"You know of {group(seen)} of the enemy." if seen else "You know of no enemy.")
    if not seen[TOWN_HALL]:
        sentences.append("The enemy town hall is not found.")
    if side.threats():
        sentences.append("Enemies are near your buildings.")
    return sentences


def enemy_sentence(side: Side) -> str:
    """All that the enemy has, whoever sees it, in one sentence; no commander is told it."""
    has = Counter(unit.type for unit in side.game.units(1 - side.player))
    return f"In truth the enemy has {group(has)}." if has else "In truth the enemy has nothing left."


def commander_sentences(executor: Executor, commander: int, speaker: bool = False) -> list[str]:
    """Sentences on a commander's units and the orders in force for them; a speaker is called "you"."""
    side, mine = executor.side, executor.orders[commander]
    name = COMMANDERS[commander].capitalize()
    who, whose = ("You command", "Your") if speaker else (f"{name} commands", f"{name}'s")
    counts = side.counts(commander)
    sentences = [f"{who} {group(counts)}."]
    if counts[PEASANT]:
        idle = sum(unit.order == "IDLE" for unit in side.units_of(commander, PEASANT))
        if idle:
            are = "is" if idle == 1 else "are"
            sentences.append(f"{counted(PEASANT, idle)} of {'yours' if speaker else whose} {are} idle.")
        if mine.mining:
            sentences.append(f"{whose} peasants shall mine.")
    if any(counts[kind] for kind in ARMY):
        sentences.append(f"{whose} army {_DOING[mine.stance]}.")
    if mine.jobs:
        waiting = listing(phrase(job.command) for job in mine.jobs)
        sentences.append(f"{whose} open commands: {waiting}.")
    return sentences


def event_text(commander: int, command: Command, success: bool) -> str:
    """End of a command, done or given up, in words."""
    how = "done" if success else "given up"
    return f"{COMMANDERS[commander]}: {phrase(command)} {how}"


def task() -> str:
    """The goal of an episode in words."""
    return "destroy the town hall of the enemy before it destroys yours"


def brief(num_commanders: int, rules: Sequence[str] = ()) -> str:
    """The game in a few sentences, for so many commanders and with further rules."""
    who = listing(name.capitalize() for name in COMMANDERS[:num_commanders])
    shared = (
        f"{who} command one side together: they share gold and sight, and each has its own units."
        if num_commanders > 1
        else f"{who} commands one side."
    )
    return " ".join(["A strategy game on a map with fog.", shared, *rules, _production(), _BEATS])


def manual() -> list[str]:
    """The rules that a planner needs, in sentences."""
    prices = listing(f"{SINGULAR[kind]} {COST[kind]}" for kind in KINDS)
    return [
        "Who destroys all town halls of the enemy wins.",
        "Peasants dig gold out of resources and bring it to the town hall; a load is 10 gold.",
        _production(),
        f"Prices in gold: {prices}.",
        _BEATS,
        "Guard towers shoot at enemies that come near.",
        "One sees only what is near to own units and buildings; buildings that were seen are remembered.",
        "New units go to the commanders in turn, type by type; buildings do so as well.",
        "To train a commander needs a building of its own that makes the unit, to build a peasant of its own.",
    ]


def _production() -> str:
    made = []
    for house in BUILDINGS:
        kinds = [kind for kind in TRAINED if MADE_BY[kind] == house]
        if kinds:
            made.append(f"a {SINGULAR[house]} trains {listing(PLURAL[kind] for kind in kinds)}")
    return f"Peasants put up buildings; {listing(made)}."
