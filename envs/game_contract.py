"""What a game must give to be played: the one place that checks it, for training, evaluation and `rllib check env`.

A game of strangers may do what no algorithm can learn from: a reward that is no number, a mask without an action, an
agent that nobody knows. Each is refused in one sentence that names agent, step and the part of the game, at the moment
at which it can first be seen: spaces when the game is made, all else in the step itself.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.envs.interface import (
    ACTION_MASK,
    EPISODE_METRICS,
    NEEDS_ACTION,
    PRIVATE,
    STEP_REWARDS,
    TASK_SUCCESS,
    asked,
    require_gone,
)

Infos = dict[Any, Mapping[str, Any]]
"""Info by agent."""
Told = tuple[dict[Any, Any], dict[Any, float], Mapping[Any, bool], Mapping[Any, bool], dict[Any, Mapping[str, Any]]]
"""Observations, rewards, terminations, truncations and infos, by agent."""

_NUMBERS = frozenset("biuf")
_MOST = 1e15  # networks and learners add up thousands of numbers in float32 and square the sums
_RESERVED = frozenset({"__all__", "__common__"})  # RLlib speaks of all agents by these
_OPEN_OR_NOT = frozenset({0, 1})
_RESULTS = {
    "reset": ("observations", "infos"),
    "step": ("observations", "rewards", "terminations", "truncations", "infos"),
}
_MAY_BE_MISSING = ("terminations", "truncations", "infos")
_COUNTED = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class GameContract:
    """Plays a PettingZoo parallel game and refuses what it must not give.

    Values are checked of observations that somebody will read: those of agents that choose now, and the last ones.
    Shapes and numbers count, bounds do not: many games leave their own bounds and can be learned all the same. Of games
    of this package, whose tests show it (`Game.keeps_contract`), observations are checked at resets and ends only.

    Attributes:
        env: The game.
        possible_agents: All agents that there may be, in the game's order.
        observation_spaces: Space of observations by agent; the same in all episodes.
        action_spaces: Space of actions by agent; Discrete ones count from 0.
        alive: The agents that are in the game now, in the order of `possible_agents`.
        arrived: Those of them that the last step brought.
        step_count: Steps of the episode so far.

    Args:
        env: A PettingZoo parallel environment.
        reads: Whether anybody reads the observations; if not, they are not checked.

    Raises:
        UserError: If it is none, its agents or spaces are unknown, or actions do not count from 0.
    """

    def __init__(self, env: Any, reads: bool = True) -> None:
        if not isinstance(env, ParallelEnv):
            raise UserError(
                f"`env` is a {type(env).__name__} but must be a PettingZoo ParallelEnv; "
                "convert an AEC environment with `pettingzoo.utils.conversions.aec_to_parallel`."
            )
        self.env = env
        self.alive: list[Any] = []
        self.arrived: list[Any] = []
        self.step_count = 0
        self._ended: set[Any] = set()
        self.possible_agents = self._agents()
        self.observation_spaces = {agent: space_of(self.env, agent, "observation") for agent in self.possible_agents}
        self.action_spaces = {agent: space_of(self.env, agent, "action") for agent in self.possible_agents}
        for agent, space in self.action_spaces.items():
            _require_from_zero(agent, space)
        self._reads = reads
        self._trusted = bool(vars(type(env)).get("keeps_contract", False))
        # Agents without words have no fact that messages could name: what else the game calls so is its own.
        self._readers = {
            agent
            for agent, space in self.observation_spaces.items()
            if isinstance(space, spaces.Dict) and "text" in space.spaces
        }
        self._checks = {agent: _check_of(space) for agent, space in self.observation_spaces.items()}
        self._masked = {
            agent: int(self.action_spaces[agent].n)  # type: ignore[attr-defined]
            for agent, space in self.observation_spaces.items()
            if isinstance(space, spaces.Dict) and isinstance(self.action_spaces[agent], spaces.Discrete)
        }

    def saved(self) -> GameContract:
        """The same contract at this moment, for a game that is put back to it."""
        kept = copy.copy(self)
        kept._ended = set(self._ended)
        return kept

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[Any, Any], Infos]:
        """Starts an episode. Observations and infos are as the game gives them; infos that are missing are empty.

        Raises:
            UserError: If the game gives what cannot be played.
        """
        self.step_count, self._ended = 0, set()
        observations, infos = results_of(self.env, "reset", self._when(), seed=seed, options=options)
        infos = self._infos(infos)
        self.alive = self.arrived = self._present()
        if not self.alive:
            raise UserError(
                f"`agents` of {_name(self.env)} is empty after `reset`, so that nobody can act; `reset` must set it to "
                "the agents that begin."
            )
        for agent in self.alive:
            for kind, known in (("observation", self.observation_spaces), ("action", self.action_spaces)):
                if (now := space_of(self.env, agent, kind)) is not known[agent] and now != known[agent]:
                    raise UserError(
                        f"the {kind} space of agent {agent!r} is {shown(now)} after a reset but was "
                        f"{shown(known[agent])} before; the spaces of a game must stay the same, since networks do."
                    )
            self._check(agent, observations, _needs_action(infos, agent))
        self._require_told(infos)
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> Told:
        """Plays a step, as the game does, but that rewards are plain numbers and infos that are missing are empty.

        Raises:
            UserError: If the game gives what cannot be played.
        """
        self.step_count += 1
        told = results_of(self.env, "step", self._when(), dict(actions))
        observations, rewards, terminations, truncations = told[:4]
        infos = self._infos(told[4])
        before = self.alive
        if list(self.env.agents) != before or any(terminations.values()) or any(truncations.values()):
            self._come_and_go(observations, terminations, truncations, infos)
        else:
            self.arrived = []
        paid = self._rewards(rewards, before)
        if not self._trusted:
            self._require_told(infos)
            for agent in before:
                self._require_sum(agent, paid[agent], infos.get(agent, {}))
                if agent in self.alive and _needs_action(infos, agent):
                    self._check(agent, observations, asked=True)
        return observations, paid, terminations, truncations, infos

    def _come_and_go(
        self,
        observations: Mapping[Any, Any],
        terminations: Mapping[Any, bool],
        truncations: Mapping[Any, bool],
        infos: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        """Finds out who has come and who has gone, and checks what these see."""
        require_gone(self.env.agents, terminations, truncations)
        before, self.alive = self.alive, self._present()
        self.arrived = [agent for agent in self.alive if agent not in before]
        for agent in self.arrived:
            if agent in self._ended:
                raise UserError(
                    f"agent {agent!r} ended and is back in `agents` {self._when()}; an agent that has ended must stay "
                    f"away until the next `reset`: let it stay and be busy ({NEEDS_ACTION!r}: False in its info), or "
                    "give it another name."
                )
            self._check(agent, observations, _needs_action(infos, agent))
        for agent in before:
            if agent in self.alive:
                continue
            if not (terminations.get(agent, False) or truncations.get(agent, False)):
                raise UserError(
                    f"agent {agent!r} is not in `agents` {self._when()} but was neither terminated nor truncated; "
                    "`step` must say how an agent ends (a time limit truncates)."
                )
            self._ended.add(agent)
            self._check(agent, observations, asked=False)

    def _rewards(self, rewards: Mapping[Any, Any], before: list[Any]) -> dict[Any, float]:
        """Rewards as finite numbers of float32; of those that were in the game none may be missing."""
        for agent in before:
            if agent not in rewards:
                raise UserError(
                    f"agent {agent!r} has no reward {self._when()}; `step` must give one to every agent that was in "
                    "`agents`, 0.0 for none."
                )
        return {
            agent: reward
            if type(reward) is float and _MOST >= reward >= -_MOST and agent in self.observation_spaces
            else self._paid(agent, reward)
            for agent, reward in rewards.items()
        }

    def _require_sum(self, agent: Any, paid: float, info: Mapping[str, Any]) -> None:
        """Refuses rewards of game steps that are not those of the step: training counts the ones, play the other."""
        each = info.get(STEP_REWARDS)
        if each is not None and len(each) and not math.isclose(sum(each), paid, rel_tol=1e-4, abs_tol=1e-4):
            raise UserError(
                f"`{STEP_REWARDS}` in the info of agent {agent!r} {self._when()} is {shown(each)} but must add up to "
                f"its reward, {paid}."
            )

    def _require_told(self, infos: Mapping[Any, Mapping[str, Any]]) -> None:
        """Refuses infos that would count as something else: a text is true, and a number is no fact in words."""
        for agent, info in infos.items():
            solved = info.get(TASK_SUCCESS)  # None: not known yet
            if solved is not None and not _is_a_truth(solved):
                raise UserError(
                    f"`{TASK_SUCCESS}` in the info of agent {agent!r} {self._when()} is {shown(solved)} but must be "
                    "true or false."
                )
            if not isinstance(fact := info.get(PRIVATE), str | None):
                raise UserError(
                    f"`{PRIVATE}` in the info of agent {agent!r} {self._when()} is {shown(fact)} but must be a text, "
                    "the fact as messages name it, or None."
                )

    def _agents(self) -> list[Any]:
        # PettingZoo allows environments that know their agents only after a reset.
        if not getattr(self.env, "possible_agents", None):
            self.env.reset()
        agents = list(getattr(self.env, "possible_agents", None) or self.env.agents)
        if not agents:
            raise UserError(f"{_name(self.env)} has no agents; list them in `possible_agents`.")
        names = [str(agent) for agent in agents]
        if len(set(names)) < len(names) or not _RESERVED.isdisjoint(names):
            raise UserError(
                f"`possible_agents` is {shown(agents)}, but each agent needs a name of its own as text, other than "
                f"{' and '.join(map(repr, sorted(_RESERVED)))}, which RLlib keeps for itself."
            )
        return agents

    def _present(self) -> list[Any]:
        here = getattr(self.env, "agents", None) or ()
        if strangers := [agent for agent in here if agent not in self.observation_spaces]:
            raise UserError(
                f"the game has agent {strangers[0]!r} {self._when()}, which is not in its `possible_agents` "
                f"{shown(self.possible_agents)}; list all agents that there may ever be, since networks and teams are "
                "made for them."
            )
        return [agent for agent in self.possible_agents if agent in here]

    def _infos(self, infos: Any) -> dict[Any, Mapping[str, Any]]:
        if self._trusted:
            return infos
        told = {agent: {} if info is None else info for agent, info in infos.items()}
        for agent, info in told.items():
            if not isinstance(info, Mapping):
                raise UserError(f"the info of agent {agent!r} {self._when()} is {shown(info)} but must be a dict.")
            if agent not in self._readers and not isinstance(info.get(PRIVATE), str | None):
                told[agent] = {key: value for key, value in info.items() if key != PRIVATE}
            for key, (right, allowed) in _INFO.items():
                if key in info and not right(info[key]):
                    raise UserError(
                        f"`{key}` in the info of agent {agent!r} {self._when()} is {shown(info[key])} but must be "
                        f"{allowed}."
                    )
        return told

    def _paid(self, agent: Any, reward: Any) -> float:
        if agent not in self.observation_spaces:
            raise UserError(
                f"there is a reward for {agent!r} {self._when()}, who is not in the game's `possible_agents` "
                f"{shown(self.possible_agents)}; list all agents that there may ever be."
            )
        if not _is_number(reward):
            raise UserError(
                f"the reward of agent {agent!r} {self._when()} is {shown(reward)} but must be a finite number of at "
                f"most {_MOST:.0e}, since learners add up and square rewards in float32."
            )
        return float(reward)

    def _check(self, agent: Any, observations: Mapping[Any, Any], asked: bool) -> None:
        """Checks an observation that is read; the mask of an agent that chooses."""
        if not self._reads:
            return
        if agent not in observations:
            raise UserError(
                f"the game gave agent {agent!r} no observation {self._when()}; `reset` and `step` must give one to "
                "every agent in `agents`, and a last one to those that end."
            )
        seen = observations[agent]
        if wrong := self._checks[agent](seen):
            part, value, allowed = wrong
            raise UserError(f"{part} of agent {agent!r} {self._when()} is {shown(value)} but must be {allowed}.")
        if asked and agent in self._masked and ACTION_MASK in seen:
            self._check_mask(agent, seen[ACTION_MASK])

    def _check_mask(self, agent: Any, told: Any) -> None:
        mask = np.asarray(told)
        count = self._masked[agent]
        values = set(mask.ravel().tolist())
        if mask.size != count or 1 not in values or not values <= _OPEN_OR_NOT:
            raise UserError(
                f"the `{ACTION_MASK}` of agent {agent!r} {self._when()} is {shown(mask.tolist())} but must hold a "
                f"0 or a 1 for each of its {count} actions, and a 1 for at least one of them; an agent that cannot act "
                f"now says {NEEDS_ACTION!r}: False in its info, or has an action that waits."
            )

    def _when(self) -> str:
        return f"in step {self.step_count}" if self.step_count else "at the reset"


def _name(env: Any) -> str:
    return f"the game {type(env.unwrapped).__name__}"


def space_of(env: Any, agent: Any, kind: str) -> spaces.Space[Any]:
    """The space of an agent's observations or actions in a game.

    Args:
        env: The game.
        agent: The agent.
        kind: "observation" or "action".

    Raises:
        UserError: If it is none.
    """
    space = getattr(env, f"{kind}_space")(agent)
    if not isinstance(space, gym.Space):
        raise UserError(
            f"`{kind}_space({agent!r})` of {_name(env)} is {shown(space)} but must be a space of Gymnasium."
        )
    return space


def results_of(env: Any, method: str, when: str, *arguments: Any, **options: Any) -> tuple[Any, ...]:
    """What `reset` or `step` of a game gives: dicts by agent; those of ends and infos that are missing are empty.

    Args:
        env: The game.
        method: "reset" or "step".
        when: The moment, for messages.
        *arguments: Of the method.
        **options: Of the method.

    Raises:
        UserError: If it gives other results.
    """
    told, parts = getattr(env, method)(*arguments, **options), _RESULTS[method]
    if not isinstance(told, tuple) or len(told) != len(parts):
        given = f"{len(told)} results" if isinstance(told, tuple) else shown(told)
        raise UserError(f"`{method}` of {_name(env)} gives {given} but must give {len(parts)}: {', '.join(parts)}.")
    found = dict(zip(parts, told, strict=True))
    for part, given in found.items():
        if given is None and part in _MAY_BE_MISSING:
            found[part] = {}
        elif not isinstance(given, Mapping):
            raise UserError(f"the {part} {when} are {shown(given)} but must be a dict with an entry per agent.")
    return tuple(found.values())


Wrong = tuple[str, Any, str]
"""The part that is wrong, its value, and what it must be."""


def _is_number(value: Any) -> bool:
    """True of a finite number that float32 can add up and square, of whichever kind."""
    if isinstance(value, str | bytes | complex | np.complexfloating):  # NumPy would drop an imaginary part
        return False
    try:
        return abs(float(value)) <= _MOST
    except (TypeError, ValueError, OverflowError):
        return False


def _are_numbers(values: Any) -> bool:
    return isinstance(values, Sequence | np.ndarray) and all(map(_is_number, values))


def _are_counts(values: Any) -> bool:
    return isinstance(values, Mapping) and all(map(_is_number, values.values()))


_INFO: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    STEP_REWARDS: (_are_numbers, "a list of finite numbers, the reward of each game step"),
    EPISODE_METRICS: (_are_counts, "a dict of finite numbers by name"),
    "game_step": (_is_number, "a number of steps"),
    "events": (lambda value: isinstance(value, Iterable), "a list"),
}
"""Keys of infos that are counted: their test and what they must be."""


def _needs_action(infos: Mapping[Any, Mapping[str, Any]], agent: Any) -> bool:
    return bool(asked((agent,), infos))


def _is_a_truth(value: Any) -> bool:
    """True for true and false, also as numbers and arrays of one; a text is neither."""
    try:
        return not isinstance(value, str | bytes) and float(value) in (0.0, 1.0)
    except (TypeError, ValueError, RuntimeError):
        return False


def _require_from_zero(agent: Any, space: spaces.Space[Any]) -> None:
    if isinstance(space, spaces.Discrete) and int(space.start) != 0:
        raise UserError(
            f"the action space of agent {agent!r} is {space}, but actions must count from 0, as masks and candidates "
            f"do; make it Discrete({space.n}) and add {space.start} in the game's `step`."
        )


def _check_of(space: spaces.Space[Any], path: str = "") -> Callable[[Any], Wrong | None]:
    """A quick check of values of a space: keys, shapes and finite numbers."""
    name = f"the observation{path}"
    if isinstance(space, spaces.Dict):
        return _dict_check({key: _check_of(part, f"{path}[{key!r}]") for key, part in space.spaces.items()}, name)
    if isinstance(space, spaces.Box):
        return _box_check(space, name)
    if isinstance(space, _COUNTED):
        return lambda value: None if space.contains(value) else (name, value, f"in {space}")
    if isinstance(space, spaces.Text):
        return lambda value: None if isinstance(value, str) else (name, value, "a text")
    if isinstance(space, spaces.Tuple):
        return _tuple_check([_check_of(part, f"{path}[{place}]") for place, part in enumerate(space.spaces)], name)
    return lambda value: None


def _dict_check(parts: Mapping[str, Callable[[Any], Wrong | None]], name: str) -> Callable[[Any], Wrong | None]:
    checks = tuple(parts.items())

    def check(seen: Any) -> Wrong | None:
        if not isinstance(seen, Mapping):
            return name, seen, "a dict"
        for key, part in checks:
            if key not in seen:
                return name, list(seen), f"a dict with the part {key!r}, which its space has"
            if wrong := part(seen[key]):
                return wrong
        return None

    return check


def _tuple_check(parts: Sequence[Callable[[Any], Wrong | None]], name: str) -> Callable[[Any], Wrong | None]:
    def check(seen: Any) -> Wrong | None:
        if not isinstance(seen, Sequence | np.ndarray) or len(seen) != len(parts):
            return name, seen, f"a tuple of {len(parts)} parts"
        return next(filter(None, (part(value) for part, value in zip(parts, seen, strict=True))), None)

    return check


def _box_check(space: spaces.Box, name: str) -> Callable[[Any], Wrong | None]:
    shape = space.shape

    def check(value: Any) -> Wrong | None:
        try:
            array = value if type(value) is np.ndarray else np.asarray(value)
        except ValueError:  # lists of different lengths
            array = np.empty(0, object)
        kind = array.dtype.kind
        if array.shape != shape or kind not in _NUMBERS:
            return name, value, f"an array of numbers of shape {shape}, as its space says"
        # A sum of squares is quicker than a test of each number, and is small only if each of them is.
        if kind != "f" or np.vdot(array, array) <= _MOST * _MOST or (np.abs(array) <= _MOST).all():
            return None
        return name, value, f"of finite numbers of at most {_MOST:.0e}, since networks compute in float32"

    return check
