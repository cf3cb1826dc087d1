"""EMMA: a map of symbols read with a manual and a subgoal (Hanjie et al. 2021, as SAMA uses it). Without RLlib."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from rllib_llm_comm.core.bounded_cache import Memo
from rllib_llm_comm.core.errors import UserError, space_text
from rllib_llm_comm.core.settings import FreshWeights, Several
from rllib_llm_comm.envs.interface import ACTION_MASK, SUBGOAL
from rllib_llm_comm.language.packing import distinct_rows
from rllib_llm_comm.language.text_encoder import PAD, TextEncoder, padded
from rllib_llm_comm.policies.numeric_network import (
    AUTO,
    BY_STATE,
    CRITIC_STATE,
    FORBIDDEN,
    MOST_LAYERS,
    MOST_WIDTH,
    STATE,
    ValueNorm,
    ValueNormSettings,
)


class EmmaSettings(FreshWeights, ValueNormSettings):
    """Settings of an `EmmaModule`: its `model_config`."""

    text_encoder: str = Field("embedded", min_length=1)
    """The frozen model that reads manual and subgoal: `"embedded"` (ours), `"minilm"` (extra of that name), a folder or
    a hub id. SAMA and EMMA: BERT-base."""
    width: int = Field(32, ge=1, le=8192)
    """Length of queries, keys and values. EMMA: 256; 32 (ours)."""
    frames: int = Field(3, ge=1, le=64)
    """Number of the last maps that the actor sees, the newest last (EMMA)."""
    filters: int = Field(32, ge=1, le=8192)
    """Filters of the convolutions. EMMA: 64; 32 (ours)."""
    hiddens: Several[Annotated[int, Field(ge=1, le=MOST_WIDTH)]] = Field((64, 64), max_length=MOST_LAYERS)
    """Widths of the critic's hidden layers (MAPPO)."""
    critic_observation: Literal["auto", "state", "own"] = "own"
    """Input of the critic beside the agent's own map and subgoal: `"state"`: the game's state; `"own"`: nothing more;
    `"auto"`: the state where the environment tells it."""
    max_subgoal_tokens: int = Field(48, ge=1, le=8192)
    """Width of the arrays of subgoals; a longer one is an error, never cut (ours)."""
    max_manual_tokens: int = Field(2048, ge=1, le=2**17)
    """The same of manuals (ours)."""


ENTITIES = "entities"
MANUAL = "manual"
FRAMES = "frames"
SUBGOAL_TOKENS = "subgoal_tokens"
MANUAL_TOKENS = "manual_tokens"
END_OF_SENTENCE = -1
_SENTENCES = re.compile(r"(?<=[.!?])\s+")


