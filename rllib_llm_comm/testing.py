"""Contract tests for environments: what a PettingZoo parallel environment must keep to be trained here.

`check_env` runs PettingZoo's own tests and ours on a registered environment, a constructor or an instance;
`rllib check env ID` prints its results.
"""

from __future__ import annotations

import contextlib
import io
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo import ParallelEnv

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.game_contract import results_of, space_of
from rllib_llm_comm.envs.games import GameRecord, env_spec, game_of, record_of
from rllib_llm_comm.envs.interface import asked, teacher_state

_LONGEST_IDLE = 100
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one check.

    Attributes:
        name: Name of the check.
        status: "passed", "failed" or "skipped".
        detail: Reason of the failure or skip, or warnings of PettingZoo.
    """

    name: str
    status: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return self.status != FAILED


@dataclass
class _Step:
    """One step of a roll-out (the reset has no rewards and no ends)."""

    observations: dict[Any, Any]
    rewards: dict[Any, float]
    terminations: dict[Any, bool]
    truncations: dict[Any, bool]
    infos: dict[Any, dict[str, Any]]
    agents: list[Any]


class _NotApplicableError(Exception):
    """The check does not apply."""


def check_env(
    env: str | ParallelEnv | Callable[[], ParallelEnv],
    *,
    settings: Mapping[str, Any] | None = None,
    steps: int = 300,
    seed: int = 0,
) -> list[CheckResult]:
    """Runs all contract tests on an environment.

    Args:
        env: The id of an environment in PettingZoo's registry, an instance, or a function that makes one.
        settings: Settings for an environment given by its id.
        steps: Length of each random roll-out in environment steps, over as many episodes as fit in.
        seed: Seed of the roll-outs.

    Returns:
        One result per check.

    Raises:
        UserError: If there is no such environment or it cannot be made with these settings.
    """
    make, fresh = _maker(env, dict(settings or {}))
    first = make()
    under_rllib = [
        ("runs under RLlib", lambda: _rllib(make, seed, steps)),
        ("MAPPO can learn it (and SymbolicPPO, CommNet)", lambda: _learns(make, "MAPPO")),
        ("Verco can learn it (and TWOSOME, RLOO, GRPO)", lambda: _learns(make, "Verco")),
        ("QMIX can learn it (and VDN, LDSA, ROMA, MASER)", lambda: _team_learns(make)),
    ]
    try:
        episode = list(_roll_out(first, seed, steps))
    except Exception as error:
        failed = CheckResult("plays with random actions", FAILED, _reason(error))
        return [failed, *(_run(name, check) for name, check in under_rllib)]
    first = make()
    record = (record_of(env) if isinstance(env, str) else None) or game_of(first.unwrapped)
    of_record: list[tuple[str, Callable[[], str | None]]] = []
    if record is not None:
        of_record.append(("its record is right", lambda: _record(record, first)))
        if record.scripted_player:
            of_record.append(("its scripted player plays and talks", lambda: _plays(record, make(), seed, steps)))
    checks: list[tuple[str, Callable[[], str | None]]] = [
        ("PettingZoo parallel_api_test", lambda: _pettingzoo_api(make)),
        ("PettingZoo parallel_seed_test", lambda: _pettingzoo_seed(make, fresh)),
        ("same seed, same episodes", lambda: _deterministic(make, episode, seed, steps)),
        ("observations lie in their spaces", lambda: _in_spaces(first, episode)),
        ("text is not empty", lambda: _text(first, episode)),
        ("candidates match the actions", lambda: _candidates(first, episode)),
        ("mask allows an action", lambda: _mask(first, episode)),
        ("somebody can act until the end", lambda: _somebody_acts(episode)),
        ("step rewards add up", lambda: _step_rewards(episode)),
        ("a time limit truncates and does not terminate", lambda: _time_limit(first, episode)),
        *of_record,
        *under_rllib,
    ]
    results = [CheckResult("plays with random actions", PASSED)]
    results += [_run(name, check) for name, check in checks]
    return results


def _maker(env: Any, settings: dict[str, Any]) -> tuple[Callable[[], ParallelEnv], bool]:
    """A function that makes the environment, and whether it makes a new one each time."""
    if isinstance(env, ParallelEnv):
        return (lambda: env), False
    if not isinstance(env, str):
        return (lambda: env(**settings)), True
    spec = env_spec(env)
    try:
        spec.make(**settings)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"`settings` is {settings}, with which {env!r} cannot be made: {_reason(error)}; correct them, or the game."
        ) from error
    return (lambda: spec.make(**settings)), True


def _run(name: str, check: Callable[[], str | None]) -> CheckResult:
    try:
        with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("always")
            detail = check()
    except _NotApplicableError as reason:
        return CheckResult(name, SKIPPED, str(reason))
    except Exception as error:
        return CheckResult(name, FAILED, _reason(error))
    if detail:
        return CheckResult(name, FAILED, detail)
    said = sorted({str(w.message) for w in caught if issubclass(w.category, UserWarning)})
    return CheckResult(name, PASSED, "; ".join(said))


def _reason(error: BaseException) -> str:
    """What is wrong: a sentence of ours, or an error of the game or of a test, with its place."""
    if isinstance(error, UserError):
        return str(error)
    places = traceback.extract_tb(error.__traceback__)
    own = [one for one in places if Path(one.filename).is_file() and not _is_library(one.filename)]
    place = (own or places)[-1]
    said = str(error) or place.line
    return f"{type(error).__name__} in `{place.name}` ({Path(place.filename).name}, line {place.lineno}): {said}"


def _is_library(file: str) -> bool:
    return "site-packages" in file or file.startswith(sysconfig.get_paths()["stdlib"])


def _act(space_of: Callable[[Any], spaces.Space[Any]], step: _Step, rng: np.random.Generator) -> dict[Any, Any]:
    """Random actions, allowed by the masks, of all agents that need one."""
    actions = {}
    for agent in asked(step.agents, step.infos):
        space = space_of(agent)
        if isinstance(space, spaces.Discrete):
            # A mask without any action is told by its own check.
            actions[agent] = int(rng.choice(_allowed(space, step.observations[agent]) or range(int(space.n)))) + int(
                space.start
            )
        else:
            space.seed(int(rng.integers(2**31)))
            actions[agent] = space.sample()
    return actions


def _allowed(space: spaces.Discrete, observation: Any) -> list[int]:
    """The actions that an observation's mask allows, counted from 0; all without a mask."""
    mask = observation.get("action_mask") if isinstance(observation, dict) else None
    return [k for k in range(int(space.n)) if mask is None or mask[k] > 0]


