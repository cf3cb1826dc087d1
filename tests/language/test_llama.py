"""Decoders of the LLaMA family against Hugging Face's model with PEFT's layers in it."""

import logging

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from rllib_llm_comm.language import compiled_layers, llama
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.compiled_layers import CompiledLayers
from rllib_llm_comm.language.llama import LlamaDecoder, LlamaWeights, llama_weights
from tests.language.random_models import base, randomised

SMALL = {"vocab_size": 600, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
ROPE_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 10000.0}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
CONFIGS = {
    "llama": LlamaConfig(**SMALL),
    "llama3": LlamaConfig(**SMALL, rope_parameters=ROPE_3, max_position_embeddings=128),
    "yarn": LlamaConfig(**SMALL, rope_parameters=YARN, max_position_embeddings=64),
    "tied, one group": LlamaConfig(**{**SMALL, "num_key_value_heads": 4}, tie_word_embeddings=True),
    "biases": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "smollm": LlamaConfig(**{**SMALL, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 72},
                          tie_word_embeddings=True),
    "wide heads": LlamaConfig(**SMALL, head_dim=20),
    "mistral": MistralConfig(**SMALL, sliding_window=None),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL, head_dim=16),
}  # fmt: skip


def adapted(config, *, dtype=torch.float32, **settings):
    frozen = base(config)
    frozen.model.to(dtype)
    return randomised(AdaptedModel(frozen, AdapterConfig(**settings)))


def packed():
    """Ids (2, 12), a tree's mask (2, 1, 12, 12) and positions: two branches of 3 behind 6 tokens."""
    ids = torch.arange(24).view(2, 12) * 17 % 590 + 5
    mask = torch.ones(12, 12, dtype=torch.bool).tril()
    mask[9:, 6:9] = False
    positions = torch.tensor([*range(9), 6, 7, 8])
    return ids, mask.expand(2, 1, 12, 12), positions.expand(2, 12)


def by_peft(model, role, ids, mask, positions):
    """The oracle; the mask as numbers to be added."""
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min).to(model.model.dtype)
    with model.use(role):
        out = model.model.base_model(input_ids=ids, attention_mask=added, position_ids=positions, use_cache=False)
    return out.last_hidden_state


@pytest.fixture(params=[False, True], ids=["apart", "fused"])
def fused(request, monkeypatch):
    """On a GPU maps with a common input become one matrix; here both ways are tried."""
    weights = LlamaWeights
    monkeypatch.setattr(llama, "LlamaWeights", lambda base, fused: weights(base, request.param))
    return request.param


@pytest.fixture(params=[True, False], ids=["merged", "thin"])
def merged(request, monkeypatch):
    """Small adapters are added to the weights, large ones stay beside them."""
    monkeypatch.setattr(llama, "_MOST_MERGED_BYTES", 2**30 if request.param else 0)
    monkeypatch.setattr(llama, "_MERGED_IN_UPDATES", 512 if request.param else 0)
    return request.param


# Of the four combinations each model has two, in which both ways of both occur.
WAYS = [(name, merged, merged == bool(k % 2)) for k, name in enumerate(CONFIGS) for merged in (True, False)]


