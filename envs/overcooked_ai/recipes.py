"""Recipes of a kitchen: the soups that bring points, and their cook times.

What is in a pot or a soup is one number, its contents: onions + 4 * tomatoes, 0 to 3 of each and three at most in all.
A soup of onions alone has its number of onions.
"""

from __future__ import annotations

from dataclasses import dataclass

FULL = 3
"""Ingredients that a pot takes."""
CONTENTS = 16
"""Contents are numbers below this."""
TOMATO_SHIFT = 2
ONION_UNIT, TOMATO_UNIT = 1, 1 << TOMATO_SHIFT
COOK_TIME, SOUP_REWARD = 20, 20
"""Steps and points of the soup of three onions, and of any soup of which a kitchen of the original tells nothing."""
SHAPED = (3.0, 3.0, 5.0)
"""Shaped rewards unless a kitchen tells others: an ingredient into a pot, a useful dish, a soup out of a pot."""


def contents(onions: int, tomatoes: int = 0) -> int:
    """The number of what is in a soup."""
    return ONION_UNIT * onions + TOMATO_UNIT * tomatoes


def ingredients(contents: int) -> tuple[int, int]:
    """Onions and tomatoes of a soup; the reverse of `contents`."""
    return contents % TOMATO_UNIT, contents // TOMATO_UNIT


SOUPS = tuple(c for c in range(1, CONTENTS) if sum(ingredients(c)) <= FULL)
"""The contents of all soups, of one to three ingredients."""


@dataclass(frozen=True)
class Recipes:
    """The recipes of a kitchen.

    Attributes:
        orders: Contents of the soups that are ordered; others bring nothing.
        bonus: Those of them whose points are multiplied; they are so in `points`.
        times: Steps that a soup cooks, by its contents.
        points: Points of a delivered soup, by its contents; 0 for one that is not ordered.
        shaped: The shaped rewards; see `rllib_llm_comm.envs.overcooked_ai.recipes.SHAPED`.
    """

    orders: tuple[int, ...] = (FULL,)
    bonus: tuple[int, ...] = ()
    times: tuple[int, ...] = (COOK_TIME,) * CONTENTS
    points: tuple[float, ...] = tuple(float(SOUP_REWARD) if c == FULL else 0.0 for c in range(CONTENTS))
    shaped: tuple[float, float, float] = SHAPED

    def best(self, inside: int) -> float:
        """The most points that a pot of some contents (0: an empty one) can still bring; 0 if none."""
        onions, tomatoes = ingredients(inside)
        reachable = [c for c in SOUPS if ingredients(c)[0] >= onions and ingredients(c)[1] >= tomatoes]
        return max([0.0, *(self.points[c] for c in reachable)])


CLASSIC = Recipes()
"""Carroll et al. 2019: three onions cook for 20 steps and bring 20 points, and nothing else does."""
