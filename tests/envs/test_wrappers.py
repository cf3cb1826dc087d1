"""Forms of the games for other people's software, and what PettingZoo expects of every game."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.env_registry import registration
from pettingzoo.test import parallel_api_test
from pettingzoo.test.state_test import state_test

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import (
    door,
    env_ids,
    frozen_lake,
    make_env,
    minirts,
    overcooked_ai,
    overcooked_text,
    referential,
)
from rllib_llm_comm.envs.wrappers import box_observations, masked_observations, plain_infos

ALL = pytest.mark.parametrize("env_id", env_ids())
FORMS = pytest.mark.parametrize("form", [box_observations, masked_observations])


def module_of(env_id: str) -> ModuleType:
    """The game's module by PettingZoo's names, such as `overcooked_text_v0`."""
    return importlib.import_module(f"rllib_llm_comm.envs.{env_id.rpartition('/')[2].replace('-v', '_v')}")


def steps(env, count: int):
    """Results of random steps, over as many episodes as it takes."""
    for agent in env.possible_agents:
        env.action_space(agent).seed(3)
    for _ in range(count):
        if not env.agents:
            env.reset()
        yield env.step({agent: env.action_space(agent).sample() for agent in env.agents})


# ---- what PettingZoo expects -------------------------------------------------------------------------


@ALL
def test_passes_pettingzoos_state_test(env_id):
    module = module_of(env_id)
    state_test(module.env(), module.parallel_env(), num_cycles=20)


@ALL
def test_a_limit_of_calls_truncates(env_id):
    env = registration.make("parallel", env_id, max_cycles=1)
    for _ in range(2):
        env.reset(seed=0)
        *_, terminations, truncations, _ = env.step({a: env.action_space(a).sample() for a in env.agents})
        assert all(truncations[agent] != terminations[agent] for agent in env.possible_agents)
        assert env.agents == [] and env.step({}) == ({}, {}, {}, {}, {})


def test_a_limit_of_calls_does_not_count_game_steps_and_leaves_the_games_own_limit():
    env = overcooked_text.parallel_env(max_cycles=5, max_game_steps=200)
    env.reset(seed=0)
    *_, infos = list(steps(env, 5))[-1]
    assert env.agents == [] and infos["alice"]["game_step"] > 5
    env = overcooked_ai.parallel_env(max_cycles=50, horizon=3)
    env.reset(seed=0)
    assert [sum(truncations.values()) for *_, truncations, _ in steps(env, 3)] == [0, 0, 2] and env.agents == []


@ALL
def test_its_random_numbers_can_be_exchanged(env_id):
    one, other = make_env(env_id), make_env(env_id)
    for env in (one, other):
        env.reset(seed=5)
        env.np_random = np.random.default_rng(9)
    for _ in range(3):
        one.reset()
        other.reset()
        assert np.array_equal(one.state(), other.state())
    assert one.np_random is not other.np_random
    assert one.np_random.bit_generator.state == other.np_random.bit_generator.state


# ---- the whole game ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        (door, {"told_to": ["bob"], "doors": 2}),
        (overcooked_text, {"told_to": ["bob"], "recipe": ["tomato salad", "onion salad"]}),
        (overcooked_ai, {"told_to": ["bob"], "wanted": "pot", "layout": "asymmetric_advantages"}),
        (frozen_lake, {"assignment": "drawn"}),
    ],
)
def test_the_state_tells_what_an_agent_is_not_told(env, settings):
    made = env.parallel_env(**settings)
    seen, states = set(), set()
    for seed in range(12):
        observations, _ = made.reset(seed=seed)
        seen.add(observations["alice"]["vector"].tobytes())
        states.add(made.state().tobytes())
    assert len(seen) == 1 and len(states) == 2


def test_the_state_of_overcooked_ai_is_the_part_of_that_name():
    env = overcooked_ai.parallel_env(observe=["state"], layout="forced_coordination")
    observations, _ = env.reset(seed=0)
    assert np.array_equal(env.state(), observations["bob"]["state"])
    for observations, *_ in steps(env, 20):
        assert np.array_equal(env.state(), observations["alice"]["state"])


def test_the_state_of_the_referential_game_has_the_thing_that_is_meant():
    env = referential.parallel_env(objects=3, told_to=["alice"])
    for seed in range(5):
        observations, _ = env.reset(seed=seed)
        time, *seen = env.state().tolist()
        meant = np.array(seen[:-2]).reshape(3, 7)[:, -1]
        assert time == 0 and meant.sum() == 1
        assert np.array(observations["bob"]["vector"][:-2]).reshape(3, 7)[:, -1].sum() == 0
        assert observations["bob"]["candidates"][1 + int(meant.argmax())] == f"take the {env.fact}"
        assert not env.told("bob")


def test_the_state_of_minirts_has_no_fog():
    env = minirts.parallel_env(opponent="simple")
    observations, _ = env.reset(seed=0)
    kinds = (observations["alice"]["vector"].size - 5) // 4
    enemy = env.state()[3 + 2 * kinds : 3 + 3 * kinds]
    assert observations["alice"]["vector"][-kinds:].sum() == 0 and enemy.sum() > 0


def test_a_game_that_defines_no_state_says_so():
    class Stateless(door.Door):
        whole = door.Door.__mro__[2].whole

    env = Stateless()
    env.reset(seed=0)
    assert not hasattr(env, "state_space")
    with pytest.raises(NotImplementedError, match="Stateless defines no `whole`"):
        env.state()


# ---- forms -------------------------------------------------------------------------------------------


@ALL
@FORMS
def test_forms_keep_pettingzoos_contract(env_id, form):
    parallel_api_test(plain_infos(form(make_env(env_id))), num_cycles=30)


@ALL
def test_forms_show_the_same_numbers(env_id):
    plain, boxes, masked = make_env(env_id), box_observations(make_env(env_id)), masked_observations(make_env(env_id))
    results = [env.reset(seed=1) for env in (plain, boxes, masked)]
    for _ in range(15):
        (seen, infos), (box, box_infos), (pair, pair_infos) = results
        for agent in seen:
            assert np.array_equal(box[agent], seen[agent]["vector"]) and box[agent] in boxes.observation_space(agent)
            assert np.array_equal(box_infos[agent]["action_mask"], seen[agent]["action_mask"])
            assert set(pair[agent]) == {"observation", "action_mask"} and pair[agent] in masked.observation_space(agent)
            assert np.array_equal(pair[agent]["observation"], box[agent]) and pair_infos[agent] == infos[agent]
            assert np.array_equal(pair[agent]["action_mask"], seen[agent]["action_mask"])
        if not plain.agents:
            break
        actions = {agent: int(np.flatnonzero(seen[agent]["action_mask"])[-1]) for agent in seen}
        results = [(out[0], out[-1]) for out in [env.step(actions) for env in (plain, boxes, masked)]]


@ALL
def test_plain_infos_are_the_numbers_with_the_same_keys_at_each_step(env_id):
    env = plain_infos(box_observations(make_env(env_id)))
    _, infos = env.reset(seed=0)
    shapes = {name: np.shape(value) for name, value in infos["alice"].items()}
    assert {"needs_action", "game_step", "action_mask"} <= set(shapes) and "events" not in shapes
    for *_, later in steps(env, 10):
        for info in later.values():
            assert {name: np.shape(value) for name, value in info.items()} == shapes
            assert all(np.asarray(value).dtype.kind in "bif" for value in info.values())


def test_plain_infos_join_the_keys_of_dictionaries():
    env = plain_infos(frozen_lake.parallel_env())
    assert env.reset(seed=0)[1]["bob"] == {
        "needs_action": True, "game_step": 0, "task_success": False,
        "episode_metrics.score": 0.0, "episode_metrics.arrived": 0.0, "episode_metrics.fallen": 0.0,
    }  # fmt: skip


def test_other_parts_and_other_masks():
    env = box_observations(overcooked_ai.parallel_env(observe=["planes"]), "planes")
    assert env.observation_space("bob").shape == env.reset(seed=0)[0]["bob"].shape == (5, 4, 26)
    env = box_observations(minirts.parallel_env(action_level="red", observe=["vector"], num_agents=1))
    observations, infos = env.reset(seed=0)
    assert isinstance(env.action_space("alice"), spaces.MultiDiscrete) and observations["alice"].shape == (65,)
    assert infos["alice"]["head_mask"].size == env.action_space("alice").nvec.sum()


@pytest.mark.parametrize(
    ("form", "env", "settings", "part", "words"),
    [
        (box_observations, frozen_lake, {"observe": ["text"]}, "vector", "`part` is 'vector'"),
        (box_observations, frozen_lake, {}, "text", "`part` is 'text'"),
        (masked_observations, minirts, {"action_level": "red"}, "planes", "`part` is 'action_mask'"),
    ],
)
def test_a_part_that_is_no_array_and_a_form_of_a_form_get_one_sentence(form, env, settings, part, words):
    with pytest.raises(UserError, match=words):
        form(env.parallel_env(**settings), part)
    with pytest.raises(UserError, match="dictionary"):
        form(box_observations(env.parallel_env(observe=["vector"])))


# ---- parts of the textual kitchen --------------------------------------------------------------------


@pytest.mark.parametrize(("observe", "keys"), [("vector", {"vector"}), ("text", {"text", "candidates", "subgoal"})])
def test_the_textual_kitchen_shows_the_parts_that_are_asked_for(observe, keys):
    whole, env = overcooked_text.parallel_env(), overcooked_text.parallel_env(observe=[observe])
    (all_seen, _), (seen, _) = whole.reset(seed=0), env.reset(seed=0)
    assert set(seen["bob"]) == {*keys, "action_mask"}
    for (all_seen, *_), (seen, *_) in zip(steps(whole, 30), steps(env, 30), strict=True):
        for agent, own in seen.items():
            assert own in env.observation_space(agent)
            assert all(np.array_equal(own[key], all_seen[agent][key]) for key in keys)
