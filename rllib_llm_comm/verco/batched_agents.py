"""Networks on one base that speak and choose in one batch: agents with a policy each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import MESSAGES, SCORING, phase
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.language.packing import PAD
from rllib_llm_comm.rl.columns import CANDIDATE_IDS, PROMPT_IDS
from rllib_llm_comm.verco.encoding import CANDIDATE_WORDS
from rllib_llm_comm.verco.language_agent import LanguageAgent
from rllib_llm_comm.verco.message_protocol import write_apart

_FILLED = {PROMPT_IDS: PAD, CANDIDATE_IDS: PAD, CANDIDATE_WORDS: 0, ACTION_MASK: 0}


_SMALL = 512
_FEW = 2
"""On a CPU a model whose hidden states have at most `_SMALL` numbers shares one batch up to `_FEW` rows per
network only: a batch of several adapters saves passes, but computes each adapter's products beside the weights, into
which a single adapter is merged. Larger models, and models on a GPU, always share one."""


class BatchedAgents:
    """Asks several networks in one batch where they can share one and that pays, and else one by one.

    The answers are the same.

    Attributes:
        cores: The networks.

    Args:
        cores: Networks; which of them have a row is seen in every batch.
    """

    def __init__(self, cores: Iterable[LanguageAgent]) -> None:
        self.cores = tuple(dict.fromkeys(cores))
        self._numbers = {core: number for number, core in enumerate(self.cores)}
        self._mixed = _mixed(self.cores)

    def writer(self, cores: Sequence[LanguageAgent], draws: bool = False) -> Callable[..., list[Any]]:
        """A writer as of `write_apart`, which draws the same messages.

        Args:
            cores: The network of each prompt.
            draws: True if it gives messages with their tokens (`LanguageAgent.draw_messages`).
        """
        apart = write_apart([core.draw_messages if draws else core.write_messages for core in cores])
        mixed = self._mixed
        if mixed is None or len(set(cores)) <= 1:
            return apart
        samples_together = self.pays(cores)
        owners = [self._numbers[core] for core in cores]
        first = {core: number for number, core in enumerate(dict.fromkeys(cores))}

        def write(
            prompts: Sequence[str],
            *,
            max_words: int = 10,
            temperature: float = 0.0,
            seed: int | Sequence[int] | None = None,
            menu: Sequence[str] = (),
        ) -> list[Any]:
            if menu or (not samples_together and (temperature > 0 or draws)):
                return apart(prompts, max_words=max_words, temperature=temperature, seed=seed, menu=menu)
            with phase(MESSAGES):
                if temperature == 0 and not draws:
                    self.write_ahead(cores, prompts, max_words)
                    return apart(prompts, max_words=max_words)
                # Agents that read the same prompt must not draw the same numbers: those of `write_apart`.
                seeds = [seed + first[core] for core in cores] if isinstance(seed, int) else seed
                said = mixed.messages(owners, prompts, max_words=max_words, temperature=temperature, seed=seeds)
            return said if draws else [message.text for message in said]

        return write

    def write_ahead(self, cores: Sequence[LanguageAgent], prompts: Sequence[str], max_words: int) -> None:
        """Lets networks write greedily what they do not remember, which they remember then."""
        asked = dict.fromkeys(zip(cores, prompts, strict=True))
        missing = [(core, prompt) for core, prompt in asked if core.unwritten([prompt], max_words)]
        if self._mixed is not None and self.pays([core for core, _ in missing]):
            owners = [self._numbers[core] for core, _ in missing]
            said = self._mixed.messages(owners, [prompt for _, prompt in missing], max_words=max_words)
            for (core, prompt), message in zip(missing, said, strict=True):
                core.remember_message(prompt, message.text)

    @torch.no_grad()
    def score_ahead(self, asked: Sequence[tuple[LanguageAgent, Mapping[str, torch.Tensor]]]) -> None:
        """Lets networks score what they do not remember, so that their `remembered_logits` finds it."""
        missing = [(core, rows, core.unscored(rows)) for core, rows in asked] if self._mixed is not None else []
        missing = [one for one in missing if one[2]]
        if self._mixed is None or not self.pays([core for core, _, own in missing for _ in own]):
            return
        with phase(SCORING):
            columns = {
                name: _joined([rows[name][list(own.values())].cpu() for _, rows, own in missing], fill)
                for name, fill in _FILLED.items()
            }
            scores = self._mixed.scores(
                [self._numbers[core] for core, _, own in missing for _ in own],
                columns[PROMPT_IDS],
                columns[CANDIDATE_IDS],
                columns[ACTION_MASK],
                normalization=self.cores[0].settings.score_normalization,
                candidate_words=columns[CANDIDATE_WORDS],
            ).cpu()
            for (core, rows, own), part in zip(missing, scores.split([len(own) for *_, own in missing]), strict=True):
                logits = part[:, : rows[ACTION_MASK].shape[1]] / core.settings.temperature
                core.remember_scores(dict(zip(own, logits, strict=True)))

    def pays(self, cores: Sequence[LanguageAgent]) -> bool:
        """True if rows of these networks are quicker in one batch."""
        different = len(set(cores))
        if self._mixed is None or different <= 1:
            return False
        base = self.cores[0].lm.base
        return len(cores) <= _FEW * different or base.hidden_size > _SMALL or base.device.type != "cpu"


def _mixed(cores: Sequence[LanguageAgent]) -> MixedBatch | None:
    """The networks' models, if their rows can share a batch."""
    normalizations = {core.settings.score_normalization for core in cores}
    if len(cores) < 2 or len(normalizations) > 1 or not all(core.remembers for core in cores):
        return None
    try:
        return MixedBatch([core.lm for core in cores])
    except UserError:
        return None


def _joined(arrays: Sequence[torch.Tensor], fill: int) -> torch.Tensor:
    """Batches of one kind behind each other; narrower ones are filled up on the right."""
    shape = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]

    def filled(array: torch.Tensor) -> torch.Tensor:
        missing = [wide - own for wide, own in zip(shape, array.shape[1:], strict=True)]
        return F.pad(array, [edge for size in reversed(missing) for edge in (0, size)], value=fill)

    return torch.cat([filled(array) for array in arrays])