@pytest.mark.parametrize(("name", "merged", "fused"), WAYS, indirect=["merged", "fused"])
def test_states_and_gradients_are_pefts(name, merged, fused):
    model = adapted(CONFIGS[name])
    assert llama_weights(model.base) is not None
    batch = packed()
    for role in (None, "message", "action"):
        with torch.no_grad():
            with model.use(role):
                ours = model.hidden_states(*batch)
            torch.testing.assert_close(ours, by_peft(model, role, *batch), atol=1e-4, rtol=1e-4)
    gradients = []
    for of in (lambda: by_peft(model, "action", *batch), lambda: model.hidden_states(*batch)):
        with model.use("action"):
            of().square().mean().backward()
        gradients.append({n: p.grad for n, p in model.named_adapter_parameters("action")})
        for _, parameter in model.named_adapter_parameters("action"):
            parameter.grad = None
    for key, theirs in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "checkpointed"), [("tree", False), ("tree", True), ("all before", False), ("padded", True)]
)
def test_states_of_some_places_are_those_of_all(kind, checkpointed):
    model = adapted(CONFIGS["qwen3"])
    model._checkpoints = checkpointed
    ids, tree, positions = packed()
    seen = torch.ones_like(ids)
    if kind == "padded":
        seen[1, 9:] = 0
    batch = (ids, tree, positions) if kind == "tree" else (ids, seen)
    places = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([5, 11, 8, 0, 6])
    every, some = [], []
    for found, states in (
        (every, lambda: model.hidden_states(*batch)[places]),
        (some, lambda: model.hidden_states(*batch, places=places)),
    ):
        with model.use("action"):
            with torch.no_grad():
                found.append(states())
            found.append(states())
            found[1].square().mean().backward()
        for _, parameter in model.named_adapter_parameters("action"):
            found.append(parameter.grad)
            parameter.grad = None
    torch.testing.assert_close(some, every, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("targets", "merged", "fused"),
    [
        (("q_proj", "v_proj"), True, True),
        (("q_proj", "v_proj"), False, True),
        (("k_proj", "up_proj", "down_proj"), True, True),
        (("k_proj", "up_proj", "down_proj"), False, False),
        (("o_proj",), False, True),
    ],
    indirect=["merged", "fused"],
)
def test_some_maps_may_have_no_adapter(targets, merged, fused):
    model = adapted(CONFIGS["llama"], target_modules=targets)
    batch = packed()
    with model.use("message"):
        trained = model.hidden_states(*batch)
        with torch.no_grad():
            kept = model.hidden_states(*batch)
    with torch.no_grad():
        oracle = by_peft(model, "message", *batch)
    torch.testing.assert_close(trained.detach(), oracle, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(kept, oracle, atol=1e-4, rtol=1e-4)


def test_kept_weights_follow_the_adapter_into_the_same_storage(merged):
    model = adapted(CONFIGS["llama"])
    batch = packed()

    def storage():
        detached = model.llama_adapters["action"].detached(merged=merged)
        tensors = {
            (n, m): one.weights[0] if merged else one.a for n, maps in detached.items() for m, one in maps.items()
        }
        return {place: tensor.data_ptr() for place, tensor in tensors.items()}

    with torch.no_grad(), model.use("action"):
        before, places = model.hidden_states(*batch), storage()
        for _, parameter in model.named_adapter_parameters("action"):
            parameter.mul_(0.5)
        after = model.hidden_states(*batch)
    assert not torch.allclose(before, after)
    assert storage() == places
    with torch.no_grad():
        torch.testing.assert_close(after, by_peft(model, "action", *batch), atol=1e-4, rtol=1e-4)


def test_a_text_read_in_parts_is_the_whole_text():
    from transformers import DynamicCache

    weights = llama_weights(base(CONFIGS["qwen3"]))
    decoder = LlamaDecoder(weights)
    ids = torch.arange(20).view(2, 10) + 7
    whole, cache = decoder(input_ids=ids), DynamicCache()
    parts, at = [], 0
    for width in (4, 1, 5):
        positions = torch.arange(at, at + width).expand(2, width)
        mask = torch.ones(2, at + width, dtype=torch.long)
        parts.append(
            decoder(input_ids=ids[:, at : at + width], attention_mask=mask, position_ids=positions, cache=cache)
        )
        at += width
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-5, rtol=1e-5)
    halves = LlamaDecoder(weights, 1)(inputs_embeds=LlamaDecoder(weights, 0, 1)(input_ids=ids))
    torch.testing.assert_close(halves, whole, atol=1e-6, rtol=1e-6)


def test_half_precision_is_near_peft_in_float32():
    batch = packed()
    exact, half = adapted(CONFIGS["llama"]), adapted(CONFIGS["llama"], dtype=torch.bfloat16)
    for (_, one), (_, other) in zip(exact.named_adapter_parameters(), half.named_adapter_parameters(), strict=True):
        other.data.copy_(one.data)
    with torch.no_grad(), half.use("action"):
        ours = half.hidden_states(*batch).float()
        theirs = by_peft(half, "action", *batch).float()
        true = by_peft(exact, "action", *batch)
    assert half._llama is not None
    assert float((ours - true).abs().mean()) < 1.5 * float((theirs - true).abs().mean()) + 1e-3


def test_a_whole_matrix_is_there_once():
    frozen = base(CONFIGS["biases"])
    before = frozen.model(torch.arange(9)[None]).logits
    weights = LlamaWeights(frozen, fused=True)
    attention = frozen.model.model.layers[0].self_attn
    whole = weights.layers[0].projections["qkv"].weights[0]
    assert attention.q_proj.weight.data_ptr() == whole.data_ptr()
    assert attention.v_proj.weight.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    torch.testing.assert_close(frozen.model(torch.arange(9)[None]).logits, before)


