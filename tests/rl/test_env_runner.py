"""The leaner runner, its episodes and its last steps: what RLlib's own give."""

from __future__ import annotations

import copy
import functools
import gc
import random
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.module_to_env import NormalizeAndClipActions
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.spaces.space_utils import BatchedNdArray, batch
from toys import ColourTalk, talkers

from rllib_llm_comm import MAPPOConfig, SymbolicPPOConfig, TWOSOMEConfig, VercoConfig
from rllib_llm_comm.core.phases import phase
from rllib_llm_comm.envs.frozen_lake.env import FrozenLake
from rllib_llm_comm.envs.games import env_ids, make_env
from rllib_llm_comm.envs.wrappers import MaxCycles
from rllib_llm_comm.rl import env_runner
from rllib_llm_comm.rl.env_runner import (
    OWN_CONNECTORS,
    BatchByPart,
    LeanEnvRunner,
    LeanEpisode,
    ListifyByTable,
    UnBatchByTable,
    batch_by_part,
)
from rllib_llm_comm.rl.rllib_adapter import register_parallel_env
from tests.refusal import refused

KITCHEN, LAKE = "rllib_llm_comm/overcooked_text-v0", "rllib_llm_comm/frozen_lake-v0"
ONION_SOUP = "rllib_llm_comm/overcooked_ai-v0"
ORDERS = {"map_name": "B", "max_game_steps": 25, "recipe": ["tomato salad", "onion salad"], "told_to": "one"}


class Notes(RLlibCallback):
    """Notes every call about an episode, and what the metrics were then."""

    made: list = []

    def note(self, which, *, episode, env_index, metrics_logger, prev_episode_chunks=(), **kwargs):
        steps = [metrics_logger.peek(key, default=0) for key in ("num_env_steps_sampled", "num_episodes")]
        Notes.made.append((which, env_index, len(episode), len(prev_episode_chunks), *steps))

    on_episode_created = functools.partialmethod(note, "created")
    on_episode_start = functools.partialmethod(note, "start")
    on_episode_step = functools.partialmethod(note, "step")
    on_episode_end = functools.partialmethod(note, "end")


class Longer(ConnectorV2):
    """A user's own connector, which changes observations."""

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in episodes:
            for single in episode.agent_episodes.values():
                seen = single.get_observations(-1) if len(single.observations) else {}
                if "text" in seen:
                    single.set_observations(at_indices=-1, new_data={**seen, "vector": seen["vector"] * 2})
        return batch


def plain(value):
    """A value that `==` compares; tensors and arrays as bytes, so that every bit counts."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        return (str(value.dtype), value.shape, value.tobytes())
    return value


def told(episodes):
    """All that episodes hold, without their random names."""
    return [
        {
            str(agent): [
                *(plain(part()) for part in (single.get_observations, single.get_actions)),
                *(plain(part()) for part in (single.get_rewards, single.get_infos)),
                plain({name: single.get_extra_model_outputs(name) for name in single.extra_model_outputs}),
                [single.is_terminated, single.is_truncated, single.t_started, single.t, single.module_id],
            ]
            for agent, single in episode.agent_episodes.items()
        }
        | {"": [plain(episode.custom_data), episode.env_t_started, episode.env_t, episode.is_done]}
        for episode in episodes
    ]


def counted(metrics):
    """Metrics without seconds. A sum of one number is that number, one of several is NumPy's."""
    return {
        name: counted(value) if isinstance(value, dict) else float(value.peek() if hasattr(value, "peek") else value)
        for name, value in metrics.items()
        if not any(word in name for word in ("time", "duration", "seconds", "_sec", "throughput")) and name != "sample"
    }


def sampled(runner_class, config, calls):
    """Two roll-outs of fragments, one of whole episodes, and what was logged."""
    torch.manual_seed(0)
    np.random.seed(0)
    Notes.made = []
    phase.take_tokens()  # those of models that other tests have used in this process
    runner = runner_class(config=config.copy(copy_frozen=False), worker_index=0)
    results = []
    for settings in calls:
        results += [told(runner.sample(**settings)), counted(runner.get_metrics())]
    runner.stop()
    return results, list(Notes.made), runner


def configured(config: AlgorithmConfig, env, env_config, **runners):
    config.environment(env, env_config=env_config).debugging(seed=3)
    config.env_runners(num_envs_per_env_runner=3, **runners)
    config.validate()
    return config


