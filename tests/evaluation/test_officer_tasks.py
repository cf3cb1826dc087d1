"""One unit on command: scripted officers always make it, those who are not told never do."""

from __future__ import annotations

import pytest
import torch

from rllib_llm_comm.baselines.red.officer_cloning import write_officer
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork, OfficerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.evaluation.officers import OfficerTaskSettings, officer_tasks

SETTINGS = {"games": 3, "side_by_side": 4}


def test_scripted_officers_make_what_they_are_told_and_nothing_else():
    found = officer_tasks(OfficerTaskSettings(**SETTINGS))["units"]
    assert list(found) == ["spearman", "swordman", "cavalry", "dragon", "archer", "catapult"]
    for one in found.values():
        assert one["building"] == one["told"] == 1.0 and one["not_told"] == 0.0
        assert one["games"] == 6 and one["told_games"] == one["not_told_games"] == 3


def test_too_few_decisions_are_too_few():
    # A building takes 5 decisions behind the way to it, a spearman 4.
    few = officer_tasks(OfficerTaskSettings(units=["spearman"], decisions=3, **SETTINGS))["units"]["spearman"]
    assert few["building"] == 0.0 and "told" not in few
    enough = officer_tasks(OfficerTaskSettings(units=["spearman"], decisions=12, **SETTINGS))["units"]["spearman"]
    assert enough["building"] == enough["told"] == 1.0


def test_an_untrained_officer_makes_nothing_and_is_the_same_alone_and_beside_others(tmp_path):
    network = OfficerNetwork(OfficerSettings(filters=4, width=8, words=4, keys=4, init_seed=0)).eval()
    with torch.no_grad():
        network.go_on[-1].bias.fill_(6.0)  # it lets everything go on
    folder = write_officer(tmp_path / "officer", network, "BehaviorCloning", {}, {})
    settings = {"executor": f"trained:{folder}", "units": ["archer"], "games": 2, "decisions": 8}
    one, other = (officer_tasks(OfficerTaskSettings(side_by_side=n, **settings))["units"] for n in (1, 4))
    assert one == other and one["archer"]["building"] == 0.0


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"units": ["elephant"]}, "`units` is 'elephant'"),
        ({"units": ["archer", "archer"]}, "`units` is archer, archer"),
        ({"decisions": 0}, "`decisions` is 0"),
        ({"games": 0}, "`games` is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, sentence):
    with pytest.raises(UserError, match=sentence):
        OfficerTaskSettings(**setting)
