"""Tokenizers of strangers: end tokens, padding that is a word, ids beyond the embedding, positions, files."""

import itertools
import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast as FastTokenizer
from transformers.utils import sentencepiece_model_pb2_new as sentencepiece

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language.adapters import AdaptedModel
from rllib_llm_comm.language.base_model import (
    check_base_model,
    check_positions,
    embedded_model_path,
    load_base_model,
    wrap_base_model,
)
from rllib_llm_comm.language.engines import ENGINES, plain_features
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.language.scoring import encode_candidates, prompt_features, score_texts
from rllib_llm_comm.verco.encoding import encode_examples
from rllib_llm_comm.verco.language_network import LanguageNetwork, label_log_probs
from rllib_llm_comm.verco.settings import ModuleSettings
from tests.refusal import refused

WORDS = ["<unk>", "<s>", "</s>", "wait", "go", "you", "see", "a", "pot", *(f"w{i}" for i in range(20))]


def word_tokenizer(**marks):
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return FastTokenizer(tokenizer_object=backend, **{"unk_token": "<unk>", "eos_token": "</s>", **marks})


def word_model(tokenizer, rows=29):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=rows, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return wrap_base_model("mine", model, tokenizer)


def own_score(base, head, tail):
    """The model's own word on some tokens behind others."""
    own = base.model(input_ids=torch.tensor([head + tail])).logits[0].log_softmax(-1)
    return sum(own[len(head) + k - 1, token] for k, token in enumerate(tail))


@pytest.mark.parametrize(
    "marks",
    [
        {},
        {"pad_token": "<unk>", "bos_token": "<s>"},
        {"pad_token": "</s>", "bos_token": "</s>"},
        {"pad_token": "wait"},
        {"pad_token": "[PAD]"},  # its id lies beyond the embedding
    ],
)
def test_no_token_of_a_text_is_taken_for_padding(marks):
    base = word_model(word_tokenizer(**marks))
    model = AdaptedModel(base)
    prompts = ["you see a KETTLE pot", "wait go wait", "you see", "KETTLE KETTLE"]
    phrases = ["wait", "go KETTLE wait", "KETTLE"]
    texts = [(prompt, phrases, (1, 1, 1)) for prompt in prompts]
    with torch.no_grad():
        heads, tails = (list(map(base.encode, written)) for written in (prompts, phrases))
        wanted = [own_score(base, head, tail) for head in heads for tail in tails]
        got = score_texts(model, texts, role=None)
        torch.testing.assert_close(got, torch.stack(wanted).reshape(4, 3), atol=1e-4, rtol=1e-4)
        ids = torch.tensor([head + [PAD] * (6 - len(head)) for head in heads])
        torch.testing.assert_close(prompt_features(model, ids), plain_features(model, ids), atol=1e-4, rtol=1e-4)
        messages = ["wait KETTLE", "go", "", "KETTLE"]
        said = encode_examples(base, prompts, messages, 20)
        log_probs, _ = label_log_probs(model, *map(torch.from_numpy, said.values()))
        for head, message, found in zip(heads, messages, log_probs, strict=True):
            total = own_score(base, head, [*base.encode(message), base.eos_id])
            torch.testing.assert_close(found.sum(), total, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("cutter", [None, pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
def test_candidates_that_a_tokenizer_cannot_tell_apart_are_refused(cutter):
    words = {"</s>": 0, **{letter: k + 1 for k, letter in enumerate(" ▁abcdefghijklmnopqrstuvwxyz")}}
    backend = Tokenizer(models.BPE(words, []))  # it drops what it does not know
    if cutter is not None:
        backend.pre_tokenizer = cutter
    if isinstance(cutter, pre_tokenizers.Metaspace):
        backend.decoder = decoders.Metaspace()
    base = word_model(FastTokenizer(tokenizer_object=backend, eos_token="</s>"))
    for phrases in (["wait", "KETTLE"], ["wait", "123"], ["wait", "KETTLE POT"]):
        with pytest.raises(UserError, match=f"candidate '{phrases[1]}' has no tokens but blanks .* 'mine'"):
            encode_candidates(base, "you see", phrases)
    with pytest.raises(UserError, match="candidates 'go up' and 'go up!' have the same tokens .* 'mine'"):
        encode_candidates(base, "you see", ["go up", "go up!"])
    _, tails = encode_candidates(base, "you see", ["wait", "go up", "wait"])
    assert tails[0] == tails[2] != tails[1]


@pytest.mark.parametrize("prompt", ["", " "])
def test_candidates_behind_nothing_are_refused(prompt):
    with pytest.raises(UserError, match="prompt .* has no tokens .* 'mine'"):
        encode_candidates(word_model(word_tokenizer()), prompt, ["wait", "go"])
    assert encode_candidates(load_base_model(), "", ["wait", "go"])[0]  # its start token


LETTERS = ["<unk>", "</s>", "\u2581", "\u0120", *"abcdefghijklmnopqrstuvwxyz"]


def letters_tokenizer(cutter, normalizer=None, added=(), merges=()):
    """Letters, and merges of them; what it does not know is one token."""
    tokens = [*LETTERS, *("".join(merge) for merge in merges)]
    backend = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, list(merges), unk_token="<unk>"))
    backend.pre_tokenizer = cutter
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    return FastTokenizer(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        # added tokens that take up blanks beside words
        (letters_tokenizer(BYTES, added=[AddedToken("pot", rstrip=True)]), "the pot is hot"),
        (letters_tokenizer(BYTES, added=[AddedToken("pot", lstrip=True, rstrip=True)]), "the pot is hot"),
        (letters_tokenizer(BYTES, added=[AddedToken("pot ")]), "the pot is hot"),
        (letters_tokenizer(pre_tokenizers.WhitespaceSplit(), added=[AddedToken("red pot")]), "the red pot is hot"),
        # normalizers that leave no blank, join words, or make blanks of a character
        (
            letters_tokenizer(
                pre_tokenizers.Split(" ", "merged_with_previous"),
                normalizers.Replace(" ", "\u2581"),
                merges=[("k", "\u2581"), ("k\u2581", "w")],
            ),
            "quick way",
        ),
        (letters_tokenizer(pre_tokenizers.WhitespaceSplit(), normalizers.Replace(" - ", "")), "cook - book"),
        (letters_tokenizer(BYTES, normalizers.Nmt(), added=[AddedToken("  ")]), "a\u200b \u200b b"),
    ],
)
def test_texts_are_encoded_as_a_whole_where_words_are_not_apart(tokenizer, text):
    base = word_model(tokenizer, rows=len(tokenizer))
    whole = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert base.encode(text) == whole
    first, rest = text.split(" ", 1)
    head, (tail,) = encode_candidates(base, first, [rest])
    assert head + tail == whole


