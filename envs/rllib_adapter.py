"""Any PettingZoo parallel environment as an RLlib `MultiAgentEnv`.

RLlib's own wrapper is wrong in four ways, which this one is not:

* When one agent terminates while the last other one is truncated, it never says that the episode is over.
* A time limit arrives as a termination, so that no value is bootstrapped. Here only `truncateds["__all__"]`
is set. * `render()` raises. * The order of the agents comes from a set and changes between processes.

Besides, this one lets agents act at different times. An environment may mark an agent in its info with
`needs_action=False`: the agent is busy. It then gets no observation, so that RLlib does not ask it for an
action; what it earns meanwhile comes with its next observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.utils.annotations import override

from rllib_llm_comm.envs.base_env import Game
from rllib_llm_comm.envs.equal_starts import EqualStarts, Start
from rllib_llm_comm.envs.games import env_spec
from rllib_llm_comm.envs.interface import DURATION, NEEDS_ACTION, STEP_REWARDS, joined_info, require_gone
from rllib_llm_comm.errors import UserError
from rllib_llm_comm.lazy import load
from rllib_llm_comm.phases import ENV, phase

START = "start"
ALL = "__all__"
_MAX_SEED = 2**31 - 1
_OURS: set[str] = set()  # ids that PettingZoo knows from here

AgentID = Any
StepResult = tuple[
    dict[AgentID, Any],
    dict[AgentID, float],
    dict[AgentID, bool],
    dict[AgentID, bool],
    dict[AgentID, dict[str, Any]],
]


class ParallelEnvAdapter(MultiAgentEnv):
    """Runs a PettingZoo parallel environment under RLlib.

    Every agent's info gets two keys: `step_rewards`, the rewards of each game step since its last
    observation, and `duration`, their number (for ordinary environments 1; 0 at the reset). Its reward is
    their plain sum. Other keys of the infos of a busy agent come with its next observation, too: lists are
    joined, of true-or-false values it is told whether one was true, of all others the latest counts.

    Only the first reset takes RLlib's seed. Later episodes are seeded from an own generator, so they differ
    and yet are the same in every run with the same seed. With `start_with`, several games side by side begin alike:
    seeds come from there, infos have a third key, `start`, with the start's name, and a game that has to wait shows no
    agent until the next round.

    Attributes:
        env: The PettingZoo environment.
        agents: Those that the last reset or step could speak of. One that ended in this step is still among
            them, since RLlib's check of environments compares what a first step tells with this list, and some
            games may be over after one step.
    """

    def __init__(self, env: ParallelEnv) -> None:
        """Wraps an environment.

        Args:
            env: The PettingZoo parallel environment.

        Raises:
            UserError: If it is none.
        """
        if not isinstance(env, ParallelEnv):
            raise UserError(
                f"`env` is a {type(env).__name__} but must be a PettingZoo ParallelEnv; "
                "convert an AEC environment with `pettingzoo.utils.conversions.aec_to_parallel`."
            )
        self.env = env
        self._rng = np.random.default_rng()
        self._pending: dict[AgentID, dict[str, Any]] = {}
        self._starts: tuple[EqualStarts, int] | None = None
        self._start: Start | None = None
        super().__init__()
        self._adopt()

    def _adopt(self) -> None:
        """Reads agents, spaces and render settings of the wrapped environment."""
        if not getattr(self.env, "possible_agents", None):
            # PettingZoo allows environments that know their agents only after a reset.
            self.env.reset()
        self.possible_agents = list(getattr(self.env, "possible_agents", None) or self.env.agents)
        self.agents = list(self.possible_agents)
        self._alive = self.agents
        self.observation_spaces = {a: self.env.observation_space(a) for a in self.possible_agents}
        self.action_spaces = {a: self.env.action_space(a) for a in self.possible_agents}
        # RLlib writes into the metadata.
        self.metadata = dict(getattr(self.env, "metadata", {}))
        self.render_mode = getattr(self.env, "render_mode", None)

    def wrap(self, wrapper: Callable[[ParallelEnv], ParallelEnv]) -> None:
        """Puts a PettingZoo wrapper between this adapter and the environment.

        Args:
            wrapper: Takes the environment and returns the wrapped one. Call it before the first reset.
        """
        self.env = wrapper(self.env)
        self._adopt()

    def start_with(self, starts: EqualStarts, number: int) -> None:
        """Lets this game begin as its neighbours do, one episode a round.

        Args:
            starts: Shared by all games of an EnvRunner.
            number: Index among them.
        """
        self._starts = (starts, number)

    @override(MultiAgentEnv)
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentID, Any], dict[AgentID, dict[str, Any]]]:
        """Starts an episode.

        Args:
            seed: Seed of this episode and of the generator of all later ones; None draws from that generator. With
                `start_with` it has no effect.
            options: Handed on.

        Returns:
            Observations and infos of all agents; of none while the game has to wait.
        """
        if self._starts is not None:
            starts, number = self._starts
            self._start = starts.begin(number)
            if self._start is None:
                self.agents = self._alive = []
                return {}, {}
            seed = self._start.seed
        elif seed is None:
            seed = int(self._rng.integers(_MAX_SEED))
        else:
            self._rng = np.random.default_rng(seed)
        if isinstance(game := self.env.unwrapped, Game):
            game.observes_busy = game is not self.env  # `step` would drop those; wrappers may want them
        with phase(ENV):
            observations, infos = self.env.reset(seed=seed, options=options)
        self._pending = {}
        self.agents = self._alive = self._ordered(self.env.agents)
        return (
            {agent: observations[agent] for agent in self.agents},
            {a: {**infos.get(a, {}), STEP_REWARDS: [], DURATION: 0, **self._named()} for a in self.agents},
        )

    def _named(self) -> dict[str, str]:
        return {} if self._start is None else {START: self._start.name}

    @override(MultiAgentEnv)
    def step(self, action_dict: Mapping[AgentID, Any]) -> StepResult:
        """One step.

        Args:
            action_dict: Actions of the agents that were given an observation.

        Returns:
            Observations, rewards, terminateds, truncateds (both with `__all__`) and infos. At its end every
            agent gets its last observation, busy or not.
        """
        if self._starts is not None and self._start is None:
            return {}, {}, {ALL: False}, {ALL: False}, {}
        before = self.agents = self._alive
        with phase(ENV):
            observations, rewards, terminations, truncations, infos = self.env.step(dict(action_dict))
        require_gone(self.env.agents, terminations, truncations)
        self._alive = self._ordered(self.env.agents)
        over = not self._alive
        out: StepResult = ({}, {}, {ALL: False}, {ALL: False}, {})
        for agent in before:
            ended = over or terminations.get(agent, False) or truncations.get(agent, False)
            pending = self._collect(agent, float(rewards.get(agent, 0.0)), infos.get(agent) or {})
            if not ended and not pending.get(NEEDS_ACTION, True):
                continue
            del self._pending[agent]
            if agent not in observations:
                raise UserError(
                    f"The environment {self.env} gave {agent!r} no observation in a step in which it was "
                    "alive; `step` must return one for every agent, also for those that end."
                )
            steps = pending[STEP_REWARDS]
            out[0][agent] = observations[agent]
            out[1][agent] = float(sum(steps))
            out[4][agent] = {**pending, DURATION: len(steps), **self._named()}
        self._ends(before, terminations, truncations, over, out)
        if over and self._starts is not None:
            self._starts[0].end(self._starts[1])
        return out

    def _collect(self, agent: AgentID, reward: float, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adds one step of an agent to what it is still to be told."""
        told = {**info, STEP_REWARDS: list(info.get(STEP_REWARDS) or [reward])}
        before = self._pending.get(agent)
        self._pending[agent] = new = told if before is None else joined_info(before, told)
        return new

    def _ends(
        self,
        before: list[AgentID],
        terminations: Mapping[AgentID, bool],
        truncations: Mapping[AgentID, bool],
        over: bool,
        out: StepResult,
    ) -> None:
        """Fills in who is terminated and truncated."""
        _, _, terminateds, truncateds, _ = out
        ended_by_limit = [a for a in before if truncations.get(a, False) and not terminations.get(a, False)]
        for agent in before:
            terminateds[agent] = bool(terminations.get(agent, False))
        if not over:
            truncateds.update({agent: agent in ended_by_limit for agent in before})
        elif ended_by_limit:
            # RLlib takes an episode whose agents are all done one by one as terminated, and would bootstrap
            # nobody's value; so those that ran into the limit are told by `__all__` alone.
            truncateds[ALL] = True
        else:
            terminateds[ALL] = True

    def _ordered(self, agents: list[AgentID]) -> list[AgentID]:
        alive = set(agents)
        return [agent for agent in self.possible_agents if agent in alive]

    @override(MultiAgentEnv)
    def render(self) -> Any:
        """Whatever the wrapped environment draws in its own render mode."""
        return self.env.render()

    @override(MultiAgentEnv)
    def close(self) -> None:
        """Closes the wrapped environment."""
        self.env.close()


