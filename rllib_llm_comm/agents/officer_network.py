"""The network of a MiniRTS officer that follows sentences (RED: Xu, Wang, Wu 2022); needs no RLlib.

Deviations from the paper's network are listed in docs/algorithms/red.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.agents.collective_choice import CollectiveChoice
from rllib_llm_comm.agents.numeric_network import BY_TEAM, FORBIDDEN
from rllib_llm_comm.agents.officer_inputs import NUM_PLANES, allowed_values, planes_of, team_view, used_rows
from rllib_llm_comm.agents.officer_settings import OfficerSettings
from rllib_llm_comm.envs.minirts.collective_command import HEADS, KIND_AT
from rllib_llm_comm.envs.minirts.commanders.instructions import MOST_SENTENCES, OLDEST
from rllib_llm_comm.envs.minirts.commanders.wordings import NUM_WORDS
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.state import ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import NUM_TYPES
from rllib_llm_comm.envs.minirts.view.officer_view import (
    AGES,
    COLUMN,
    ENEMIES,
    HEALTH,
    IS_MINE,
    IS_SITE,
    MAKING,
    MONEY,
    ORDER,
    OWN,
    RESOURCES,
    ROW,
    SENTENCES,
    TARGET_COLUMN,
    TARGET_ROW,
    TYPE,
)
from rllib_llm_comm.language.packing import distinct_rows

_HP_BINS, _MONEY_BINS = 11, 11
_MONEY_STEP = 0.05
_POSITION, _AGE = 8, 8
_MASKED = -1e9
_MANY = 8.0


class SentenceEncoder(nn.Module):
    """Sentences in force as vectors: word vectors, an LSTM, and vectors of their place and age.

    Args:
        settings: Sizes.
    """

    def __init__(self, settings: OfficerSettings) -> None:
        super().__init__()
        self.words = nn.Embedding(NUM_WORDS, settings.words, padding_idx=0)
        self.lstm = nn.LSTM(settings.words, 2 * settings.words, batch_first=True)
        self.place = nn.Embedding(MOST_SENTENCES, _POSITION)
        self.age = nn.Embedding(OLDEST + 1, _AGE)
        self.size = 2 * settings.words + _POSITION + _AGE

    def forward(self, sentences: torch.Tensor, ages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Vectors (B, S, size), which of them are sentences (B, S), and the vector of the newest (B, size).

        Args:
            sentences: (B, S, 15) numbers of words.
            ages: (B, S) in decisions.
        """
        batch, most, length = sentences.shape
        distinct, rows = distinct_rows(sentences.reshape(batch * most, length))
        distinct, rows = distinct.to(sentences.device).long(), rows.to(sentences.device)
        states, _ = self.lstm(self.words(distinct))
        ends = (distinct > 0).sum(1)
        last = states[torch.arange(len(distinct)), (ends - 1).clamp(min=0)] * (ends > 0)[:, None]
        said, there = last[rows].view(batch, most, -1), (sentences[..., 0] > 0)
        count = there.sum(1)
        # Places are counted from the newest, so that the newest of two sentences is in the place of the newest of six.
        from_newest = (count[:, None] - 1 - torch.arange(most, device=count.device)).clamp(min=0)
        vectors = torch.cat([said, self.place(from_newest), self.age(ages.long())], -1) * there[..., None]
        newest = vectors[torch.arange(batch), (count - 1).clamp(min=0)]
        return vectors, there, newest


