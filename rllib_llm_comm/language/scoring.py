"""Log-probabilities of candidate texts behind a prompt (Verco Eq. 2-3)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.language.adapters import ACTION, AdaptedModel
from rllib_llm_comm.language.base_model import BaseModel
from rllib_llm_comm.language.multi_lora import Role, Rows, of_rows
from rllib_llm_comm.language.packing import (
    PAD,
    common_prefix,
    compact,
    distinct_rows,
    pack_candidates,
    rows_of_prompts,
    trimmed,
)
from rllib_llm_comm.language.prefix_cache import PrefixCache, split_by_size, without

# ---- scores -----------------------------------------------------------------------------------------------------


NORMALIZATIONS = ("sum", "token", "word")
_ALIKE = 32  # tokens by which rows of different adapters may differ in length and be sorted by adapter all the same
_ROW_TOKENS = 256  # of prompts that share a row; attention grows with its square
_WORTH_SHARING = 0.8  # of the tokens behind what is known, those of shared rows
_NOTHING = 1e-20  # so small a gradient of a log-probability changes no weight
_LOGIT_BYTES = 2**29  # most bytes of logits at a time
MASKED = -1e9  # not -inf: its gradient would be NaN


def encode_candidates(base: BaseModel, prompt: str, candidates: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    """Token ids of a prompt and of the candidates behind it, by prefix difference.

    A tokenizer may join characters across the border of prompt and candidate; so prompt and candidate are
    encoded together and what all share with the encoded prompt is the prompt. Where the tokenizer cuts at blanks
    first, nothing can be joined, and each candidate is encoded once for all prompts.

    Args:
        base: The model whose tokenizer is used.
        prompt: The text in front; candidates follow after one blank.
        candidates: Non-empty phrases.

    Returns:
        The prompt's ids and one list of ids per candidate; each pair, joined, encodes prompt + " " + candidate.

    Raises:
        UserError: If a phrase has no tokens but blanks, two phrases have the same, or the prompt has none.
    """
    alone = base.encode(prompt)
    if not alone:
        raise UserError(
            f"prompt {str(prompt)!r} has no tokens with the tokenizer of `base_model` {base.name!r}, so nothing stands "
            "in front of candidates; give a prompt of characters that the tokenizer knows."
        )
    if base.encodes_by_word and not prompt[-1:].isspace():
        tails = _after_blank(base, tuple(candidates))
        if tails is not None:
            return alone, list(map(list, tails))
    whole = [base.encode_with(prompt, candidate) for candidate in candidates]
    shared = common_prefix(alone, *whole)
    rest = [ids[shared:] for ids in whole]
    _require_tokens(base, tuple(candidates), tuple(map(tuple, rest)))
    return alone[:shared], rest


@functools.lru_cache(maxsize=8192)
def _after_blank(base: BaseModel, candidates: tuple[str, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Ids of candidates that have the same ones behind every prompt; `None` if one begins with a blank."""
    if any(text[:1].isspace() for text in candidates):
        return None
    tails = tuple(tuple(base.encode_after_blank(candidate)) for candidate in candidates)
    _require_tokens(base, candidates, tails)
    return tails


@functools.lru_cache(maxsize=8192)
def _require_tokens(base: BaseModel, candidates: tuple[str, ...], tails: tuple[tuple[int, ...], ...]) -> None:
    """Refuses phrases that a tokenizer without their characters leaves empty or cannot tell apart."""
    known: dict[tuple[int, ...], str] = {}
    for candidate, tail in zip(candidates, tails, strict=True):
        if not candidate.strip() or not _is_visible(base, tail):
            raise UserError(
                f"candidate {candidate!r} has no tokens but blanks with the tokenizer of `base_model` {base.name!r}; "
                "give every action a non-empty phrase of characters that the tokenizer knows."
            )
        other = known.setdefault(tail, candidate)
        if other != candidate:
            raise UserError(
                f"candidates {other!r} and {candidate!r} have the same tokens with the tokenizer of `base_model` "
                f"{base.name!r}; tell them apart in characters that the tokenizer knows, or take another model."
            )


