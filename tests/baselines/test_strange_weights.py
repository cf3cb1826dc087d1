"""Weights that are no finite floating-point numbers are refused by the name of tensor and file, wherever they go."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from toys import save_tiny_model

from rllib_llm_comm import load_policy
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.weights import read_weights
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.text_encoder import load_text_encoder
from rllib_llm_comm.policies.find_checkpoint import FOLDER
from rllib_llm_comm.policies.policy_folder import load_array_network, network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest, read_manifest

FILES = [
    ("referential", "adapters/message/adapter_model.safetensors"),
    ("referential", "adapters/action/adapter_model.safetensors"),
    ("referential", "critic.safetensors"),
    ("soup_cramped_room", "network.safetensors"),
    ("red_officer", "network.safetensors"),
    ("emma_cramped_room", "network.safetensors"),
]


def with_number(number, dtype=None):
    """Puts a number into the middle of a tensor."""

    def change(tensor):
        changed = tensor.clone().to(dtype or tensor.dtype)
        changed.view(-1)[changed.numel() // 2] = number
        return changed

    return change


SPOILT = {
    "NaN": with_number(float("nan")),
    "infinite": with_number(float("-inf")),
    "as float32": with_number(1e300, torch.float64),  # finite there, infinite where it is computed with
    "int64": lambda tensor: tensor.long(),
    "float8": lambda tensor: tensor.to(torch.float8_e4m3fn),
    "shape": lambda tensor: tensor[..., :-1].clone(),
}


def spoil(file, change):
    """Changes the largest tensor of a file; its name."""
    weights = load_file(file)
    name = max(weights, key=lambda one: weights[one].numel())
    save_file({**weights, name: change(weights[name])}, file, {"format": "pt"})
    return name


def without_roles(name):
    """A name of PEFT's, which has the adapter's role in memory and in no file."""
    return name.replace(".weight", "").replace(".message", "").replace(".action", "")


def require_refused_by_name(load, folder, file, named=str):
    """Whatever is wrong with a file of a folder, a sentence tells what, where, and in which tensor."""
    whole = file.read_bytes()
    for told, change in SPOILT.items():
        file.write_bytes(whole)
        name = spoil(file, change)
        with pytest.raises(UserError) as caught:
            load(folder)
        sentence = str(caught.value)
        assert told in sentence and str(file) in sentence and "\n" not in sentence
        assert named(name) in named(sentence)


@pytest.mark.parametrize(("policy", "file"), FILES)
@pytest.mark.timeout(120)
def test_strange_numbers_are_refused_by_name(policy, file, tmp_path):
    folder = shutil.copytree(FOLDER / policy, tmp_path / "policy")
    require_refused_by_name(load_policy, folder, folder / file, without_roles)


@pytest.mark.parametrize("kind", ["plain", "ldsa", "roma"])
def test_strange_numbers_of_teams_that_value_actions_are_refused_by_name(kind, tmp_path):
    """VDN, QMIX and MASER are saved as plain agents."""
    sizes = {"size": 2, "actions": 2, "agents": 2, "state_size": 0}
    settings = QSettings(kind=kind, mixer="none", width=8, init_seed=0)
    forms = dict.fromkeys("ab", {})
    config = {**settings.to_dict(), **sizes, "team": ["a", "b"], "choices": {"a": 2, "b": 2}, "forms": forms}
    manifest = PolicyManifest(algorithm="QMIX", model_config=config, communication={}, kind="valued")
    network = QTeam(settings, **sizes)
    folder = write_policy(tmp_path / "policy", network_file(network), manifest)
    load_array_network(folder, read_manifest(folder))
    file = folder / "network.safetensors"
    whole = load_file(file)
    require_refused_by_name(lambda folder: load_array_network(folder, read_manifest(folder)), folder, file)
    for name in [name for name, tensor in whole.items() if not tensor.is_floating_point()]:  # counts of batches
        save_file({**whole, name: torch.tensor(float("nan"))}, file)
        with pytest.raises(UserError, match=name):
            load_array_network(folder, read_manifest(folder))


def test_half_and_double_precision_are_read(tmp_path):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        folder = shutil.copytree(FOLDER / "soup_cramped_room", tmp_path / str(dtype))
        file = folder / "network.safetensors"
        save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file)
        assert load_policy(folder).network is not None


def test_a_count_is_a_single_whole_number_and_no_weights(tmp_path):
    save_file({"updates": torch.tensor(7), "mean": torch.zeros(2)}, tmp_path / "file.safetensors")
    assert int(read_weights(tmp_path / "file.safetensors")["updates"]) == 7
    save_file({"updates": torch.tensor([7])}, tmp_path / "file.safetensors")
    with pytest.raises(UserError, match="'updates' as int64"):
        read_weights(tmp_path / "file.safetensors")
    folder = shutil.copytree(FOLDER / "soup_cramped_room", tmp_path / "policy")
    weights = load_file(folder / "network.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: torch.tensor(1)}, folder / "network.safetensors")
    with pytest.raises(UserError, match=f"'{name}' holds whole numbers"):
        load_policy(folder)


@pytest.mark.parametrize("load", [load_base_model, load_text_encoder])
@pytest.mark.parametrize("told", ["NaN", "I8"])
def test_models_of_strangers_are_refused_by_name(load, told, tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    (file,) = tmp_path.glob("model/*.safetensors")
    name = spoil(file, SPOILT.get(told, lambda tensor: tensor.to(torch.int8)))
    with pytest.raises(UserError, match=told) as caught:
        load(str(folder))
    assert name.removeprefix("model.") in str(caught.value)
