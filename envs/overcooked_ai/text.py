"""A kitchen in words: what a cook reads, what each of its actions would do, and the manual, which does not change.

All text is printable ASCII. `checker` proves every sentence that is made here of a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from rllib_llm_comm.core.errors import require_choice
from rllib_llm_comm.envs.overcooked_ai import rules
from rllib_llm_comm.envs.overcooked_ai.kernel import (
    CELLS,
    FACING,
    FIELDS,
    HELD,
    HELD_CONTENTS,
    IDLE,
    NOTHING,
    PLAYER,
    X,
    Y,
)
from rllib_llm_comm.envs.overcooked_ai.layouts import (
    COUNTER,
    DISHES,
    DYNAMICS,
    FLOOR,
    ONIONS,
    POT,
    SERVING,
    TOMATOES,
    Cell,
    Layout,
)
from rllib_llm_comm.envs.overcooked_ai.places import COOKS, KIND_WORDS, STEPS, Places, capital, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, FULL, SOUP_REWARD, SOUPS, contents, ingredients
from rllib_llm_comm.envs.overcooked_ai.rules import ACTION_NAMES, KIND_NAMES, Item, SoupKitchen, effect
from rllib_llm_comm.envs.overcooked_ai.wanted import WantedPot, told_words

LIMIT = 1000
"""No observation has as many characters; in huge kitchens what does not fit is left out."""
_MORE = "There is more."
_READS = "you"
_REMEMBERED = 50_000


class _Spot(NamedTuple):
    """A pot or counter: where its content is in the state, and its name."""

    at: int
    phrase: str
    family: str
    number: str


class _KitchenText(NamedTuple):
    """Constant parts of a kitchen's text."""

    places: Places
    pots: tuple[_Spot, ...]
    counters: tuple[_Spot, ...]
    classic: bool
    times: tuple[int, ...]
    known: dict[Hashable, Any]
    """Words by what they depend on, of moments that were seen before: at most `_REMEMBERED`."""

    def remembered(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Words that are made once."""
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            found = self.known[key] = make()
        return found


@lru_cache(maxsize=32)
def _scene(layout: Layout) -> _KitchenText:
    places = places_of(layout)

    def spots(kind: int) -> tuple[_Spot, ...]:
        """Where the state keeps what lies on the fixtures of a kind, and how they are named."""
        found = []
        for x, y in places.fixtures[kind]:
            family, _, number = places.names[x, y].rpartition(" ")
            found.append(_Spot(CELLS + 3 * (y * layout.width + x), places.phrases[x, y], family, number))
        return tuple(found)

    return _KitchenText(places, spots(POT), spots(COUNTER), layout.classic, layout.recipes.times, {})


def state_sentences(kitchen: SoupKitchen, soups: int = 0) -> list[str]:
    """Changing state apart from the cooks: a sentence per pot and per occupied counter, time left, soups delivered."""
    state: list[int] = kitchen.state.tolist()
    scene = _scene(kitchen.layout)
    counters = [
        _lying_sentence(spot.phrase, *state[spot.at : spot.at + 2], scene.classic)
        for spot in scene.counters
        if state[spot.at]
    ]
    return [*_pot_sentences(scene, state), *counters, *_end_sentences(kitchen, state, soups)]


def cook_sentences(kitchen: SoupKitchen, i: int) -> list[str]:
    """Place of a cook, the cell it faces and the item it holds, in the third person."""
    return _cook_sentences(_scene(kitchen.layout), kitchen.state.tolist(), i, None)


def observation_text(kitchen: SoupKitchen, i: int, soups: int = 0) -> str:
    """Textual observation: the cook itself ("You hold an onion."), the other cook, pots, counters, time, soups."""
    state: list[int] = kitchen.state.tolist()
    scene = _scene(kitchen.layout)
    cooks, things = tuple(state[PLAYER:CELLS]), kitchen.state[CELLS:].tobytes()
    parts = [
        f"You are {COOKS[i]}.",
        *wanted_sentence(kitchen, i),
        scene.remembered((i, cooks), lambda: _joined(_both_cooks(scene, state, i))),
        scene.remembered(things, lambda: _joined(_things(scene, state))),
        *origin_sentences(kitchen, i),
    ]
    text, end = " ".join(parts), " ".join(_end_sentences(kitchen, state, soups))
    if len(text) + len(end) + 1 >= LIMIT:
        told = wanted_sentence(kitchen, i), _both_cooks(scene, state, i), _things(scene, state)
        sentences = [parts[0], *(sentence for some in told for sentence in some), *origin_sentences(kitchen, i)]
        text = _shortened(sentences, LIMIT - len(end) - 2)
    return f"{text} {end}"


def _both_cooks(scene: _KitchenText, state: list[int], i: int) -> list[str]:
    return [*_cook_sentences(scene, state, i, i), *_cook_sentences(scene, state, 1 - i, i)]


def _things(scene: _KitchenText, state: list[int]) -> list[str]:
    return [*_pot_sentences(scene, state), *_grouped_sentences(scene, state)]


_joined = " ".join


def primitive_phrases(kitchen: SoupKitchen, i: int) -> list[str]:
    """Effect of each of the six actions of a cook if the other cook stayed: different ends of "I will ..."."""
    state: list[int] = kitchen.state.tolist()
    own, other = PLAYER + FIELDS * i, PLAYER + FIELDS * (1 - i)
    dx, dy = STEPS[state[own + FACING]]
    faced = CELLS + 3 * ((state[own + Y] + dy) * kitchen.layout.width + state[own + X] + dx)
    key = (kitchen.dynamics, *state[own : own + FIELDS], *state[other : other + 2], *state[faced : faced + 3])
    return list(_scene(kitchen.layout).remembered(key, lambda: _primitive_phrases(kitchen, i)))


def _primitive_phrases(kitchen: SoupKitchen, i: int) -> tuple[str, ...]:
    cook, other = kitchen.cook(i), kitchen.cook(1 - i).cell
    phrases = []
    for way, (dx, dy) in enumerate(STEPS):
        there = (cook.cell[0] + dx, cook.cell[1] + dy)
        blocked = there == other or kitchen.layout.kind(there) != FLOOR
        verb = "go" if not blocked else "keep facing" if cook.facing == way else "turn"
        phrases.append(f"{verb} {ACTION_NAMES[way]}")
    dx, dy = STEPS[cook.facing]
    cell = (cook.cell[0] + dx, cook.cell[1] + dy)
    use = _use(kitchen, cook.held, cell, places_of(kitchen.layout).phrases[cell], "take")
    return (*phrases, "stay", use or "do nothing with your hands")


def target_phrases(kitchen: SoupKitchen, i: int, cells: Sequence[Cell]) -> list[str]:
    """Effect of going to each of some cells and using it, in the present state, in as many different phrases."""
    cook, places = kitchen.cook(i), places_of(kitchen.layout)
    still, usable = _targets(kitchen.layout, places.room_of[cook.cell], tuple(cells))
    phrases = list(still)
    for position in usable:
        cell = cells[position]
        phrases[position] = _use(kitchen, cook.held, cell, places.phrases[cell], "fetch") or phrases[position]
    if cook.cell in cells:
        phrases[cells.index(cook.cell)] = f"stay on {places.phrases[cook.cell]}"
    return phrases


@lru_cache(maxsize=256)
def _targets(layout: Layout, room: int, cells: tuple[Cell, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """A phrase per cell as if nothing could be done there, and the positions of cells where something may be done."""
    places, phrases, usable = places_of(layout), [], []
    for position, cell in enumerate(cells):
        place = places.phrases[cell]
        if cell not in places.reach[room]:
            phrases.append(f"stay because {place} is out of reach")
        elif layout.kind(cell) == FLOOR:
            phrases.append(f"go to {place}")
        else:
            phrases.append(f"wait by {place}")
            usable.append(position)
    return tuple(phrases), tuple(usable)


def _use(kitchen: SoupKitchen, held: Item | None, cell: Cell, place: str, take: str) -> str:
    """Effect of using a cell, or nothing."""
    done = effect(kitchen, held, cell)
    if done == rules.NONE:
        return ""
    if done == rules.TAKE:
        return f"{take} {_taken(kitchen, cell)} from {place}"
    if done == rules.PLATE:
        return f"fill the dish with the soup from {place}"
    if done == rules.START:
        return f"start cooking in {place}"
    thing = held.kind if held is not None else "nothing"
    return {
        rules.PUT: f"put the {thing} on {place}",
        rules.ADD: f"put the {thing} into {place}",
        rules.DELIVER: f"deliver the {thing} at {place}",
    }[done]


def _taken(kitchen: SoupKitchen, cell: Cell) -> str:
    if (item := kitchen.item(cell)) is not None:
        return item_words(item, kitchen.layout.classic)
    return {ONIONS: "an onion", DISHES: "a dish"}.get(kitchen.layout.kind(cell), "a tomato")


def item_words(item: Item | None, classic: bool = False) -> str:
    """What somebody holds, such as "an onion"; in classic kitchens a soup of three onions is just "a soup"."""
    if item is None:
        return "nothing"
    return _item_words(KIND_NAMES.index(item.kind), contents(item.onions, item.tomatoes), classic)


@lru_cache(maxsize=32)
def _item_words(kind: int, inside: int, classic: bool) -> str:
    return ("nothing", "an onion", "a dish", f"a soup{_size(inside, classic)}", "a tomato")[kind]


def _size(inside: int, classic: bool) -> str:
    """Ingredients of a soup; where only three onions bring points it is said only if it is not of three."""
    return "" if classic and inside == FULL else f" of {soup_of(inside)}"


def _cook_sentences(scene: _KitchenText, state: list[int], i: int, reader: int | None) -> list[str]:
    places = scene.places
    at, other = PLAYER + FIELDS * i, PLAYER + FIELDS * (1 - i)
    x, y, facing = state[at + X], state[at + Y], state[at + FACING]
    dx, dy = STEPS[facing]
    faced = (x + dx, y + dy)
    seen = places.phrases[faced]
    if faced == (state[other + X], state[other + Y]):
        seen = _READS if reader == 1 - i else COOKS[1 - i]
    held = _item_words(state[at + HELD], state[at + HELD_CONTENTS], scene.classic)
    room = places.room_names.get(places.room_of[x, y])
    name = places.names[x, y]
    if i == reader:
        here = [f"You are in the {room}."] if room else []
        return [*here, f"You stand on {name} and face {seen}.", f"You hold {held}."]
    who = COOKS[i].capitalize()
    here = [f"{who} is in the {room}."] if room else []
    return [*here, f"{who} stands on {name} and faces {seen}.", f"{who} holds {held}."]


def _pot_sentences(scene: _KitchenText, state: list[int]) -> list[str]:
    sentences = []
    for spot in scene.pots:
        kind, inside, tick = state[spot.at : spot.at + 3]
        sentences.append(_pot_sentence(spot.phrase, kind, inside, tick, scene.times[inside], scene.classic))
    return sentences


@lru_cache(maxsize=4096)
def _pot_sentence(phrase: str, kind: int, inside: int, tick: int, time: int, classic: bool) -> str:
    pot = phrase[0].upper() + phrase[1:]
    if kind == NOTHING:
        return f"{pot} is empty."
    if tick == IDLE:
        waits = " and does not cook" if sum(ingredients(inside)) == FULL else ""
        held = f"{inside} of {FULL} onions" if classic else soup_of(inside)
        return f"{pot} holds {held}{waits}."
    if tick >= time:
        return f"{pot} has a ready soup{_size(inside, classic)}."
    size = _size(inside, classic)
    what = f" a soup{size}" if size else ""
    return f"{pot} cooks{what} for {time - tick} more step{'s' if tick != time - 1 else ''}."


@lru_cache(maxsize=4096)
def _lying_sentence(phrase: str, kind: int, inside: int, classic: bool) -> str:
    words = _item_words(kind, inside, classic)
    return f"{words[0].upper()}{words[1:]} lies on {phrase}."


def _grouped_sentences(scene: _KitchenText, state: list[int]) -> list[str]:
    """The occupied counters, equal things in one sentence."""
    groups: dict[tuple[str, int, int], list[_Spot]] = {}
    for spot in scene.counters:
        if state[spot.at]:
            groups.setdefault((spot.family, state[spot.at], state[spot.at + 1]), []).append(spot)
    sentences = []
    for (family, kind, inside), spots in groups.items():
        if len(spots) == 1:
            sentences.append(_lying_sentence(spots[0].phrase, kind, inside, scene.classic))
        else:
            things = ("", "Onions", "Dishes", f"Soups{_size(inside, scene.classic)}", "Tomatoes")[kind]
            sentences.append(f"{things} lie on {family}s {listed([spot.number for spot in spots])}.")
    return sentences


def _end_sentences(kitchen: SoupKitchen, state: list[int], soups: int) -> list[str]:
    left = max(0, kitchen.horizon - state[0])
    time = "1 step is left." if left == 1 else f"{left} steps are left."
    if soups == 0:
        return [time, "No soup is delivered yet."]
    return [time, "1 soup is delivered." if soups == 1 else f"{soups} soups are delivered."]


def _shortened(sentences: list[str], limit: int) -> str:
    """First sentences as far as they fit, with a note that there are more."""
    kept, length = [], len(_MORE)
    for sentence in sentences:
        length += len(sentence) + 1
        if length > limit:
            break
        kept.append(sentence)
    return " ".join([*kept, _MORE])


# ---- the wanted pot ----------------------------------------------------------------------------------


def wanted_sentence(kitchen: SoupKitchen, player: int) -> list[str]:
    """Sentence on the pot whose soups pay, as far as a player is told; none where all pay."""
    wanted = kitchen.wanted
    if wanted is None:
        return []
    if wanted.told[player]:
        return [f"Only soup from {places_of(kitchen.layout).phrases[wanted.pot]} brings points."]
    return ["Only soup from one of the pots brings points, and you are not told which."]


def origin_sentences(kitchen: SoupKitchen, player: int) -> list[str]:
    """The pot of each soup that is held or lies on a counter, as a player reads it."""
    if kitchen.wanted is None:
        return []
    phrases, sentences = places_of(kitchen.layout).phrases, []
    for where, pot in sorted(kitchen.wanted.origins.items(), key=lambda entry: str(entry[0])):
        if isinstance(where, int):
            soup = "Your soup" if where == player else f"{COOKS[where].capitalize()}'s soup"
        else:
            soup = f"The soup on {phrases[where]}"
        sentences.append(f"{soup} is from {phrases[pot]}.")
    return sentences


def wanted_rules(wanted: WantedPot) -> list[str]:
    """The rule of the wanted pot in sentences that are the same in every episode."""
    pots = f"{', '.join(f'the {name}' for name in wanted.names[:-1])} or the {wanted.names[-1]}"
    rules = [
        f"In each game only soups from one wanted pot bring points, {pots}, and {told_words(wanted.told_to)} which.",
    ]
    if wanted.anew:
        rules.append("After each soup that brings points the wanted pot is drawn anew.")
    return rules


# ---- the manual: the rules and the map of a kitchen --------------------------------------------------

_FIXTURES = (ONIONS, TOMATOES, POT, DISHES, SERVING)
_START = {
    "old": "A pot starts to cook by itself as soon as three {} are in it, and never with fewer.",
    "new": "A pot with one, two or three {} starts to cook when a cook with empty hands uses it.",
}


def task(layout: Layout, wanted: bool = False) -> str:
    """The goal of an episode in words, perhaps with a wanted pot."""
    source = " from the wanted pot" if wanted else ""
    if not layout.classic:
        return f"earn as many points as you can with soups{source} for {_serving(layout)} before the time is over"
    return f"deliver as many onion soups{source} as you can to {_serving(layout)} before the time is over"


def brief(layout: Layout, dynamics: str = "old") -> str:
    """The game in a few sentences, for a reader that does not know it; `dynamics` as of `rules.SoupKitchen`."""
    require_choice("dynamics", dynamics, DYNAMICS)
    start = "starts by itself" if dynamics == "old" else "starts when a cook with empty hands uses it"
    if not layout.classic:
        count = "three" if dynamics == "old" else "one to three"
        return (
            f"Two cooks, {COOKS[0]} and {COOKS[1]}, make soups together. {capital(count)} ingredients go into a pot, "
            f"which then {start}. {' '.join(menu(layout))} A ready soup is taken with a dish and delivered to "
            f"{_serving(layout)}. A cook holds one thing at a time. " + " ".join(_map_sentences(layout))
        )
    return (
        f"Two cooks, {COOKS[0]} and {COOKS[1]}, make onion soups together. Three onions go into a pot, which then "
        f"{start} and cooks for {COOK_TIME} steps. A ready soup is taken with a dish and delivered to "
        f"{_serving(layout)} for {SOUP_REWARD} points. A cook holds one thing at a time. "
        + " ".join(_map_sentences(layout))
    )


def manual(layout: Layout, dynamics: str = "old") -> list[str]:
    """The facts of the game and of the map, one sentence each; `dynamics` as of `rules.SoupKitchen`."""
    require_choice("dynamics", dynamics, DYNAMICS)
    if layout.classic:
        what, soups, none, takes = "onions", "onion soups", "neither", f", which takes {COOK_TIME} steps"
        worth = [f"A delivered soup of three onions brings {SOUP_REWARD} points."]
        worth += [] if dynamics == "old" else ["A soup of fewer than three onions brings no points."]
    else:  # other soups may be ordered, too
        what, soups, none, takes = "ingredients", "soups", "none", ""
        crates = "Onions and tomatoes are ingredients." if layout.has_tomatoes else "Onions are ingredients."
        worth = [*menu(layout), crates]
    tomatoes = ", tomato crates give tomatoes" if layout.has_tomatoes else ""
    return [
        f"Two cooks, {COOKS[0]} and {COOKS[1]}, make {soups} together and share all points.",
        *worth,
        f"A cook holds at most one thing: an {what[:-1]}, a dish or a soup.",
        "To use something a cook stands beside it, faces it and interacts.",
        f"Onion crates give onions{tomatoes} and dish stacks give dishes, and {none} ever runs out.",
        f"{capital(what)} are put into a pot one by one, three at most.",
        _START[dynamics].format(what),
        f"Nothing can be added while a pot cooks{takes}.",
        "A ready soup stays good and waits in its pot.",
        "Only a cook with a dish can take a ready soup, and the pot is empty then.",
        "A soup that is brought to a serving counter is delivered.",
        "A counter has room for one thing, which either cook may take if it can reach it.",
        "Two cooks cannot stand in one place, pass through each other or change places in one step.",
        *map_facts(layout),
    ]


def menu(layout: Layout) -> list[str]:
    """Ingredients and points of each soup that is ordered, one sentence each."""
    recipes, sentences = layout.recipes, []
    for order in recipes.orders:
        points = recipes.points[order]
        worth = "points without end" if points == float("inf") else "1 point" if points == 1 else f"{points:g} points"
        steps = "1 step" if recipes.times[order] == 1 else f"{recipes.times[order]} steps"
        sentences.append(f"A soup of {soup_of(order)} cooks for {steps} and brings {worth}.")
    return sentences if len(recipes.orders) == len(SOUPS) else [*sentences, "Any other soup brings no points."]


def soup_of(inside: int) -> str:
    """Contents of a soup in words: "2 onions and 1 tomato"."""
    onions, tomatoes = ingredients(inside)
    parts = [(onions, "onion", "onions"), (tomatoes, "tomato", "tomatoes")]
    return " and ".join(f"{number} {one if number == 1 else many}" for number, one, many in parts if number)


def map_facts(layout: Layout) -> list[str]:
    """The facts of the map alone: how floor is named, who can reach what."""
    return ["Floor 2,3 is column 2 and row 3, counted from 0 at the upper left corner.", *_map_sentences(layout)]


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _serving(layout: Layout) -> str:
    return "the serving counter" if len(places_of(layout).fixtures[SERVING]) == 1 else "a serving counter"


def _map_sentences(layout: Layout) -> list[str]:
    places = places_of(layout)
    reach = [places.reachable(start) for start in layout.starts]
    sentences = ["Both cooks work in one room."]
    if places.room_names:
        first, second = (places.room_names[places.room_of[start]] for start in layout.starts)
        who = f"{capital(COOKS[0])} works in the {first} and {COOKS[1]} in the {second}"
        sentences = [f"{who}, and neither can leave it."]
    for kind in _FIXTURES:
        if kind in (ONIONS, TOMATOES) and not layout.cells(kind):
            continue
        sentences += _reach_sentences(places, reach, kind)
    return [*sentences, *_counter_sentences(layout, places, reach)]


def _reach_sentences(places: Places, reach: Sequence[frozenset[Cell]], kind: int) -> list[str]:
    """Sentences on the cooks that can reach the cells of a kind."""
    found = [[places.phrases[cell] for cell in places.fixtures[kind] if cell in cells] for cells in reach]
    if found[0] == found[1] and found[0]:
        return [f"Both cooks can reach {listed(found[0])}."]
    return [
        f"{capital(who)} can reach {listed(phrases) if phrases else f'no {KIND_WORDS[kind]}'}."
        for who, phrases in zip(COOKS, found, strict=True)
    ]


def _counter_sentences(layout: Layout, places: Places, reach: Sequence[frozenset[Cell]]) -> list[str]:
    counters = places.fixtures[COUNTER]
    if not places.room_names:
        through = [cell for cell in counters if _has_two_sides(layout, cell)]
        sentences = [f"Both cooks can reach {_numbers(places, counters)}."] if counters else []
        if through:
            things = _numbers(places, through)
            verb = "has" if len(through) == 1 else "have"
            sentences.append(f"{capital(things)} {verb} floor on opposite sides, so things can pass across.")
        return sentences
    sentences = ["No counter can be reached from both rooms."]
    if places.shared:
        between = capital(_numbers(places, places.shared))
        sentences = [f"{between} can be reached from both rooms, so things can pass across."]
    for who, cells in zip(COOKS, reach, strict=True):
        own = [cell for cell in counters if cell in cells and cell not in places.shared]
        if own:
            sentences.append(f"Only {who} can reach {_numbers(places, own)}.")
    return sentences


def _has_two_sides(layout: Layout, cell: Cell) -> bool:
    x, y = cell

    def floor(x: int, y: int) -> bool:
        return 0 <= x < layout.width and 0 <= y < layout.height and layout.kind((x, y)) == FLOOR

    return (floor(x - 1, y) and floor(x + 1, y)) or (floor(x, y - 1) and floor(x, y + 1))


def _numbers(places: Places, cells: Sequence[Cell]) -> str:
    """Counters of one family in words: "counters 1, 4 and 5", "the shared counter"."""
    if len(cells) == 1:
        return places.phrases[cells[0]]
    family = places.names[cells[0]].rpartition(" ")[0]
    numbers = [int(places.names[cell].rpartition(" ")[2]) for cell in cells]
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))) and len(numbers) > 2:
        return f"{family}s {numbers[0]} to {numbers[-1]}"
    return f"{family}s {listed([str(number) for number in numbers])}"