@functools.lru_cache(maxsize=65536)
def _is_visible(base: BaseModel, tail: tuple[int, ...]) -> bool:
    return bool(base.tokenizer.decode(list(tail), skip_special_tokens=False).strip())


def score_candidates(
    model: AdaptedModel,
    prompt_ids: torch.Tensor,
    candidate_ids: torch.Tensor,
    candidate_mask: torch.Tensor,
    *,
    normalization: str = "sum",
    candidate_words: torch.Tensor | None = None,
    role: Role = ACTION,
) -> torch.Tensor:
    """Scores every allowed candidate behind its prompt.

    The prompt is computed once with the trie of all candidates behind it in one packed row (a mask lets a token see its
    prompt and its ancestors only), and each distinct row only once. Prompts that begin alike share a row where that
    reads fewer tokens than the prefix cache leaves to read; with gradients always. Differentiable with respect to the
    adapter.

    Args:
        prompt_ids: (B, P) token ids, padded on either side.
        candidate_ids: (B, K, C) token ids, padded on either side.
        candidate_mask: (B, K) bool or 0/1; masked candidates are not computed.
        normalization: `"sum"` (Verco Eq. 3), `"token"` or `"word"` (TWOSOME): the sum of token log-probabilities
            as it is, per token, or per word.
        candidate_words: (B, K) words per candidate; needed for `"word"` only.
        role: The adapter in use, or that of each row.

    Returns:
        (B, K) float32 log-scores; -1e9 where masked.
    """
    require_choice("score_normalization", normalization, NORMALIZATIONS)
    prompt_ids, candidate_ids = trimmed(prompt_ids.cpu()), trimmed(candidate_ids.cpu())
    batch, width, length = candidate_ids.shape
    model.base.require_positions(prompt_ids.shape[1] + length)
    mask = candidate_mask.to(torch.bool)
    flat = torch.cat([prompt_ids.long(), candidate_ids.reshape(batch, -1).long(), mask.long().cpu()], dim=1)
    if isinstance(role, Rows):  # equal rows of one adapter are computed once; rows are sorted by adapter then
        flat = torch.cat([torch.from_numpy(role.owners)[:, None], flat], dim=1)
    rows, inverse = distinct_rows(flat)
    if isinstance(role, Rows):
        role, rows = role.pool.rows(rows[:, 0]), rows[:, 1:]
    prompt_width = prompt_ids.shape[1]
    prompts = rows[:, :prompt_width]
    candidates = rows[:, prompt_width:-width].reshape(-1, width, length)
    sums, lengths = _score_in_chunks(model, prompts, candidates, rows[:, -width:].bool(), role)
    inverse = inverse.to(model.device)
    scores, lengths = sums[inverse], lengths[inverse]
    if normalization == "token":
        scores = scores / lengths.clamp(min=1)
    elif normalization == "word":
        if candidate_words is None:
            raise ValueError("`candidate_words` is needed for score_normalization='word'")
        scores = scores / candidate_words.to(scores.device).clamp(min=1)
    return scores.masked_fill(~mask.to(scores.device), MASKED)


def score_texts(
    model: AdaptedModel,
    asks: Sequence[tuple[str, Sequence[str], Sequence[int | bool]]],
    *,
    normalization: str = "sum",
    role: Role = ACTION,
) -> torch.Tensor:
    """Scores of candidates behind prompts, both in words.

    Args:
        asks: Per row its prompt, its K candidates and their mask; rows may differ in K.
        normalization: As of `score_candidates`.
        role: As of `score_candidates`.

    Returns:
        (B, largest K) float32 log-scores; -1e9 where masked or missing.
    """
    encoded = [encode_candidates(model.base, prompt, candidates) for prompt, candidates, _ in asks]
    width = max(len(prompt) for prompt, _ in encoded)
    length = max(len(tail) for _, tails in encoded for tail in tails)
    count = max(len(candidates) for _, candidates, _ in asks)
    nothing = [PAD] * length
    prompts = torch.tensor([prompt + [PAD] * (width - len(prompt)) for prompt, _ in encoded])
    tails = torch.tensor(
        [[c + [PAD] * (length - len(c)) for c in cs] + [nothing] * (count - len(cs)) for _, cs in encoded]
    )
    mask = torch.tensor([[int(m) for m in flags] + [0] * (count - len(flags)) for *_, flags in asks])
    words = torch.tensor([[len(c.split()) for c in cs] + [0] * (count - len(cs)) for _, cs, _ in asks])
    return score_candidates(model, prompts, tails, mask, normalization=normalization, candidate_words=words, role=role)


