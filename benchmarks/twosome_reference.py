"""The yardstick: candidate scoring as TWOSOME does it, written anew and plainly.

Every candidate is written behind its own copy of the prompt, all sequences are padded to one width and go through the
model in one batch; log-softmax runs over the whole vocabulary at every position; the critic reads the bare model in a
pass of its own; messages come from the library's `generate`. Nothing is shared, remembered or packed. It differs from
TWOSOME's own code in two places in which that is wrong: candidate tokens are found by prefix difference, and the critic
reads a row's last real token.

It is also an oracle: `tests/benchmarks` compare our scores with these.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from rllib_llm_comm.language.adapters import ACTION, MESSAGE, AdaptedModel
from rllib_llm_comm.language.generation import as_written
from rllib_llm_comm.language.scoring import encode_candidates


class TwosomeReference:
    """Scores candidates and judges states.

    Args:
        model: The adapted model; its LoRA layers run as PEFT runs them.
        critic: Maps the last token's hidden state and the mean over the prompt, (B, 2 * hidden_size), to (B, 1).
    """

    def __init__(self, model: AdaptedModel, critic: nn.Module) -> None:
        self.model, self.critic = model, critic

    def scores(self, prompts: Sequence[str], candidates: Sequence[Sequence[str]]) -> torch.Tensor:
        """Summed log-probabilities (B, K) of every candidate; all rows have K candidates. Differentiable."""
        base = self.model.base
        rows, heads = [], []
        for prompt, phrases in zip(prompts, candidates, strict=True):
            head, tails = encode_candidates(base, prompt, phrases)
            rows += [head + tail for tail in tails]
            heads += [len(head)] * len(tails)
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.model.device)
        length = torch.tensor([len(row) for row in rows], device=ids.device)
        place = torch.arange(width, device=ids.device)
        with self.model.use(ACTION):
            output = self.model.model(input_ids=ids, attention_mask=(place < length[:, None]).long(), use_cache=False)
        log_probs = output.logits[:, :-1].float().log_softmax(-1)
        token = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
        own = (place[1:] >= torch.tensor(heads, device=ids.device)[:, None]) & (place[1:] < length[:, None])
        return (token * own).sum(-1).reshape(len(prompts), -1)

    def values(self, prompts: Sequence[str]) -> torch.Tensor:
        """Values (B,) of prompts, from the bare model."""
        base = self.model.base
        rows = [base.encode(prompt) for prompt in prompts]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.model.device)
        length = torch.tensor([len(row) for row in rows], device=ids.device)
        mask = (torch.arange(width, device=ids.device) < length[:, None]).long()
        with self.model.use(None), torch.no_grad():
            output = self.model.model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False)
        hidden = output.hidden_states[-1].float()
        last = hidden[torch.arange(len(rows)), length - 1]
        mean = (hidden * mask[..., None]).sum(1) / length[:, None]
        return self.critic(torch.cat([last, mean], dim=-1)).squeeze(-1)

    def messages(self, prompts: Sequence[str], max_words: int = 10) -> list[str]:
        """A greedy message behind every prompt by the model's own `generate`, all rows to the end of the longest."""
        base = self.model.base
        rows = [base.encode(prompt) for prompt in prompts]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows], device=self.model.device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=ids.device)
        with self.model.use(MESSAGE), torch.no_grad():
            written = self.model.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=4 * max_words, do_sample=False,
                eos_token_id=base.eos_id, pad_token_id=base.eos_id,
            )  # fmt: skip
        drawn = [_to_end(row, base.eos_id) for row in written[:, width:].tolist()]
        return [as_written(base, row, max_words).text for row in drawn]


def _to_end(row: list[int], end: int) -> list[int]:
    return row[: row.index(end) + 1] if end in row else row
