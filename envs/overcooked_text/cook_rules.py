"""A scripted cook: what to do next and what to say, by rules on a view.

Given everything there is to see it is the scripted teacher and the reference policy; given only what one cook sees it
is the common sense of the made-up kitchens on which the embedded model is pre-trained. The rules have an answer for
every view, not only for those on the way of an expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rllib_llm_comm.envs.overcooked_text.cook_view import BOWL, LEFT, ONE_ROOM, RIGHT, Item, Option, View
from rllib_llm_comm.envs.overcooked_text.sayings import Saying, order, ordered_foods


def missing(view: View) -> list[str]:
    """The things of the dish that are still out of the cooks' hands, in the order in which they are wanted.

    Foods that are seen on a board, chopped, in a bowl or in somebody's hand are under way, as is a bowl that stands
    off the shelves. A chef in the left room counts what lies on the counter as arrived; what it does not see there,
    it misses.
    """
    arrived: list[Item] = [item for _, item in view.boards if item]
    if view.holding:
        arrived.append(view.holding)
    arrived.extend(p.holding for p in view.partners if p.holding and view.room != LEFT)
    arrived.extend(view.counter or ())
    bowls = [item for item in arrived if item.is_bowl]
    foods = {item.name for item in arrived if not item.is_bowl} | {f for bowl in bowls for f in bowl.contents}
    wanted = [food for food in view.dish if food not in foods]
    return wanted + ([] if bowls or any(i.is_bowl and i.contents for i in view.shelf) else [BOWL])


def _needed(view: View, item: Item | None) -> bool:
    return item is not None and not item.is_bowl and item.name in view.dish


def _complete(view: View, item: Item | None) -> bool:
    wanted = tuple(sorted(view.dish))
    return item is not None and item.is_bowl and bool(wanted) and tuple(sorted(item.contents)) == wanted


def _spoilt(view: View, item: Item) -> bool:
    return item.is_bowl and any(food not in view.dish for food in item.contents)


def say(view: View, heard: Sequence[Saying] = ()) -> Saying:
    """Message of a cook: a request for what it misses, else its own work.

    Where others are not told the order, it is told first: until the first food of the dish is under way, whenever
    somebody asks for it, and in place of "i wait here". A cook that does not know it asks until a food is under way.

    Args:
        view: View of the cook.
        heard: Messages of the others.
    """
    if not view.dish:
        return _say_untold(view)
    if view.others_told:
        return _say_told(view)
    begun = any(food not in missing(view) for food in view.dish)
    said = _say_told(view)
    asked = any(saying.kind == "ask" for saying in heard)
    return said if begun and not asked and said.kind != "wait" else order(view.dish)


def _say_told(view: View) -> Saying:
    if _complete(view, view.holding):
        return Saying("serve") if view.room != RIGHT else Saying("carry", BOWL)
    wanted = missing(view)
    if view.room == RIGHT:
        if view.holding and (_needed(view, view.holding) or view.holding.is_bowl):
            return Saying("carry", view.holding.name)
        here = _on_shelf(view, wanted)
        return Saying("carry", here[0]) if here else Saying("wait")
    if view.room == ONE_ROOM:
        # One room: the speaker takes the first missing thing and asks for the second.
        return Saying("bring", wanted[min(1, len(wanted) - 1)]) if wanted else _own_work(view)
    return Saying("bring", wanted[0]) if wanted else _own_work(view)


def _say_untold(view: View) -> Saying:
    held = view.holding
    if held and view.room == RIGHT:
        return Saying("carry", held.name)
    raw = [item.name for item in [held, *(item for _, item in view.boards)] if item and _raw(item)]
    if raw:
        return Saying("chop", raw[0])
    return Saying("wait") if _under_way(view) else Saying("ask")


def _raw(item: Item) -> bool:
    return not item.is_bowl and not item.chopped


def _under_way(view: View) -> list[str]:
    """The foods that are seen off the shelves, sorted."""
    items = _in_reach(view) + [p.holding for p in view.partners if p.holding]
    foods = {food for i in items for food in (i.contents if i.is_bowl else (i.name,))}
    return sorted(foods)


def guess(view: View, heard: Sequence[Saying] = ()) -> tuple[str, ...]:
    """The foods of the dish as a cook takes it that is not told the order.

    What is told counts; else what is asked for and what is under way; else the first food on the shelf. In the right
    room, whose cook sees nothing come back, everything is wanted once a food and a bowl are on their way.

    Args:
        view: View of the cook.
        heard: Messages of the others.
    """
    told = [saying for saying in heard if saying.kind == "order"]
    if told:
        return ordered_foods(told[-1])
    foods = {item.name for item in view.shelf if not item.is_bowl}
    asked = {saying.thing for saying in heard if saying.kind == "bring" and saying.thing != BOWL}
    wanted = asked | set(_under_way(view))
    bowl = any(i.is_bowl for i in [*_in_reach(view), *(p.holding for p in view.partners if p.holding)])
    if view.room == RIGHT and bowl and not asked:
        return tuple(sorted(wanted | foods))
    return tuple(sorted(wanted)) or tuple(sorted(foods))[:1]


def _on_shelf(view: View, wanted: Sequence[str]) -> list[str]:
    names = {item.name for item in view.shelf}
    return [name for name in wanted if name in names]


def _own_work(view: View) -> Saying:
    raw = [i.name for i in _in_reach(view) if _needed(view, i) and not i.chopped]
    if raw:
        return Saying("chop", raw[0])
    return Saying("fill")


def _in_reach(view: View) -> list[Item]:
    items = [view.holding] if view.holding else []
    items.extend(item for _, item in view.boards if item)
    items.extend(view.counter or ())
    return items


def choose(view: View, options: Sequence[Option], heard: Sequence[Saying] = ()) -> int:
    """The index of the option that the scripted cook takes.

    Args:
        view: View of the cook.
        options: Its options; one of them is `wait`.
        heard: Messages of the others; a request is obeyed where the cook's hands are free for it.
    """
    if not view.dish:
        view = replace(view, dish=guess(view, heard))
    ranked = sorted(range(len(options)), key=lambda i: (-_worth(view, options[i], options, heard), i))
    return ranked[0]


def _worth(view: View, option: Option, options: Sequence[Option], heard: Sequence[Saying]) -> float:
    kind, item = option.kind, option.item
    if kind == "wait":
        return 0.0
    if kind == "serve":
        return 10.0 if _complete(view, item) else -1.0
    if kind == "chop":
        return 9.0 if _needed(view, item) and item is not None and not item.chopped else -1.0
    if kind in ("fill", "add"):
        return 8.0 if _needed(view, item) else -1.0
    if kind == "place":
        return _worth_placing(view, item, options)
    if kind == "counter":
        return _worth_counter(view, item, options)
    if kind == "walk":
        on_board = dict(view.boards).get(option.place)
        raw = _needed(view, on_board) and on_board is not None and not on_board.chopped
        return 7.0 if raw and not view.holding else -0.5
    if kind == "get":
        return _worth_getting(view, option, options, heard)
    return -1.0


def _worth_placing(view: View, item: Item | None, options: Sequence[Option]) -> float:
    if item is None:
        return -1.0
    if _needed(view, item) and not item.chopped:
        return 6.0
    if item.is_bowl and not any(o.kind == "counter" for o in options) and _raw_waits(view):
        return 1.0  # hands must be free to chop, and there is no counter to put the bowl on
    return 0.5 if not _needed(view, item) and not item.is_bowl else -0.5


def _raw_waits(view: View) -> bool:
    return any(_needed(view, item) and item is not None and not item.chopped for _, item in view.boards)


def _worth_counter(view: View, item: Item | None, options: Sequence[Option]) -> float:
    if item is None:
        return -1.0
    if view.room == RIGHT:
        return 5.0  # whatever it is, it is of use on the other side only, or in the way of free hands
    if item.is_bowl:
        return 4.0 if not _complete(view, item) else -1.0
    if _needed(view, item) and not item.chopped:
        return 1.0  # no board is free
    return 2.0 if not _needed(view, item) else 0.5


def _worth_getting(view: View, option: Option, options: Sequence[Option], heard: Sequence[Saying]) -> float:
    item = option.item
    if item is None or view.holding is not None:
        return -1.0
    asked = [s.thing for s in heard if s.kind == "bring"]
    promised = [s.thing for s in heard if s.kind == "carry"]
    from_shelf = option.place == "shelf"
    if from_shelf and item.name in asked:
        return 5.5
    if item.is_bowl:
        return _worth_bowl(view, item, option, promised)
    if not _needed(view, item) or item.chopped:
        return -1.0
    in_bowl = any(item.name in i.contents for i in _in_reach(view) if i.is_bowl)
    if in_bowl or (from_shelf and item.name in promised):
        return -0.2
    if view.room == RIGHT and not from_shelf:
        return -1.0  # it was put on the counter for the others
    free_board = any(on is None for _, on in view.boards)
    if view.room != RIGHT and view.boards and not free_board:
        return -0.2
    rank = view.dish.index(item.name)
    if view.room == ONE_ROOM and view.name == "bob":
        rank = len(view.dish) - 1 - rank  # two cooks in one room begin at different ends of the recipe
    return 4.0 - 0.1 * rank


def _worth_bowl(view: View, item: Item, option: Option, promised: Sequence[str]) -> float:
    if view.room == RIGHT:
        wanted = missing(view)
        waiting = set(_on_shelf(view, wanted)) - {BOWL}
        return 3.0 if option.place == "shelf" and BOWL in wanted and not waiting else -1.0
    if option.place == "shelf" and BOWL in promised:
        return -0.2
    if _spoilt(view, item):
        return -0.3
    chopped = [i.name for _, i in view.boards if _needed(view, i) and i is not None and i.chopped]
    open_foods = [food for food in view.dish if food not in item.contents]
    ready = all(food in chopped for food in open_foods)
    if ready:
        return 5.0 + len(item.contents)
    # With a single free board the bowl collects what is done, so that the board gets free.
    crowded = bool(view.boards) and all(on is not None for _, on in view.boards)
    return 3.5 if crowded and any(food in chopped for food in open_foods) and not _raw_waits(view) else -0.4
