"""Models of strangers: what their own forward pass computes, their configurations, positions, adapters and files."""

import copy
import json
import shutil

import pytest
import torch
import transformers as hf
from peft import PeftModel

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, check_targets
from rllib_llm_comm.language.base_model import (
    check_base_model,
    embedded_model_path,
    load_base_model,
    require_positions,
    wrap_base_model,
)
from rllib_llm_comm.language.engines import ENGINES
from rllib_llm_comm.language.generation import as_written, is_open
from rllib_llm_comm.policies.policy_folder import write_policy
from rllib_llm_comm.policies.policy_manifest import PolicyManifest
from rllib_llm_comm.verco.encoding import encode_examples
from rllib_llm_comm.verco.export_models import export_models
from rllib_llm_comm.verco.language_network import LanguageNetwork, label_log_probs
from rllib_llm_comm.verco.policy import base_model_digest, policy_files
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.language.random_models import randomised

ROWS = 591  # of the embedded model's tokenizer
SIZES = {"vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
OLD = {"vocab_size": ROWS, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
FAST = {
    "llama": hf.LlamaConfig(**GROUPED),
    "mistral": hf.MistralConfig(**GROUPED),
    "qwen2": hf.Qwen2Config(**GROUPED),
    "qwen3": hf.Qwen3Config(**GROUPED, head_dim=8),
    "gemma": hf.GemmaConfig(**GROUPED, head_dim=8),
    "gemma2": hf.Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=5.0),
    "gemma3": hf.Gemma3TextConfig(**GROUPED, head_dim=8, final_logit_softcapping=3.0),
    "cohere": hf.CohereConfig(**GROUPED, **MARKS, logit_scale=0.0625),
    "cohere2": hf.Cohere2Config(**GROUPED, **MARKS, logit_scale=0.25),
    "granite": hf.GraniteConfig(**GROUPED, logits_scaling=8.0, residual_multiplier=0.5, embedding_multiplier=3.0),
    "granitemoe": hf.GraniteMoeConfig(**GROUPED, logits_scaling=4.0, num_local_experts=4),
    "phi": hf.PhiConfig(**SIZES, **MARKS),
    "phi3": hf.Phi3Config(**GROUPED, **MARKS),
    "olmo2": hf.Olmo2Config(**GROUPED, **MARKS),
    "stablelm": hf.StableLmConfig(**GROUPED, **MARKS),
    "starcoder2": hf.Starcoder2Config(**GROUPED, **MARKS),
    "glm4": hf.Glm4Config(**GROUPED, **MARKS, head_dim=8),
    "mixtral": hf.MixtralConfig(**GROUPED, num_local_experts=4),
    "gpt2": hf.GPT2Config(**OLD, n_positions=512),
    "gpt_neox": hf.GPTNeoXConfig(**SIZES, **MARKS),
    "gptj": hf.GPTJConfig(**OLD, n_positions=512, rotary_dim=4),
    "falcon": hf.FalconConfig(vocab_size=ROWS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, **MARKS),
}
FAST["phimoe"] = hf.PhimoeConfig(**GROUPED, **MARKS, num_local_experts=4)  # its router looks like a linear map
PLAIN_ONLY = {
    "mpt": hf.MptConfig(vocab_size=ROWS, d_model=32, n_heads=4, n_layers=2),  # weighs by places in a row
    "bloom": hf.BloomConfig(vocab_size=ROWS, hidden_size=32, n_layer=2, n_head=4),
    "opt": hf.OPTConfig(vocab_size=ROWS, hidden_size=32, word_embed_proj_dim=16, ffn_dim=48, num_hidden_layers=2,
                        num_attention_heads=4, max_position_embeddings=512),
    "recurrent_gemma": hf.RecurrentGemmaConfig(vocab_size=ROWS, hidden_size=32, intermediate_size=48, lru_width=32,
                                               num_hidden_layers=3, num_attention_heads=4, logits_soft_cap=2.0),
    "gpt_neo": hf.GPTNeoConfig(vocab_size=ROWS, hidden_size=32, num_layers=2, num_heads=4, window_size=16,
                               attention_types=[[["global", "local"], 1]], max_position_embeddings=512, **MARKS),
}  # fmt: skip
CONFIGS = {**FAST, **PLAIN_ONLY}
PROMPT, CANDIDATES = torch.arange(20, 40)[None], torch.tensor([[[70, 71, 72], [70, 90, -1]]])


def random_model(config):
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def with_adapters(config, engine, base=None):
    base = base or wrap_base_model("mine", random_model(config), load_base_model().tokenizer)
    network = LanguageNetwork(ModuleSettings(init_seed=0, engine=engine), base)
    torch.manual_seed(1)
    randomised(network.lm)
    return network


def own_log_probs(network, role, ids):
    """The adapted model's own word on the next token, everywhere in a text."""
    with network.lm.use(role), torch.no_grad():
        return network.lm.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().log_softmax(-1)


def assert_own_score(network, engine):
    """A candidate of two tokens has the score that the adapted model itself gives it."""
    own = own_log_probs(network, None, [*PROMPT[0].tolist(), 70, 71])
    with torch.no_grad():
        got = ENGINES[engine].scores(network.lm, PROMPT, torch.tensor([[[70, 71]]]), torch.ones(1, 1), role=None)
    torch.testing.assert_close(got[0, 0], own[19, 70] + own[20, 71], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_messages_and_labels_are_the_models_own_and_engines_agree_on_features(name):
    config = CONFIGS[name]
    base = wrap_base_model("mine", random_model(config), load_base_model().tokenizer)
    if name in PLAIN_ONLY:
        with pytest.raises(UserError, match="`engine`"):
            with_adapters(config, "fast", base)
    engines = ["plain", "fast"] if name in FAST else ["plain"]
    networks = [with_adapters(config, engine, base) for engine in engines]  # of the same weights
    network, scores = networks[0], {}
    for role in (None, ACTION):
        scores[role] = []
        for candidate in ([70, 71, 72], [70, 90]):
            own = own_log_probs(network, role, [*PROMPT[0].tolist(), *candidate])
            scores[role].append(sum(own[19 + k, token] for k, token in enumerate(candidate)))
    prompt, written = "alice stands here. i say:", []
    while len(written) < 12 and base.eos_id not in written and is_open(base.decode(written), 3):
        written.append(int(own_log_probs(network, MESSAGE, [*base.encode(prompt), *written])[-1].argmax()))
    features = []
    for engine, one in zip(engines, networks, strict=True):
        run, lm = ENGINES[engine], one.lm
        with torch.no_grad():
            features.append(run.features(lm, PROMPT))
            for role, wanted in scores.items():
                got = run.scores(lm, PROMPT, CANDIDATES, torch.ones(1, 2, dtype=torch.bool), role=role)
                torch.testing.assert_close(got[0], torch.stack(wanted), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(features[0], features[-1], atol=1e-3, rtol=1e-3)
        assert run.messages(lm, [prompt], max_words=3) == [as_written(base, written, 3)]
    rows = {key: torch.from_numpy(v) for key, v in encode_examples(base, [prompt], ["wait here"], 99).items()}
    log_probs, _ = label_log_probs(network.lm, *rows.values())
    ids, labels = (rows[key][0] for key in ("label_ids", "label_targets"))
    own = own_log_probs(network, MESSAGE, ids.tolist())
    for place in (labels >= 0).nonzero()[:, 0].tolist():
        torch.testing.assert_close(log_probs[0, place], own[place - 1, labels[place]], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "wide", "gpt2"])
def test_room_for_keys_and_values_is_that_which_they_take(name):
    config = hf.Qwen3Config(**GROUPED, head_dim=16) if name == "wide" else FAST[name]  # heads wider than hidden / count
    lm = with_adapters(config, "fast").lm
    cache = lm._prefixes[ACTION]
    cache.clear()
    prompts = PROMPT.repeat(2, 1)
    prompts[1, 18:] += 30  # they share a row
    with torch.no_grad():
        ENGINES["fast"].scores(lm, prompts, CANDIDATES.repeat(2, 1, 1), torch.ones(2, 2, dtype=torch.bool), role=ACTION)
    taken = cache.nbytes
    assert taken > 0 and cache.has_room(prompts.numel())
    cache._max_bytes = taken - 1
    assert not cache.has_room(prompts.numel())


class Surprising(hf.LlamaForCausalLM):
    """Logits that depend on more than the last hidden states."""

    def forward(self, input_ids=None, **kwargs):
        output = super().forward(input_ids=input_ids, **kwargs)
        if input_ids is not None:
            output.logits = output.logits + input_ids[..., None]
        return output


def test_models_whose_logits_are_not_of_their_decoder_or_of_more_tokens_than_they_read_are_refused():
    wide = random_model(FAST["llama"])
    wide.set_output_embeddings(torch.nn.Linear(32, ROWS + 9, bias=False))
    for model, told in (
        (Surprising(FAST["llama"]), "`base_model` .*Surprising"), (wide, f"{ROWS + 9} tokens, but reads {ROWS}"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told):
            wrap_base_model("mine", model, load_base_model().tokenizer)


def test_adapters_go_to_linear_maps_alone_whatever_their_class():
    for name, found in (("phimoe", "router"), ("falcon", "query_key_value")):
        names = [name for name, _ in with_adapters(CONFIGS[name], "plain").lm.named_adapter_parameters(ACTION)]
        assert names and any(found in one for one in names) == (name == "falcon")
    base = wrap_base_model("mine", random_model(CONFIGS["phimoe"]), load_base_model().tokenizer)
    with pytest.raises(UserError, match="`lora_target_modules` names 'router'"):
        LanguageNetwork(ModuleSettings(lora_target_modules=["q_proj", "router"]), base)


def test_why_a_model_takes_no_adapters_is_told():
    config = hf.MambaConfig(vocab_size=ROWS, hidden_size=32, state_size=8, num_hidden_layers=2)
    with pytest.raises(UserError, match="`lora_target_modules` .*out_proj"):
        with_adapters(config, "plain")


WIDE = {"vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 300}  # fmt: skip
LOOK_AHEAD = {
    "bert": hf.BertConfig(**WIDE),
    "roberta": hf.RobertaConfig(**WIDE),
    "xlm": hf.XLMConfig(vocab_size=ROWS, emb_dim=32, n_layers=2, n_heads=4),
    "xlnet": hf.XLNetConfig(vocab_size=ROWS, d_model=32, n_layer=2, n_head=4, d_inner=48),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LOOK_AHEAD)
def test_a_model_that_looks_ahead_is_refused(name, dtype):
    with pytest.raises(UserError, match="`base_model` .* looks ahead"):
        wrap_base_model("mine", random_model(LOOK_AHEAD[name]).to(dtype), load_base_model().tokenizer)


def test_the_same_models_can_be_causal():
    assert with_adapters(hf.BertConfig(**WIDE, is_decoder=True), "plain").lm.base.hidden_size == 32
    with pytest.raises(UserError, match="`engine`"):
        with_adapters(hf.XLMConfig(vocab_size=ROWS, emb_dim=32, n_layers=2, n_heads=4, causal=True), "fast")


SHORT = {**GROUPED, "max_position_embeddings": 64}
ROTATES = {"rope_theta": 1e4, "factor": 4.0}
CHANGING = {
    "dynamic": hf.LlamaConfig(**SHORT, rope_parameters={"rope_type": "dynamic", **ROTATES}),
    "old name": hf.LlamaConfig(**SHORT, rope_scaling={"type": "dynamic", **ROTATES}),
    "longrope": hf.Phi3Config(
        **GROUPED, **MARKS, max_position_embeddings=256, original_max_position_embeddings=64,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4,
                         "long_factor": [3.0] * 4},
    ),
    "one kind of layer": hf.Gemma3TextConfig(
        **SHORT, head_dim=8,
        rope_parameters={"full_attention": {"rope_type": "dynamic", **ROTATES},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["fast", "plain"])
@pytest.mark.parametrize("name", CHANGING)
def test_positions_that_change_with_the_length_of_a_text_are_refused(name, engine):
    base = wrap_base_model("mine", random_model(CHANGING[name]), load_base_model().tokenizer)
    settings = {"max_candidate_tokens": 8, "engine": engine}
    with pytest.raises(UserError, match="more than 64 tokens .* 65"):
        LanguageNetwork(ModuleSettings(max_prompt_tokens=57, **settings), base)
    network = LanguageNetwork(ModuleSettings(max_prompt_tokens=56, **settings), base)
    with torch.no_grad():
        network.lm.base.model(torch.arange(20, 84)[None])
    assert_own_score(network, engine)


def test_a_table_without_a_length_is_none():
    for most in (-1, 0):
        require_positions("mine", hf.GPT2Config(n_positions=most), 10**5)


def folder_of(model, folder, **changes):
    """A model's folder with the embedded model's tokenizer, and changes in its configuration."""
    shutil.copytree(embedded_model_path(), folder, ignore=shutil.ignore_patterns("config.json", "*.safetensors"))
    model.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize("changes", [{"num_attention_heads": None}, {"vocab_size": "many"}, {"model_type": []}])
def test_a_configuration_that_makes_no_sense_is_told(changes, tmp_path):
    folder = str(folder_of(random_model(FAST["llama"]), tmp_path / "wrong", **changes))
    for load in (check_base_model, load_base_model):
        with pytest.raises(UserError, match="`base_model` .* could not be loaded"):
            load(folder)


def vision_model():
    seen = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14}  # fmt: skip
    config = hf.Gemma3Config(
        text_config={**GROUPED, "head_dim": 8}, vision_config=seen, mm_tokens_per_image=4, image_token_index=590,
        boi_token_index=589, eoi_token_index=588,
    )  # fmt: skip
    return random_model(config)


@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_of_a_model_with_images_its_text_part_is_used(engine, tmp_path):
    folder = folder_of(vision_model(), tmp_path / "vision")
    network = LanguageNetwork(ModuleSettings(base_model=str(folder), engine=engine))
    names = [name for name, _ in network.lm.named_adapter_parameters(ACTION)]
    assert names and not any("vision" in name or "projector" in name for name in names)
    assert network.lm.base.hidden_size == 32 and network.features(PROMPT).shape == (1, 64)
    assert_own_score(network, engine)


@pytest.mark.parametrize("targets", [["q_proj", "lm_head"], ["embed_tokens"], ["nothing"], ["model.norm"]])
def test_adapters_that_would_not_be_heard_are_refused(targets):
    for check in (
        lambda: check_targets("embedded", targets),
        lambda: LanguageNetwork(ModuleSettings(lora_target_modules=targets)),
    ):
        with pytest.raises(UserError, match=rf"`lora_target_modules` names '{targets[-1]}'.*down_proj, gate_proj"):
            check()
    check_targets("embedded", "all-linear")
    check_targets("embedded", ["q_proj", "layers.1.mlp.up_proj"])


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "granite"])
def test_merged_models_with_tied_weights_say_what_peft_says(name, tmp_path):
    model = random_model(type(FAST[name]).from_dict({**FAST[name].to_dict(), "tie_word_embeddings": True}))
    folder = folder_of(model, tmp_path / "base")
    network = LanguageNetwork(ModuleSettings(base_model=str(folder)))
    assert network.lm.base.model.get_output_embeddings().weight is network.lm.base.model.get_input_embeddings().weight
    randomised(network.lm)
    digest = base_model_digest(network.lm.base)
    manifest = PolicyManifest("Verco", network.settings.to_dict(), {}, base_model_digest=digest)
    policy = write_policy(tmp_path / "policy", policy_files(network), manifest)
    for place in export_models(policy, tmp_path / "out", merge=True, trust=True):
        adapter = network.lm.save_adapter(place.name, tmp_path / place.name)
        wanted = PeftModel.from_pretrained(copy.deepcopy(network.lm.base.model), str(adapter)).merge_and_unload()
        merged = hf.AutoModelForCausalLM.from_pretrained(place)
        with torch.no_grad():
            torch.testing.assert_close(merged(PROMPT).logits, wanted(PROMPT).logits, atol=1e-5, rtol=1e-5)
            own = network.lm.model(PROMPT).logits
        assert float((merged(PROMPT).logits - own).abs().max()) > 1e-2