class UnitEncoder(nn.Module):
    """Units as vectors: the map's features at their cell times a linear map of their embedding.

    Args:
        settings: Sizes.
        own: Whether these are own units, whose order and target is known.
    """

    def __init__(self, settings: OfficerSettings, own: bool = False) -> None:
        super().__init__()
        width = settings.width
        self.kind, self.health = nn.Embedding(NUM_TYPES + 1, width // 2), nn.Embedding(_HP_BINS, width // 2)
        self.order = nn.Embedding(len(ORDER_NAMES), width // 2) if own else None
        self.making = nn.Embedding(NUM_TYPES + 1, width // 2) if own else None
        more = 2 * (width // 2) + 4 if own else 0
        self.embed = nn.Linear(2 * (width // 2) + 2 + more, width)
        self.map = nn.Linear(settings.filters, width)

    def forward(self, rows: torch.Tensor, features: torch.Tensor, stride: int) -> torch.Tensor:
        """Vectors (B, U, width), 0 where there is no unit.

        Args:
            rows: (B, U, columns), as of `officer_view.observe`.
            features: (B, F, H, W) of the map.
            stride: Cells per step of these features.
        """
        kinds = rows[..., TYPE].long()
        parts = [self.kind(kinds), self.health(rows[..., HEALTH].long() * _HP_BINS // 256)]
        numbers = [rows[..., COLUMN] / SIZE, rows[..., ROW] / SIZE]
        if self.order is not None and self.making is not None:
            parts += [self.order(rows[..., ORDER].long()), self.making(rows[..., MAKING].long())]
            numbers += [rows[..., TARGET_COLUMN] / SIZE, rows[..., TARGET_ROW] / SIZE]
            numbers += [rows[..., IS_MINE].float(), rows[..., IS_SITE].float()]
        embedded = self.embed(torch.cat([*parts, torch.stack(numbers, -1)], -1))
        cells = (rows[..., ROW].long() // stride) * features.shape[3] + rows[..., COLUMN].long() // stride
        here = features.flatten(2).transpose(1, 2).gather(1, cells[..., None].expand(-1, -1, features.shape[1]))
        vectors: torch.Tensor = functional.relu(embedded) * self.map(here)
        return vectors * (kinds > 0)[..., None]


class MapEncoder(nn.Module):
    """The map as features, and as a key for every cell.

    Args:
        settings: Sizes.
    """

    def __init__(self, settings: OfficerSettings) -> None:
        super().__init__()
        filters, stride = settings.filters, settings.stride
        self.first = nn.Conv2d(NUM_PLANES, filters, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(filters, filters, 3, padding=1)
        self.third = nn.Conv2d(filters, filters, 3, padding=1)
        self.keys = nn.ConvTranspose2d(filters, settings.keys, stride, stride=stride)
        self.near = nn.Conv2d(NUM_PLANES, settings.keys, 1)

    def forward(self, planes: torch.Tensor) -> torch.Tensor:
        """Features (B, F, H, W).

        Args:
            planes: (B, P, 32, 32).
        """
        features = functional.relu(self.first(planes))
        return functional.relu(self.third(functional.relu(self.second(features))))

    def cell_keys(self, features: torch.Tensor, planes: torch.Tensor) -> torch.Tensor:
        """Keys of the cells (B, 1024, K).

        Args:
            features: Result of `forward`.
            planes: (B, P, 32, 32).
        """
        keys: torch.Tensor = functional.relu(self.keys(features)) + self.near(planes)
        return keys.flatten(2).transpose(1, 2)


@dataclass(frozen=True)
class EncodedView:
    """A batch of observations as vectors.

    Attributes:
        planes: The map (B, P, 32, 32).
        features: Features of the map (B, F, H, W).
        own: Own units (B, U, width).
        mine: True for those that the commander commands (B, U).
        enemies: Enemies (B, E, width).
        resources: Resources (B, R, width).
        told: Sentences in force (B, S, size).
        there: True for those that there are (B, S).
        whole: The global vector (B, D).
    """

    planes: torch.Tensor
    features: torch.Tensor
    own: torch.Tensor
    mine: torch.Tensor
    enemies: torch.Tensor
    resources: torch.Tensor
    told: torch.Tensor
    there: torch.Tensor
    whole: torch.Tensor


class OfficerNetwork(nn.Module):
    """Observations of `officer_view` to a distribution over RED's actions, and to values.

    Args:
        settings: Sizes.
    """

    def __init__(self, settings: OfficerSettings) -> None:
        super().__init__()
        self.settings = settings
        with torch.random.fork_rng(devices=[], enabled=settings.init_seed is not None):
            if settings.init_seed is not None:
                torch.manual_seed(settings.init_seed)
            self._build(settings)

    def _build(self, settings: OfficerSettings) -> None:
        width, keys = settings.width, settings.keys
        self.map, self.sentences = MapEncoder(settings), SentenceEncoder(settings)
        self.own, self.enemies = UnitEncoder(settings, own=True), UnitEncoder(settings)
        self.resources = UnitEncoder(settings)
        self.money = nn.Embedding(_MONEY_BINS, width)
        self.asks = nn.Linear(width, self.sentences.size)
        self.globals = nn.Linear(4 * width + self.sentences.size, width)
        self.hidden = nn.Linear(2 * width + self.sentences.size, width)
        self.flag = nn.Linear(width, 1)
        self.go_on = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.trunk = nn.Linear(width, width)
        self.kind = nn.Linear(width, HEADS[KIND_AT])
        self.train_type, self.build_type = nn.Linear(width, NUM_TYPES), nn.Linear(width, NUM_TYPES)
        self.queries = nn.Linear(width, 4 * keys)
        self.resource_keys, self.enemy_keys = nn.Linear(width, keys), nn.Linear(width, keys)
        self.value = nn.Linear(4 * width + self.sentences.size, 1)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[CollectiveChoice, torch.Tensor]:
        """The distribution of a batch of observations, and values (B,).

        Args:
            seen: The arrays of `officer_view.observe`, stacked.
        """
        choice, whole = self.choose(seen)
        return choice, self.values(whole)

    def values(self, whole: torch.Tensor) -> torch.Tensor:
        """Values (B,) of global vectors (B, D), those of the view that the critic reads."""
        return self.value(whole)[:, 0]

    def judged(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (B,) of a batch of observations, without the distribution.

        Args:
            seen: The arrays of `officer_view.observe`, stacked.
        """
        critics = team_view(seen) if self.settings.critic_observation == BY_TEAM else seen
        return self.values(self._encoded(critics).whole)

    def choice(self, seen: Mapping[str, torch.Tensor]) -> CollectiveChoice:
        """The distribution of a batch of observations, without their values.

        Args:
            seen: The arrays of `officer_view.observe`, stacked.
        """
        return self._choice(seen, self._encoded(seen))

    def choose(self, seen: Mapping[str, torch.Tensor]) -> tuple[CollectiveChoice, torch.Tensor]:
        """The distribution of a batch of observations, and the global vectors (B, D) of what the critic reads.

        Args:
            seen: The arrays of `officer_view.observe`, stacked.
        """
        encoded = self._encoded(seen)
        by_team = self.settings.critic_observation == BY_TEAM
        whole = self._encoded(team_view(seen)).whole if by_team else encoded.whole
        return self._choice(seen, encoded), whole

    def _encoded(self, seen: Mapping[str, torch.Tensor]) -> EncodedView:
        rows = {name: used_rows(seen[name]) for name in (OWN, ENEMIES, RESOURCES)}
        planes, stride = planes_of(seen), self.settings.stride
        features = self.map(planes)
        own = self.own(rows[OWN], features, stride)
        enemies = self.enemies(rows[ENEMIES], features, stride)
        resources = self.resources(rows[RESOURCES], features, stride)
        told, there, newest = self.sentences(seen[SENTENCES], seen[AGES])
        bins = (seen[MONEY][:, 0] / _MONEY_STEP).long().clamp(max=_MONEY_BINS - 1)
        sums = [units.sum(1) / _MANY for units in (own, enemies, resources)]
        whole = torch.cat([*sums, self.money(bins), newest], 1)
        mine = rows[OWN][..., IS_MINE].bool()
        return EncodedView(planes, features, own, mine, enemies, resources, told, there, whole)

    def _choice(self, seen: Mapping[str, torch.Tensor], view: EncodedView) -> CollectiveChoice:
        shared = functional.relu(self.globals(view.whole))
        hidden = self._hidden(view.own, view.told, view.there, shared) * view.mine[..., None]
        votes = functional.relu(self.trunk(hidden))
        resource, enemy, site, cell = self.queries(votes).chunk(4, -1)
        return CollectiveChoice(
            go_on=self.go_on(torch.cat([shared, hidden.amax(1)], 1))[:, 0],
            flags=self.flag(hidden)[..., 0].masked_fill(~view.mine, FORBIDDEN),
            kind=self.kind(votes),
            train=self.train_type(votes),
            build=self.build_type(votes),
            resource=resource,
            enemy=enemy,
            site=site,
            cell=cell,
            resource_keys=self.resource_keys(view.resources),
            enemy_keys=self.enemy_keys(view.enemies),
            cell_keys=self.map.cell_keys(view.features, view.planes),
            allowed=allowed_values(seen),
        )

    def _hidden(self, own: torch.Tensor, told: torch.Tensor, there: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        """(B, U, width): each own unit with the sentences that it attends to; no sentence adds 0."""
        scores = torch.einsum("bud,bsd->bus", self.asks(own), told) * told.shape[-1] ** -0.5
        weights = scores.masked_fill(~there[:, None], _MASKED).softmax(-1)
        heard = torch.einsum("bus,bsd->bud", weights, told)
        together = torch.cat([own, heard, shared[:, None].expand(-1, own.shape[1], -1)], -1)
        return functional.relu(self.hidden(together))
