"""The network of a MiniRTS officer that follows sentences (RED: Xu, Wang, Wu 2022); needs no RLlib.

Deviations from the paper's network are listed in docs/algorithms/red.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.officer_encoders import CellKeys, Heard, MapEncoder, SentenceEncoder, UnitEncoder
from rllib_llm_comm.baselines.red.officer_inputs import (
    allowed_values,
    distinct_views,
    marks_of_others,
    team_view,
    used_rows,
)
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.envs.minirts.collective_command import HEADS, KIND_AT
from rllib_llm_comm.envs.minirts.engine.units import NUM_TYPES
from rllib_llm_comm.envs.minirts.view.officer_view import (
    AGES,
    ENEMIES,
    IS_MINE,
    MONEY,
    OWN,
    RESOURCES,
    SENTENCES,
)
from rllib_llm_comm.policies.numeric_network import BY_TEAM, FORBIDDEN

_MONEY_BINS = 11
_MONEY_STEP = 0.05
_MASKED = -1e9
_MANY = 8.0
_ROWS = 256


@dataclass(frozen=True)
class EncodedView:
    """A batch of observations as vectors.

    Attributes:
        features: Features of the map (B, F, H, W).
        own: Own units (B, U, width).
        mine: True for those that the commander commands (B, U).
        enemies: Enemies (B, E, width).
        resources: Resources (B, R, width).
        told: Sentences in force (B, S, size).
        there: True for those that there are (B, S).
        whole: The global vector (B, D).
    """

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
            seen: The arrays of `officer_view`, stacked.
        """
        choice, whole = self.choose(seen)
        return choice, self.values(whole)

    def values(self, whole: torch.Tensor) -> torch.Tensor:
        """Values (B,) of global vectors (B, D), those of the view that the critic reads."""
        return self.value(whole)[:, 0]

    def judged(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (B,) of observations, without the distribution; piece by piece, as maps take much memory.

        Args:
            seen: The arrays of `officer_view`, stacked.
        """
        first, shared = self._read_by_critic(seen)
        wholes = []
        for rows in first.split(_ROWS):
            views = {name: part[rows] for name, part in seen.items()}
            wholes.append(self._criticized(views, self.map.begin(views), self._heard(views)).whole)
        return self.values(torch.cat(wholes)[shared])

    def choice(self, seen: Mapping[str, torch.Tensor]) -> CollectiveChoice:
        """The distribution of a batch of observations, without their values.

        Args:
            seen: The arrays of `officer_view`, stacked.
        """
        return self._choice(seen, self._encoded(seen, self.map.begin(seen), self._heard(seen)))

    def choose(self, seen: Mapping[str, torch.Tensor]) -> tuple[CollectiveChoice, torch.Tensor]:
        """The distribution of a batch of observations, and the global vectors (B, D) of what the critic reads.

        Args:
            seen: The arrays of `officer_view`, stacked.
        """
        begun, heard = self.map.begin(seen), self._heard(seen)
        encoded = self._encoded(seen, begun, heard)
        whole = encoded.whole
        if self.settings.critic_observation == BY_TEAM:
            first, shared = self._read_by_critic(seen)
            views = {name: part[first] for name, part in seen.items()}
            told, there, newest = (part[first] for part in heard)
            whole = self._criticized(views, _some(begun, first), (told, there, newest)).whole[shared]
        return self._choice(seen, encoded), whole

    def _read_by_critic(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows that differ for the critic, and which of them each row shares; officers of a side share theirs."""
        if self.settings.critic_observation == BY_TEAM:
            return distinct_views(seen)
        rows = torch.arange(len(seen[OWN]), device=seen[OWN].device)
        return rows, rows

    def _criticized(self, seen: Mapping[str, torch.Tensor], begun: torch.Tensor, heard: Heard) -> EncodedView:
        """The critic's view, from the output of the map's first layer for the officers' own views on."""
        if self.settings.critic_observation != BY_TEAM:
            return self._encoded(seen, begun, heard)
        begun = begun + self.map.added(marks_of_others(seen), len(begun))
        return self._encoded(team_view(seen), begun, heard)

    def _heard(self, seen: Mapping[str, torch.Tensor]) -> Heard:
        found: Heard = self.sentences(seen[SENTENCES], seen[AGES])
        return found

    def _encoded(self, seen: Mapping[str, torch.Tensor], begun: torch.Tensor, heard: Heard) -> EncodedView:
        """The view, from the output of the map's first layer and the sentences on."""
        rows = {name: used_rows(seen[name]) for name in (OWN, ENEMIES, RESOURCES)}
        features = self.map.finish(begun)
        here = self.map.at_units(features, list(rows.values()))
        encoders = (self.own, self.enemies, self.resources)
        own, enemies, resources = (
            encode(units, one) for encode, units, one in zip(encoders, rows.values(), here, strict=True)
        )
        told, there, newest = heard
        bins = (seen[MONEY][:, 0] / _MONEY_STEP).long().clamp(max=_MONEY_BINS - 1)
        sums = [units.sum(1) / _MANY for units in (own, enemies, resources)]
        whole = torch.cat([*sums, self.money(bins), newest], 1)
        return EncodedView(features, own, rows[OWN][..., IS_MINE].bool(), enemies, resources, told, there, whole)

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
            cell_keys=CellKeys(self.map, view.features, seen),
            allowed=allowed_values(seen),
        )

    def _hidden(self, own: torch.Tensor, told: torch.Tensor, there: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        """(B, U, width): each own unit with the sentences that it attends to; no sentence adds 0."""
        scores = torch.einsum("bud,bsd->bus", self.asks(own), told) * told.shape[-1] ** -0.5
        weights = scores.masked_fill(~there[:, None], _MASKED).softmax(-1)
        heard = torch.einsum("bus,bsd->bud", weights, told)
        together = torch.cat([own, heard, shared[:, None].expand(-1, own.shape[1], -1)], -1)
        return functional.relu(self.hidden(together))


def _some(maps: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Some of a batch of maps (B, F, H, W), filters last in memory as before."""
    batch, filters, height, width = maps.shape
    flat = maps.permute(0, 2, 3, 1).reshape(batch, -1).index_select(0, rows)
    return flat.view(-1, height, width, filters).permute(0, 3, 1, 2)
