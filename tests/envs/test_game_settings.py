"""Every setting of every game of ours, with values of wrong types and numbers out of range: one sentence or a game."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import settings_of
from rllib_llm_comm.envs import env_ids, make_env
from rllib_llm_comm.envs.base_env import constructor
from rllib_llm_comm.envs.door import Door
from rllib_llm_comm.experiments.env_settings import check_environment
from tests.refusal import refused

NEVER = [
    math.nan, -math.inf, 10**30, -(10**30), "", "no such value", "x" * 300, b"x", [], [["x"]], [None], [math.nan],
    [10**30], [1.0], [True], ["A", "A"], {1: 2}, {"a": math.nan}, {"a": ["b"]},
]  # fmt: skip
NULL_TOO = ("blocked_steps",)  # besides those whose default is None
SOMETIMES = [5, 0, -1, 10**9, 2**32 - 1, 1.5, -0.5, True, None, ["A"], [5], (1, 2), {}]


def play(env_id: str, settings: dict[str, Any]) -> None:
    """Makes the game and plays a step."""
    made = make_env(env_id, **settings)
    made.reset(seed=0)
    made.step(dict.fromkeys(made.agents, 0))
    made.close()


def of_the_kind(value: Any, default: Any) -> bool:
    """Whether a value could be one of a setting with this default; one whose default is None may be anything."""
    if value is None or default is None:
        return default is None
    if isinstance(value, bool) or isinstance(default, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(value, int | float):
        return isinstance(default, int | float) and (isinstance(value, int) or isinstance(default, float))
    return isinstance(default, str | tuple)


@pytest.mark.parametrize("env_id", env_ids())
def test_a_wrong_value_of_any_setting_is_one_sentence_that_names_it(env_id):
    for name, default in settings_of(type(make_env(env_id))).defaults().items():
        for value in [*NEVER, *SOMETIMES]:
            told = f"{env_id} {name}={value!r}"
            try:
                play(env_id, {name: value})
            except UserError as error:
                sentence = str(error)
                assert f"`{name}" in sentence and "\n" not in sentence, f"{told}: {sentence}"
                assert sentence.rstrip(")").endswith((".", "?")), f"{told}: {sentence}"
            except Exception as error:
                raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
            else:
                fits = of_the_kind(value, default) or (value is None and name in NULL_TOO)
                assert fits and not any(value is bad for bad in NEVER), f"{told} is accepted"


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("counter_circuit", "'counter_circuit_o_1order'"),
        ("random3", "'counter_circuit_o_1order'"),
        ("simple", "'cramped_room'"),
        ("counter_circuit_o_1order", ""),
        ("cramped_room", ""),
    ],
)
def test_a_kitchen_that_has_another_name_elsewhere_is_told_once(layout, told, capsys):
    for _ in range(2):
        check_environment(f"a stage in {layout}", "rllib_llm_comm/overcooked_ai-v0", {"layout": layout})
    said = capsys.readouterr().out.splitlines()
    assert len(said) == bool(told) and all(told in line and repr(layout) in line for line in said), said


SECRET = {"layout": "forced_coordination", "wanted": "pot"}


@pytest.mark.parametrize(
    ("game", "field", "settings"),
    [
        ("frozen_lake", "holes", {"holes": 0.5}),
        ("minirts", "observe", {"action_level": "red", "observe": ["text"]}),
        ("minirts", "decision_ticks", {"action_level": "red", "decision_ticks": 100}),
        ("minirts", "decision_ticks", {"decision_ticks": 70}),
        ("minirts", "producers", {"action_level": "red", "producers": "bob"}),
        ("minirts", "executor", {"action_level": "red", "executor": "trained:x"}),
        ("minirts", "told_to", {"told_to": "all", "opponent": "strong"}),
        ("minirts", "told_to", {"told_to": "all", "observe": ["planes"]}),
        ("minirts", "told_to", {"told_to": "all", "action_level": "red"}),
        ("minirts", "numbers.0", {"numbers": [7]}),
        ("overcooked_ai", "action_level", {"action_level": "goal", "dynamics": "new"}),
        ("overcooked_ai", "swap_roles", {"swap_roles": True}),
        ("overcooked_ai", "wanted", {"wanted": "pot"}),
        ("overcooked_ai", "wanted_anew", {"wanted_anew": True}),
        ("overcooked_ai", "told_to", {"told_to": "one"}),
        ("overcooked_ai", "told_to.0", {**SECRET, "told_to": ["carol"]}),
        ("overcooked_ai_subgoals", "subgoal_file", {"subgoal_file": "nowhere.json"}),
        ("overcooked_ai_subgoals", "action_level", {"action_level": "goal"}),
        ("overcooked_ai_subgoals", "wanted", SECRET),
        ("overcooked_ai_subgoals", "subgoals", {"subgoals": "planner", "dynamics": "new"}),
        ("overcooked_text", "recipe", {"recipe": ["tomato salad", "onion salad"], "layout": "tomato"}),
        ("overcooked_text", "central_critic", {"observe": ["vector"], "central_critic": True}),
        ("overcooked_text", "orders", {"legacy": True, "orders": 2}),
        ("overcooked_text", "start", {"legacy": True, "start": "random"}),
        ("overcooked_text", "told_to", {"legacy": True, "told_to": ["alice"]}),
        ("overcooked_text", "told_to", {"told_to": "bob"}),
        ("overcooked_text", "told_to", {"told_to": ["carol"]}),
        ("overcooked_text", "rewards.chop", {"rewards": {"chop": math.nan}}),
        ("overcooked_text", "rewards.chp", {"rewards": {"chp": 2}}),
        ("overcooked_text", "map_nam", {"map_nam": "A"}),
    ],
)
def test_settings_that_do_not_fit_the_game_or_each_other_are_refused_also_in_a_file(game, field, settings):
    env_id = f"rllib_llm_comm/{game}-v0"
    with refused(field, None):
        make_env(env_id, **settings)
    with refused(f"play.config.env_config.{field}", None):
        check_environment("play", env_id, settings)


def test_a_class_with_arguments_has_settings_of_their_types():
    class Long(Door):
        def __init__(self, rounds: int = 2, words: Sequence[str] = None, **settings: Any) -> None:
            super().__init__(**settings)
            self.rounds = rounds

    make = constructor(Long)
    assert make(rounds=3, doors=4, max_cycles=9).unwrapped.rounds == 3 and make().rounds == 2
    assert {"rounds", "doors", "told_to", "max_cycles"} <= set(inspect.signature(make).parameters)
    for wrong in ({"rounds": "3"}, {"words": "bob"}, {"words": None}, {"doors": 9}, {"round": 3}, {"max_cycles": 0}):
        with refused(next(iter(wrong)), None):
            make(**wrong)
