"""Every setting of every game of ours, with values of wrong types and numbers out of range: one sentence or a game."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
from pettingzoo.env_registry import registration

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs import env_ids
from rllib_llm_comm.experiments.env_settings import check_environment

NEVER = [
    math.nan, math.inf, -math.inf, 10**30, -(10**30), 1e308, "", "no such value", "x" * 300, b"x", [], [[]], [["x"]],
    [None], [math.nan], [10**30], [1.0], [True], ["A", "A"], ["alice"] * 10, {1: 2}, {"a": 1}, {"a": math.nan},
    {"a": ["b"]},
]  # fmt: skip
NULL_TOO = ("blocked_steps",)  # besides those whose default is None
SOMETIMES = [5, 0, -1, 10**9, 2**31, 2**32 - 1, 1.5, -0.5, True, False, None, ["A"], [5], (1, 2), {}]


def settings_of(env_id: str) -> dict[str, Any]:
    """Name -> default of the settings of a game, those of the game that it is made from included."""
    made = registration.make("parallel", env_id)
    made.close()
    known: dict[str, Any] = {}
    for kind in type(made).__mro__:
        if "__init__" in vars(kind):
            arguments = list(inspect.signature(kind.__init__).parameters.values())[1:]
            known = {**{a.name: a.default for a in arguments if a.kind is not inspect.Parameter.VAR_KEYWORD}, **known}
            if all(argument.kind is not inspect.Parameter.VAR_KEYWORD for argument in arguments):
                return known
    raise AssertionError(f"{env_id} has no settings")


def play(env_id: str, settings: dict[str, Any]) -> None:
    """Makes the game and plays a step."""
    made = registration.make("parallel", env_id, **settings)
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
    for name, default in settings_of(env_id).items():
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
        ("counter_circuit", "'counter_circuit_o_1order' in the original package; its own 'counter_circuit' is another"),
        ("random3", "is the kitchen called 'counter_circuit' here and 'counter_circuit_o_1order' in the original"),
        ("simple", "is the kitchen called 'cramped_room' here and in the original package."),
        ("counter_circuit_o_1order", ""),
        ("cramped_room", ""),
    ],
)
def test_a_kitchen_that_has_another_name_elsewhere_is_told_once(layout, told, capsys):
    for _ in range(2):
        check_environment(f"a stage in {layout}", "rllib_llm_comm/overcooked_ai-v0", {"layout": layout})
    said = capsys.readouterr().out.splitlines()
    assert len(said) == bool(told) and all(told in line and repr(layout) in line for line in said), said


@pytest.mark.parametrize(
    ("game", "settings", "sentence"),
    [
        (
            "overcooked_ai",
            {"layout": 5},
            "`layout` is 5 but must be text, a list of texts or a dictionary from names to values, "
            "such as 'cramped_room'.",
        ),
        ("overcooked_text", {"map_name": ["A"]}, "`map_name` is ['A'] but must be text, such as 'B'."),
        ("minirts", {"numbers": 3}, "`numbers` is 3 but must be a list of whole numbers, such as [1, 3, 5]."),
        ("minirts", {"fair": 1}, "`fair` is 1 but must be true or false."),
        ("overcooked_text", {"blocked_steps": "2"}, "is '2' but must be a whole number or null, such as 3."),
        ("overcooked_text", {"rewards": 2}, "`rewards` is 2 but must be a dictionary from names to numbers or null."),
        ("overcooked_ai", {"shaping": math.inf}, "`shaping` is inf but must be a number from 0 to 1000000000."),
        ("door", {"told_to": ["alice"] * 3}, "but must name 'alice' only once."),
        ("overcooked_text", {"told_to": ["bob", "bob"]}, "`told_to` is ['bob', 'bob'] but must name 'bob' only once."),
    ],
)  # fmt: skip
def test_an_experiment_file_is_refused_before_anything_starts(game, settings, sentence):
    with pytest.raises(UserError) as told:
        check_environment("play", f"rllib_llm_comm/{game}-v0", settings)
    assert str(told.value).startswith("In `play.config.env_config`: ") and str(told.value).endswith(sentence)