def _roll_out(env: ParallelEnv, seed: int, steps: int) -> Iterator[_Step]:
    """Random play over as many episodes as fit in."""
    rng = np.random.default_rng(seed)
    step: _Step | None = None
    count = 0
    for k in range(steps):
        if step is None or not step.agents:
            count = 0
            seen, infos = results_of(env, "reset", "at the reset", seed=seed + k)
            step = _Step(seen, {}, {}, {}, _told(infos), list(env.agents))
        else:
            actions = _act(lambda agent: space_of(env, agent, "action"), step, rng)
            count += 1
            seen, rewards, ended, cut, infos = results_of(env, "step", f"in step {count}", actions)
            step = _Step(seen, rewards, ended, cut, _told(infos), list(env.agents))
        yield step


def _told(infos: Mapping[Any, Any]) -> dict[Any, dict[str, Any]]:
    return {agent: info or {} for agent, info in infos.items()}


def _pettingzoo_api(make: Callable[[], ParallelEnv]) -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(make(), num_cycles=200)


def _pettingzoo_seed(make: Callable[[], ParallelEnv], fresh: bool) -> None:
    from pettingzoo.test import parallel_seed_test

    if not fresh:
        raise _NotApplicableError("needs two instances; give an id or a function that makes the environment")
    parallel_seed_test(make, num_cycles=100)


