"""Observations in token ids."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from toys import ColourTalk, batch_of, language_model, randomise, words_of

from rllib_llm_comm.baselines.numeric.numeric_ppo import NumericModule
from rllib_llm_comm.baselines.red.red import OfficerModule
from rllib_llm_comm.baselines.value.value_decomposition import JointQModule
from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.base_model import load_base_model, resolve_device
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.prompts import action_prompt, critic_prompt, message_prompt
from rllib_llm_comm.sama.emma.emma import EmmaModule
from rllib_llm_comm.verco.encoding import ObservationEncoder, TextObservation, encoded_space, read_observation
from rllib_llm_comm.verco.language_network import LanguageNetwork
from rllib_llm_comm.verco.module import LLMCommModule
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.refusal import refused


@pytest.fixture(scope="module")
def parts():
    settings = ModuleSettings.from_mapping(language_model())
    base = load_base_model(settings.base_model)
    return base, settings, ObservationEncoder(base, settings)


@pytest.fixture
def raw():
    observations, _ = ColourTalk().reset(seed=0)
    return observations["alice"]


def test_arrays_spell_the_prompts(parts, raw):
    base, settings, encoder = parts
    heard = {"bob": "i see red"}
    arrays = encoder.encode(read_observation({**raw, "subgoal": "win"}), heard)
    assert words_of(base, arrays["prompt_ids"]) == action_prompt(raw["text"], heard, "win")
    assert words_of(base, arrays["critic_ids"]) == critic_prompt(raw["text"], "win")
    assert [words_of(base, row) for row in arrays["candidate_ids"]] == list(raw["candidates"])
    assert arrays["candidate_words"].tolist() == [2, 2, 2]
    assert encoded_space(settings, 3).contains(arrays)


def test_a_centralised_critic_reads_a_text_of_its_own_and_nobody_else_does(parts, raw):
    base, _, encoder = parts
    own = encoder.encode(read_observation(raw), {})
    for text in ("you are alice. you see red.", "you are bob. you see blue."):
        arrays = encoder.encode(read_observation({**raw, "critic_text": text}), {})
        assert words_of(base, arrays["critic_ids"]) == critic_prompt(text, raw.get("subgoal", ""))
        assert all(np.array_equal(arrays[key], own[key]) for key in own if key != "critic_ids")


def test_forbidden_candidates_are_padding(parts, raw):
    base, _, encoder = parts
    arrays = encoder.encode(read_observation({**raw, "action_mask": [1, 0, 1]}), {})
    assert (arrays["candidate_ids"][1] == PAD).all() and arrays["candidate_words"][1] == 0
    assert arrays["action_mask"].tolist() == [1, 0, 1]


def test_equal_observations_share_their_arrays(parts, raw):
    _, _, encoder = parts
    one, other = encoder.encode(read_observation(raw), {}), encoder.encode(read_observation(raw), {})
    assert one["prompt_ids"] is other["prompt_ids"]
    assert not np.array_equal(encoder.encode(read_observation(raw), {"bob": "hi"})["prompt_ids"], one["prompt_ids"])


@pytest.mark.parametrize(
    ("key", "value"), [("text", None), ("candidates", None), ("action_mask", [0, 0, 0]), ("action_mask", [1, 1])]
)
def test_bad_observations_are_refused(raw, key, value):
    bad = {name: part for name, part in {**raw, key: value}.items() if part is not None}
    with pytest.raises(UserError, match=f"no `{key}`" if value is None else f"`{key}`"):
        read_observation(bad)


def test_too_long_is_an_error_and_never_cut(parts, raw):
    base, settings, encoder = parts
    with refused("max_prompt_tokens"):
        encoder.encode(read_observation({**raw, "text": raw["text"] * 20}), {})
    with refused("max_candidate_tokens"):
        encoder.encode(read_observation({**raw, "candidates": ["name red " * 9] * 3}), {})


# ---- the network without RLlib -----------------------------------------------------------------------------------


@pytest.fixture
def network():
    network = LanguageNetwork(ModuleSettings.from_mapping(language_model(init_seed=3, temperature=2.0)))
    randomise(network, "action")
    return network


def test_remembered_logits_follow_the_weights(network):
    batch = batch_of(network)
    first = network.remembered_logits(batch)
    torch.testing.assert_close(first, network.logits(batch).detach(), atol=1e-6, rtol=0)
    assert not first.requires_grad
    assert torch.equal(network.remembered_logits(batch), first)
    randomise(network, "action", seed=1)
    second = network.remembered_logits(batch)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, network.logits(batch).detach(), atol=1e-6, rtol=0)


def test_what_is_remembered_is_not_computed_again(network, monkeypatch):
    batch = batch_of(network)
    computed = []
    inner = network.logits
    monkeypatch.setattr(network, "logits", lambda rows: (computed.append(len(rows["prompt_ids"])), inner(rows))[1])
    twice = {name: torch.cat([tensor, tensor]) for name, tensor in batch.items()}
    network.remembered_logits(twice)
    network.remembered_logits(batch)
    distinct = len({row.tobytes() for row in batch["prompt_ids"].numpy()})
    assert computed == [distinct]


def test_messages_follow_the_message_adapter(network):
    prompts = [message_prompt(f"you see {colour}.") for colour in ("red", "blue", "red")]
    first = network.write_messages(prompts, max_words=5)
    assert first[0] == first[2] and all(len(message.split()) <= 5 for message in first)
    assert network.write_messages(prompts, max_words=5) == first
    assert all(len(message.split()) <= 1 for message in network.write_messages(prompts, max_words=1))
    randomise(network, "message", std=0.5)
    assert network.write_messages(prompts, max_words=5) != first


def test_features_do_not_depend_on_adapters(network):
    ids = batch_of(network)["critic_ids"]
    first = network.features(ids)
    randomise(network, "action", seed=7)
    randomise(network, "message", seed=8)
    fresh = LanguageNetwork(network.settings)
    assert fresh.lm.base is network.lm.base  # one frozen model per process
    torch.testing.assert_close(first, fresh.features(ids))
    assert torch.equal(network.features(ids), first)
    values = network.values({"critic_ids": ids})
    assert values.shape == (len(ids),) and values.requires_grad


def test_memo_forgets_the_oldest_and_on_a_new_stamp():
    memo: Memo[int] = Memo(2)
    memo.require("a")
    memo.put(1, 1)
    memo.put(2, 2)
    assert memo.get(1) == 1
    memo.put(3, 3)
    assert memo.get(2) is None and memo.get(1) == 1 and len(memo) == 2
    memo.require("a")
    assert len(memo) == 2
    memo.require("b")
    assert len(memo) == 0


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with refused("device"):
        resolve_device("cuda")


def gradients(observations, **adapted_settings):
    """Logits, gradients of the action adapter, and the bytes that were held for the backward pass."""
    network = LanguageNetwork(ModuleSettings(init_seed=0, temperature=1.5, **adapted_settings))
    parameters = []
    torch.manual_seed(5)
    for _, parameter in network.lm.named_adapter_parameters("action"):
        parameters.append(parameter.requires_grad_(True))
        with torch.no_grad():
            parameter.normal_(std=0.05)
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.nbytes), t)[1], lambda t: t):
        logits = network.logits(observations)
    with network.lm.use("message"):  # the adapter in use when gradients are computed does not matter
        found = torch.autograd.grad(logits.softmax(-1)[:, 0].sum(), parameters)
    return logits.detach(), found, sum(sizes)


@pytest.fixture(scope="module")
def kitchen_rows():
    network = LanguageNetwork(ModuleSettings())
    encoder = ObservationEncoder(network.lm.base, network.settings)
    texts = ["make a tomato salad.", "make a salad. i am bob.", "make a tomato salad.", "i hold a bowl."]
    phrases = ("wait", "get the tomato", "chop")
    rows = [encoder.encode(TextObservation(text, phrases, (True, True, text != texts[1])), {}) for text in texts]
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


@pytest.fixture(scope="module")
def plain(kitchen_rows):
    return gradients(kitchen_rows)


@pytest.mark.parametrize(
    ("memory", "tolerance"),
    [
        ({"micro_batch_tokens": 25}, 1e-5), ({"gradient_checkpointing": True}, 1e-5),
        ({"gradient_checkpointing": True, "micro_batch_tokens": 25}, 1e-5),
        ({"autocast": "bfloat16"}, 0.2), ({"dtype": "bfloat16"}, 0.2),
    ],
)  # fmt: skip
def test_memory_settings_leave_the_gradient_as_it_is(memory, tolerance, kitchen_rows, plain):
    logits, wanted, most_bytes = plain
    got, found, held_bytes = gradients(kitchen_rows, **memory)
    torch.testing.assert_close(got, logits, atol=tolerance, rtol=tolerance)
    largest = max(float(one.abs().max()) for one in wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert float((ours - theirs).abs().max()) <= tolerance * largest
    if not {"autocast", "dtype"} & set(memory):
        assert held_bytes < most_bytes / 2


# ---- the RLModule: what it holds, sends and computes -------------------------------------------------------------


def build(inference_only=False, **settings):
    config = language_model(init_seed=0, **settings)
    seen, chosen = encoded_space(ModuleSettings.from_mapping(config), 3), gym.spaces.Discrete(3)
    return RLModuleSpec(LLMCommModule, seen, chosen, inference_only, model_config=config).build()


@pytest.fixture(scope="module")
def module():
    return build()


def test_inference_only_module_has_no_critic_and_takes_a_synced_state(module):
    runner = build(inference_only=True)
    state = module.get_state(inference_only=True)
    assert set(state) == set(runner.get_state()) and not any("critic" in name for name in state)
    runner.set_state(state)
    with pytest.raises(ValueError, match="misses"):
        runner.set_state({})


def test_only_the_named_roles_are_trained():
    for roles, critic in ((("action",), True), (("message",), False)):
        module = build(trainable_roles=list(roles), train_critic=critic)
        trained = {name.split(".")[1].split("/")[0] for name, p in module.named_parameters() if p.requires_grad}
        assert {name for name in trained if name in ("message", "action")} == set(roles)
        assert bool(module.critic_parameters()) == critic
    assert not any(p.requires_grad for p in module.network.lm.base.model.parameters())


def test_language_model_stays_in_eval_mode_and_in_place(module):
    module.train()
    assert not module.network.lm.peft_model.training
    before = next(module.network.lm.model.parameters()).data_ptr()
    module.to(torch.device("cpu")).to(torch.float64)
    assert next(module.network.lm.model.parameters()).data_ptr() == before
    assert all(p.dtype == torch.float32 for p in module.parameters())


def test_set_state_leaves_unchanged_weights_alone(module):
    runner = build()
    runner.set_state(module.get_state())
    prompt = ["you see red. i say:"]
    runner.write_messages(prompt)
    stamp = runner.network.lm.stamp("message")
    state = module.get_state()
    name = next(n for n in state if n.startswith("adapters.action/"))
    state[name] = state[name] + 1.0
    runner.set_state(state)
    assert runner.network.lm.stamp("message") == stamp
    np.testing.assert_array_equal(runner.get_state()[name], state[name])


def test_values_use_given_features_or_make_their_own(module):
    batch = {Columns.OBS: batch_of(module.network)}
    given = {**batch, "critic_features": module.critic_features(batch)}
    torch.testing.assert_close(module.compute_values(batch), module.compute_values(given))


@pytest.mark.parametrize("module_class", [LLMCommModule, NumericModule, EmmaModule, OfficerModule, JointQModule])
def test_every_module_tells_the_faults_of_its_set_up(module_class):
    """RLlib takes an AttributeError for a module of an earlier version."""

    class Broken(module_class):
        def setup(self):
            raise AttributeError("'Space' object has no attribute 'spaces'")

    spec = RLModuleSpec(Broken, gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Discrete(3), model_config={})
    with pytest.raises(RuntimeError, match="Broken .* no attribute 'spaces'"):
        spec.build()


def test_prompts_made_of_known_parts_are_those_encoded_whole(parts):
    base, settings, encoder = parts
    texts = ["you are alice. you see red.", "you are alice", "you see red. ", "you  see", " red.", "a" * 8 + ".", ""]
    said = [{}, {"bob": "i see red."}, {"bob": "wait", "carol": "go  now. i wait"}]
    for phrases in (("go left", "wait", "see"), (" go", "wait", "see")):
        for heard, text, mask in itertools.product(said * 2, texts, ((1, 1, 1), (0, 1, 1))):
            seen = read_observation({"text": text, "candidates": phrases, "action_mask": mask})
            own, whole = encoder.encode(seen, heard), ObservationEncoder(base, settings).encode(seen, heard)
            assert all(np.array_equal(own[name], whole[name]) for name in whole), (text, heard)