class EmmaEncoder:
    """Turns observations into arrays.

    Args:
        encoder: The text encoder, of which only the tokenizer is used.
    """

    def __init__(self, encoder: TextEncoder, settings: EmmaSettings) -> None:
        self._encoder, self._settings = encoder, settings
        self._manuals: dict[str, np.ndarray] = {}

    def encode(
        self, observation: Mapping[str, Any], frames: list[np.ndarray], with_state: bool
    ) -> dict[str, np.ndarray]:
        """The arrays of one agent.

        Args:
            observation: `entities`, `manual`, `subgoal`, and optionally `action_mask` and `state`.
            frames: Its earlier `entities`, oldest first; these join them, and the oldest go.
            with_state: True if the critic wants the state.

        Returns:
            `frames` (T, H, W, K), zero where there was no time yet, `subgoal_tokens`, `manual_tokens`, `action_mask`
            and, if asked for, `critic_state`.

        Raises:
            UserError: If a text is too long.
        """
        frames.append(np.array(observation[ENTITIES], np.int16))
        del frames[: -self._settings.frames]
        missing = self._settings.frames - len(frames)
        arrays = {
            FRAMES: np.stack([*[np.zeros_like(frames[0])] * missing, *frames]),
            **self.texts(str(observation[SUBGOAL]), str(observation[MANUAL])),
        }
        if ACTION_MASK in observation:
            arrays[ACTION_MASK] = np.array(observation[ACTION_MASK], np.int8)
        if with_state:
            arrays[CRITIC_STATE] = np.array(observation[STATE], np.float32).reshape(-1)
        return arrays

    def texts(self, subgoal: str, manual: str) -> dict[str, np.ndarray]:
        """`subgoal_tokens` and `manual_tokens`.

        Args:
            subgoal: The subgoal; empty for none.

        Raises:
            UserError: If a text is too long.
        """
        return {SUBGOAL_TOKENS: self._subgoal(subgoal), MANUAL_TOKENS: self._manual(manual)}

    def _subgoal(self, text: str) -> np.ndarray:
        tokens = self._encoder.tokens(text) if text.strip() else []
        return _filled(tokens, self._settings.max_subgoal_tokens, "subgoal", text)

    def _manual(self, text: str) -> np.ndarray:
        if text not in self._manuals:
            tokens: list[int] = []
            for sentence in _SENTENCES.split(text.strip()):
                if sentence:
                    tokens += [*self._encoder.tokens(sentence), END_OF_SENTENCE]
            self._manuals[text] = _filled(tokens, self._settings.max_manual_tokens, "manual", text)
        return self._manuals[text]


def _filled(tokens: Sequence[int], length: int, what: str, text: str) -> np.ndarray:
    if len(tokens) > length:
        raise UserError(
            f"`max_{what}_tokens` is {length} but the {what} {text[:60]!r}... has {len(tokens)} tokens; raise it."
        )
    row = np.full(length, PAD, np.int32)
    row[: len(tokens)] = tokens
    return row


def sentences(tokens: np.ndarray) -> list[list[int]]:
    """The token numbers of each sentence of `manual_tokens` (L,), with `END_OF_SENTENCE` behind each."""
    ends = np.flatnonzero(tokens == END_OF_SENTENCE)
    starts = [0, *(ends[:-1] + 1)]
    return [tokens[start:end].tolist() for start, end in zip(starts, ends, strict=True)]


def emma_space(agent: Any, space: gym.Space, actions: gym.Space, settings: EmmaSettings) -> gym.spaces.Dict:
    """The space of an agent's arrays.

    Args:
        settings: Sizes, and whether the critic sees the state.

    Raises:
        UserError: If the spaces do not hold what is needed.
    """
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    symbols = parts.get(ENTITIES)
    if (
        not isinstance(symbols, gym.spaces.Box)
        or len(symbols.shape) != 3
        or MANUAL not in parts
        or SUBGOAL not in parts
    ):
        raise UserError(
            f"the observation space of agent {agent!r} is {space_text(space)}, but EMMA needs a Dict with a Box "
            f"`{ENTITIES}` (height, width, symbols per cell) and the texts `{MANUAL}` and `{SUBGOAL}`; in our "
            "kitchens set `env_config.observe` to ['entities', 'state']."
        )
    if not isinstance(actions, gym.spaces.Discrete):
        raise UserError(f"the action space of agent {agent!r} is {actions}, but must be Discrete.")
    highest = int(symbols.high.max())
    shapes: dict[str, gym.spaces.Space[Any]] = {
        FRAMES: gym.spaces.Box(0, highest, (settings.frames, *symbols.shape), np.int16),
        SUBGOAL_TOKENS: _tokens(settings.max_subgoal_tokens),
        MANUAL_TOKENS: _tokens(settings.max_manual_tokens),
        ACTION_MASK: gym.spaces.Box(0, 1, (int(actions.n),), np.int8),
    }
    state = parts.get(STATE)
    if isinstance(state, gym.spaces.Box) and settings.critic_observation in (AUTO, BY_STATE):
        shapes[CRITIC_STATE] = gym.spaces.Box(-np.inf, np.inf, (int(np.prod(state.shape)),), np.float32)
    elif settings.critic_observation == BY_STATE:
        raise UserError(
            f"`critic_observation` is 'state' but the observation space of agent {agent!r} has no Box `{STATE}`; make "
            "the environment tell its state, or use 'own'."
        )
    return gym.spaces.Dict(shapes)


