"""The hand-written recording holds all that a game in the cramped room can ask, however often a cook fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rllib_llm_comm.chat.cassettes import Cassette
from rllib_llm_comm.envs.overcooked_ai import parallel_env
from rllib_llm_comm.policies.decision import OneGamePolicy, unweighed
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.planning_game import planning_game
from rllib_llm_comm.sama.recordings import recording
from rllib_llm_comm.sama.reflection import ReflectivePlay
from tools import sama_sheet

PATIENCE = 12


class Dreamer(OneGamePolicy):
    """A scripted cook that now and then stands still for so long that it does not get done what it was told."""

    def __init__(self, env, share: float) -> None:
        self.game, self.player, self.share = env, planning_game(env).player(), share

    def reset(self, seed=None):
        self.random, self.until = np.random.default_rng(seed), dict.fromkeys(self.game.possible_agents, 0)
        self.step = 0

    def act(self, observations, explore=True):
        told, self.step = self.player.actions(observations), self.step + 1
        for agent in told:
            if self.random.random() < self.share:
                self.until[agent] = self.step + PATIENCE
            if self.step < self.until[agent]:
                x, y = self.game.kitchen.cook(self.game.players[agent]).cell
                told[agent] = y * self.game.kitchen.layout.width + x
        return {agent: unweighed(action) for agent, action in told.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("sama")
    manual, translation = folder / "manual.md", folder / "translation.json"
    tape = Cassette(recording("sama"))
    sama_sheet.write_files(tape, tape, manual, translation)
    return {"manual": str(manual), "translation": str(translation)}


@pytest.mark.parametrize("trials", [0, 3])
@pytest.mark.parametrize("ahead", [0, sama_sheet.AHEAD])
def test_all_questions_of_whole_games_are_recorded(files, ahead, trials):
    env = parallel_env(layout=sama_sheet.LAYOUT, observe=["entities"], action_level="goal_cell")
    chat = {"cassette": str(recording("sama"))}
    planner = make_planner({**sama_sheet.HOW, **files, "chat": chat, "ahead": ahead, "fallback": "error"})
    play = ReflectivePlay(env, Dreamer(env, 0.05), planner, trials=trials, patience=PATIENCE)
    game = play.play(seed=0)
    counts = game.counts()
    assert game.metrics["soups"] and counts["plans_failed"] == 0
    assert (counts["reflections"] > 5) == (trials > 0) and (counts["plans_kept"] > 5) == (ahead > 0)


def test_a_chain_of_plans_makes_a_soup_and_delivers_it():
    chain = sama_sheet.chain(("N", "N"), "0", ("FL", "FR"))
    done = [code for both in chain for code in both]
    assert len(chain) == sama_sheet.AHEAD and done.count("P") >= 3
    assert done.index("P") < done.index("FD") < done.index("L") < done.index("V")
