"""Any PettingZoo parallel environment as an RLlib `MultiAgentEnv`.

RLlib's own wrapper is wrong in four ways, which this one is not:

* When one agent terminates while the last other one is truncated, it never says that the episode is over.
* A time limit arrives as a termination, so that no value is bootstrapped. Here only `truncateds["__all__"]`
  is set.
* `render()` raises.
* The order of the agents comes from a set and changes between processes.

Besides, this one lets agents act at different times. An environment may mark an agent in its info with
`needs_action=False`: the agent is busy. It then gets no observation, so that RLlib does not ask it for an
action; what it earns meanwhile comes with its next observation.

Agents may appear while a game is played, and leave it one by one. What a game gives is checked by its `GameContract`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError, shown
from rllib_llm_comm.core.lazy import load_setting
from rllib_llm_comm.core.phases import ENV, phase
from rllib_llm_comm.envs.base_env import Game
from rllib_llm_comm.envs.game_contract import GameContract
from rllib_llm_comm.envs.games import env_spec
from rllib_llm_comm.envs.interface import DURATION, NEEDS_ACTION, STEP_REWARDS, joined_info

START = "start"
ALL_AGENTS = "__all__"
_MAX_SEED = 2**31 - 1
_OURS: set[str] = set()  # ids that PettingZoo knows from here
AgentID = Any
"""An agent of a game; RLlib knows it by its text."""
StepResult = tuple[
    dict[AgentID, Any],
    dict[AgentID, float],
    dict[AgentID, bool],
    dict[AgentID, bool],
    dict[AgentID, dict[str, Any]],
]


def registered_maker(env: Any) -> Callable[..., Any] | None:
    """The function that Ray has registered for an environment; `None` for none."""
    from ray.tune.registry import ENV_CREATOR, _global_registry  # Ray has no public name for it

    known = isinstance(env, str) and _global_registry.contains(ENV_CREATOR, env)
    return _global_registry.get(ENV_CREATOR, env) if known else None  # type: ignore[no-any-return]


def ensure_registered(env: Any) -> None:
    """Makes a PettingZoo parallel environment known to RLlib under its id, if it is not yet as PettingZoo has it.

    Args:
        env: The value of a config's `env`. Anything but the id of a registered PettingZoo environment is left
            alone: RLlib has its own ways with it.
    """
    if not isinstance(env, str):
        return
    from pettingzoo.env_registry import registration

    import rllib_llm_comm.envs  # noqa: F401  (registers our games with PettingZoo)

    made = registered_maker(env)
    if made is not None and not (isinstance(made, AdaptedMaker) and made.entry is None):
        return
    try:
        spec = registration.spec("parallel", env)
    except Exception:  # PettingZoo raises several kinds for names that it does not know
        return
    if made is None or getattr(made.make, "__self__", None) != spec:  # a game may be registered anew
        register_parallel_env(env)


def playable_id(env: Any) -> str | None:
    """The id under which PettingZoo has the environment that RLlib knows by a name; `None` for no name."""
    from rllib_llm_comm.envs.games import own_id

    if not isinstance(env, str):
        return None
    entry = getattr(registered_maker(env), "entry", None)
    return (own_id(entry) if entry is not None else None) or env


@contextlib.contextmanager
def made_env(env: Any, env_config: Mapping[str, Any]) -> Iterator[Any]:
    """Makes an environment as RLlib would, and closes it.

    Raises:
        UserError: If the environment is unknown.
    """
    from ray.rllib.env.env_context import EnvContext

    make = registered_maker(env) or env
    if not callable(make):
        raise UserError(f"`env` is {env!r}, whose agents are unknown; give the id of a registered environment.")
    made = make(EnvContext(dict(env_config), worker_index=0))
    try:
        yield made
    finally:
        made.close()


def agents_of(env: Any, env_config: Mapping[str, Any]) -> tuple[Any, ...]:
    """The agents that an environment can have; makes it once.

    Raises:
        UserError: If the environment is unknown.
    """
    with made_env(env, env_config) as made:
        return tuple(getattr(made, "possible_agents", ()) or ())


class ParallelEnvAdapter(MultiAgentEnv):
    """Runs a PettingZoo parallel environment under RLlib.

    Every agent's info gets two keys: `step_rewards`, the rewards of each game step since its last
    observation, and `duration`, their number (for ordinary environments 1; 0 at the reset). Its reward is
    their plain sum. Other keys of the infos of a busy agent come with its next observation, too: lists are
    concatenated, flags are combined by "or", of all others the latest counts (`envs.interface.joined_info`).

    An agent that appears later is shown its first observation when it has to choose. What it is paid before its first
    action comes with the reward of that action, so that no return loses it.

    RLlib knows agents by texts: the agent 0 of a game is "0" to policies, callbacks and metrics.

    RLlib seeds the first reset alone. Later episodes draw their seeds from a generator of that seed: they differ, and
    are the same in every run with the same seed. With `start_with`, several games side by side begin alike: seeds come
    from there, infos have a third key, `start`, with the start's name, and a game that has to wait shows no agent until
    the next round.

    Attributes:
        env: The PettingZoo environment.
        agents: Those that the last reset or step could speak of. One that ended in this step is still among
            them, since RLlib's check of environments compares what a first step tells with this list, and some
            games may be over after one step.
    """

    def __init__(self, env: ParallelEnv) -> None:
        """Wraps an environment.

        Raises:
            UserError: If it is none, or none that can be played.
        """
        self.env = env
        self._rng = np.random.default_rng()
        self._pending: dict[AgentID, dict[str, Any]] = {}
        self._unseen: dict[str, float] = {}  # agents that appeared later and were shown nothing yet, with their pay
        self._paid_before: dict[str, float] = {}  # the same pay of those that were shown something and have not acted
        self._starts: tuple[EqualStarts, int] | None = None
        self._start: Start | None = None
        super().__init__()
        self._adopt()

    def _adopt(self) -> None:
        """Reads agents, spaces and render settings of the wrapped environment."""
        self._game = game = GameContract(self.env)
        self._ids = {str(agent): agent for agent in game.possible_agents}
        self._names = {agent: name for name, agent in self._ids.items()}
        self.possible_agents = list(self._ids)
        self.agents = list(self.possible_agents)
        self._alive, self._present = self.agents, game.alive
        self.observation_spaces = {name: game.observation_spaces[agent] for name, agent in self._ids.items()}
        self.action_spaces = {name: game.action_spaces[agent] for name, agent in self._ids.items()}
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
        """Lets this game begin as its neighbours do, one episode a round."""
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
            Observations and infos of all agents that have to choose; of none while the game has to wait.
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
            observations, infos = self._game.reset(seed=seed, options=options)
        self._pending, self._unseen, self._paid_before = {}, {}, {}
        self._present = self._game.alive
        self.agents = self._alive = [self._names[agent] for agent in self._present]
        # Who is busy at first is shown its first observation when it has to choose, like who appears later.
        busy = [name for name in self.agents if not infos.get(self._ids[name], {}).get(NEEDS_ACTION, True)]
        self._unseen = dict.fromkeys(busy, 0.0)
        shown = [name for name in self.agents if name not in self._unseen]
        return (
            {name: observations[self._ids[name]] for name in shown},
            {name: self._first_info(infos.get(self._ids[name], {})) for name in shown},
        )

    def _first_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {**info, STEP_REWARDS: [], DURATION: 0, **self._named()}

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
            return {}, {}, {ALL_AGENTS: False}, {ALL_AGENTS: False}, {}
        before, ids = self._alive, self._ids
        known = [name for name in before if name not in self._unseen] if self._unseen else before
        with phase(ENV):
            observations, rewards, terminations, truncations, infos = self._game.step(
                {ids[name]: action for name, action in action_dict.items()}
            )
        if self._game.alive is not self._present:
            self._present = self._game.alive
            self._alive = [self._names[agent] for agent in self._present]
        over = not self._alive
        out: StepResult = ({}, {}, {ALL_AGENTS: False}, {ALL_AGENTS: False}, {})
        self.agents = before
        if self._game.arrived:
            arrived = [self._names[agent] for agent in self._game.arrived]
            self._unseen.update(dict.fromkeys(arrived, 0.0))
            self.agents = [*before, *arrived]
        if not over and not any(name in self._alive for name in known):
            raise UserError(
                f"the last of the agents that have acted ends in step {self._game.step_count}, in which only "
                f"{shown(self._alive)} go on, who have not acted yet; RLlib would take this for the end of the "
                "episode, so let agents that follow appear a step earlier."
            )
        for name in self.agents:
            agent = ids[name]
            ended = over or terminations.get(agent, False) or truncations.get(agent, False)
            if name in self._unseen:
                self._meet(name, rewards.get(agent, 0.0), infos.get(agent, {}), bool(ended), observations, out)
                continue
            told = self._collected(name, rewards[agent], infos.get(agent, {}))
            if not ended and not told.get(NEEDS_ACTION, True):
                self._pending[name] = told
                continue
            steps = told[STEP_REWARDS]
            out[0][name] = observations[agent]
            out[1][name] = float(sum(steps))
            out[4][name] = told
            told[DURATION] = len(steps)
            told.update(self._named())
        self._ends(known, terminations, truncations, over, out)
        if over and self._starts is not None:
            self._starts[0].end(self._starts[1])
        return out

    def _meet(
        self,
        name: str,
        paid: float,
        info: Mapping[str, Any],
        ended: bool,
        observations: Mapping[AgentID, Any],
        out: StepResult,
    ) -> None:
        """Gives an agent that appeared later its first observation, unless it is busy or has ended before."""
        self._unseen[name] += paid
        if ended or not info.get(NEEDS_ACTION, True):
            return
        out[0][name], out[1][name], out[4][name] = observations[self._ids[name]], 0.0, self._first_info(info)
        self._paid_before[name] = self._unseen.pop(name)

    def _collected(self, agent: AgentID, reward: float, info: Mapping[str, Any]) -> dict[str, Any]:
        """What an agent was still to be told, and one step more."""
        steps = list(info.get(STEP_REWARDS) or [])
        if not steps and (STEP_REWARDS not in info or reward):  # else no game step was played
            steps = [reward]
        told = {**info, STEP_REWARDS: steps}
        if agent in self._paid_before and steps:
            steps[0] += self._paid_before.pop(agent)
        before = self._pending.pop(agent, None)
        return told if before is None else joined_info(before, told)

    def _ends(
        self,
        known: list[str],
        terminations: Mapping[AgentID, bool],
        truncations: Mapping[AgentID, bool],
        over: bool,
        out: StepResult,
    ) -> None:
        """Fills in which of the agents that RLlib knows are terminated and truncated."""
        _, _, terminateds, truncateds, _ = out
        for name in known:
            agent = self._ids[name]
            terminateds[name] = bool(terminations.get(agent, False))
            truncateds[name] = bool(truncations.get(agent, False)) and not terminateds[name]
        if not over:
            return
        limited = [truncateds.pop(name) for name in known]
        if any(limited):
            # RLlib takes an episode whose agents are all done one by one as terminated, and would bootstrap
            # nobody's value; so those that ran into the limit are told by `__all__` alone.
            truncateds[ALL_AGENTS] = True
        else:
            terminateds[ALL_AGENTS] = True

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
    """
    return isinstance(env, ParallelEnvAdapter) and bool(vars(type(env.env)).get("shows_copies", False))