@pytest.mark.parametrize("kind", ["gpt2", "dynamic", "changed"])
def test_other_models_are_computed_by_hugging_face(kind, caplog):
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = {
        "gpt2": GPT2Config(vocab_size=600, n_embd=48, n_layer=2, n_head=4),
        "dynamic": LlamaConfig(**SMALL, rope_parameters=dynamic),
        "changed": LlamaConfig(**SMALL),
    }[kind]
    other = base(config)
    if kind == "changed":  # of the family by name, but it computes something else
        other.model.model.layers[1].register_forward_hook(lambda _, __, output: output * 1.5)
    with caplog.at_level(logging.INFO, logger=llama.__name__):
        model = AdaptedModel(other)
        AdaptedModel(other)
    assert model._llama is None
    assert sum("Hugging Face" in record.getMessage() for record in caplog.records) == 1
    ids = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            model.hidden_states(ids, torch.ones_like(ids)), other.model.base_model(input_ids=ids).last_hidden_state
        )


@pytest.mark.parametrize("name", ["biases", "qwen3"])
def test_compiled_layers_compute_the_same_whatever_the_batch_and_are_compiled_once(name, monkeypatch, caplog):
    """As on a GPU, but for the code that the compiler writes."""
    monkeypatch.setattr(compiled_layers, "LEAST_TOKENS", 2)
    model = adapted(CONFIGS[name])
    monkeypatch.setattr(model.llama_adapters["action"], "merges", name == "qwen3")
    ids, mask, positions = packed()

    def states(rows):
        with torch.no_grad(), model.use("action"):
            return model.hidden_states(ids[:rows], mask[:rows], positions[:rows])

    known = {rows: states(rows) for rows in (1, 2)}
    # It pays after one pass of both rows, so that the second pass is the first one that is compiled.
    numbers = 24 * SMALL["hidden_size"] * model.base.config.num_hidden_layers
    model.compiled = CompiledLayers(*llama.layer_parts, pays_after=numbers, backend="aot_eager")
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(states(2), known[2])
    with caplog.at_level(logging.INFO, logger=compiled_layers.__name__):
        torch.testing.assert_close(states(2), known[2], atol=1e-4, rtol=1e-4)
    told = [record for record in caplog.records if record.name == compiled_layers.__name__]
    assert [record.levelname for record in told] == ["INFO", "INFO"]
    with torch.compiler.set_stance("fail_on_recompile"):
        for rows in (1, 2):
            torch.testing.assert_close(states(rows), known[rows], atol=1e-4, rtol=1e-4)
    assert model.compiled.usable
    with model.use("action"):
        model.hidden_states(ids, mask, positions).square().mean().backward()  # gradients never go through them
    assert len([record for record in caplog.records if record.name == compiled_layers.__name__]) == 2


@pytest.mark.parametrize("broken", ["fails", "differs"])
def test_where_compiling_fails_or_differs_layers_stay_as_they_are(broken, monkeypatch, caplog):
    """A compiler that cannot, or that errs."""
    monkeypatch.setattr(compiled_layers, "LEAST_TOKENS", 2)

    def compiler(graph, _):
        if broken == "fails":
            raise RuntimeError("no C compiler found")
        return lambda *inputs: [1.5 * out for out in graph(*inputs)]

    model = adapted(CONFIGS["llama"])
    with torch.no_grad(), model.use("action"):
        known = model.hidden_states(*packed())
        model.compiled = CompiledLayers(*llama.layer_parts, pays_after=0, backend=compiler)
        for _ in range(2):
            assert torch.equal(model.hidden_states(*packed()), known)
    told = [record.getMessage() for record in caplog.records if record.name == compiled_layers.__name__]
    assert len(told) == 1
    assert ("no C compiler found" if broken == "fails" else "differ") in told[0]


def test_an_adapter_is_rounded_once_when_it_is_added_to_weights_in_half_precision(fused):
    model = adapted(CONFIGS["llama"], dtype=torch.bfloat16)
    layer = model.model.model.layers[0].self_attn.q_proj
    whole = layer.base_layer.weight.float() + layer.get_delta_weight("action").float()
    merged = model.llama_adapters["action"].detached(merged=True)[0]["qkv"].weights[0][: layer.out_features]
    assert torch.equal(merged, whole.to(torch.bfloat16))


def test_an_adapter_that_rounding_takes_away_stays_beside_weights_in_half_precision():
    model = adapted(CONFIGS["llama"], dtype=torch.bfloat16)
    adapter, batch = model.llama_adapters["action"], packed()

    def scaled(model, factor):
        with torch.no_grad():
            for name, parameter in model.named_adapter_parameters("action"):
                parameter.mul_(factor if "lora_B" in name else 1.0)

    for factor, merged in ((1.0, True), (1e-4, False), (1e4, True)):
        scaled(model, factor)
        with torch.no_grad(), model.use("action"):
            model.hidden_states(*batch)
            assert llama.is_merged(adapter.current()) is llama.is_merged(model.detached("action")) is merged
    exact = adapted(CONFIGS["llama"])
    scaled(exact, 1e-4)
    assert exact.llama_adapters["action"].survives_rounding