def _tokens(length: int) -> gym.spaces.Box:
    return gym.spaces.Box(END_OF_SENTENCE, np.iinfo(np.int32).max, (length,), np.int32)


_MASKED = -1e9
_HEADS, _HIDDEN = 4, 128
_CRITIC_WIDTH = 16
_REMEMBERED, _REMEMBERED_MANUALS, _REMEMBERED_PAIRS = 4096, 16, 1024


class FrozenTexts:
    """Texts as the frozen encoder sees them, each encoded once."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder
        self._memo: Memo[torch.Tensor] = Memo(_REMEMBERED)
        self._manuals: Memo[tuple[torch.Tensor, torch.Tensor]] = Memo(_REMEMBERED_MANUALS)

    def manual(self, tokens: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """`states` of the sentences of a row of `manual_tokens`."""
        key = (tokens.tobytes(), device)
        known = self._manuals.get(key)
        if known is None:
            known = self.states(sentences(tokens), device)
            self._manuals.put(key, known)
        return known

    def states(self, rows: list[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Token vectors of texts.

        Args:
            rows: Token numbers of each text.

        Returns:
            (N, L, D) vectors, zero at padding, and a mask (N, L).
        """
        keys = [tuple(row) for row in rows]
        found = {key: self._memo.get(key) for key in keys}
        new = [key for key, states in found.items() if states is None and key]
        if new:
            for key, states in zip(new, self.encoder.states(padded(new)), strict=True):
                found[key] = states[: len(key)].cpu()
                self._memo.put(key, found[key])
        longest = max(1, *(len(key) for key in keys)) if keys else 1
        out = torch.zeros(len(keys), longest, self.encoder.width)
        mask = torch.zeros(len(keys), longest, dtype=torch.bool)
        for number, key in enumerate(keys):
            if key:
                out[number, : len(key)] = found[key]
                mask[number, : len(key)] = True
        return out.to(device), mask.to(device)


class TokenPool(nn.Module):
    """A text as one vector: sums over tokens of softmax(w . b) b, b being a token's frozen vector, through an MLP.

    EMMA has one such sum and a matrix. Several heads and a hidden layer are ours: small frozen encoders do not tell
    "2,3" from "3,2" otherwise.

    Args:
        size: Length of b.
        width: Length of the result.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Linear(size, _HEADS)
        self.norm = nn.LayerNorm(_HEADS * size)
        self.hidden = nn.Linear(_HEADS * size, _HIDDEN)
        self.project = nn.Linear(_HIDDEN, width)

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(N, width), zero for empty texts; `states` is (N, L, size), `mask` (N, L)."""
        weights = self.scale(states).masked_fill(~mask[..., None], _MASKED).softmax(1)
        heads = torch.einsum("nlh,nls->nhs", weights, states).flatten(1)
        text: torch.Tensor = self.project(functional.relu(self.hidden(self.norm(heads))))
        return text * mask.any(-1, keepdim=True)