def wrap_games(env: Any, wrapper: Callable[[ParallelEnv, int], ParallelEnv], wanted: str) -> None:
    """Puts a PettingZoo wrapper around each game of a vector environment of RLlib's, before its first reset.

    Args:
        env: The environment, as RLlib gives it to `on_environment_created`.
        wrapper: Takes a game and its number and returns the wrapped one.
        wanted: What needs it, with the verb, such as "Equal starts need"; an error message begins with it.

    Raises:
        UserError: If the games are no PettingZoo environments behind our adapter.
    """
    for number, adapter in enumerate(_adapters(env, wanted)):
        adapter.wrap(lambda game, number=number: wrapper(game, number))  # type: ignore[misc]
    # RLlib has read them before, and builds connectors and networks for them.
    env.single_observation_spaces = env.envs[0].unwrapped.observation_spaces
    env.single_observation_space = gym.spaces.Dict(env.single_observation_spaces)


def _adapters(env: Any, wanted: str) -> list[ParallelEnvAdapter]:
    found = [sub.unwrapped for sub in env.envs]
    for adapter in found:
        if not isinstance(adapter, ParallelEnvAdapter):
            raise UserError(
                f"{wanted} a PettingZoo environment registered by `register_parallel_env`, but the environment is "
                f"{type(adapter).__name__}."
            )
    return found


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
    made: Callable[..., Any] = load_setting(
        f"`entry` of {env_id!r}", entry, 'give "module:name" of a function that makes the environment'
    )
    return made