CALLS = [{"num_timesteps": 40}, {"num_timesteps": 40}, {"num_episodes": 4}, {"num_timesteps": 20, "explore": False}]


@pytest.mark.parametrize(
    ("make", "env", "env_config", "listens"),
    [
        (SymbolicPPOConfig, KITCHEN, ORDERS, False),
        (MAPPOConfig, KITCHEN, {**ORDERS, "num_agents": 3}, True),
        (MAPPOConfig, LAKE, {}, False),  # agents leave the game one by one
        (MAPPOConfig, LAKE, {}, True),
        (MAPPOConfig, ONION_SOUP, {"horizon": 30, "observe": ["vector", "state"]}, False),
        (MAPPOConfig, "rllib_llm_comm/door-v0", {}, False),
    ],
)
def test_numeric_games(make, env, env_config, listens):
    config = configured(make(), env, env_config)
    if listens:
        config.callbacks([*np.atleast_1d(config.callbacks_class).tolist(), Notes])
    ours, theirs = (sampled(runner, config, CALLS) for runner in (LeanEnvRunner, MultiAgentEnvRunner))
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1] and bool(ours[1]) == listens
    assert ours[2].env.copy is False and theirs[2].env.copy is True
    assert sum(len(one) for one in ours[0][::2]) > len(CALLS)


@pytest.mark.parametrize("make", [VercoConfig, TWOSOMEConfig])
def test_language_models(make):
    config = make().language_model(temperature=1.5)
    configured(config, KITCHEN, {**ORDERS, "max_game_steps": 4})
    sampled(LeanEnvRunner, config, [])  # a process tries an engine once, which reads tokens
    calls = [{"num_timesteps": 6}, {"num_timesteps": 9}]  # the games end in the second one
    ours, theirs = (sampled(runner, config, calls) for runner in (LeanEnvRunner, MultiAgentEnvRunner))
    assert ours[0] == theirs[0]


def test_connectors_of_the_user():
    config = configured(
        SymbolicPPOConfig(), KITCHEN, ORDERS, env_to_module_connector=lambda env, spaces, device: Longer()
    )
    ours, theirs = (sampled(runner, config, CALLS[:2]) for runner in (LeanEnvRunner, MultiAgentEnvRunner))
    assert ours[0] == theirs[0]
    without = sampled(LeanEnvRunner, configured(SymbolicPPOConfig(), KITCHEN, ORDERS), CALLS[:2])
    assert ours[0] != without[0]


class Careless(MultiAgentEnv):
    """Not a game behind our adapter, and none that RLlib plays."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = self.agents = ["a"]
        self.observation_spaces = self.action_spaces = {"a": spaces.Discrete(2)}

    def reset(self, *, seed=None, options=None):
        return {"stranger": 0}, {}


def test_a_game_that_cannot_be_made_is_told_without_a_complaint_of_rllibs_at_the_end(monkeypatch):
    def broken(**settings):
        raise ValueError("no such map")

    register_parallel_env("broken", entry=broken)
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with pytest.raises(ValueError, match="no such map"):
        LeanEnvRunner(config=SymbolicPPOConfig().environment("broken"), worker_index=0)
    gc.collect()
    assert not complaints


def test_rllib_checks_what_is_not_behind_our_adapter():
    config = MAPPOConfig().environment(Careless)
    with pytest.raises(ValueError, match="agent_ids"):
        LeanEnvRunner(config=config, worker_index=0)


class OwnLake(FrozenLake):
    """A user's game that inherits from one of ours and writes into what it has shown."""

    def step(self, actions):
        observations, *others = super().step(actions)
        for agent, seen in observations.items():
            kept = self.__dict__.setdefault("kept", {}).setdefault(agent, seen["vector"])
            kept[:] = seen["vector"]
            seen["vector"] = kept
        return observations, *others


@pytest.mark.parametrize("entry", [ColourTalk, OwnLake, lambda **settings: MaxCycles(FrozenLake(**settings), 5)])
def test_games_of_others_and_those_that_inherit_or_are_wrapped_are_copied(entry):
    register_parallel_env("toys/own_game", entry=entry)
    config = configured(SymbolicPPOConfig(), "toys/own_game", {})
    ours, theirs = (sampled(runner, config, CALLS[:2]) for runner in (LeanEnvRunner, MultiAgentEnvRunner))
    assert ours[2].env.copy is True and ours[0] == theirs[0]


