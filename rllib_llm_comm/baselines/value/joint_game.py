"""A team of PettingZoo agents as one agent of Gymnasium, and its whole episodes as arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.interface import ACTION_MASK, EPISODE_METRICS, TASK_SUCCESS, asked
from rllib_llm_comm.policies.array_policy import flat, form_of, open_actions, size_of

SEEN, STATE, MASK, ACTIVE = "seen", "state", "action_mask", "active"
ACTIONS, REWARDS, TERMINATED, FILLED = "actions", "rewards", "terminated", "filled"
PER_OBSERVATION = (SEEN, STATE, MASK, ACTIVE)
AUTO, BY_GAME, BY_OBSERVATION, BY_TEAM = "auto", "game", "observation", "team"
TEAM_REWARDS: Mapping[str, Any] = {"mean": np.mean, "sum": np.sum}
_STEP = "game_step"
_MAX_SEED = 2**31 - 1

TeamEpisode = Mapping[str, np.ndarray]
"""An episode of T steps: `seen` (T + 1, n, size), `state` (T + 1, S), `action_mask` (T + 1, n, A), `active` (T + 1, n),
the last of each behind the last step; `actions` (T, n), `rewards` (T,), `terminated` (T,), true at most in the last
step: an episode that ran into a time limit has none, and its last state is worth what would have come."""


def joined(episodes: Sequence[TeamEpisode]) -> dict[str, np.ndarray]:
    """A batch (B, T, ...) of episodes, shorter ones filled up with zeros, and `filled` (B, T), 1 in steps played."""
    longest = max(len(episode[REWARDS]) for episode in episodes)
    batch: dict[str, np.ndarray] = {}
    for name, first in episodes[0].items():
        steps = longest + (name in PER_OBSERVATION)
        batch[name] = np.zeros((len(episodes), steps, *first.shape[1:]), first.dtype)
        for row, episode in zip(batch[name], episodes, strict=True):
            row[: len(episode[name])] = episode[name]
    batch[FILLED] = np.zeros((len(episodes), longest), np.float32)
    for row, episode in zip(batch[FILLED], episodes, strict=True):
        row[: len(episode[REWARDS])] = 1.0
    return batch


class EpisodeBuffer:
    """The latest whole episodes, at most `capacity`, drawn uniformly without putting back."""

    def __init__(self, capacity: int, seed: int | None = None) -> None:
        self._episodes: deque[TeamEpisode] = deque(maxlen=capacity)
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episodes: Sequence[TeamEpisode]) -> None:
        """Takes in episodes; the oldest ones go where there is no room."""
        self._episodes.extend(episodes)

    def sample(self, episodes: int, sequence_length: int | None = None) -> dict[str, np.ndarray]:
        """A batch of different episodes, as of `joined`.

        Args:
            episodes: Their number, at most `len(self)`.
            sequence_length: Most steps of the piece that is cut out of each; None for whole ones. All steps are drawn
                as often, so pieces at an episode's ends may be shorter.
        """
        chosen = [self._episodes[int(n)] for n in self._rng.choice(len(self._episodes), episodes, replace=False)]
        if sequence_length is not None:
            chosen = [self._piece(episode, sequence_length) for episode in chosen]
        return joined(chosen)

    def _piece(self, episode: TeamEpisode, steps: int) -> TeamEpisode:
        # A window that may stick out at both ends: else the first and last steps would be drawn seldom.
        first = int(self._rng.integers(1 - steps, len(episode[REWARDS])))
        start, end = max(0, first), first + steps
        # What lies behind the last step belongs to it: a piece that ends early is bootstrapped there.
        return {name: a[start : end + (name in PER_OBSERVATION)] for name, a in episode.items()}

    def get_state(self, episodes: bool = True) -> dict[str, Any]:
        """The state of the draws and, if wanted, all episodes."""
        state: dict[str, Any] = {"rng": self._rng.bit_generator.state}
        return {**state, "episodes": [dict(one) for one in self._episodes]} if episodes else state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Sets what `get_state` gave; without episodes in it the buffer is empty."""
        self._rng.bit_generator.state = state["rng"]
        self._episodes.clear()
        self._episodes.extend(state.get("episodes", ()))