_SEEDS = 2**31 - 1


@dataclass(frozen=True)
class Start:
    """A start that a group of games shares.

    Attributes:
        name: Tells it from all others of a run: `runner/round/group`.
        seed: Of the reset.
    """

    name: str
    seed: int


class EqualStarts:
    """The starts of the games of one EnvRunner.

    Games stand in groups of `size` neighbours. In each round every game plays exactly one episode, and those of a group
    get the same reset seed, drawn from (seed, runner, group, round). A game that is done waits for the others, since
    RLlib's `complete_episodes` would let it play another one meanwhile and throw away the episodes that last longest:
    which returns a group has would depend on what they are. The round ends when all games are done.

    Attributes:
        rounds: Rounds begun so far.
    """

    def __init__(
        self,
        games: int,
        size: int,
        seed: int | None = None,
        runner: int = 0,
        rounds: int = 0,
        played: Callable[[], int] | None = None,
    ) -> None:
        """Sets the groups.

        Args:
            games: Number of games, a multiple of `size`.
            size: Games per group, >= 1.
            seed: Of the run; `None` takes one from the operating system.
            runner: Number of the EnvRunner.
            rounds: Rounds that were begun already, by games which these replace.
            played: Gives a number that is no less than the rounds of the run so far; asked before the first one.
        """
        if games % size:
            raise ValueError(f"{games} games cannot stand in groups of {size}")
        self.rounds = rounds
        self._played = played
        self._games, self._size, self._runner = games, size, runner
        self._entropy = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._done: set[int] = set()

    def begin(self, game: int) -> Start | None:
        """Begins an episode; the first game's begins a round.

        Args:
            game: Number of the game that is reset.

        Returns:
            Its start; `None` if it has played in this round and must wait for others.
        """
        # A game that is over is reset in the next step of all, but RLlib resets all of them, the first one first, when
        # the last is over. So a reset of the first one with all over can be nothing but the next round.
        if game == 0 and (game not in self._done or len(self._done) == self._games):
            if not self.rounds and self._played is not None:
                self.rounds = self._played()
            self.rounds += 1
            self._done.clear()
        elif game in self._done:
            return None
        group = game // self._size
        numbers = np.random.SeedSequence([self._entropy, self._runner, group, self.rounds])
        return Start(f"{self._runner}/{self.rounds}/{group}", int(numbers.generate_state(1)[0]) % _SEEDS)

    def end(self, game: int) -> None:
        """Notes the end of a game's episode."""
        self._done.add(game)