def _deterministic(make: Callable[[], ParallelEnv], episode: list[_Step], seed: int, steps: int) -> str | None:
    for k, (one, two) in enumerate(zip(episode, _roll_out(make(), seed, steps), strict=True)):
        for key in ("observations", "rewards", "terminations", "truncations", "agents"):
            if not data_equivalence(getattr(one, key), getattr(two, key)):
                return f"{key} differ at step {k} of two roll-outs with the same seed and actions"
    return None


def _in_spaces(env: ParallelEnv, episode: list[_Step]) -> str | None:
    for k, step in enumerate(episode):
        for agent, observation in step.observations.items():
            space = env.observation_space(agent)
            if space.contains(observation):
                continue
            if isinstance(space, spaces.Dict) and isinstance(observation, dict):
                for key in sorted(set(space.spaces) | set(observation)):
                    if key not in observation or key not in space.spaces:
                        return f"step {k}, {agent}: the key {key!r} is only in the space or the observation"
                    if not space[key].contains(observation[key]):
                        return f"step {k}, {agent}: {key} = {observation[key]!r} is not in {space[key]}"
            return f"step {k}, {agent}: the observation is not in {space}"
    return None


def _field(env: ParallelEnv, key: str, episode: list[_Step]) -> Iterator[tuple[int, Any, Any]]:
    """Step, agent and value of a field of all observations."""
    for agent in getattr(env, "possible_agents", episode[0].agents):
        space = env.observation_space(agent)
        if not isinstance(space, spaces.Dict) or key not in space.spaces:
            raise _NotApplicableError(f"observations have no `{key}`, which agents with language models need")
    for k, step in enumerate(episode):
        for agent, observation in step.observations.items():
            yield k, agent, observation[key]


def _text(env: ParallelEnv, episode: list[_Step]) -> str | None:
    for k, agent, text in _field(env, "text", episode):
        if not isinstance(text, str) or not text.strip():
            return f"step {k}, {agent}: text is {text!r}"
    return None


def _candidates(env: ParallelEnv, episode: list[_Step]) -> str | None:
    twice: list[str] = []
    for k, agent, phrases in _field(env, "candidates", episode):
        space = env.action_space(agent)
        if not isinstance(space, spaces.Discrete):
            return f"the action space of {agent} is {space} but must be Discrete to have candidates"
        if len(phrases) != space.n:
            return f"step {k}, {agent}: {len(phrases)} candidates for {space.n} actions"
        if not all(isinstance(phrase, str) and phrase.strip() for phrase in phrases):
            return f"step {k}, {agent}: an empty candidate among {phrases}"
        allowed = [phrases[action] for action in _allowed(space, episode[k].observations[agent])]
        twice += [phrase for phrase in allowed if allowed.count(phrase) > 1]
    if twice:
        warnings.warn(f"several open actions are called {twice[0]!r}, which language agents cannot tell", stacklevel=2)
    return None


def _mask(env: ParallelEnv, episode: list[_Step]) -> str | None:
    for k, agent, mask in _field(env, "action_mask", episode):
        space = env.action_space(agent)
        if not isinstance(space, spaces.Discrete) or np.shape(mask) != (space.n,):
            return f"step {k}, {agent}: the mask has shape {np.shape(mask)} for the action space {space}"
        if not np.isin(mask, (0, 1)).all():
            return f"step {k}, {agent}: the mask {mask} has other values than 0 and 1"
        if not np.any(mask):
            return f"step {k}, {agent}: the mask allows no action"
    return None


def _somebody_acts(episode: list[_Step]) -> str | None:
    idle = 0
    for k, step in enumerate(episode):
        # All may be busy for a while where the environment runs one game step at a time, but not for ever.
        idle = idle + 1 if step.agents and not asked(step.agents, step.infos) else 0
        if idle > _LONGEST_IDLE:
            return f"from step {k - idle + 1} on no agent needs an action, and the episode does not end"
    return None