def last_actions(actions: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
    """The last action of each agent (B, T + 1, n) before each observation, of when it was asked; -1 for none yet.

    Args:
        actions: (B, T, n).
        active: (B, T + 1, n), false where an agent was not asked.
    """
    steps = torch.arange(actions.shape[1], device=actions.device)[:, None]
    # The step in which an agent was asked last, up to each one; -1 for none yet.
    asked = torch.where(active[:, :-1] != 0, steps, -1).cummax(1).values
    before = torch.where(asked < 0, -1, actions.gather(1, asked.clamp(min=0)))
    return torch.cat([torch.full_like(actions[:, :1], -1), before], 1)


class JointGame(gym.Env):
    """Plays a PettingZoo parallel game with one action for the whole team.

    Observations are a Dict: `seen` (n, size), the agents' vectors filled up with zeros to the longest; `state` (S,);
    `action_mask` (n, A); `active` (n,), 1 for agents that choose now. Agents that do not (dead, gone, or busy with a
    longer action) have only action 0 open, which is not played.

    Attributes:
        team: The agents' names, in the order of all arrays.
        forms: By agent the form of its observations (`array_policy.form_of`).
        source: Origin of the state: `"game"`, `"observation"` or `"team"`.

    Args:
        mixer_state: `"game"`: the environment's own `state()`; `"observation"`: the part `state` of the first agent's
            observation; `"team"`: the vectors of all agents, joined; `"auto"`: the first of these that there is.
        team_reward: `"mean"` or `"sum"` of the agents' rewards.

    Raises:
        UserError: If spaces or the state are not what a team of choosers needs.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, env: Any, mixer_state: str = AUTO, team_reward: str = "mean") -> None:
        self.game = env
        self._contract = GameContract(env)
        self.team = self._contract.possible_agents
        self.forms = {agent: _form(env, agent) for agent in self.team}
        self._reward = TEAM_REWARDS[team_reward]
        self._rng = np.random.default_rng()
        self._counts = [_choices(env, agent) for agent in self.team]
        self._size = max(map(size_of, self.forms.values()))
        self._seen = np.zeros((len(self.team), self._size), np.float32)
        self._observations: Mapping[Any, Any] = {}
        self._infos: Mapping[Any, Any] = {}
        self._alive: list[Any] = []
        self.source, self._width = self._find_state(mixer_state)
        self._told = np.zeros(self._width, np.float32)  # the state in the latest observation that has one
        n, actions = len(self.team), max(self._counts)
        self.observation_space = gym.spaces.Dict(
            {
                SEEN: gym.spaces.Box(-np.inf, np.inf, (n, self._size), np.float32),
                STATE: gym.spaces.Box(-np.inf, np.inf, (self._width,), np.float32),
                MASK: gym.spaces.Box(0, 1, (n, actions), np.int8),
                ACTIVE: gym.spaces.Box(0, 1, (n,), np.int8),
            }
        )
        self.action_space = gym.spaces.MultiDiscrete([actions] * n)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begins an episode. Only the first seed counts: later episodes are seeded from it, so that they differ.

        Args:
            seed: Of this episode and of the generator of all later ones; `None` draws from that generator.
        """
        if seed is None:
            seed = int(self._rng.integers(_MAX_SEED))
        else:
            self._rng = np.random.default_rng(seed)
        self._observations, self._infos = self._contract.reset(seed=seed, options=options)
        self._alive = self._contract.alive
        self._seen[:] = 0.0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Plays one joint action.

        Args:
            action: (n,), of which those of agents that do not choose now are left out.

        Returns:
            As of Gymnasium. Only a time limit that nobody outlives is a truncation; the last observation of agents that
            it stopped still has their masks, since it is worth what would have come.
        """
        choosing = set(asked(self._alive, self._infos))
        actions = {a: int(action[i]) for i, a in enumerate(self.team) if a in choosing}
        before = self._alive
        self._observations, rewards, terminations, truncations, self._infos = self._contract.step(actions)
        over = not self._contract.alive
        stopped = [a for a in before if truncations.get(a, False) and not terminations.get(a, False)]
        self._alive = stopped if over else self._contract.alive
        reward = float(self._reward([rewards.get(agent, 0.0) for agent in self.team]))
        info = _told_at_end(self._infos) if over else {}
        return self._observe(), reward, over and not stopped, over and bool(stopped), info

    def _observe(self) -> dict[str, np.ndarray]:
        choosing = set(asked(self._alive, self._infos))
        masks = np.zeros((len(self.team), max(self._counts)), np.int8)
        active = np.zeros(len(self.team), np.int8)
        for row, (agent, count) in enumerate(zip(self.team, self._counts, strict=True)):
            if agent in self._observations:
                vector = flat(self.forms[agent], self._observations[agent], agent)
                self._seen[row, : vector.size] = vector
            if agent not in self._alive:
                self._seen[row] = 0.0
            active[row] = agent in choosing
            told = self._observations.get(agent)
            masks[row, :count] = open_actions(told, count, agent) if agent in choosing else np.arange(count) == 0
        return {SEEN: self._seen.copy(), STATE: self._state(), MASK: masks, ACTIVE: active}

    def _state(self) -> np.ndarray:
        if self.source == BY_GAME:
            return self._whole(np.asarray(self.game.state(), np.float32).reshape(-1))
        if self.source == BY_TEAM:
            return self._seen.reshape(-1).copy()
        for agent in self.team:  # the first one that is told; it stays as it was where nobody is
            if agent in self._observations:
                self._told = self._whole(np.asarray(self._observations[agent][STATE], np.float32).reshape(-1))
                break
        return self._told.copy()

    def _whole(self, state: np.ndarray) -> np.ndarray:
        if state.size != self._width:
            raise UserError(
                f"the state of the game has {state.size} numbers but had {self._width} at the first reset; let it have "
                "always as many, also when agents have left, or set `mixer_state` to 'team'."
            )
        if not np.isfinite(state).all():
            raise UserError(
                f"the state of the game is {shown(state.tolist())}, which holds something that is no finite number; "
                "let it have numbers alone, or set `mixer_state` to 'team'."
            )
        return state

    def _find_state(self, wanted: str) -> tuple[str, int]:
        found: dict[str, int] = {BY_TEAM: self._size * len(self.team)}
        space = self.game.observation_space(self.team[0])
        if isinstance(space, gym.spaces.Dict) and isinstance(space.spaces.get(STATE), gym.spaces.Box):
            found[BY_OBSERVATION] = int(np.prod(space.spaces[STATE].shape or ()))
        width = _own_state(self.game) if wanted in (AUTO, BY_GAME) else None
        if width is not None:
            found[BY_GAME] = width
        source = (
            next(name for name in (BY_GAME, BY_OBSERVATION, BY_TEAM) if name in found) if wanted == AUTO else wanted
        )
        if source not in found:
            raise UserError(
                f"`mixer_state` is {wanted!r}, but the game tells no such state; use one of "
                f"{', '.join(sorted(found))}, or give the environment a method `state` (or a part `{STATE}` to its "
                "observations)."
            )
        return source, found[source]

    def told(self) -> dict[str, Any]:
        """Facts of the game that a policy acts by: names (`team`), and by agent numbers of actions and forms."""
        names = [str(agent) for agent in self.team]
        return {
            "team": names,
            "choices": dict(zip(names, self._counts, strict=True)),
            "forms": {str(agent): form for agent, form in self.forms.items()},
        }

    def close(self) -> None:
        """Closes the game."""
        self.game.close()


def _form(env: Any, agent: Any) -> dict[str, Any]:
    space = env.observation_space(agent)
    form = form_of(space, agent)
    if size_of(form) == 0:
        raise UserError(
            f"the observation space of agent {agent!r} is {shown(space)}, which leaves it nothing to see: `{STATE}` is "
            f"for the mixer alone and `{ACTION_MASK}` for the choice; give it a part of its own with at least one "
            "number, such as a Box `vector`."
        )
    return form


def _choices(env: Any, agent: Any) -> int:
    space = env.action_space(agent)
    if not isinstance(space, gym.spaces.Discrete):
        raise UserError(
            f"the action space of agent {agent!r} is {space}, but value decomposition needs Discrete ones; make the "
            "actions discrete."
        )
    return int(space.n)


def _own_state(game: Any) -> int | None:
    """Length of what `state()` tells; `None` where the game has no such method of its own, or it tells nothing."""
    game.reset(seed=0)
    try:
        told = game.state()
        return None if told is None else int(np.asarray(told, np.float32).size) or None
    except NotImplementedError:
        return None
    except Exception as error:
        raise UserError(
            f"`state()` of the game fails ({type(error).__name__}: {error}); let it tell an array of numbers, or set "
            "`mixer_state` to 'team'."
        ) from error


def _told_at_end(infos: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """The part of the last infos that callbacks read: success, game steps and the game's own counts."""
    told: dict[str, Any] = {}
    for info in infos.values():
        told.update({name: info[name] for name in (TASK_SUCCESS, _STEP) if name in info})
        told.setdefault(EPISODE_METRICS, {}).update(info.get(EPISODE_METRICS, {}))
    return {name: value for name, value in told.items() if value != {}}