class Grounding(nn.Module):
    """Meanings of symbols under a manual and a subgoal.

    A symbol's learned query attends to the sentences of the manual (softmax over sentences, as in EMMA) and, apart
    from it, to the subgoal with the weight sigmoid(q . k): a single text among many would start with next to no weight,
    and a subgoal says for each symbol whether it is meant (ours).

    Args:
        symbols: Number of symbols, 0 (nothing) included.
        size: Length of the frozen token vectors.
        width: Length of queries, keys and values.
    """

    def __init__(self, symbols: int, size: int, width: int) -> None:
        super().__init__()
        self.query = nn.Embedding(symbols, width)
        self.key, self.value = TokenPool(size, width), TokenPool(size, width)
        self.subgoal_key, self.subgoal_value = TokenPool(size, width), TokenPool(size, width)
        self._scale = 1.0 / math.sqrt(width)

    def of_manual(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(S, width): what symbols mean under one manual, given its sentences (M, L, size) and their mask (M, L)."""
        weights = (self.query.weight @ self.key(states, mask).T * self._scale).softmax(-1)
        meaning: torch.Tensor = weights @ self.value(states, mask)
        return meaning

    def of_subgoals(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(G, S, width): what subgoals (G, L, size) add to it."""
        scores = self.subgoal_key(states, mask) @ self.query.weight.T * self._scale
        return scores.sigmoid()[..., None] * self.subgoal_value(states, mask)[:, None]


class EmmaActor(nn.Module):
    """Frames of symbols to one logit per action: per cell of the map if there are as many actions as cells.

    A cell is the mean of the meanings of its symbols, averaged with the embedding of the agent itself (EMMA); frames
    are concatenated, then come a 1x1 and a 3x3 convolution and a 1x1 convolution to one value per cell. (EMMA: one
    convolution of kernel 2 and an MLP to five actions; SAMA: a convolution to the map, no more is said.)

    Args:
        symbols: Number of symbols, 0 included.
        shape: (H, W) of the map.
        size: Length of the frozen token vectors.
    """

    def __init__(self, settings: EmmaSettings, symbols: int, shape: tuple[int, int], actions: int, size: int) -> None:
        super().__init__()
        width, filters = settings.width, settings.filters
        self.grounding = Grounding(symbols, size, width)
        self.own = nn.Embedding(symbols, width)
        self.mix = nn.Conv2d(settings.frames * width, filters, 1)
        self.around = nn.Conv2d(filters, filters, 3, padding=1)
        cells = shape[0] * shape[1]
        self.head: nn.Module = nn.Conv2d(filters, 1, 1) if actions == cells else nn.Linear(filters * cells, actions)
        self._to_map = actions == cells
        nn.init.orthogonal_(self.head.weight, 0.01)  # type: ignore[arg-type]

    def mixed_in(self, table: torch.Tensor) -> torch.Tensor:
        """Meanings of symbols (P, S, width) as the first convolution sees them in each frame: (P, T, S, filters)."""
        return torch.einsum("psw,ftw->ptsf", table, self._mix_weight())

    def forward(self, frames: torch.Tensor, meant: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Logits (B, K).

        Args:
            frames: (B, T, H, W, slots) symbols, the last slot for the agent itself.
            meant: (P, T, S, filters), `mixed_in` of P pairs of manual and subgoal.
            rows: (B,) the pair of each row.
        """
        batch, time, height, width, slots = frames.shape
        cells = frames.permute(0, 2, 3, 1, 4).reshape(batch * height * width, time * slots)
        rows = rows.repeat_interleave(height * width)
        seen = functional.relu(self._mixed(cells, meant, rows) + self.mix.bias)
        planes = seen.view(batch, height, width, -1).permute(0, 3, 1, 2)
        planes = functional.relu(self.around(planes))
        logits: torch.Tensor = self.head(planes if self._to_map else planes.flatten(1))
        return logits.flatten(1)

    def _mix_weight(self) -> torch.Tensor:
        """(filters, T, width)."""
        return self.mix.weight.view(self.mix.out_channels, -1, self.own.embedding_dim)

    def _mixed(self, cells: torch.Tensor, meant: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The 1x1 convolution of the cells' frames, without its bias (N, filters).

        Means, frames and the convolution are linear, so symbols are looked up in a table that went through it: one sum
        over the symbols that are there takes the place of many planes.
        """
        _, time, symbols, _ = meant.shape
        own = torch.einsum("sw,ftw->tsf", self.own.weight, self._mix_weight()).flatten(0, 1)
        meant = meant.flatten(0, 2)
        there = cells > 0
        others = there.view(len(cells), time, -1)[..., :-1].sum(-1, keepdim=True).clamp(min=1)
        shares = (0.5 / others).expand(-1, -1, cells.shape[1] // time).clone()
        shares[..., -1] = 0.5
        numbers = cells.view(len(cells), time, -1) + torch.arange(time, device=cells.device)[:, None] * symbols
        first = (rows * time * symbols)[:, None, None].expand(-1, time, numbers.shape[-1]).clone()
        first[..., -1] = len(meant)  # the agent itself has a table of its own behind the others
        counts = there.sum(1)
        return functional.embedding_bag(
            (numbers + first).flatten(1)[there],
            torch.cat([meant, own]),
            counts.cumsum(0) - counts,
            mode="sum",
            per_sample_weights=shares.flatten(1)[there].to(meant.dtype),
        )


class EmmaCritic(nn.Module):
    """The newest frame, the subgoal and, if it is told, the game's state to one value (MAPPO's critic).

    Args:
        symbols: Number of symbols, 0 included.
        size: Length of the frozen token vectors.
        state_size: Length of the state; 0 for none.
    """

    def __init__(self, settings: EmmaSettings, symbols: int, cells: int, size: int, state_size: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, _CRITIC_WIDTH)
        widths = [cells * _CRITIC_WIDTH + size + state_size, *settings.hiddens]
        layers: list[nn.Module] = [nn.LayerNorm(widths[0])]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.LayerNorm(after)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, frame: torch.Tensor, subgoal: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """Values (B,).

        Args:
            frame: (B, H, W, slots).
            subgoal: (B, size), the mean of the subgoal's token vectors.
            state: (B, state_size), or `None`.
        """
        here = functional.embedding_bag(
            frame.reshape(-1, frame.shape[-1]),
            self.symbols.weight,
            mode="sum",
            per_sample_weights=(frame > 0).to(subgoal.dtype).reshape(-1, frame.shape[-1]),
        )
        parts = [here.view(len(frame), -1), subgoal]
        if state is not None:
            parts.append(state.float())
        value: torch.Tensor = self.layers(torch.cat(parts, -1))
        return value.squeeze(-1)


class EmmaNetwork(nn.Module):
    """Actor and critic with separate weights over the same frozen texts.

    Args:
        symbols: Number of symbols, 0 included.
        shape: (H, W) of the map.
        state_size: Length of the state that the critic sees; 0 for none.
        encoder: The frozen text encoder; no part of the network's weights.
    """

    def __init__(
        self,
        settings: EmmaSettings,
        symbols: int,
        shape: tuple[int, int],
        actions: int,
        state_size: int,
        encoder: TextEncoder,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.sizes = {"symbols": symbols, "shape": list(shape), "actions": actions, "state_size": state_size}
        self._texts = FrozenTexts(encoder)
        self._manuals: Memo[torch.Tensor] = Memo(_REMEMBERED_MANUALS)
        self._pairs: Memo[torch.Tensor] = Memo(_REMEMBERED_PAIRS)
        with torch.random.fork_rng(devices=[], enabled=settings.init_seed is not None):
            if settings.init_seed is not None:
                torch.manual_seed(settings.init_seed)
            self.actor = EmmaActor(settings, symbols, shape, actions, encoder.width)
            self.critic = EmmaCritic(settings, symbols, shape[0] * shape[1], encoder.width, state_size)
        self.value_norm = ValueNorm(settings.value_norm_beta) if settings.use_value_norm else None

    def logits(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits (B, K) of all actions; forbidden ones get next to no probability.

        Args:
            observations: The arrays of `EmmaEncoder`, stacked.
        """
        frames = observations[FRAMES]
        meant, rows = self.meanings(observations, frames.device)
        logits: torch.Tensor = self.actor(frames.long(), meant, rows)
        return logits.masked_fill(observations[ACTION_MASK] == 0, FORBIDDEN)

    def values(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """State values (B,), in units of reward."""
        outputs = self.critic_outputs(observations)
        return outputs if self.value_norm is None else self.value_norm.denormalize(outputs)

    def critic_outputs(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Outputs of the critic (B,): normalised values if there is a `value_norm`, otherwise values."""
        frame = observations[FRAMES][:, -1].long()
        distinct, rows = distinct_rows(observations[SUBGOAL_TOKENS])
        states, mask = self._texts.states(_without_padding(distinct), frame.device)
        mean = states.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        state = observations.get(CRITIC_STATE) if self.sizes["state_size"] else None
        value: torch.Tensor = self.critic(frame, mean[rows.to(frame.device)], state)
        return value

    def meanings(
        self, observations: Mapping[str, torch.Tensor], device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What symbols mean under distinct pairs of manual and subgoal, and each row's pair (B,).

        Without gradients a pair is read once per state of the weights, alone: no batch moves its last bits.

        Args:
            observations: At least `manual_tokens` and `subgoal_tokens`.

        Returns:
            (P, T, S, filters), as of `EmmaActor.mixed_in`, and the rows.
        """
        manuals, manual_rows = _distinct_manuals(observations[MANUAL_TOKENS])
        subgoals, subgoal_rows = distinct_rows(observations[SUBGOAL_TOKENS])
        pairs, rows = distinct_rows(torch.stack([manual_rows, subgoal_rows], 1))
        texts, goals = [manual.numpy() for manual in manuals], _without_padding(subgoals)
        if torch.is_grad_enabled():
            told = torch.stack([self._of_manual(text, device) for text in texts])
            table = told[pairs[:, 0].to(device)] + self._of_subgoals(goals, device)[pairs[:, 1].to(device)]
            return self.actor.mixed_in(table), rows.to(device)
        # Optimizers (fused ones do not) and `load_state_dict` raise a version; another weight has another address.
        readers = (*self.actor.grounding.parameters(), self.actor.mix.weight)
        stamp = tuple((one._version, one.data_ptr()) for one in readers)
        self._manuals.require(stamp)
        self._pairs.require(stamp)
        known = [self._read_once(texts[manual], goals[goal], device) for manual, goal in pairs.tolist()]
        return torch.cat(known), rows.to(device)

    def _read_once(self, manual: np.ndarray, subgoal: list[int], device: torch.device) -> torch.Tensor:
        """`meanings` (1, T, S, filters) of a pair, remembered."""
        text = manual.tobytes(), device
        known = self._pairs.get((*text, *subgoal))
        if known is None:
            told = self._manuals.get(text)
            if told is None:
                told = self._of_manual(manual, device)
                self._manuals.put(text, told)
            known = self.actor.mixed_in(told + self._of_subgoals([subgoal], device))
            self._pairs.put((*text, *subgoal), known)
        return known

    def _of_manual(self, manual: np.ndarray, device: torch.device) -> torch.Tensor:
        return self.actor.grounding.of_manual(*self._texts.manual(manual, device))

    def _of_subgoals(self, subgoals: list[list[int]], device: torch.device) -> torch.Tensor:
        return self.actor.grounding.of_subgoals(*self._texts.states(subgoals, device))


def _distinct_manuals(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `distinct_rows`; nearly always there is one only, which is seen at once."""
    if bool((tokens == tokens[:1]).all()):
        return tokens[:1].cpu(), torch.zeros(len(tokens), dtype=torch.int64)
    return distinct_rows(tokens)


def _without_padding(rows: torch.Tensor) -> list[list[int]]:
    values: np.ndarray = rows.cpu().numpy()
    return [row[row != PAD].tolist() for row in values]
