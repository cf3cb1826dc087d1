"""Rows of one batch under adapters of several models, against PEFT's mixed batches and against each adapter alone."""

import copy

import numpy as np
import pytest
import torch
from transformers import GPT2Config, LlamaConfig, Qwen3Config

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language import llama, multi_lora
from rllib_llm_comm.language.adapters import AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import load_base_model, wrap_base_model
from rllib_llm_comm.language.generation import draw_messages
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.language.scoring import prompt_features, score_candidates, score_texts
from rllib_llm_comm.verco.encoding import IGNORED
from rllib_llm_comm.verco.language_network import label_logits
from tests.language.random_models import arrays, base, randomised

TOKENS = len(load_base_model().tokenizer)
SMALL = {"vocab_size": TOKENS, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SMALL),
    "biases": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "qwen3": Qwen3Config(**SMALL, head_dim=16),
    "gpt2": GPT2Config(vocab_size=TOKENS, n_embd=48, n_layer=2, n_head=4),
}
PROMPTS = ["you see red. i say:", "you see a green door. i say:", "go. i say:", "you see red. bob says: go. i say:"]
CANDIDATES = ["name red", "name green", "wait", "go to the door"]


def members(config="llama", count=3, frozen=None, **settings):
    frozen = frozen or base(CONFIGS[config])
    torch.manual_seed(1)
    made = [AdaptedModel(frozen, AdapterConfig(**settings)) for _ in range(count)]
    return [randomised(model) for model in made]


ONE_BY_ONE, IN_A_BATCH = "one by one", "in a batch"


@pytest.fixture(params=[ONE_BY_ONE, IN_A_BATCH])
def way(request, monkeypatch):
    """Both ways of computing the adapters' products."""
    monkeypatch.setattr(multi_lora, "_LONG_STRETCH", 1 if request.param == ONE_BY_ONE else 10**6)
    monkeypatch.setattr(multi_lora, "_MOST_SLOTS", 10**6)


def by_way(names, *cases):
    """Cases of which the last value tells the way of computing the adapters' products."""
    return pytest.mark.parametrize((*names, "way"), cases, indirect=["way"])


def peft_of_all(models, role):
    """One PEFT model with the adapters of all; "__base__" is the bare base."""
    from peft import LoraConfig, get_peft_model

    one = models[0].config
    targets = one.target_modules if isinstance(one.target_modules, str) else list(one.target_modules)
    lora = LoraConfig(r=one.r, lora_alpha=one.alpha, target_modules=targets, task_type="CAUSAL_LM")
    made = get_peft_model(copy.deepcopy(models[0].base.model), lora, adapter_name="0")
    for number in range(1, len(models)):
        made.add_adapter(str(number), lora)
    theirs = dict(made.named_parameters())
    for number, model in enumerate(models):
        for name, parameter in model.peft_model.named_parameters():
            if f".{role}." in name:
                theirs[name.replace(f".{role}.", f".{number}.")].data.copy_(parameter.data)
    return made.eval(), theirs


@by_way(
    ("name", "targets", "fused"),
    ("llama", "all-linear", True, ONE_BY_ONE),
    ("llama", "all-linear", False, IN_A_BATCH),
    ("biases", "all-linear", True, IN_A_BATCH),
    ("biases", "all-linear", False, ONE_BY_ONE),
    ("qwen3", "all-linear", True, IN_A_BATCH),
    ("llama", ("q_proj", "up_proj"), True, ONE_BY_ONE),
    ("llama", ("q_proj", "up_proj"), True, IN_A_BATCH),
)
def test_states_and_gradients_are_those_of_pefts_mixed_batch(name, targets, fused, way, monkeypatch):
    weights = llama.LlamaWeights
    monkeypatch.setattr(llama, "LlamaWeights", lambda frozen, **_: weights(frozen, fused))  # as on a GPU
    models = members(name, target_modules=targets)
    ids = torch.arange(84).view(7, 12) * 17 % (TOKENS - 5) + 5
    owners = [2, 0, 1, 1, 2, 2, 0]
    oracle, theirs = peft_of_all(models, "action")
    for parameter in theirs.values():
        parameter.requires_grad_(True)
    wanted = oracle(ids, adapter_names=list(map(str, owners)), output_hidden_states=True).hidden_states[-1]
    rows, everything = MixedBatch(models).rows(owners, "action"), torch.ones_like(ids)
    with torch.no_grad(), models[0].use(rows):
        torch.testing.assert_close(models[0].hidden_states(ids, everything), wanted, atol=1e-4, rtol=1e-4)
    with models[0].use(rows):
        found = models[0].hidden_states(ids, everything)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    found.square().mean().backward()
    wanted.square().mean().backward()
    for number, model in enumerate(models):
        for key, parameter in model.peft_model.named_parameters():
            if ".action." in key:
                gradient = theirs[key.replace(".action.", f".{number}.")].grad
                torch.testing.assert_close(parameter.grad, gradient, atol=1e-4, rtol=1e-3)
            elif ".message." in key:
                assert parameter.grad is None


