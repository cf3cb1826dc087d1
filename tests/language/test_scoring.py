import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.language import scoring
from rllib_llm_comm.language.base_model import load_base_model
from rllib_llm_comm.language.engines import plain_scores
from rllib_llm_comm.language.scoring import MASKED, encode_candidates, score_candidates, score_texts
from tests.language.random_models import arrays
from tests.refusal import refused

VOCABULARY = "wait get put the raw kale leek bowl counter shelf chop walk first board"
WORDS = st.sampled_from(VOCABULARY.split())
PHRASES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
CASES = st.lists(st.tuples(PHRASES, st.lists(PHRASES, min_size=3, max_size=3)), min_size=1, max_size=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=CASES, left=st.booleans(), normalization=st.sampled_from(["sum", "token", "word"]), data=st.data())
def test_packed_scores_equal_the_plain_loop(adapted, cases, left, normalization, data):
    prompts, candidates = arrays(adapted.base, cases, left)
    mask = torch.tensor(data.draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=len(cases),
                                           max_size=len(cases))))  # fmt: skip
    mask[:, 0] = True
    order = torch.tensor(data.draw(st.permutations(range(len(cases)))))
    words = torch.tensor([[len(c.split()) for c in cs] for _, cs in cases])
    settings_ = {"normalization": normalization}
    got = score_candidates(
        adapted, prompts[order], candidates[order], mask[order], candidate_words=words[order], **settings_
    )
    want = plain_scores(adapted, prompts, candidates, mask, candidate_words=words, **settings_)
    torch.testing.assert_close(got, want[order], atol=1e-4, rtol=0)
    assert (got[~mask[order]] == MASKED).all()


def test_each_distinct_row_is_computed_once(adapted):
    prompts, ids = arrays(adapted.base, [("get the kale", ["wait", "chop"])])
    rows, decoder = [], adapted.decoder

    def counted(**inputs):
        rows.append(len(inputs["input_ids"]))
        return decoder(**inputs)

    adapted.decoder = counted
    scores = score_candidates(adapted, prompts.repeat(50, 1), ids.repeat(50, 1, 1), torch.ones(50, 2))
    assert rows == [1]
    assert (scores == scores[0]).all()


def test_unknown_normalization_and_empty_candidate_are_refused(adapted):
    prompts, ids = arrays(adapted.base, [("get", ["wait"])])
    with refused("score_normalization", "choice"):
        score_candidates(adapted, prompts, ids, torch.ones(1, 1), normalization="words")
    with pytest.raises(UserError, match="phrase"):
        encode_candidates(adapted.base, "", [""])


def test_candidates_encoded_by_themselves_are_those_encoded_behind_the_prompt():
    base = load_base_model()
    assert base.encodes_by_word
    text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=12)

    @given(prompt=text, candidates=st.lists(text, min_size=1, max_size=3))
    def check(prompt, candidates):
        if any(not candidate.strip() for candidate in candidates):
            return
        head, tails = encode_candidates(base, prompt, candidates)
        for candidate, tail in zip(candidates, tails, strict=True):
            assert head + tail == base.encode(f"{prompt} {candidate}")

    check()


def assert_same_gradients(own, others):
    """Single numbers of a sum that nearly cancels out differ from processor to processor, whole matrices do not."""
    for one, other in zip(own, others, strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm() > 0


def test_logits_in_parts_give_the_same_scores_and_gradients(adapted, monkeypatch):
    asks = [("get", ["wait", "go there", "go now"]), ("the kale", ["wait", "go"]), ("you see", ["chop it", "wait"])]
    texts = [(prompt, candidates, [1] * len(candidates)) for prompt, candidates in asks]

    def computed():
        weights = [parameter.requires_grad_() for _, parameter in adapted.named_adapter_parameters("action")]
        scores = score_texts(adapted, texts)
        known = scores[scores > -1e8]
        return known.detach(), torch.autograd.grad(known.square().sum(), weights)

    whole, gradients = computed()
    monkeypatch.setattr(scoring, "_LOGIT_BYTES", 4 * 2 * adapted.base.vocab_size)
    parts, in_parts = computed()
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-5)
    assert_same_gradients(in_parts, gradients)
    with torch.no_grad():
        scores = score_texts(adapted, texts)
    torch.testing.assert_close(scores[scores > -1e8], whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row_tokens", [1, 14, 40, 256])
def test_prompts_that_share_a_row_have_the_scores_and_gradients_of_the_plain_loop(adapted, monkeypatch, row_tokens):
    monkeypatch.setattr(scoring, "_ROW_TOKENS", row_tokens)
    begins = ["get the raw kale", "get the raw leek", "get the bowl", "chop", "get the raw kale first"]
    prompts = [f"{begin} {end}".strip() for begin in begins for end in ("", "walk", "walk first", "counter shelf")]
    candidates = [["wait", "get the kale", "get the leek", "put the bowl"], ["wait", "chop", "chop the kale", "walk"]]
    cases = [(prompt, candidates[k % 2]) for k, prompt in enumerate(prompts)]
    ids, tails = arrays(adapted.base, cases)
    mask = torch.ones(len(cases), 4, dtype=torch.bool)
    mask[3, 1:], mask[7, :2] = False, False
    weights = [parameter.requires_grad_() for _, parameter in adapted.named_adapter_parameters("action")]

    def computed(scores):
        found = scores(adapted, ids, tails, mask)
        chances = found.log_softmax(1)[mask]
        return found.detach(), torch.autograd.grad(chances.square().sum(), weights)

    (own, gradients), (plain, in_plain) = computed(score_candidates), computed(plain_scores)
    torch.testing.assert_close(own, plain, atol=1e-4, rtol=1e-5)
    assert_same_gradients(gradients, in_plain)
    with torch.no_grad():
        adapted.forget()
        half = slice(0, len(cases), 2)
        scores = [score_candidates(adapted, ids[half], tails[half], mask[half])]  # nothing is known
        assert adapted.prefixes("action").nbytes > 0
        scores.append(score_candidates(adapted, ids, tails, mask))  # goes on behind what was read
    torch.testing.assert_close(scores[0], plain[half], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(scores[1], plain, atol=1e-4, rtol=1e-5)


def test_gradients_that_are_no_numbers_are_not_taken_for_nothing(adapted):
    prompts, tails = torch.tensor([[20, 21, 22]]), torch.tensor([[[30], [31]]])
    parameters = [p.requires_grad_(True) for _, p in adapted.named_adapter_parameters("action")]
    scores = score_candidates(adapted, prompts, tails, torch.ones(1, 2))
    spoilt = torch.autograd.grad((scores * torch.tensor([float("nan"), 1.0])).sum(), parameters)
    assert any(gradient.isnan().any() for gradient in spoilt)