def test_ordinary_tokenizers_are_encoded_by_word():
    assert load_base_model().encodes_by_word
    for cutter, normalizer in ((BYTES, None), (pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer())):
        added = [AddedToken("  "), AddedToken("[x]", special=True, lstrip=True), AddedToken("pot")]
        tokenizer = letters_tokenizer(cutter, normalizer, added=added if cutter is BYTES else added[1:])
        assert word_model(tokenizer, rows=len(tokenizer)).encodes_by_word


def changed(folder, change):
    """The embedded model's folder with a change in tokenizer.json."""
    shutil.copytree(embedded_model_path(), folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return str(folder)


def end_behind(content):
    content["post_processor"]["single"].append({"SpecialToken": {"id": "</s>", "type_id": 0}})
    content["post_processor"]["special_tokens"]["</s>"] = {"id": "</s>", "ids": [2], "tokens": ["</s>"]}


def test_an_end_token_behind_texts_is_left_out(tmp_path):
    changed_base, base = load_base_model(changed(tmp_path / "ends", end_behind)), load_base_model()
    assert changed_base.tokenizer("wait")["input_ids"][-1] == base.eos_id
    prompt, candidates = "alice stands here.", ["wait", "fetch the tomato"]
    assert encode_candidates(changed_base, prompt, candidates) == encode_candidates(base, prompt, candidates)
    assert changed_base.encode(prompt) == base.encode(prompt) and changed_base.encode("")[-1:] != [base.eos_id]
    own, other = (encode_examples(one, [prompt], ["wait"], 50) for one in (base, changed_base))
    assert all((own[key] == other[key]).all() for key in own)


def added(word, special):
    token = {"id": 591, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return lambda content: content["added_tokens"].append({**token, "special": special})


def test_ids_beyond_the_embedding_are_found_before_anything_runs(tmp_path):
    unused = changed(tmp_path / "unused", added("[PAD]", special=True))
    check_base_model(unused)
    assert max(load_base_model(unused).encode("[PAD] wait")) < 591
    wrong = changed(tmp_path / "wrong", added("tomato!", special=False))
    for check in (check_base_model, load_base_model):
        with pytest.raises(UserError, match="591 tokens .* id 591"):
            check(wrong)
    with pytest.raises(UserError, match="without end token"):
        word_model(word_tokenizer(eos_token=None))
    with pytest.raises(UserError, match="28 tokens"):
        word_model(word_tokenizer(), rows=28)


def test_no_name_is_no_model():
    for name, load in itertools.product(("", "  "), (load_base_model, check_base_model)):
        with refused("base_model"):
            load(name)


def test_positions_that_a_table_does_not_have_are_told(tmp_path):
    folder = tmp_path / "gpt2"
    shutil.copytree(embedded_model_path(), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = GPT2Config(vocab_size=591, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    check_positions(str(folder), 64)
    check_positions("embedded", 10**5)  # it rotates
    settings = {"base_model": str(folder), "max_prompt_tokens": 56, "max_candidate_tokens": 8}
    sentence = "positions for 64 tokens"
    with pytest.raises(UserError, match=sentence):
        check_positions(str(folder), 65)
    with pytest.raises(UserError, match=sentence):
        LanguageNetwork(ModuleSettings(**{**settings, "max_prompt_tokens": 57}))
    for name, engine in ENGINES.items():
        model = LanguageNetwork(ModuleSettings(**settings, engine=name)).lm
        assert len(engine.messages(model, ["i wait. i say:"], max_words=10)) == 1
        with pytest.raises(UserError, match=sentence):
            engine.messages(model, ["i wait. " * 12 + "i say:"], max_words=10)
        ids, tails = torch.arange(3, 66)[None], torch.tensor([[[7, 8]]])
        with pytest.raises(UserError, match=sentence), torch.no_grad():
            engine.scores(model, ids, tails, torch.ones(1, 1))
    with pytest.raises(UserError, match=sentence):
        label_log_probs(model, *map(torch.from_numpy, encode_examples(model.base, ["i " * 70], ["go"], 99).values()))


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is there")
def test_a_tokenizer_that_needs_sentencepiece_says_so(tmp_path):
    pieces = sentencepiece.ModelProto()
    for piece, kind in [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{byte:02X}>", 6) for byte in range(256))]:
        pieces.pieces.add(piece=piece, score=0.0, type=kind)
    pieces.trainer_spec.model_type, pieces.trainer_spec.vocab_size = 2, len(pieces.pieces)
    (tmp_path / "tokenizer.model").write_bytes(pieces.SerializeToString())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer"}))
    for name in ("config.json", "model.safetensors"):
        shutil.copy(embedded_model_path() / name, tmp_path)
    for check in (check_base_model, load_base_model):
        with pytest.raises(UserError, match="pip install sentencepiece"):
            check(str(tmp_path))


def test_weights_that_are_quantized_already_are_refused(tmp_path):
    folder = tmp_path / "gptq"
    shutil.copytree(embedded_model_path(), folder)
    path = folder / "config.json"
    held = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": held}))
    for check in (check_base_model, load_base_model):
        with pytest.raises(UserError, match="gptq.*`quantization`"):
            check(str(folder))


def test_a_tokenizer_of_another_kind_of_model_encodes_between_its_marks(tmp_path):
    """As BERT's, which puts a mark in front of a text and another one behind it."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_model_path())
    end_behind(content := json.loads(tokenizer.backend_tokenizer.to_str()))
    content["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "</s>", "type_id": 0}})
    both = FastTokenizer(tokenizer_object=Tokenizer.from_str(json.dumps(content)), eos_token="</s>")
    base = wrap_base_model("mine", load_base_model().model, both)
    assert base.encode("wait") == [2, *load_base_model().encode("wait")]