def shows_copies(env: Any) -> bool:
    """True if nothing writes into an observation that this environment has shown, as the class of its game says.

    Wrappers and games that only inherit say nothing.

    Args:
        env: An environment of RLlib's.
    """
    return isinstance(env, ParallelEnvAdapter) and bool(vars(type(env.env)).get("shows_copies", False))


def wrap_games(env: Any, wrapper: Callable[[ParallelEnv, int], ParallelEnv], wanted: str) -> None:
    """Puts a PettingZoo wrapper around each game of a vector environment of RLlib's, before its first reset.

    Args:
        env: The environment, as RLlib gives it to `on_environment_created`.
        wrapper: Takes a game and its number and returns the wrapped one.
        wanted: Author of the wish, at the beginning of the sentence if it cannot be.

    Raises:
        UserError: If the games are no PettingZoo environments behind our adapter.
    """
    for number, adapter in enumerate(_adapters(env, wanted)):
        adapter.wrap(_numbered(wrapper, number))
    # RLlib has read them before, and builds connectors and networks for them.
    env.single_observation_spaces = env.envs[0].unwrapped.observation_spaces
    env.single_observation_space = gym.spaces.Dict(env.single_observation_spaces)


def start_alike(env: Any, starts: EqualStarts, wanted: str) -> None:
    """Lets the games of a vector environment of RLlib's begin alike in groups.

    Args:
        env: The environment, as RLlib gives it to `on_environment_created`.
        starts: Of as many games.
        wanted: As of `wrap_games`.

    Raises:
        UserError: If the games are no PettingZoo environments behind our adapter.
    """
    for number, adapter in enumerate(_adapters(env, wanted)):
        adapter.start_with(starts, number)


