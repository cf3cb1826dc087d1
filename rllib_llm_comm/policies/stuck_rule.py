"""Carroll et al.'s rule for cooks that stand still, by which behaviour clones get going again."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.lazy import load
from rllib_llm_comm.envs.games import game_of


class StuckRule:
    """Removes an agent's last actions from its choices when it has stood still (Carroll et al. 2019, their code).

    Args:
        turns: N >= 1, turns of standing still; theirs: 3.
    """

    def __init__(self, turns: int) -> None:
        self._past: deque[tuple[Hashable, int]] = deque(maxlen=turns)

    def note(self, pose: Hashable, action: int) -> None:
        """Takes in a turn.

        Args:
            pose: Place and direction before it.
            action: The action.
        """
        self._past.append((pose, action))

    def rest(self, chances: np.ndarray, pose: Hashable) -> np.ndarray:
        """The chances (K,) without the actions of the last N turns, if the pose was the same in all of them and is now.

        The others are renormalised; if they have no chance at all, they get equal ones among those that were not taken
        (ours). If no action is left, nothing is removed (ours).

        Args:
            chances: (K,) probabilities.
            pose: Place and direction now.
        """
        if len(self._past) < (self._past.maxlen or 0) or any(before != pose for before, _ in self._past):
            return chances
        left = np.ones(len(chances), bool)
        left[[action for _, action in self._past]] = False
        if not left.any():
            return chances
        rest = np.where(left, chances, 0.0)
        total = float(rest.sum())
        return rest / total if total > 0 else left / left.sum()


def pose_of(env: Any, agent: Any) -> Hashable:
    """An agent's place and direction, as its game tells it.

    Args:
        env: The game.
        agent: The agent.

    Raises:
        UserError: If the game tells none.
    """
    record = game_of(env.unwrapped)
    if record is None or not record.pose:
        raise UserError(
            f"`unstuck` needs a game that tells where its agents stand, but {type(env.unwrapped).__name__} does not; "
            "leave it away, or register the game with `pose`."
        )
    pose: Hashable = load(record.pose)(env.unwrapped, agent)
    return pose