class StartAlike(RLlibCallback):
    """Gives `group_size` neighbouring games of every EnvRunner the same starts, as group baselines need them.

    `Verco` adds it with `advantages` "rloo" or "grpo". EnvRunners for evaluation are left alone.

    Attributes:
        wanted: Beginning of the error message about an environment that cannot start so.
    """

    wanted = "Episodes of equal start need"

    def __init__(self) -> None:
        """Nothing has begun."""
        super().__init__()
        self._starts: EqualStarts | None = None

    def on_environment_created(self, *, env_runner: Any, env: Any, **kwargs: Any) -> None:
        """Joins the games.

        Raises:
            UserError: If the environment is no PettingZoo environment behind our adapter.
        """
        config = env_runner.config
        if config.in_evaluation:
            return
        # Games that are made anew after a failure go on where those before them stopped.
        rounds = self._starts.rounds if self._starts else 0
        runner = env_runner.worker_index or 0

        def played() -> int:
            """Steps so far, at most one round each; a restored run knows them only after its games are made."""
            return int(env_runner.num_env_steps_sampled_lifetime)

        self._starts = EqualStarts(
            len(env.envs), self.size_of_groups(config), config.seed, runner, rounds, played=played
        )
        for number, adapter in enumerate(_adapters(env, self.wanted)):
            adapter.start_with(self._starts, number)

    def size_of_groups(self, config: AlgorithmConfig) -> int:
        """Neighbours that begin alike."""
        return int(config.group_size)


class StartApart(StartAlike):
    """Gives every game of every EnvRunner a start of its own in each round, and one episode.

    RLlib's `complete_episodes` resets all games at every call, with the seed of the run: training would see no other
    starts than the first ones. It would also throw away the episodes that last longest.

    `RED` adds it. EnvRunners for evaluation are left alone.
    """

    wanted = "Whole games from different starts need"

    def size_of_groups(self, config: AlgorithmConfig) -> int:
        """One."""
        return 1
