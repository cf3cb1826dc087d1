"""Games that a language model can prepare: each through its own adapter, others are refused by name."""

from __future__ import annotations

import pytest

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.sama.planning_game import planning_game, register_planning_game
from rllib_llm_comm.sama.preparation import open_game, preparation_of, prepared_games
from tests.experiments import staged


@pytest.mark.parametrize("run", ["translate", "collect_subgoals"])
def test_a_game_without_preparation_is_refused_with_the_names_of_those_that_have_one(tmp_path, run):
    stage = {"run": run, "env": "rllib_llm_comm/door-v0", "config": {"chat": {"cassette": "sama"}}}
    with pytest.raises(UserError) as caught:
        staged.check({"one": stage}, tmp_path)
    assert "In `one`: `env` is 'rllib_llm_comm/door-v0'" in str(caught.value)
    assert "'door'" in str(caught.value) and ", ".join(prepared_games()) in str(caught.value)


def test_a_game_of_ones_own_needs_a_preparation(monkeypatch):
    env = open_game("rllib_llm_comm/overcooked_ai-v0", {"layout": "cramped_room"}).env

    class Other:
        metadata = {"name": "other_v0"}  # noqa: RUF012
        unwrapped = property(lambda self: self)

    register_planning_game("other_v0", lambda _: planning_game(env))
    game = planning_game(Other())
    game.env = Other()
    with pytest.raises(UserError, match=r"No language model can prepare the game 'Other', only .*overcooked_ai"):
        preparation_of(game)


def test_a_layout_that_is_given_twice_is_refused(tmp_path):
    config = {"chat": {"cassette": "sama"}, "layout": "cramped_room", "env_config": {"layout": "cramped_room"}}
    with pytest.raises(UserError, match=r"`layout` is given, and in `env_config`, too"):
        staged.check({"one": {"run": "translate", "config": config}}, tmp_path)
