"""Plainer forms of parallel environments, for software that takes no texts or nested observations.

Each function wraps an environment of ours, or any other whose observations are dictionaries; `unwrapped` is the game.
`box_observations` and `masked_observations` choose one part of the observation, such as `vector`; `plain_infos` leaves
numbers in the infos alone. `MaxCycles` limits the calls of `step`, which PettingZoo and its users call `max_cycles`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from rllib_llm_comm.core.errors import UserError, require_whole
from rllib_llm_comm.envs.interface import ACTION_MASK

MASKS = (ACTION_MASK, "head_mask")
"""Parts of observations that are masks of actions."""
OBSERVATION = "observation"
_VECTOR = "vector"


class MaxCycles(BaseParallelWrapper):
    """Truncates an episode after some calls of `step`, whatever time passes in one of them.

    Args:
        env: A parallel environment.
        max_cycles: Number of calls, >= 1.

    Raises:
        UserError: If the number is not allowed.
    """

    def __init__(self, env: ParallelEnv, max_cycles: int) -> None:
        require_whole("max_cycles", max_cycles, 1)
        super().__init__(env)
        self.max_cycles = max_cycles
        self._cycles = 0

    @property
    def agents(self) -> list[Any]:  # type: ignore[override]
        """Agents that are still in the game."""
        return [] if self._cycles >= self.max_cycles else self.env.agents

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        self._cycles = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: dict[Any, Any]) -> Any:
        """One call, truncated for all who have not terminated if it is the last one."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._cycles += 1
        if self._cycles >= self.max_cycles:
            truncations = {agent: ended or not terminations[agent] for agent, ended in truncations.items()}
        return observations, rewards, terminations, truncations, infos


class _Form(BaseParallelWrapper):
    """A wrapper that changes the observation and info of each agent alone."""

    @abstractmethod
    def changed(self, agent: Any, seen: Any, info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Observation and info of an agent in the new form."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode."""
        return self._all(*self.env.reset(seed=seed, options=options))

    def step(self, actions: dict[Any, Any]) -> Any:
        """A step of the game."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        observations, infos = self._all(observations, infos)
        return observations, rewards, terminations, truncations, infos

    def _all(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        changed = {agent: self.changed(agent, seen, infos.get(agent, {})) for agent, seen in observations.items()}
        return {agent: one for agent, (one, _) in changed.items()}, {agent: one for agent, (_, one) in changed.items()}


class _OnePart(_Form):
    """A form that keeps one part of the observations.

    Args:
        env: A parallel environment whose observations are dictionaries.
        part: Key of a part that is an array.

    Raises:
        UserError: If observations have no such part, or it is no array.
    """

    def __init__(self, env: ParallelEnv, part: str = _VECTOR) -> None:
        super().__init__(env)
        self.part = part
        self._boxes = {agent: _box(env.observation_space(agent), part) for agent in env.possible_agents}


class BoxObservations(_OnePart):
    """One part of the observations as a plain array; masks of actions go into the infos, by their names."""

    def observation_space(self, agent: Any) -> spaces.Box:
        """The space of an agent's observations."""
        return self._boxes[agent]

    def changed(self, agent: Any, seen: Any, info: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        """The part, and the info with the masks."""
        return seen[self.part], {**info, **{mask: seen[mask] for mask in MASKS if mask in seen}}


class MaskedObservations(_OnePart):
    """Observations of the form `{"observation": array, "action_mask": array}`, as PettingZoo's classic games have.

    Observations without `action_mask` are refused, too.
    """

    def __init__(self, env: ParallelEnv, part: str = _VECTOR) -> None:
        super().__init__(env, part)
        self._spaces = {
            agent: spaces.Dict({OBSERVATION: box, ACTION_MASK: _box(env.observation_space(agent), ACTION_MASK)})
            for agent, box in self._boxes.items()
        }

    def observation_space(self, agent: Any) -> spaces.Dict:
        """The space of an agent's observations."""
        return self._spaces[agent]

    def changed(self, agent: Any, seen: Any, info: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The part with the mask, and the info."""
        return {OBSERVATION: seen[self.part], ACTION_MASK: seen[ACTION_MASK]}, dict(info)


class PlainInfos(_Form):
    """Infos of numbers and arrays only: texts and lists are left out, dictionaries are joined with their keys.

    `episode_metrics` with `score` becomes `episode_metrics.score`. An info then has the same keys at each step.
    """

    def changed(self, agent: Any, seen: Any, info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The observation, and the numbers of the info."""
        return seen, dict(_numbers(info))


box_observations, masked_observations, plain_infos = BoxObservations, MaskedObservations, PlainInfos


def _numbers(info: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in info.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{name}.")
        elif isinstance(value, Real | np.bool_ | np.ndarray):  # a truth value is a number to Python, too
            yield f"{before}{name}", value


def _box(space: spaces.Space[Any], part: str) -> spaces.Box:
    if not isinstance(space, spaces.Dict):
        raise UserError(f"observations are of {type(space).__name__} but must be a dictionary with the part {part!r}.")
    boxes = [name for name, one in space.items() if isinstance(one, spaces.Box)]
    if part not in boxes:
        there = ", ".join(boxes) or "none"
        raise UserError(
            f"`part` is {part!r}, but the arrays in the observations are: {there}. The game's setting `observe` "
            "chooses them, where it has one."
        )
    found: spaces.Box = space[part]  # type: ignore[assignment]
    return found