def _step_rewards(episode: list[_Step]) -> str | None:
    told = False
    for k, step in enumerate(episode):
        for agent, reward in step.rewards.items():
            rewards = step.infos.get(agent, {}).get("step_rewards")
            if rewards is None:
                continue
            told = True
            if abs(sum(rewards) - reward) > 1e-6:
                return f"step {k}, {agent}: the reward is {reward} but the step_rewards are {rewards}"
    if not told:
        raise _NotApplicableError("infos have no `step_rewards`; each environment step counts as one game step")
    return None


_LIMITS = ("max_game_steps", "horizon")


def _time_limit(env: ParallelEnv, episode: list[_Step]) -> str | None:
    """Nobody is both terminated and truncated; at a known limit everybody left is truncated."""
    settings = getattr(env.unwrapped, "settings", None)
    own = settings if isinstance(settings, Mapping) else {}
    known = (own.get(name, getattr(env, name, None)) for name in _LIMITS)
    limit = next((one for one in known if one is not None), None)
    ended = cut = False
    reached = None
    for k, step in enumerate(episode):
        for agent, terminated in step.terminations.items():
            truncated = step.truncations.get(agent, False)
            ended = ended or terminated or truncated
            if terminated and truncated:
                return f"step {k}, {agent}: both terminated and truncated; a time limit only truncates"
            info = step.infos.get(agent, {})
            at_limit = limit is not None and info.get("game_step") == limit
            cut = cut or (at_limit and truncated)
            if at_limit and not truncated and not info.get("task_success", False):
                reached = f"step {k}, {agent}: at the limit of {limit} game steps but not truncated"
            if limit is not None and info.get("game_step", 0) > limit:
                return f"step {k}, {agent}: game step {info['game_step']} is beyond the limit of {limit}"
    if not ended:
        raise _NotApplicableError("no episode ended within the roll-out; give more `steps` or a shorter time limit")
    if reached and not cut:  # one that ends by itself at its last step is also cut in other episodes
        return reached
    if limit is None:
        raise _NotApplicableError(f"its limit is not known; a setting or attribute {' or '.join(_LIMITS)} tells it")
    return None


def _record(record: GameRecord, env: ParallelEnv) -> str | None:
    """All code that a game's record names is there, and its `package` defines the environment."""
    for part in fields(record):
        if part.name not in ("name", "package") and isinstance(getattr(record, part.name), str):
            record.code(part.name)
    found = game_of(env.unwrapped)
    if found is not None and found is not record:
        return (
            f"`package` is {record.package!r}, as of the game {found.name!r}, which is found first; give each its own"
        )
    if found is None:
        home = f"{type(env.unwrapped).__module__}.{type(env.unwrapped).__name__}"
        return f"`package` is {record.package!r}, but the environment is a {home}: its record is not found in play"
    if record.planning:
        from rllib_llm_comm.sama.planning_game import PlanningGame

        planning = record.code("planning")
        if not (isinstance(planning, type) and issubclass(planning, PlanningGame)):
            return f"`planning` is {record.planning!r}, which leads to {planning!r} but must be a PlanningGame"
    model = getattr(type(env.unwrapped), "settings_model", None)
    bare = [name for name, about in getattr(model, "model_fields", {}).items() if not about.description]
    if bare:
        warnings.warn(f"the setting `{bare[0]}` has no docstring below it for tables and schema", stacklevel=2)
    return None


def _plays(record: GameRecord, env: ParallelEnv, seed: int, steps: int) -> str | None:
    """As of `_scripted`, unless the scripted player says that it is not for these settings."""
    try:
        return _scripted(record, env, seed, steps)
    except UserError as error:
        raise _NotApplicableError(str(error)) from error