def _adapters(env: Any, wanted: str) -> list[ParallelEnvAdapter]:
    found = [sub.unwrapped for sub in env.envs]
    for adapter in found:
        if not isinstance(adapter, ParallelEnvAdapter):
            raise UserError(
                f"{wanted} a PettingZoo environment registered by `register_parallel_env`, but the environment is "
                f"{type(adapter).__name__}."
            )
    return found


def _numbered(wrapper: Callable[[ParallelEnv, int], ParallelEnv], number: int) -> Callable[[ParallelEnv], ParallelEnv]:
    return lambda game: wrapper(game, number)


@dataclass(frozen=True)
class AdaptedMaker:
    """RLlib's maker of an environment, which goes to other processes.

    Attributes:
        make: Makes the PettingZoo environment.
        entry: As of `register_parallel_env`.
    """

    make: Callable[..., ParallelEnv]
    entry: str | Callable[..., ParallelEnv] | type[ParallelEnv] | None

    def __call__(self, context: Mapping[str, Any]) -> ParallelEnvAdapter:
        """The environment with the settings of a config, for RLlib."""
        return ParallelEnvAdapter(self.make(**dict(context)))


def register_parallel_env(
    env_id: str, entry: str | Callable[..., ParallelEnv] | type[ParallelEnv] | None = None
) -> None:
    """Makes a PettingZoo parallel environment known to RLlib, whose `env_config` becomes its settings.

    With an `entry` PettingZoo knows the id as well, unless it knows it already: checkpoints are played there.

    Args:
        env_id: The name for `config.environment(...)`.
        entry: The maker of the environment: a callable or "module:name". None takes the environment that
            PettingZoo's own registry knows by `env_id`.

    Raises:
        UserError: If there is no such environment.
    """
    from ray.tune.registry import register_env

    make = _maker(env_id, entry)
    if entry is not None:
        _tell_pettingzoo(env_id, entry)
    register_env(env_id, AdaptedMaker(make, entry))


def _tell_pettingzoo(env_id: str, entry: str | Callable[..., ParallelEnv]) -> None:
    from pettingzoo.env_registry import registration
    from pettingzoo.env_registry.exceptions import PettingZooRegistryError

    if env_id in registration.parallel_registry and env_id not in _OURS:
        return
    registration.parallel_registry.pop(env_id, None)
    try:
        registration.register("parallel", env_id, entry)
    except PettingZooRegistryError:  # an id that is none in PettingZoo; RLlib takes any text
        return
    _OURS.add(env_id)


def _maker(env_id: str, entry: str | Callable[..., ParallelEnv] | None) -> Callable[..., Any]:
    """A function that makes the environment, also in a process that has registered nothing."""
    if callable(entry):
        return entry
    if entry is None:
        return env_spec(env_id).make
    try:
        made: Callable[..., Any] = load(entry)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"`entry` of {env_id!r} is {entry!r}, which cannot be imported ({error}); "
            'give "module:name" of a function that makes the environment.'
        ) from error
    return made
