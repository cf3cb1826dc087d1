"""Adapters of the roles, their files, and base models, whose weights are mapped pages of their file where possible."""

import json
import sys

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import embedded_model_path, load_base_model
from tests.refusal import refused


def logits(model, role):
    with model.use(role), torch.no_grad():
        return model.model(input_ids=torch.tensor([[1, 5, 9, 7]])).logits


def test_roles_are_separate_and_the_base_stays(adapted, random_base):
    with torch.no_grad():
        bare = random_base.model(input_ids=torch.tensor([[1, 5, 9, 7]])).logits
    torch.testing.assert_close(logits(adapted, None), bare)
    assert not torch.allclose(logits(adapted, "message"), logits(adapted, "action"))
    assert not torch.allclose(logits(adapted, "message"), bare)


def test_a_fresh_adapter_is_the_identity_and_base_weights_are_shared_between_adapted_models(random_base):
    one, two = AdaptedModel(random_base), AdaptedModel(random_base)
    torch.testing.assert_close(logits(one, "action"), logits(one, None))
    assert one.model.get_input_embeddings().weight is two.model.get_input_embeddings().weight
    names = dict(one.named_adapter_parameters("message"))
    assert all(name.startswith("message.") for name in names)
    assert next(iter(names.values())) is not next(two.named_adapter_parameters("message"))[1]


def change(folder, **settings):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_an_adapter_of_another_scale_is_refused(adapted, random_base, tmp_path):
    adapted.save_adapter("action", tmp_path / "a")
    other = AdaptedModel(random_base, AdapterConfig(r=4, alpha=64))
    fresh = logits(other, "action")
    with refused("lora_alpha"):
        other.load_adapter("action", tmp_path / "a")
    torch.testing.assert_close(logits(other, "action"), fresh)


TRUTHS = {
    "use_rslora": True, "use_dora": True, "bias": "all", "alpha_pattern": {"q_proj": 99}, "rank_pattern": {"q_proj": 2},
    "modules_to_save": ["lm_head"], "init_lora_weights": "pissa", "invented_later": 3, "peft_type": "IA3", "r": 5,
}  # fmt: skip


def test_the_adapters_own_settings_are_the_truth(adapted, tmp_path):
    adapted.save_adapter("action", tmp_path / "a")
    saved = (tmp_path / "a" / "adapter_config.json").read_text()
    for setting, value in TRUTHS.items():
        change(tmp_path / "a", **{setting: value})
        with pytest.raises(UserError, match="`lora_r`" if setting == "r" else f"`{setting}`"):
            adapted.load_adapter("action", tmp_path / "a")
        (tmp_path / "a" / "adapter_config.json").write_text(saved)
    adapted.load_adapter("action", tmp_path / "a")


def test_settings_that_change_no_result_are_taken(adapted, random_base, tmp_path):
    adapted.save_adapter("action", tmp_path / "a")
    change(tmp_path / "a", lora_dropout=0.3, peft_version="99.0", invented_later=False, inference_mode=False)
    other = AdaptedModel(random_base, adapted.config)
    other.load_adapter("action", tmp_path / "a")
    torch.testing.assert_close(logits(other, "action"), logits(adapted, "action"))


def test_damaged_settings_are_told(adapted, tmp_path):
    adapted.save_adapter("action", tmp_path / "a")
    for text in ("{", "[]", '{"peft_type": "LORA", "r": 4}', "[" * 100_000):
        (tmp_path / "a" / "adapter_config.json").write_text(text)
        with pytest.raises(UserError, match="adapter_config.json' cannot be read"):
            adapted.load_adapter("action", tmp_path / "a")


def test_a_base_model_is_loaded_once_and_bad_names_are_explained(tmp_path):
    assert load_base_model() is load_base_model("embedded", "float32", "cpu")
    for given, told in (
        ({"name": "/nowhere/llama/7b"}, ("base_model", "invalid", "no such folder")),
        ({"name": str(tmp_path)}, ("base_model", "invalid", "could not be loaded")),
        ({"name": "embeded"}, ("base_model", "invalid", "Did you mean 'embedded'")),
        ({"dtype": "float3"}, ("dtype", "choice")),
        ({"device": "gpu!"}, ("device",)),
    ):  # fmt: skip
        with refused(*told):
            load_base_model(**given)


def test_embedded_model_is_small():
    files = list(embedded_model_path().iterdir())
    assert sum(f.stat().st_size for f in files) <= 10 * 2**20
    assert not [f for f in files if f.suffix in {".bin", ".pt", ".pkl"}]


def lies_in(address):
    """Path of the file of which an address is a mapped page; empty for the process' own memory."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return line.split(maxsplit=5)[5].strip() if len(line.split()) > 5 else ""
    raise AssertionError("no such address")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("stored", "mapped"), [(torch.bfloat16, True), (torch.float32, False)])
def test_pages_of_the_file_are_the_weights(stored, mapped, tmp_path):
    shape = LlamaConfig(
        vocab_size=768, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4
    )
    LlamaForCausalLM(shape).to(stored).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(embedded_model_path()).save_pretrained(tmp_path)
    base = AdaptedModel(load_base_model(str(tmp_path), dtype="bfloat16")).base
    places = {lies_in(part.data_ptr()) for name, part in base.model.named_parameters() if "lora" not in name}
    assert all(place.endswith(".safetensors") == mapped for place in places), places