def _scripted(record: GameRecord, env: ParallelEnv, seed: int, steps: int) -> str | None:
    """Follows the scripted player: its actions are allowed, its messages are texts, some of them are understood."""
    player, understand = record.code("scripted_player"), record.code("sayings")
    game: Any = env.unwrapped
    rng, said, step = np.random.default_rng(seed), set[str](), _Step({}, {}, {}, {}, {}, [])
    for k in range(steps):
        if step.agents:
            actions = _act(env.action_space, step, rng)
            for agent in actions:
                space, advice = env.action_space(agent), player.advise(game, agent)
                if advice is None or not isinstance(space, spaces.Discrete):
                    continue
                if advice not in (allowed := _allowed(space, step.observations[agent])):
                    return f"step {k}: `advise` gives {agent} the action {advice!r}, but allowed are {allowed}"
                actions[agent] = int(advice)
            observations, _, _, _, infos = env.step(actions)
        else:
            observations, infos = env.reset(seed=seed + k)
        step = _Step(observations, {}, {}, {}, _told(infos), list(env.agents))
        agents = tuple(asked(step.agents, step.infos))
        if (state := teacher_state(game)) is None:
            return "the environment has no `teacher_state`, of which the scripted player speaks"
        messages = player.messages(state, agents, rng) if agents else {}
        if set(messages) - set(agents) or not all(isinstance(one, str) for one in messages.values()):
            return f"step {k}: `messages` gives {messages!r} but must give a text for some of {agents}"
        said.update(filter(None, messages.values()))
    if understand and said and not any(understand(one) is not None for one in said):
        return f"`sayings` understands nothing of what the scripted player says, such as {min(said)!r}"
    return None


def _rllib(make: Callable[[], ParallelEnv], seed: int, steps: int) -> str | None:
    """Feeds the adapted environment to RLlib's episodes, which check its protocol."""
    from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

    from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter

    env = make()
    try:
        adapter = ParallelEnvAdapter(env)
    except UserError as error:
        return f"training does not begin, but says: {error}"
    try:
        _play_under_rllib(adapter, MultiAgentEpisode, seed, steps)
    except UserError as error:
        return f"training ends when this is seen, and says: {error}"
    return None


def _play_under_rllib(adapter: Any, episodes: Any, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    episode: Any = None
    step = _Step({}, {}, {}, {}, {}, [])
    for _ in range(steps):
        if episode is None or episode.is_done:
            episode = episodes(observation_space=adapter.observation_spaces, action_space=adapter.action_spaces)
            observations, infos = adapter.reset(seed=seed)
            episode.add_env_reset(observations=observations, infos=infos)
        else:
            actions = _act(adapter.get_action_space, step, rng)
            observations, rewards, terminateds, truncateds, infos = adapter.step(actions)
            episode.add_env_step(observations, actions, rewards, infos, terminateds=terminateds, truncateds=truncateds)
        to_act = set(episode.get_agents_to_act()) if not episode.is_done else set()
        alive = [agent for agent in observations if agent in to_act]
        step = _Step(observations, {}, {}, {}, {agent: {} for agent in alive}, alive)


def _learns(make: Callable[[], ParallelEnv], run: str) -> None:
    """Lets the connectors of an algorithm look at the spaces."""
    from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES

    from rllib_llm_comm.rl.algorithms import ALGORITHMS
    from rllib_llm_comm.rl.rllib_adapter import ParallelEnvAdapter

    try:
        game = ParallelEnvAdapter(make())
        seen = (spaces.Dict(game.observation_spaces), spaces.Dict(game.action_spaces))
        config: Any = ALGORITHMS[run].get_default_config()
        config.build_env_to_module_connector(spaces={INPUT_ENV_SPACES: seen, INPUT_ENV_SINGLE_SPACES: seen})
    except UserError as error:
        raise _NotApplicableError(f"training with it does not begin, but says: {error}") from None


def _team_learns(make: Callable[[], ParallelEnv]) -> None:
    from rllib_llm_comm.baselines.value.joint_game import JointGame

    try:
        JointGame(make())
    except UserError as error:
        raise _NotApplicableError(f"training with it does not begin, but says: {error}") from None
