"""Shipped policies are made of checkpoints: their weights are halved, and a half-made one never stays."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rllib_llm_comm import load_policy
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.policies.find_checkpoint import shipped_policies, shipped_policy
from tools import make_zoo


def test_weights_are_halved_and_all_else_stays(tmp_path):
    path = tmp_path / "adapters" / "network.safetensors"
    path.parent.mkdir()
    weights = {"wide": torch.tensor([1.0, 1 / 3, -65504.0]), "count": torch.tensor(70000)}
    save_file(weights, path, {"format": "pt"})
    make_zoo.halve(tmp_path)
    halved = load_file(path)
    assert halved["wide"].dtype == torch.float16 and halved["count"] == 70000
    torch.testing.assert_close(halved["wide"].float(), weights["wide"], rtol=5e-4, atol=0)
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    before = path.read_bytes()
    make_zoo.halve(tmp_path)
    assert path.read_bytes() == before, "halving twice changes nothing"


def test_weights_that_half_precision_cannot_hold_are_refused_but_bfloat16_holds_them(tmp_path):
    path = tmp_path / "network.safetensors"
    weights = {"small": torch.ones(2), "big": torch.tensor([1 / 3, -1e30])}
    save_file(weights, path)
    with pytest.raises(UserError, match="big .*65504"):
        make_zoo.halve(tmp_path)
    assert load_file(path)["small"].dtype == torch.float32
    make_zoo.halve(tmp_path, "bfloat16")
    halved = load_file(path)["big"]
    assert halved.dtype == torch.bfloat16
    torch.testing.assert_close(halved.float(), weights["big"], rtol=2**-8, atol=0)


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """An empty zoo."""
    folder = tmp_path / "zoo_policies"
    folder.mkdir()
    monkeypatch.setattr(make_zoo, "FOLDER", folder)
    return folder


def make(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["make_zoo", *arguments])
    make_zoo.main()


def test_a_policy_of_the_zoo_can_be_made_again_and_its_row_of_the_guide_is_printed(zoo, monkeypatch, capsys):
    make(monkeypatch, "door", "zoo:door", "--episodes", "3")
    card, old = json.loads((zoo / "door" / "card.json").read_text()), shipped_policies()["door"]
    assert card["files"] == old.files and card["trained"] == old.trained
    for one, known in zip(card["figures"], old.figures, strict=True):
        assert one["messages"] == known.messages
        # Messages of other moments are drawn from all episodes, of which there are fewer here.
        same = np.isclose(one["returns"], known.returns[:3]).sum()
        assert same >= 2 or known.messages == "other_moments"
    assert [path.name for path in zoo.iterdir()] == ["door"]
    network = load_policy(zoo / "door").network
    parameters = network.lm.peft_model.parameters()
    assert {parameter.dtype for parameter in parameters} == {torch.float32}, "halves are computed with in 32 bits"
    assert card["base_model"] == "embedded" and card["base_model_sha256"] == network.lm.base.sha256
    returns = [f"{one['return_mean']:.2f}" for one in card["figures"]]
    row = capsys.readouterr().out.strip().splitlines()[-1].strip("| ").split(" | ")
    assert row[0] == "`zoo:door`" and [row[2], *row[4:]] == returns


def test_nothing_names_where_training_began(tmp_path, monkeypatch):
    member = tmp_path / "member"
    shutil.copytree(shipped_policy("zoo:door"), member)
    manifest = json.loads((member / "policy.json").read_text())
    manifest["provenance"] |= {"action_checkpoint": "/home/ann/clone", "message_checkpoint": "/home/ann/sft"}
    (member / "policy.json").write_text(json.dumps(manifest))
    (tmp_path / "there").mkdir()
    make(monkeypatch, "door", str(member), "--episodes", "3", "--folder", str(tmp_path / "there"))
    assert "/home" not in (tmp_path / "there/door/policy.json").read_text()


def test_what_cannot_be_made_leaves_the_old_one(zoo, monkeypatch):
    (zoo / "door").mkdir()
    (zoo / "door" / "card.json").write_text("{}")
    with pytest.raises(UserError, match="no checkpoint"):
        make(monkeypatch, "door", str(zoo / "nowhere"))
    assert [path.relative_to(zoo).as_posix() for path in sorted(zoo.rglob("*"))] == ["door", "door/card.json"]
