"""Manual of the game in words, which does not change: the rules and the map of a kitchen."""

from __future__ import annotations

from collections.abc import Sequence

from rllib_llm_comm.core.errors import require_choice
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
from rllib_llm_comm.envs.overcooked_ai.names import COOKS, KIND_WORDS, Places, capital, places_of
from rllib_llm_comm.envs.overcooked_ai.recipes import COOK_TIME, SOUP_REWARD, SOUPS, ingredients

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
