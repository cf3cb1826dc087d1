"""The agents' network without RLlib: one frozen language model, two adapters and a critic; several in one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.phases import FEATURES, MESSAGES, SCORING, phase
from rllib_llm_comm.envs.interface import ACTION_MASK
from rllib_llm_comm.language.adapters import ACTION, MESSAGE, REFERENCE, AdaptedModel, AdapterConfig
from rllib_llm_comm.language.base_model import BaseModel, load_base_model, resolve_device
from rllib_llm_comm.language.engines import ENGINES, require_fast
from rllib_llm_comm.language.generation import Written
from rllib_llm_comm.language.mixed_batch import MixedBatch
from rllib_llm_comm.language.packing import PAD, micro_batches
from rllib_llm_comm.language.scoring import feature_size
from rllib_llm_comm.language.static_decoding import free_bytes
from rllib_llm_comm.rl.columns import CANDIDATE_IDS, CRITIC_IDS, PROMPT_IDS
from rllib_llm_comm.verco.encoding import CANDIDATE_WORDS
from rllib_llm_comm.verco.message_loss import (
    UTTERANCE_CHOICE,
    UTTERANCE_IDS,
    UTTERANCE_TARGETS,
    UtteranceTerms,
    by_parts,
    encode_menu,
    menu_logits,
    utterance_terms,
)
from rllib_llm_comm.verco.settings import LanguageModelSettings

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

    def __init__(
        self, settings: LanguageModelSettings, base: BaseModel | None = None, *, reference: bool = False
    ) -> None:
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
        encoded = torch.from_numpy(encode_menu(self.lm.base, menu, self.settings.templates))
        phrases = encoded[None].expand(len(rows), -1, -1)
        logits = menu_logits(self._menu_scores, self.lm, ids, phrases).double().cpu()
        if temperature == 0:
            return [menu[int(index)] for index in logits.argmax(-1)]
        chances = (logits / temperature).softmax(-1).numpy()
        if seed is None or isinstance(seed, int):
            draws = [np.random.default_rng(seed)] * len(rows)
        else:
            draws = list(map(np.random.default_rng, seed))
        return [menu[int(rng.choice(len(menu), p=row / row.sum()))] for rng, row in zip(draws, chances, strict=True)]

    def _menu_scores(
        self, model: AdaptedModel, prompts: torch.Tensor, menu: torch.Tensor, mask: torch.Tensor, *, role: str
    ) -> torch.Tensor:
        """The engine's scores of a menu, the same behind all prompts; without gradient remembered.

        They are asked for to draw a message, for its probability, and of the reference in every epoch.
        """

        def compute(rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
            count = len(rows[UTTERANCE_IDS])
            return self._engine.scores(model, rows[UTTERANCE_IDS], menu[:count], mask[:count], role=role)

        if torch.is_grad_enabled() or not self._engine.remembers:
            return compute({UTTERANCE_IDS: prompts})
        self._menus[role].require((model.stamp(role), menu[0].cpu().numpy().tobytes()))
        return _remembered(self._menus[role], {UTTERANCE_IDS: prompts.int()}, compute).to(model.device)

    def utterance_terms(self, observations: Mapping[str, torch.Tensor], *, kl: bool | None = None) -> UtteranceTerms:
        """`message_loss.utterance_terms` of this network, with its engine and its bound on a micro-batch."""
        bound = self.micro_batch_tokens
        return utterance_terms(self._menu_scores, self.lm, observations, bound, kl=kl)

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
            observations: Batched arrays of `encoded_space`, with those of an `UtteranceEncoder` if messages are
                trained.

        Returns:
            Row numbers of each part; every row is in exactly one.
        """
        said = [name for name in (UTTERANCE_IDS, UTTERANCE_TARGETS, UTTERANCE_CHOICE) if name in observations]
        names = [PROMPT_IDS, CANDIDATE_IDS, ACTION_MASK, *said]
        if self.micro_batch_tokens is None:
            return [torch.arange(len(observations[PROMPT_IDS]))]
        columns = {name: observations[name].flatten(1).long().cpu() for name in names}
        read = [(columns[name] != PAD).sum(1) for name in (PROMPT_IDS, CANDIDATE_IDS, UTTERANCE_IDS) if name in columns]
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
        missing = (
            [(network, rows, network.unscored(rows)) for network, rows in asked] if self._mixed is not None else []
        )
        missing = [one for one in missing if one[2]]
        if self._mixed is None or not self.is_quicker([network for network, _, own in missing for _ in own]):
            return
        with phase(SCORING):
            columns = {
                name: _joined([rows[name][list(own.values())].cpu() for _, rows, own in missing], fill)
                for name, fill in _FILLED.items()
            }
            scores = self._mixed.scores(
                [self._numbers[network] for network, _, own in missing for _ in own],
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
