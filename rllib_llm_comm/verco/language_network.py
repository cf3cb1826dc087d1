"""The agents' network without RLlib: one frozen language model, two adapters and a critic; several in one batch.

With it the log-probabilities of a teacher's labels (Verco Eq. 1), and of messages of a roll-out, which PPO may train.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import FEATURES, MESSAGES, SCORING, phase
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.adapters import (
    ACTION,
    MESSAGE,
    REFERENCE,
    AdaptedModel,
    AdapterConfig,
)
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, resolve_device
from rllib_llm_comm.language.engines import ENGINES, require_fast
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.language.packing import PAD, distinct_rows, micro_batches
from rllib_llm_comm.language.scoring import feature_size
from rllib_llm_comm.language.static_decoding import free_bytes
from rllib_llm_comm.policies.decision import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.verco.encoding import (
    CANDIDATE_WORDS,
    IGNORED,
    MENU_IDS,
    MESSAGE_CHOICE,
    MESSAGE_IDS,
    MESSAGE_TARGETS,
    SILENT,
    encode_menu,
)
from rllib_llm_comm.verco.settings import LanguageModelSettings, ModuleSettings

_SCORED = (PROMPT_IDS, CANDIDATE_IDS, CANDIDATE_WORDS, ACTION_MASK)
# Results that are kept: rows of logits, greedy messages, and bytes of features.
_SCORES, _TEXTS, _FEATURE_BYTES = 32768, 32768, 2**28


class LanguageNetwork:
    """A network that writes messages, scores candidate actions and estimates values; of one agent, or of all.

    Results without gradient are remembered while the weights that they depend on stand still: most texts of a
    game come back many times.

    Attributes:
        micro_batch_tokens: Most tokens whose activations are held at once in training; that of the settings, until a
            GPU's memory turns out to be too small for it.

    Args:
        settings: Settings of model, adapters and critic.
        base: A base model that is in memory already, instead of the one that the settings name.
        reference: True if a third adapter is held: the message adapter as it was before PPO trained it, frozen.
    """

    def __init__(self, settings: ModuleSettings, base: BaseModel | None = None, *, reference: bool = False) -> None:
        self.settings = settings
        self._engine = ENGINES[settings.engine]
        self.micro_batch_tokens = settings.micro_batch_tokens
        base = base or base_of(settings)
        base.require_positions(settings.max_prompt_tokens + settings.max_candidate_tokens)
        if (free := free_bytes(base.device)) is not None:
            base.require_room(settings.max_prompt_tokens + settings.max_candidate_tokens, free)
        targets = settings.lora_target_modules
        with torch.random.fork_rng(devices=[], enabled=settings.init_seed is not None):
            if settings.init_seed is not None:
                torch.manual_seed(settings.init_seed)
            self.lm = AdaptedModel(
                base,
                AdapterConfig(
                    r=settings.lora_r,
                    alpha=settings.lora_alpha,
                    dropout=settings.lora_dropout,
                    target_modules=targets if isinstance(targets, str) else tuple(targets),
                    layers=settings.lora_layers,
                ),
                roles=(MESSAGE, ACTION, REFERENCE) if reference else (MESSAGE, ACTION),
                gradient_checkpointing=settings.gradient_checkpointing,
                autocast=settings.autocast,
                prefix_cache_bytes=settings.prefix_cache_mb * 2**20,
                trunk_cache_bytes=settings.trunk_cache_mb * 2**20,
                trunk_cache_dtype=settings.trunk_cache_dtype,
                compile_layers=settings.compile_layers,
            )
            self.critic = build_critic(feature_size(base), settings.critic_hiddens).to(self.lm.device)
        if self._engine.remembers:  # the plain one has nothing to be compared with
            require_fast(self.lm, settings.max_prompt_tokens + settings.max_candidate_tokens)
        self.keep_reference()
        self._scores: Memo[torch.Tensor] = Memo(_SCORES)
        self._messages: Memo[str] = Memo(_TEXTS)
        self._menus: dict[str, Memo[torch.Tensor]] = {role: Memo(_SCORES) for role in self.lm.roles}
        bytes_per_row = 4 * feature_size(base)
        self._features: Memo[torch.Tensor] = Memo(max(1024, _FEATURE_BYTES // bytes_per_row))

    def keep_reference(self) -> None:
        """Makes the reference, where there is one, a copy of the message adapter as it is now."""
        if REFERENCE in self.lm.roles:
            self.lm.copy_adapter(MESSAGE, REFERENCE)

    def forget(self) -> None:
        """Drops all remembered results."""
        for memo in (self._scores, self._messages, self._features, *self._menus.values()):
            memo.clear()
        self.lm.forget()

    def write_messages(
        self,
        prompts: Sequence[str],
        *,
        max_words: int = 10,
        temperature: float = 0.0,
        seed: int | Sequence[int] | None = None,
        menu: Sequence[str] = (),
    ) -> list[str]:
        """Messages behind the given message prompts, by the message adapter.

        Args:
            prompts: Filled message prompts.
            max_words: Upper bound on a message's words.
            temperature: 0 for greedy decoding.
            seed: Fixes sampled words; of all rows, or of each.
            menu: If given, each message is one of these phrases.
        """
        with phase(MESSAGES):
            if menu:
                return self._choose_messages(prompts, menu, temperature, seed)
            if temperature > 0 or not self._engine.remembers:
                drawn = self.draw_messages(prompts, max_words=max_words, temperature=temperature, seed=seed)
                return [message.text for message in drawn]
            missing = self.unwritten(list(dict.fromkeys(prompts)), max_words)
            known = {prompt: self._messages.get(prompt) for prompt in prompts}
            if missing:
                for prompt, message in zip(missing, self.draw_messages(missing, max_words=max_words), strict=True):
                    known[prompt] = message.text
                    self.remember_message(prompt, message.text)
            return [known[prompt] or "" for prompt in prompts]

    def draw_messages(
        self,
        prompts: Sequence[str],
        *,
        max_words: int = 10,
        temperature: float = 0.0,
        seed: int | Sequence[int] | None = None,
        role: str = MESSAGE,
    ) -> list[Written]:
        """As `write_messages`, with the token ids that were drawn, by any adapter; nothing is remembered."""
        with phase(MESSAGES):
            return self._engine.messages(
                self.lm, prompts, max_words=max_words, temperature=temperature, seed=seed, role=role
            )

    @torch.no_grad()
    def _choose_messages(
        self, prompts: Sequence[str], menu: Sequence[str], temperature: float, seed: int | Sequence[int] | None
    ) -> list[str]:
        rows = [self.lm.base.encode(prompt) for prompt in prompts]
        # As wide as in observations, so that what is remembered of one is found for the other.
        width = max(self.settings.max_prompt_tokens, *map(len, rows))
        ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        phrases = torch.from_numpy(encode_menu(self.lm.base, menu, self.settings.templates))
        logits = self._menu_logits(ids, phrases).double().cpu()
        if temperature == 0:
            return [menu[int(index)] for index in logits.argmax(-1)]
        probabilities = (logits / temperature).softmax(-1).numpy()
        if seed is None or isinstance(seed, int):
            draws = [np.random.default_rng(seed)] * len(rows)
        else:
            draws = list(map(np.random.default_rng, seed))
        drawn = [rng.choice(len(menu), p=row / row.sum()) for rng, row in zip(draws, probabilities, strict=True)]
        return [menu[int(index)] for index in drawn]

    def _menu_logits(self, prompts: torch.Tensor, menu: torch.Tensor, role: str = MESSAGE) -> torch.Tensor:
        """Scores (B, K) of the phrases of a menu (K, C) behind message prompts (B, P); without gradient remembered.

        They are asked for to draw a message, for its probability, and of the reference in every epoch.
        """

        def compute(rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
            own = rows[MESSAGE_IDS]
            everything = torch.ones(len(own), len(menu), dtype=torch.bool)
            return self._engine.scores(self.lm, own, menu.expand(len(own), -1, -1), everything, role=role)

        if torch.is_grad_enabled() or not self._engine.remembers:
            return compute({MESSAGE_IDS: prompts})
        self._menus[role].require((self.lm.stamp(role), menu.cpu().numpy().tobytes()))
        return _remembered(self._menus[role], {MESSAGE_IDS: prompts.int()}, compute).to(self.lm.device)

    def message_terms(self, observations: Mapping[str, torch.Tensor], *, kl: bool | None = None) -> MessageTerms:
        """Log-probability, entropy and KL divergence of messages; differentiable in the message adapter's weights.

        Equal rows are computed once.

        Args:
            observations: Batched arrays of an `MessageEncoder`.
            kl: True if the KL divergence from the role `REFERENCE`, where there is one, is computed; `None`: where
                gradients are recorded.

        Returns:
            The terms, on the inputs' device.
        """
        device = observations[MESSAGE_IDS].device
        spoke = spoken(observations)
        if not spoke.any():
            nothing = torch.zeros(len(spoke), device=device)
            return MessageTerms(nothing, nothing, nothing, spoke)
        menu = observations[MENU_IDS][0] if MENU_IDS in observations else None
        names = (MESSAGE_IDS, MESSAGE_TARGETS if menu is None else MESSAGE_CHOICE)
        rows, inverse = distinct_rows(torch.cat([observations[name][spoke].long().cpu() for name in names], dim=1))
        width = observations[MESSAGE_IDS].shape[1]
        ids, said = rows[:, :width].to(device), rows[:, width:].to(device)
        wanted = torch.is_grad_enabled() if kl is None else kl
        reference = REFERENCE in self.lm.roles and wanted

        def part(ids: torch.Tensor, said: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if menu is None:
                return self._free_terms(ids, said, reference)
            return self._menu_terms(ids, said[:, 0], menu, reference)

        bound = self.micro_batch_tokens if torch.is_grad_enabled() else None
        parts = [] if bound is None else micro_batches(rows, (ids != PAD).sum(1).cpu(), bound)
        place = torch.nonzero(spoke)[:, 0]
        log_probs, entropy, divergence = (
            torch.zeros(len(spoke), device=device).index_put((place,), term.to(device)[inverse.to(device)])
            for term in by_parts(part, (ids, said), parts)
        )
        return MessageTerms(log_probs, entropy, divergence, spoke)

    def _free_terms(self, ids: torch.Tensor, labels: torch.Tensor, with_reference: bool) -> tuple[torch.Tensor, ...]:
        row, column, logits = label_logits(self.lm, ids, labels)
        log_probs = logits.log_softmax(-1)
        reference = None
        if with_reference:
            with torch.no_grad():
                reference = label_logits(self.lm, ids, labels, REFERENCE)[2].log_softmax(-1)
        tokens = labels.to(self.lm.device)[row, column].long()
        chosen = log_probs.gather(1, tokens[:, None])[:, 0]
        nothing = torch.zeros(len(ids), device=self.lm.device)
        return tuple(nothing.index_add(0, row, term) for term in (chosen, *_entropy_and_kl(log_probs, reference)))

    def _menu_terms(
        self, prompts: torch.Tensor, choice: torch.Tensor, menu: torch.Tensor, with_reference: bool
    ) -> tuple[torch.Tensor, ...]:
        log_probs = self._menu_logits(prompts, menu).log_softmax(-1)
        reference = None
        if with_reference:
            with torch.no_grad():
                reference = self._menu_logits(prompts, menu, REFERENCE).log_softmax(-1)
        chosen = log_probs.gather(1, choice.long().to(log_probs.device)[:, None])[:, 0]
        return (chosen, *_entropy_and_kl(log_probs, reference))

    @property
    def remembers(self) -> bool:
        """True if results are kept while the weights stand still (`engine` "fast")."""
        return self._engine.remembers

    def unwritten(self, prompts: Sequence[str], max_words: int) -> list[str]:
        """Those of some prompts whose greedy messages are not remembered."""
        self._messages.require((self.lm.stamp(MESSAGE), max_words))
        return [prompt for prompt in prompts if self._messages.get(prompt) is None]

    def remember_message(self, prompt: str, message: str) -> None:
        """Keeps a greedy message of this network; call it after `unwritten`."""
        self._messages.put(prompt, message)

    def unscored(self, observations: Mapping[str, torch.Tensor]) -> dict[bytes, int]:
        """Keys of observations whose logits are not remembered, with a row of each; as of `remembered_logits`."""
        self._scores.require(self.lm.stamp(ACTION))
        return _missing(self._scores, _row_keys(observations[name] for name in _SCORED))

    def remember_scores(self, logits: Mapping[bytes, torch.Tensor]) -> None:
        """Keeps logits of this network, by the keys of `unscored`."""
        for key, row in logits.items():
            self._scores.put(key, row)

    def logits(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of all candidates divided by the temperature (Verco Eq. 2-3); differentiable.

        Args:
            observations: Batched arrays of `encoded_space`, on any device.

        Returns:
            (B, K) float32 on the observations' device: the logits of the action distribution.
        """
        columns = {name: observations[name] for name in _SCORED}
        # For callers that need all logits before the backward pass: the learner itself adds up gradients by parts.
        parts = self.micro_batches(columns) if torch.is_grad_enabled() else []
        return by_parts(self._scored, tuple(columns.values()), parts)[0]

    def _scored(
        self, prompts: torch.Tensor, candidates: torch.Tensor, words: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor]:
        scores = self._engine.scores(
            self.lm,
            prompts,
            candidates,
            mask,
            normalization=self.settings.score_normalization,
            candidate_words=words,
            role=ACTION,
        )
        return ((scores / self.settings.temperature).to(prompts.device),)

    def micro_batches(self, observations: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Splits a minibatch so that no part's distinct texts have more than `micro_batch_tokens`.

        Args:
            observations: Batched arrays of `encoded_space`, with those of an `MessageEncoder` if messages are
                trained.

        Returns:
            Row numbers of each part; every row is in exactly one.
        """
        said = [name for name in (MESSAGE_IDS, MESSAGE_TARGETS, MESSAGE_CHOICE) if name in observations]
        names = [PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK, *said]
        if self.micro_batch_tokens is None:
            return [torch.arange(len(observations[PROMPT_IDS]))]
        columns = {name: observations[name].flatten(1).long().cpu() for name in names}
        read = [(columns[name] != PAD).sum(1) for name in (PROMPT_IDS, CANDIDATE_IDS, MESSAGE_IDS) if name in columns]
        rows = torch.cat(list(columns.values()), dim=1)
        return micro_batches(rows, torch.stack(read).sum(0), self.micro_batch_tokens)

    @torch.no_grad()
    def remembered_logits(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """As `logits`, without gradient; remembered as long as the action adapter stands still."""
        with phase(SCORING):
            if not self._engine.remembers:
                return self.logits(observations)
            self._scores.require(self.lm.stamp(ACTION))
            return _remembered(self._scores, {name: observations[name] for name in _SCORED}, self.logits)

    @torch.no_grad()
    def features(self, critic_ids: torch.Tensor) -> torch.Tensor:
        """Frozen features of critic prompts; a text that is still remembered is not computed again.

        Args:
            critic_ids: (B, P) token ids.

        Returns:
            (B, feature_size) float32 on the same device.
        """

        def compute(rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
            return self._engine.features(self.lm, rows[CRITIC_IDS])

        with phase(FEATURES):
            prompts = {CRITIC_IDS: critic_ids}
            if not self._engine.remembers:
                return compute(prompts).to(critic_ids.device)
            return _remembered(self._features, prompts, compute)

    def values(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """State values (B,) from the critic prompt, which carries no messages (Verco Eq. 5); NaN without a critic."""
        if self.settings.critic_hiddens is None:
            return torch.full((len(observations[CRITIC_IDS]),), torch.nan)
        return self.values_of(self.features(observations[CRITIC_IDS]))

    def values_of(self, features: torch.Tensor) -> torch.Tensor:
        """State values (B,) of features (B, feature_size); differentiable with respect to the critic."""
        values: torch.Tensor = self.critic(features.to(self.lm.device))
        return values.squeeze(-1).to(features.device)


class NoCritic(nn.Module):
    """Stands in the critic's place where there is none: no weights, and values that are not a number."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """NaN (B, 1)."""
        return features.new_full((len(features), 1), torch.nan)


def build_critic(inputs: int, hiddens: Sequence[int] | None) -> nn.Module:
    """The critic: tanh layers on normalised features, and one value.

    Args:
        inputs: Length of the feature vector.
        hiddens: Widths of the hidden layers; `None` for no critic.
    """
    if hiddens is None:
        return NoCritic()
    # Hidden states of different models differ in scale by orders of magnitude; the normalisation has no
    # weights.
    layers: list[nn.Module] = [nn.LayerNorm(inputs, elementwise_affine=False)]
    for width in hiddens:
        linear = nn.Linear(inputs, width)
        nn.init.orthogonal_(linear.weight, 2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
        inputs = width
    head = nn.Linear(inputs, 1)
    nn.init.orthogonal_(head.weight, 0.1)
    nn.init.zeros_(head.bias)
    return nn.Sequential(*layers, head)


def base_of(settings: LanguageModelSettings) -> BaseModel:
    """The base model that settings name, loaded once per process.

    Raises:
        UserError: If it is not there, or cannot be used as they say.
    """
    base = load_base_model(settings.base_model, settings.dtype, resolve_device(settings.device), settings.quantization)
    return base.in_format(settings.prompt_format, settings.prompt_date)


def _missing(memo: Memo[torch.Tensor], keys: Sequence[bytes]) -> dict[bytes, int]:
    return {key: row for row, key in enumerate(keys) if memo.get(key) is None}


def _remembered(
    memo: Memo[torch.Tensor],
    columns: Mapping[str, torch.Tensor],
    compute: Callable[[Mapping[str, torch.Tensor]], torch.Tensor],
) -> torch.Tensor:
    """Results of rows, from memory or else computed and kept; equal rows are computed once."""
    keys, device = _row_keys(columns.values()), next(iter(columns.values())).device
    fresh: dict[bytes, torch.Tensor] = {}
    if missing := _missing(memo, keys):
        rows = torch.tensor(list(missing.values()), device=device)
        computed = compute({name: column[rows] for name, column in columns.items()}).cpu()
        fresh = dict(zip(missing, computed, strict=True))
    found = [fresh[key] if key in fresh else memo.get(key) for key in keys]
    for key, row in fresh.items():
        memo.put(key, row)
    return torch.stack([row for row in found if row is not None]).to(device)


def _row_keys(arrays: Iterable[torch.Tensor]) -> list[bytes]:
    flat = [array.detach().cpu().numpy().reshape(len(array), -1) for array in arrays]
    rows = np.ascontiguousarray(np.concatenate(flat, axis=1)) if len(flat) > 1 else np.ascontiguousarray(flat[0])
    return [row.tobytes() for row in rows]


# ---- messages ---------------------------------------------------------------------------------------------------


def label_log_probs(model: AdaptedModel, ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of every label token under the message adapter; differentiable.

    Args:
        model: The adapted model; its dropout is active while gradients are recorded.
        ids: (B, T) token ids, padded on the right.
        labels: (B, T); -100 where nothing is predicted.

    Returns:
        Log-probabilities (B, T), 0 where nothing is predicted, and whether the most likely token is the label
        (B, T), False there; both on the inputs' device.
    """
    device = ids.device
    with _dropout(model):
        row, target, logits = label_logits(model, ids, labels)
    tokens = labels.to(model.device)[row, target].long()
    chosen = logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1)
    log_probs = torch.zeros(ids.shape, dtype=torch.float32, device=model.device)
    log_probs = log_probs.index_put((row, target), chosen)
    hits = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
    hits = hits.index_put((row, target), logits.argmax(-1) == tokens)
    return log_probs.to(device), hits.to(device)


def label_logits(
    model: AdaptedModel, ids: torch.Tensor, labels: torch.Tensor, role: str = MESSAGE
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The model's word on every label token; differentiable.

    Args:
        model: The adapted model.
        ids: (B, T) token ids, padded on the right.
        labels: (B, T); -100 where nothing is predicted.
        role: The adapter in use.

    Returns:
        Rows (N,) and columns (N,) of the labels, and the vocabulary's logits (N, V) before each; all on the model's
        device.
    """
    device = ids.device
    column = torch.arange(ids.shape[1], device=device)
    used = torch.where(labels != IGNORED, column + 1, 0).amax(1)
    width = int(used.max())
    model.base.require_positions(width)
    inner_ids = ids[:, :width].long().clamp(min=0).to(model.device)
    inner_labels = labels[:, :width].long().to(model.device)
    attention = (column[:width] < used[:, None]).long().to(model.device)
    # Only where a token is predicted: a prompt is much longer than its message.
    row, target = torch.nonzero(inner_labels != IGNORED, as_tuple=True)
    with model.use(role):
        hidden = model.hidden_states(inner_ids, attention, places=(row, target - 1))
    return row, target, model.token_logits(hidden)


@contextlib.contextmanager
def _dropout(model: AdaptedModel) -> Iterator[None]:
    active = model.config.dropout > 0 and torch.is_grad_enabled()
    if active:
        model.peft_model.train()
    try:
        yield
    finally:
        if active:
            model.peft_model.eval()


def spoken(observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """True (B,) for rows with a message, of batched arrays of an `MessageEncoder`."""
    if MENU_IDS in observations:
        return observations[MESSAGE_CHOICE][:, 0] != SILENT
    return (observations[MESSAGE_TARGETS] != IGNORED).any(1)


@dataclass(frozen=True)
class MessageTerms:
    """Terms of the loss of messages under the present adapter, row by row (B,); 0 in rows without a message.

    Attributes:
        log_probs: Log-probability of the message; differentiable.
        entropy: Of free text the sum over the message's tokens of the exact entropy of the next token; of a menu the
            entropy of the choice. In nats; differentiable.
        kl: KL divergence of the message adapter from the reference, exact over the vocabulary (menu), summed likewise;
            differentiable. 0 where there is no reference.
        spoke: True if the row has a message.
    """

    log_probs: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    spoke: torch.Tensor

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Mean of (B,) values over the rows with a message; 0 if there is none."""
        return values.sum() / self.spoke.sum().clamp(min=1)


def by_parts(
    compute: Callable[..., tuple[torch.Tensor, ...]], columns: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """What a function makes of rows, with the activations of one part at a time.

    Activation checkpointing: each part is computed now without a graph and again in the backward pass.

    Args:
        compute: Takes the columns of some rows.
        columns: The columns of all rows, (B, ...) each.
        parts: Row numbers of each part; fewer than two: all rows at once.
    """
    if len(parts) < 2:
        return compute(*columns)
    found = [
        checkpoint(compute, *(column[part.to(column.device)] for column in columns), use_reentrant=False)
        for part in parts
    ]
    back = torch.argsort(torch.cat(list(parts))).to(found[0][0].device)
    return tuple(torch.cat(results)[back] for results in zip(*found, strict=True))


def _entropy_and_kl(log_probs: torch.Tensor, reference: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy and KL divergence (N,) of distributions (N, V), from a reference if there is one."""
    probabilities = log_probs.exp()
    entropy = -(probabilities * log_probs).sum(-1)
    kl = torch.zeros_like(entropy) if reference is None else (probabilities * (log_probs - reference)).sum(-1)
    return entropy, kl


# ---- several on one base ----------------------------------------------------------------------------------------


_FILLED = {PROMPT_IDS: PAD, CANDIDATE_IDS: PAD, CANDIDATE_WORDS: 0, ACTION_MASK: 0}


_SMALL = 512
_FEW = 2
"""On a CPU a model whose hidden states have at most `_SMALL` numbers shares one batch up to `_FEW` rows per
network only: a batch of several adapters saves passes, but computes each adapter's products beside the weights, into
which a single adapter is merged. Larger models, and models on a GPU, always share one."""


class BatchedNetworks:
    """Asks several networks in one batch where they can share one and that is quicker, and else one by one.

    The answers are the same.

    Attributes:
        networks: The networks.

    Args:
        networks: Networks; which of them have a row is seen in every batch.
    """

    def __init__(self, networks: Iterable[LanguageNetwork]) -> None:
        self.networks = tuple(dict.fromkeys(networks))
        self._numbers = {network: number for number, network in enumerate(self.networks)}
        self._mixed = _mixed(self.networks)

    def writer(self, networks: Sequence[LanguageNetwork], with_ids: bool = False) -> Callable[..., list[Any]]:
        """A writer as of `write_apart`, which draws the same messages.

        Args:
            networks: The network of each prompt.
            with_ids: True if it gives messages with their token ids (`LanguageNetwork.draw_messages`).
        """
        apart = write_apart([network.draw_messages if with_ids else network.write_messages for network in networks])
        mixed = self._mixed
        if mixed is None or len(set(networks)) <= 1:
            return apart
        samples_together = self.is_quicker(networks)
        owners = [self._numbers[network] for network in networks]
        first = {network: number for number, network in enumerate(dict.fromkeys(networks))}

        def write(
            prompts: Sequence[str],
            *,
            max_words: int = 10,
            temperature: float = 0.0,
            seed: int | Sequence[int] | None = None,
            menu: Sequence[str] = (),
        ) -> list[Any]:
            if menu or (not samples_together and (temperature > 0 or with_ids)):
                chosen = {"menu": menu} if menu else {}  # `draw_messages` knows none
                return apart(prompts, max_words=max_words, temperature=temperature, seed=seed, **chosen)
            with phase(MESSAGES):
                if temperature == 0 and not with_ids:
                    self.write_ahead(networks, prompts, max_words)
                    return apart(prompts, max_words=max_words)
                # Agents that read the same prompt must not draw the same numbers: those of `write_apart`.
                seeds = [seed + first[network] for network in networks] if isinstance(seed, int) else seed
                said = mixed.messages(owners, prompts, max_words=max_words, temperature=temperature, seed=seeds)
            return said if with_ids else [message.text for message in said]

        return write

    def write_ahead(self, networks: Sequence[LanguageNetwork], prompts: Sequence[str], max_words: int) -> None:
        """Lets networks write greedily what they do not remember, which they remember then."""
        asked = dict.fromkeys(zip(networks, prompts, strict=True))
        missing = [(network, prompt) for network, prompt in asked if network.unwritten([prompt], max_words)]
        if self._mixed is not None and self.is_quicker([network for network, _ in missing]):
            owners = [self._numbers[network] for network, _ in missing]
            said = self._mixed.messages(owners, [prompt for _, prompt in missing], max_words=max_words)
            for (network, prompt), message in zip(missing, said, strict=True):
                network.remember_message(prompt, message.text)

    @torch.no_grad()
    def score_ahead(self, asked: Sequence[tuple[LanguageNetwork, Mapping[str, torch.Tensor]]]) -> None:
        """Lets networks score what they do not remember, so that their `remembered_logits` finds it."""
        if self._mixed is None:
            return
        missing = [(network, rows, own) for network, rows in asked if (own := network.unscored(rows))]
        networks = [network for network, _, own in missing for _ in own]
        if not self.is_quicker(networks):
            return
        with phase(SCORING):
            columns = {
                name: _joined([rows[name][list(own.values())].cpu() for _, rows, own in missing], fill)
                for name, fill in _FILLED.items()
            }
            scores = self._mixed.scores(
                [self._numbers[network] for network in networks],
                columns[PROMPT_IDS],
                columns[CANDIDATE_IDS],
                columns[ACTION_MASK],
                normalization=self.networks[0].settings.score_normalization,
                candidate_words=columns[CANDIDATE_WORDS],
            ).cpu()
            for (network, rows, own), part in zip(
                missing, scores.split([len(own) for *_, own in missing]), strict=True
            ):
                logits = part[:, : rows[ACTION_MASK].shape[1]] / network.settings.temperature
                network.remember_scores(dict(zip(own, logits, strict=True)))

    def is_quicker(self, networks: Sequence[LanguageNetwork]) -> bool:
        """True if rows of these networks are quicker in one batch."""
        different = len(set(networks))
        if self._mixed is None or different <= 1:
            return False
        base = self.networks[0].lm.base
        return len(networks) <= _FEW * different or base.hidden_size > _SMALL or base.device.type != "cpu"


def write_apart(writers: Sequence[Callable[..., list[Any]]]) -> Callable[..., list[Any]]:
    """A writer that has every prompt answered by its own speaker's writer, in one call for each different one.

    Args:
        writers: One per prompt, in their order; `write_messages` of a network, or a function with its arguments.
    """
    places: dict[Any, list[int]] = {}
    for place, writer in enumerate(writers):
        places.setdefault(writer, []).append(place)

    def write(prompts: Sequence[str], *, seed: int | Sequence[int] | None = None, **kwargs: Any) -> list[Any]:
        """The messages of all prompts, each by its own writer; arguments as of a writer's."""
        written: list[Any] = [None] * len(prompts)
        for number, (writer, own) in enumerate(places.items()):
            if isinstance(seed, int):  # agents that read the same prompt must not draw the same numbers
                its: int | list[int] | None = seed + number
            else:
                its = None if seed is None else [seed[place] for place in own]
            drawn = writer([prompts[place] for place in own], seed=its, **kwargs)
            for place, message in zip(own, drawn, strict=True):
                written[place] = message
        return written

    return write


def _mixed(networks: Sequence[LanguageNetwork]) -> MixedBatch | None:
    """The networks' models, if their rows can share a batch."""
    normalizations = {network.settings.score_normalization for network in networks}
    if len(networks) < 2 or len(normalizations) > 1 or not all(network.remembers for network in networks):
        return None
    try:
        return MixedBatch([network.lm for network in networks])
    except UserError:
        return None


def _joined(arrays: Sequence[torch.Tensor], fill: int) -> torch.Tensor:
    """Batches of one kind behind each other; narrower ones are filled up on the right."""
    shape = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]

    def filled(array: torch.Tensor) -> torch.Tensor:
        missing = [wide - own for wide, own in zip(shape, array.shape[1:], strict=True)]
        return F.pad(array, [edge for size in reversed(missing) for edge in (0, size)], value=fill)

    return torch.cat([filled(array) for array in arrays])
