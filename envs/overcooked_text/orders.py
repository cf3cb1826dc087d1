"""The orders of an episode: the one that counts now, and the cooks who are told it."""

from __future__ import annotations

from rllib_llm_comm.envs.overcooked_text.effects import Item, Plate
from rllib_llm_comm.envs.overcooked_text.episodes import Setup
from rllib_llm_comm.envs.overcooked_text.layouts import RECIPES, recipe_foods

_NOT_TOLD = [0.0] * len(RECIPES)


class Orders:
    """The part of a kitchen's state that concerns orders.

    Attributes:
        setup: The episode's orders, who is told them, and the start.
        recipe: The dish that is ordered now.
        recipe_foods: Names of the foods that it needs.
        served: Number of orders delivered.
        paid: Foods whose chop was already rewarded since the last order.
    """

    setup: Setup

    def serve(self, served: int) -> None:
        """Makes so many orders delivered: the next one is ordered (the last one stays), and chops pay again.

        Args:
            served: 0 at the start of an episode.
        """
        self.served = served
        self.recipe = self.setup.orders[min(served, len(self.setup.orders) - 1)]
        self.recipe_foods = recipe_foods(self.recipe)
        self._one_hot = [float(name == self.recipe) for name in RECIPES]
        self.paid: set[str] = set()

    def told(self, agent: int) -> str | None:
        """The dish ordered, or None for an agent that is not told it."""
        return self.recipe if self.setup.told[agent] else None

    def one_hot(self, agent: int) -> list[float]:
        """The dish ordered among `layouts.RECIPES`, all 0 for an agent that is not told it."""
        return self._one_hot if self.setup.told[agent] else _NOT_TOLD

    def secret(self) -> list[float]:
        """The dish ordered among `layouts.RECIPES`, the share of orders delivered, and per cook whether it is told."""
        return [*self._one_hot, self.served / len(self.setup.orders), *map(float, self.setup.told)]

    def is_ordered(self, item: Item) -> bool:
        """True if `item` is a plate with exactly the foods of the dish ordered."""
        return isinstance(item, Plate) and {food.name for food in item.contents} == set(self.recipe_foods)