def test_rows_of_several_roles_and_of_the_bare_base(way):
    models = members()
    ids, everything = torch.arange(40).view(5, 8) * 13 % 500 + 5, torch.ones(5, 8, dtype=torch.long)
    owners, roles = [1, 0, 0, 2, 2], ["message", "action", None, "message", "action"]
    with torch.no_grad(), models[0].use(MixedBatch(models).rows(owners, roles)):
        mixed = models[0].hidden_states(ids, everything)
        places = torch.tensor([4, 0, 4, 2]), torch.tensor([7, 3, 0, 5])
        some = models[0].hidden_states(ids, everything, places=places)
    torch.testing.assert_close(some, mixed[places], atol=1e-4, rtol=1e-4)
    for row, (owner, role) in enumerate(zip(owners, roles, strict=True)):
        with torch.no_grad(), models[owner].use(role):
            alone = models[owner].hidden_states(ids[row : row + 1], everything[:1])[0]
        torch.testing.assert_close(mixed[row], alone, atol=1e-4, rtol=1e-4)


def asked(model, rows=12, seed=0):
    """Arrays of prompts and candidates; some rows are equal, some candidates forbidden."""
    rng = np.random.default_rng(seed)
    texts = [PROMPTS[int(rng.integers(len(PROMPTS)))] for _ in range(rows)]
    prompts, candidates = arrays(model.base, [(text, CANDIDATES) for text in texts])
    mask = torch.ones(rows, len(CANDIDATES), dtype=torch.long)
    mask[::3, 1] = 0
    return prompts, candidates, mask


def alone(models, owners, arrays, **how):
    rows = [score_candidates(models[o], *(a[i : i + 1] for a in arrays), **how) for i, o in enumerate(owners)]
    return torch.cat(rows)


@by_way(
    ("name", "layers"),
    ("llama", "all", ONE_BY_ONE),
    ("llama", 1, IN_A_BATCH),
    ("qwen3", "all", IN_A_BATCH),
    ("qwen3", 1, ONE_BY_ONE),
    ("gpt2", "all", IN_A_BATCH),
)
def test_scores_are_those_of_each_adapter_alone(name, layers, way):
    models = members(name, layers=layers)
    mixed, owners = MixedBatch(models), [0, 2, 1, 1, 0, 2, 2, 2, 0, 1, 0, 0]
    for seed in range(2):  # later batches go on behind what earlier ones have read
        arrays = asked(models[0], seed=seed)
        with torch.no_grad():
            found, wanted = mixed.scores(owners, *arrays), alone(models, owners, arrays)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    if name != "gpt2":
        assert mixed.rows(owners, "action").pool.prefixes.nbytes > 0
    with torch.no_grad():
        for _, parameter in models[1].named_adapter_parameters("action"):
            parameter.mul_(0.5)
        moved = mixed.scores(owners, *arrays)
        torch.testing.assert_close(moved, alone(models, owners, arrays), atol=1e-4, rtol=1e-4)
    of_1 = torch.tensor(owners) == 1
    assert not torch.allclose(moved[of_1], found[of_1]) and torch.allclose(moved[~of_1], found[~of_1], atol=1e-4)
    gradients = []
    for scores in (lambda: mixed.scores(owners, *arrays), lambda: alone(models, owners, arrays)):
        known = scores()
        known[known > -1e8].square().mean().backward()
        gradients.append([p.grad for model in models for _, p in model.named_adapter_parameters("action")])
        for model in models:
            model.peft_model.zero_grad(set_to_none=True)
    largest = max(float(gradient.abs().max()) for gradient in gradients[1])
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, atol=1e-5 * largest, rtol=1e-3)