def test_what_connectors_keep_of_the_last_step_stays():
    class Keeps(ConnectorV2):
        def __call__(self, *, batch, episodes, obs=None, **kwargs):
            kept.append((obs, [dict(one) for one in obs]))
            return batch

    kept = []
    config = configured(SymbolicPPOConfig(), LAKE, {}, env_to_module_connector=lambda env, spaces, device: Keeps())
    sampled(LeanEnvRunner, config, CALLS[:1])
    assert len(kept) > 5
    for list_then, games_then in kept:
        assert all(one[agent] is then[agent] for one, then in zip(list_then, games_then, strict=True) for agent in then)


def test_callbacks_that_an_object_got_later_are_called():
    class Later(RLlibCallback):
        def __init__(self):
            super().__init__()
            self.on_episode_step = lambda **kwargs: called.append(kwargs["env_index"])

    called = []
    config = configured(SymbolicPPOConfig(), LAKE, {})
    config.callbacks([*np.atleast_1d(config.callbacks_class).tolist(), Later])
    sampled(LeanEnvRunner, config, CALLS[:1])
    assert len(called) > 10


@pytest.mark.parametrize(
    ("space", "kept"),
    [(spaces.Discrete(3), False), (spaces.Box(100, 200), True), (spaces.MultiDiscrete([2, 2]), False)],
)
def test_actions_with_bounds_are_unsquashed_as_by_rllib(space, kept):
    both = spaces.Dict({"alice": space, "bob": spaces.Discrete(2)})
    pipeline = MAPPOConfig().build_module_to_env_connector(spaces={INPUT_ENV_SINGLE_SPACES: (both, both)})
    found = [one for one in pipeline.connectors if isinstance(one, NormalizeAndClipActions)]
    assert bool(found) == kept and all(one.normalize_actions for one in found)


def test_it_is_the_default_and_a_runner_by_its_name_is_refused():
    config = SymbolicPPOConfig()
    assert config.env_runner_cls is LeanEnvRunner
    config.env_runners(env_runner_cls="ray.rllib.env.multi_agent_env_runner.MultiAgentEnvRunner")
    with refused("env_runner_cls"):
        configured(config, LAKE, {})


@pytest.mark.parametrize("env_id", env_ids())
def test_our_games_never_write_into_what_they_have_shown(env_id):
    env, rng = make_env(env_id), np.random.default_rng(0)
    shown = []
    for episode in range(2):
        observations, infos = env.reset(seed=episode)
        for _ in range(25):
            shown.append((observations, copy.deepcopy(observations)))
            if not env.agents:
                break
            actions = {agent: env.action_space(agent).sample() for agent in env.agents}
            for agent, action in actions.items():
                if "action_mask" in observations[agent] and np.ndim(action) == 0:
                    actions[agent] = int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
            observations, _, _, _, infos = env.step(
                {agent: action for agent, action in actions.items() if infos[agent].get("needs_action", True)}
            )
    assert all(plain(now) == plain(then) for now, then in shown)
    env.close()


