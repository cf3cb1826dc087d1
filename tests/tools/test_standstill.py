"""Games in which nothing changes are told from games in which something does."""

from __future__ import annotations

import json
import sys

import torch

from rllib_llm_comm.agents.numeric_network import NumericNetwork, NumericSettings
from rllib_llm_comm.agents.policy_folder import NUMERIC, PolicyManifest, network_file, write_policy
from tools import standstill

AI = "rllib_llm_comm/overcooked_ai-v0"
KITCHEN = {"layout": "cramped_room", "horizon": 150, "observe": ["vector"], "vector": "planes"}
LIKED = [0.0, -1.0, -2.0, -3.0, 5.0, 4.0]  # logits: stay before all others


def test_cooks_who_stay_stand_still_until_they_act_at_random(tmp_path, monkeypatch):
    network = NumericNetwork(NumericSettings(init_seed=0, hiddens=[4]), 26 * 5 * 4, 6)
    with torch.no_grad():
        network.actor[-1].weight.zero_()
        network.actor[-1].bias.copy_(torch.tensor(LIKED))
    model = {**network.settings.to_dict(), "size": 26 * 5 * 4, "actions": 6, "critic_size": None}
    manifest = PolicyManifest("SelfPlayPPO", model, {}, AI, KITCHEN, kind=NUMERIC)
    idle = str(write_policy(tmp_path / "policy", network_file(network), manifest))
    target = tmp_path / "rows.json"
    shares = ("--random", "0", "1")
    monkeypatch.setattr(sys, "argv", ["standstill", idle, "--games", "2", "--json", str(target), *shares])
    standstill.main()
    still, moving = json.loads(target.read_text())
    assert (still["random_share"], still["points"], still["states"]) == (0.0, 0.0, 1.0)
    assert moving["random_share"] == 1.0 and 50 < moving["states"] <= standstill.LOOK