@pytest.mark.parametrize("normalization", ["token", "word"])
def test_normalized_scores_and_one_owner(normalization):
    models = members()
    arrays = asked(models[0])
    words = torch.tensor([[len(text.split()) for text in CANDIDATES]])
    how = {"normalization": normalization}
    with torch.no_grad():
        for owners in ([0, 2] * 6, [1] * 12):
            found = MixedBatch(models).scores(owners, *arrays, candidate_words=words.expand(12, -1), **how)
            wanted = alone(models, owners, arrays, candidate_words=words, **how)
            torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@by_way(("name", "temperature"), ("llama", 0.0, IN_A_BATCH), ("llama", 1.0, ONE_BY_ONE), ("gpt2", 1.0, IN_A_BATCH))
def test_messages_are_those_of_each_adapter_alone(name, temperature, way):
    models = members(name)
    owners = [1, 0, 0, 2, 1, 2, 0, 1, 1]
    prompts = [PROMPTS[row % 3] for row in range(9)]
    mixed = MixedBatch(models)
    for seeds in ([7] * 9, [5, 6, 6, 7, 5, 7, 6, 5, 5]):  # one for all, or one per model
        found = mixed.messages(owners, prompts, max_words=4, temperature=temperature, seed=seeds)
        for owner in range(3):
            rows = [row for row, other in enumerate(owners) if other == owner]
            how = {"max_words": 4, "temperature": temperature, "seed": seeds[rows[0]]}
            wanted = draw_messages(models[owner], [prompts[row] for row in rows], **how)
            assert [found[row] for row in rows] == wanted
    assert len({message.text for message in found}) > 3


def test_features_and_labels():
    models = members()
    prompts = asked(models[0])[0]
    mixed = MixedBatch(models)
    assert torch.equal(mixed.features(prompts), prompt_features(models[1], prompts))
    ids = torch.arange(30).view(3, 10) * 11 % 400 + 5
    labels = torch.where(torch.arange(10) < 6, IGNORED, ids)
    row, _, mixed = label_logits(models[0], ids, labels, mixed.rows([2, 0, 2], "message"))
    for number, owner in enumerate((2, 0, 2)):
        one = label_logits(models[owner], ids[number : number + 1], labels[number : number + 1], "message")[2]
        torch.testing.assert_close(mixed[row == number], one, atol=1e-4, rtol=1e-4)


def test_who_cannot_share_a_batch():
    one = members(count=1)[0]
    other_base = members(frozen=base(CONFIGS["llama"], seed=1), count=1)[0]
    with pytest.raises(UserError, match="member 1 .*base model"):
        MixedBatch([one, other_base])
    for settings, told in ({"r": 4}, "`r` .4, not 8."), ({"layers": 1}, "`layers`"), ({"alpha": 3}, "`alpha`"):
        with pytest.raises(UserError, match=f"member 2 has adapters of another {told}"):
            MixedBatch([one, one, members(frozen=one.base, count=1, **settings)[0]])
    tokenizer = copy.deepcopy(one.base.tokenizer)
    stranger = AdaptedModel(wrap_base_model("other", one.base.model, tokenizer))
    with pytest.raises(UserError, match="another tokenizer"):
        MixedBatch([one, stranger])


def test_a_busy_adapter_beside_idle_ones(monkeypatch):
    """Slots are as many as the busiest needs; where that is too many, adapters are computed one by one."""
    models = members(count=6)
    mixed, owners = MixedBatch(models), [3] * 40 + [0]
    arrays = asked(models[0], rows=41)
    monkeypatch.setattr(multi_lora, "_LONG_STRETCH", 10**6)
    for most in (1, 10**6):
        monkeypatch.setattr(multi_lora, "_MOST_SLOTS", most)
        with torch.no_grad():
            found = mixed.scores(owners, *arrays)
        torch.testing.assert_close(found, alone(models, owners, arrays), atol=1e-4, rtol=1e-4)


def test_score_texts_by_rows():
    models = members()
    rows = MixedBatch(models).rows([1, 2], "action")
    with torch.no_grad():
        both = score_texts(models[0], [(PROMPTS[0], CANDIDATES, [1] * 4)] * 2, role=rows)
        for row, owner in enumerate((1, 2)):
            one = score_texts(models[owner], [(PROMPTS[0], CANDIDATES, [1] * 4)])
            torch.testing.assert_close(both[row], one[0], atol=1e-4, rtol=1e-4)
