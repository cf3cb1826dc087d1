"""Carroll et al.'s rule for cooks that stand still: by itself, and as a key of a partner."""

import numpy as np
import pytest
import torch

from rllib_llm_comm import load_policy
from rllib_llm_comm.baselines.population.kitchen_partners import check_partner
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.games import make_env
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.evaluation.rollout import play
from rllib_llm_comm.policies.partner_settings import PartnerSettings
from rllib_llm_comm.policies.partners import StuckRule, make_partner, pose_of
from rllib_llm_comm.policies.seated_policy import SeatedPolicy
from tests.episodes import Noting
from tests.idle_cook import AI, LIKED, idle_cook
from tests.refusal import refused

KITCHEN = {"layout": "cramped_room", "horizon": 30, "observe": ["vector"], "vector": "planes"}


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """A cook who likes to stay."""
    return idle_cook(tmp_path_factory.mktemp("idle") / "policy", 30)


def test_the_last_actions_go_if_nothing_moved_for_so_many_turns_and_what_is_left_has_a_chance():
    rule, chances, here = StuckRule(3), np.array([0.4, 0.3, 0.2, 0.1]), ((1, 1), 0)
    for action in (0, 0):
        rule.note(here, action)
    assert rule.rest(chances, here) is chances, "two turns are not enough"
    rule.note(here, 1)
    assert rule.rest(chances, here).tolist() == pytest.approx([0, 0, 2 / 3, 1 / 3])
    assert rule.rest(chances, ((1, 1), 1)) is chances, "it has turned"
    rule.note(((1, 2), 0), 2)
    assert rule.rest(chances, here) is chances, "it was elsewhere in between"

    rule = StuckRule(1)
    rule.note("here", 1)
    assert rule.rest(np.array([0.0, 1.0, 0.0]), "here").tolist() == [0.5, 0.0, 0.5]
    rule.note("here", 0)
    only = np.ones(1)
    assert rule.rest(only, "here") is only


def actions_of(partner):
    """Alice's actions and chances beside a cook that stays, and her poses before them."""
    stay = make_partner(PartnerSettings(policy="stay"), None)
    told = []
    env = make_env(AI, **KITCHEN)

    def note(decisions):
        told.append((decisions["alice"].action, decisions["alice"].probabilities, pose_of(env, "alice")))

    play(SeatedPolicy({"alice": partner, "bob": stay}), episodes=1, env=env, observers=[Noting(note)])
    return told


@pytest.mark.parametrize("settings", [{}, {"greedy": True}, {"noise": 0.2}])
def test_a_partner_that_stands_still_gets_going(idle, settings):
    told = actions_of(make_partner(PartnerSettings(policy=idle, unstuck=3, **settings), load_policy))
    stuck = 0
    for turn in range(3, len(told)):
        if len({told[place][2] for place in range(turn - 3, turn + 1)}) == 1:
            stuck += 1
            last = {told[place][0] for place in range(turn - 3, turn)}
            noise = settings.get("noise", 0.0) / 6
            assert [told[turn][1][action] for action in last] == pytest.approx([noise] * len(last))
            assert told[turn][1].sum() == pytest.approx(1.0)
        elif not settings:
            assert told[turn][1].tolist() == pytest.approx(torch.tensor(LIKED).softmax(0).tolist(), abs=1e-6)
    assert stuck >= 4
    if settings == {"greedy": True}:
        assert [action for action, _, _ in told[:4]] == [4, 4, 4, 5]


def test_without_it_nothing_changes(idle):
    made = make_partner(PartnerSettings(policy=idle, greedy=True), load_policy)
    assert {pose for _, _, pose in actions_of(made)} == {((1, 2), 0)}


def test_it_is_refused_where_nothing_can_be_removed(idle):
    for settings in ({"policy": "random", "unstuck": 3}, {"policy": idle, "unstuck": 101}):
        with refused("unstuck", None):
            PartnerSettings(**settings)
    with pytest.raises(UserError, match="`unstuck` .* arrays"):
        check_partner(PartnerSettings(policy=idle, unstuck=2), KITCHEN)
    door = make_env("rllib_llm_comm/door-v0")
    door.reset(seed=0)
    with pytest.raises(UserError, match="`unstuck` .* stand"):
        pose_of(door, "alice")


def test_it_is_not_played_in_arrays(idle):
    partners = {"clones": [{"policy": idle, "unstuck": 3}]}
    cross = CrossPlay([idle], partners, CrossPlaySettings(episodes=1))
    assert cross._tables.seated == {0} and cross.names[1].endswith(", unstuck 3")