def found(function, *args):
    """What a function gives, or the kind of its error."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def held(episode):
    agents = {
        agent: [
            *(column.data for column in (single.observations, single.infos, single.actions, single.rewards)),
            {name: column.data for name, column in single.extra_model_outputs.items()},
            [single.t, single.is_terminated, single.is_truncated],
        ]
        for agent, single in episode.agent_episodes.items()
    }
    waiting = (episode._hanging_actions_end, episode._hanging_rewards_end, episode._hanging_rewards_begin,
               episode._hanging_extra_model_outputs_end)  # fmt: skip
    steps = {agent: column.data for agent, column in episode.env_t_to_agent_t.items()}
    ended = [episode.env_t, episode.is_terminated, episode.is_truncated, episode.is_reset]
    return agents, [dict(one) for one in waiting], steps, ended


def test_random_steps_leave_the_same_behind():
    count = refused = 0
    for seed in range(250):
        draw = random.Random(seed)
        agents = ["a", "b", "c"][: draw.randint(1, 3)]
        both = [LeanEpisode(), MultiAgentEpisode()]
        first = {agent: (agent, 0) for agent in agents if draw.random() < 0.9}
        for episode in both:
            episode.add_env_reset(observations=first, infos={agent: {"time": 0} for agent in first})
        ready, gone = set(first), set()
        for time in range(1, 12):
            here = [agent for agent in agents if agent not in gone]
            ends = {agent: draw.random() < 0.03 for agent in here}
            limits = {agent: draw.random() < 0.02 for agent in here if draw.random() < 0.8}
            seen = {agent: (agent, time) for agent in here if draw.random() < 0.6 or limits.get(agent)}
            paid = {agent: draw.choice([0.0, 1.0, -0.5]) for agent in here if agent in seen or draw.random() < 0.5}
            acts = {agent: time for agent in sorted(ready) if draw.random() < 0.97}
            told = {
                "infos": {agent: {"time": time} for agent in seen},
                "terminateds": {**ends, "__all__": draw.random() < 0.02},
                "truncateds": {**limits, "__all__": False},
                "extra_model_outputs": {agent: {"logp": time} for agent in acts},
            }
            errors = [found(lambda: episode.add_env_step(seen, acts, paid, **told)) for episode in both]  # noqa: B023
            assert errors[0] == errors[1], (seed, time)
            count, refused = count + 1, refused + (errors[0] is not None)
            if errors[0] is not None:
                break
            stepped = found(both[1].get_agents_that_stepped)
            if isinstance(stepped, type):  # RLlib loses count of an agent that waited through two cuts
                break
            assert held(both[0]) == held(both[1]), (seed, time)
            assert both[0].get_agents_that_stepped() == stepped, (seed, time)
            assert both[0].get_agents_to_act() == both[1].get_agents_to_act(), (seed, time)
            gone |= {agent for agent in here if ends[agent] or limits.get(agent)}
            ready = set(seen) - gone
            if both[0].is_done:
                break
            if draw.random() < 0.1:
                lookback = draw.choice([0, 1, 1, 2])
                both = [found(episode.cut, lookback) for episode in both]
                if isinstance(both[1], type):
                    assert both[0] == both[1]
                    break
                assert type(both[0]) is LeanEpisode
    assert count > 900 and refused > 12


def played(policies):
    settings = talkers(env_config={"busy": (1, 3), "length": 7}).multi_agent(policies=policies)
    settings.env_runners(num_envs_per_env_runner=4).validate()
    runner = MultiAgentEnvRunner(config=settings, worker_index=0)
    pieces = {type(piece) for line in (runner._env_to_module, runner._module_to_env) for piece in line.connectors}
    found = []
    for episode in runner.sample(num_timesteps=80, explore=True):
        for agent, single in sorted(episode.agent_episodes.items()):
            outputs = {name: np.asarray(single.get_extra_model_outputs(name)) for name in single.extra_model_outputs}
            found.append((agent, np.asarray(single.get_actions()), outputs))
    return pieces, found


@pytest.mark.parametrize("policies", ["shared", "per_agent"])
def test_episodes_are_those_of_rllibs_own_pieces(policies, monkeypatch):
    ours, quick = played(policies)
    monkeypatch.setattr(env_runner, "OWN_CONNECTORS", {})
    theirs, slow = played(policies)
    assert {BatchByPart, UnBatchByTable, ListifyByTable} <= ours and set(OWN_CONNECTORS) <= theirs
    assert len(quick) == len(slow) > 8
    for (agent, actions, outputs), (other, wanted, expected) in zip(quick, slow, strict=True):
        assert agent == other and outputs.keys() == expected.keys()
        np.testing.assert_array_equal(actions, wanted)
        for name, values in outputs.items():
            np.testing.assert_array_equal(values, expected[name])


@pytest.mark.parametrize("joined", [False, True])
def test_observations_are_batched_part_by_part_as_by_rllib(joined):
    rng = np.random.default_rng(0)
    rows = [{"ids": rng.integers(9, size=(2, 3)), "flag": np.int8([k]), "at": np.array(k / 3)} for k in range(5)]
    if joined:
        rows = [{name: BatchedNdArray(np.stack([part] * 2)) for name, part in row.items()} for row in rows]
    found, wanted = batch_by_part(rows), batch(rows, individual_items_already_have_batch_dim="auto")
    assert list(found) == list(wanted)
    assert all(found[name].dtype == part.dtype and np.array_equal(found[name], part) for name, part in wanted.items())