def _score_in_chunks(
    model: AdaptedModel,
    prompts: torch.Tensor,
    candidates: torch.Tensor,
    allowed: torch.Tensor,
    role: Role,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log-probabilities and lengths (B, K) of distinct rows, in passes of at most `tokens_per_pass` tokens.

    A prompt is read either behind its longest prefix in the cache, or in one row with other prompts that begin alike:
    whichever reads fewer tokens. With gradients there is no cache, so that rows are always shared.
    """
    ids, count = compact(prompts)
    behind = ((candidates != PAD).sum(2) * allowed).sum(1)
    cache = model.prefixes(role)
    owners = role.owners if isinstance(role, Rows) else None
    row_of, sizes = rows_of_prompts(ids, count, behind, _ROW_TOKENS, owners)
    rests = None if cache is None else cache.rests(ids, count, role) + behind
    if rests is None or (model.trunk is None and sizes.sum() < _WORTH_SHARING * int(rests.sum())):
        if owners is not None:  # rows of about one length stay sorted by adapter, so that a pass has few of them
            sizes = -(-sizes // _ALIKE) * _ALIKE
        rows = split_by_size(torch.from_numpy(sizes), model.tokens_per_pass)
        parts = [torch.from_numpy(np.isin(row_of, part.numpy()).nonzero()[0]) for part in rows]
        of_parts: list[np.ndarray | None] = [row_of[part.numpy()] for part in parts]
    else:
        parts = [part.sort().values for part in split_by_size(rests, model.tokens_per_pass)]
        of_parts = [None] * len(parts)
    scored = [
        _score_packed(model, cache, ids[p], count[p], candidates[p], allowed[p], of_rows(role, p), rows_of_part)
        for p, rows_of_part in zip(parts, of_parts, strict=True)
    ]
    back = torch.argsort(torch.cat(parts)).to(model.device)
    sums, lengths = (torch.cat(both) for both in zip(*scored, strict=True))
    return sums[back], lengths[back]


def _score_packed(
    model: AdaptedModel,
    cache: PrefixCache | None,
    prompts: torch.Tensor,
    count: torch.Tensor,
    candidates: torch.Tensor,
    allowed: torch.Tensor,
    role: Role,
    row_of: np.ndarray | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums and lengths of one pass; `row_of` (B,) is the row of each prompt, `None` if they go on from the cache."""
    if row_of is None:
        assert cache is not None
        known = cache.find(prompts, count, role)
        packed = pack_candidates(without(prompts, known.lengths), candidates, allowed)
        places, packed = packed.places if role is not None else None, packed.to(model.device)
        with model.use(role):
            hidden, after = model.read(*packed.inputs, known, places)
        cache.put(prompts, count, role, known, after, hidden)
    else:
        _, first, row_of = np.unique(row_of, return_index=True, return_inverse=True)
        packed = pack_candidates(prompts, candidates, allowed, row_of)
        # On the CPU, where nobody waits for them. Hidden states of the bare base are kept, so all of them are wanted.
        places, packed = packed.places if role is not None else None, packed.to(model.device)
        kept = cache if cache is not None and cache.has_room(prompts.numel()) else None
        with model.use(of_rows(role, first)):
            if kept is None:
                hidden = model.hidden_states(*packed.inputs, places)
            else:
                hidden, after = model.read(*packed.inputs, kept.nothing(len(packed.input_ids)), places)
        if kept is not None:
            kept.put_packed(prompts, count, role, torch.from_numpy(row_of), packed.columns, after, hidden)
    # At each node, every candidate has at most one next token.
    which = packed.owner % allowed.shape[1]
    following = torch.zeros(len(packed.source), allowed.shape[1], dtype=torch.long, device=hidden.device)
    following[packed.predicted_from, which] = packed.target.long()
    hidden = hidden if role is not None else hidden[packed.places]
    found = log_probs_of(model, hidden, following)
    log_probs = found[packed.predicted_from, which]
    if log_probs.requires_grad:
        # Gradients of very unlikely candidates become denormal numbers, with which a CPU is many times slower.
        log_probs.register_hook(lambda gradient: gradient.masked_fill(gradient.abs() <= _NOTHING, 0.0))  # NaN stays
    sums = torch.zeros(allowed.numel(), dtype=torch.float32, device=log_probs.device)
    sums = sums.index_add(0, packed.owner, log_probs)
    return sums.reshape(allowed.shape), packed.lengths


def log_probs_of(model: AdaptedModel, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (N, M) of tokens (N, M) behind hidden states (N, hidden_size); differentiable.

    Where the vocabulary's logits of all states are large, those of a part are held at a time.
    """

    def part(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        logits = model.token_logits(hidden)
        return logits.gather(1, tokens) - logits.logsumexp(-1, keepdim=True)

    size = max(1, _LOGIT_BYTES // (4 * model.base.vocab_size))
    if len(hidden) <= size:
        return part(hidden, tokens)
    both = zip(hidden.split(size), tokens.split(size), strict=True)
    if torch.is_grad_enabled() and hidden.requires_grad:
        return torch.cat([checkpoint(part, *one, use_reentrant=False) for one in both])
    return torch.cat([part(*one) for one in both])


# ---- features of the critic -------------------------------------------------------------------------------------


_ROWS_AT_A_TIME = 96


def feature_size(base: BaseModel) -> int:
    """Length of the feature vector: the last token's hidden state and the mean over the prompt."""
    return 2 * base.hidden_size


@torch.no_grad()
def prompt_features(model: AdaptedModel, prompt_ids: torch.Tensor) -> torch.Tensor:
    """Hidden states of the bare base at the end of each prompt, beside their mean over the prompt.

    The paper puts its critic on the last block's output; the last position alone says little in a small model,
    so the mean over all positions is added (ours). No adapter is active and no gradient flows.

    Args:
        prompt_ids: (B, P) token ids, padded on either side.

    Returns:
        (B, `feature_size`) float32.
    """
    rows, inverse = distinct_rows(prompt_ids)
    ids, lengths = compact(rows.cpu())
    cache = model.prefixes(None)
    assert cache is not None
    features = torch.empty((len(ids), feature_size(model.base)), device=model.device)
    # A few at a time, so that later prompts can go on from earlier ones.
    for some in torch.arange(len(ids)).split(_ROWS_AT_A_TIME):
        for part in split_by_size(cache.rests(ids[some], lengths[some], None), model.tokens_per_pass):
            rows = some[part]
            features[rows.to(model.device)] = _features(model, cache, ids[rows], lengths[rows])
    return features[inverse.to(model.device)]


def _features(model: AdaptedModel, cache: PrefixCache, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    known = cache.find(ids, lengths, None)
    left = lengths - known.lengths
    rests = without(ids, known.lengths)[:, : int(left.max())].clamp(min=0).to(model.device)
    mask = torch.arange(rests.shape[1], device=model.device) < left[:, None].to(model.device)
    with model.use(None):
        hidden, after = model.read(rests, mask.long(), None, known)
    cache.put(ids, lengths, None, known, after, hidden)
    hidden = hidden.float()
    last = hidden[torch.arange(len(ids), device=hidden.device), left.to(hidden.device) - 1]
    total = (hidden * mask[..., None]).sum(1) + known.totals
    return torch.cat([last, total / lengths[:, None].to(hidden.device)], dim=-1)
