"""Exported language models load in transformers and PEFT, and say there what they say here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toys import write_talker
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from rllib_llm_comm import load_policy
from rllib_llm_comm.cli.main import cli
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import base_of_adapter, name_for_others
from rllib_llm_comm.language.base_model import embedded_model_path
from rllib_llm_comm.policies.policy_folder import write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.verco.export_models import export_models
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.policy import check_adapter_of, load_adapter_of
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.refusal import refused

PROMPT = "i am alice. the plum door is right. i say:"
CHAT = [{"role": "user", "content": PROMPT}]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_talker(tmp_path_factory.mktemp("trained") / "policy")


@pytest.fixture(scope="module")
def exported(checkpoint):
    """Both forms, written by the command."""
    for folder, options in (("models", []), ("merged", ["--merge"])):
        done = CliRunner().invoke(cli, ["export", str(checkpoint), str(checkpoint.parent / folder), *options])
        assert done.exit_code == 0, done.output
    return checkpoint.parent


def logits(model, network):
    ids = torch.tensor([network.lm.base.encode(PROMPT)])
    with torch.no_grad():
        return model(input_ids=ids).logits


def own_logits(network, role):
    ids = torch.tensor([network.lm.base.encode(PROMPT)])
    with network.lm.use(role), torch.no_grad():
        return network.lm.token_logits(network.lm.hidden_states(ids, torch.ones_like(ids)))


@pytest.mark.parametrize("role", ["message", "action"])
def test_peft_and_transformers_compute_the_same(role, checkpoint, exported):
    from peft import AutoPeftModelForCausalLM

    network = load_policy(checkpoint).network
    own = own_logits(network, role)
    for place, kind in (("models", AutoPeftModelForCausalLM), ("merged", AutoModelForCausalLM)):
        model = kind.from_pretrained(str(exported / place / role)).eval()
        assert model.dtype == torch.float32
        torch.testing.assert_close(logits(model, network), own, atol=1e-3, rtol=1e-3)
    base = AutoModelForCausalLM.from_pretrained(str(exported / "models" / "base"))
    assert (logits(base, network) - own).abs().max() > 0.1


@pytest.mark.parametrize("place", ["models", "merged"])
def test_a_chat_pipeline_says_what_the_policy_says(place, checkpoint, exported):
    from transformers import pipeline

    said = load_policy(checkpoint).network.write_messages([PROMPT])[0]
    pipe = pipeline("text-generation", model=str(exported / place / "message"))
    answer = pipe(CHAT, max_new_tokens=40, do_sample=False)[0]["generated_text"][-1]
    assert answer["role"] == "assistant" and said and answer["content"].strip().startswith(said)


@pytest.mark.parametrize("merge", [False, True])
def test_adapters_on_the_upper_layers_compute_the_same_elsewhere(merge, tmp_path):
    from peft import AutoPeftModelForCausalLM

    checkpoint = write_talker(tmp_path / "policy", lora_layers=1)
    folder = export_models(checkpoint, tmp_path / "out", merge=merge)[0]
    network = load_policy(checkpoint).network
    assert network.lm.trunk is not None
    model = (AutoModelForCausalLM if merge else AutoPeftModelForCausalLM).from_pretrained(str(folder)).eval()
    torch.testing.assert_close(logits(model, network), own_logits(network, "message"), atol=1e-3, rtol=1e-3)


def test_only_safetensors_are_written_nothing_else_stays_and_the_base_is_named_with_its_digest(exported):
    assert sorted(path.name for path in exported.iterdir()) == ["merged", "models", "policy"]
    assert sorted(path.name for path in (exported / "models").iterdir()) == ["README.md", "action", "base", "message"]
    assert sorted(path.name for path in (exported / "merged").iterdir()) == ["README.md", "action", "message"]
    kinds = {path.suffix for path in exported.rglob("*") if path.is_file()}
    assert kinds == {".json", ".jinja", ".md", ".safetensors"}
    settings = json.loads((exported / "models" / "message" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(exported / "models" / "base")
    digest = hashlib.sha256((embedded_model_path() / "model.safetensors").read_bytes()).hexdigest()
    for place in ("models", "merged"):
        assert f"`embedded`, sha256 `{digest}`" in (exported / place / "README.md").read_text()


def test_adapters_in_bfloat16_take_half_the_bytes_and_compute_nearly_the_same(checkpoint, exported, tmp_path):
    from peft import AutoPeftModelForCausalLM

    done = CliRunner().invoke(cli, ["export", str(checkpoint), str(tmp_path / "out"), "--dtype", "bfloat16"])
    assert done.exit_code == 0, done.output
    network, weights = load_policy(checkpoint).network, "message/adapter_model.safetensors"
    whole, half = (place / weights for place in (exported / "models", tmp_path / "out"))
    assert {one.dtype for one in load_file(half).values()} == {torch.bfloat16}
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    for name, one in load_file(whole).items():
        torch.testing.assert_close(load_file(half)[name].float(), one, rtol=2**-8, atol=0)
    found, known = (
        logits(AutoPeftModelForCausalLM.from_pretrained(str(path.parent)).eval(), network) for path in (half, whole)
    )
    base = logits(network.lm.base.model, network)
    assert (found - known).abs().mean() < 0.05 * (known - base).abs().mean()
    assert "PEFT adapters (bfloat16)" in (tmp_path / "out/README.md").read_text()
    for options, wrong in (
        ({"dtype": "float8"}, ("dtype", "choice")),
        ({"dtype": "float16", "merge": True}, ("dtype",)),
    ):
        with refused(*wrong):
            export_models(checkpoint, tmp_path / "other", **options)


def test_the_embedded_model_says_what_it_is():
    folder = str(embedded_model_path())
    assert AutoConfig.from_pretrained(folder).dtype == torch.float32
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True)["input_ids"]
    assert ids == tokenizer(PROMPT)["input_ids"]


def test_what_cannot_be_exported_is_told(checkpoint, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    numbers = write_policy(tmp_path / "numbers", {}, PolicyManifest("MAPPO", {}, {}, kind="numeric"))
    values = json.loads((checkpoint / "policy.json").read_text())
    values["model_config"]["base_model"] = "somebody/elses"
    spoilt = write_policy(tmp_path / "spoilt", {}, PolicyManifest(**values))
    for source, folder, told in (
        (checkpoint, tmp_path / "file" / "out", "`folder`"), (checkpoint, Path("/proc/out"), "`folder`"),
        (checkpoint, tmp_path / "full", "`folder` .* already"), (numbers, tmp_path / "out", "MAPPO"),
        (tmp_path / "nowhere", tmp_path / "out", "no checkpoint"), (spoilt, tmp_path / "out", "`base_model` .*--trust"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told):
            export_models(source, folder)
    assert not (tmp_path / "out").exists() and (tmp_path / "full" / "thesis.tex").exists()


@pytest.mark.parametrize("base", ["embedded", "smollm2"])
def test_what_peft_says_of_an_adapter_in_a_checkpoint_tells_the_remedy(base, checkpoint, tmp_path):
    """Only this package knows its models by name; neither PEFT nor transformers asks a hub for one of that name."""
    from peft import AutoPeftModelForCausalLM
    from transformers import pipeline

    folder = tmp_path / "message"
    shutil.copytree(checkpoint / "adapters" / "message", folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert base_of_adapter(settings) == "embedded"
    settings["base_model_name_or_path"] = name_for_others(base)
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    assert base_of_adapter(settings) == base
    for load in (AutoPeftModelForCausalLM.from_pretrained, lambda path: pipeline("text-generation", model=path)):
        with pytest.raises(OSError, match=f"{base} of rllib_llm_comm .`rllib export"):
            load(str(folder))


@pytest.mark.parametrize("name", ["embedded", None])
def test_adapters_that_name_their_base_as_earlier_versions_did_still_load(name, checkpoint, tmp_path):
    folder = tmp_path / "message"
    shutil.copytree(checkpoint / "adapters" / "message", folder)
    settings = json.loads((folder / "adapter_config.json").read_text())
    for told, fits in ((name or settings["base_model_name_or_path"], True), ("somebody/elses", False)):
        (folder / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": told}))
        network = LanguageNetwork(ModuleSettings())
        with contextlib.nullcontext() if fits else refused("base_model"):
            check_adapter_of(folder, "embedded")
            load_adapter_of(network, folder)
