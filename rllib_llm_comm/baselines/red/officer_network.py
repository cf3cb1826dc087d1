"""The network of a MiniRTS officer that follows sentences (RED: Xu, Wang, Wu 2022); needs no RLlib.

Deviations from the paper's network are listed in docs/algorithms/red.md. `seen` are everywhere the arrays of
`officer_view`, stacked (B, ...).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.envs.minirts.collective_command import HEADS, KIND_AT, SITE_AT
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.state import CELLS, ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import CAN_ATTACK, IS_MOBILE, MADE_BY, NUM_TYPES, PEASANT, TOWN_HALL
from rllib_llm_comm.envs.minirts.executor import MOST_SENTENCES, OLDEST
from rllib_llm_comm.envs.minirts.officer_view import (
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
    SIGHT,
    TARGET_COLUMN,
    TARGET_ROW,
    TYPE,
    officer_spaces,
)
from rllib_llm_comm.envs.minirts.words import NUM_WORDS
from rllib_llm_comm.language.packing import distinct_rows
from rllib_llm_comm.policies.numeric_network import BY_TEAM, FORBIDDEN

SEEN = tuple(officer_spaces())
"""Names of the arrays that the network reads."""
GROUND = slice(2, 8)
"""Planes of sight and terrain; those before are coordinates, those behind are counts of units."""
_OWN = GROUND.stop
_ENEMY, _RESOURCE = _OWN + NUM_TYPES, _OWN + 2 * NUM_TYPES
_MINE, _SITE = _RESOURCE + 1, _RESOURCE + 2
NUM_PLANES = _SITE + 1
"""Planes of the map: those of `observations.planes` that can differ from 0, and one for building sites."""
_CAN_ATTACK, _IS_MOBILE = torch.from_numpy(CAN_ATTACK.copy()), torch.from_numpy(IS_MOBILE.copy())
_MADE_BY = torch.from_numpy(MADE_BY.astype("int64"))
_HP_BINS = 11
_POSITION, _AGE = 8, 8
Heard = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Result of a `SentenceEncoder`."""
_MONEY_BINS = 11
_MONEY_STEP = 0.05
_MASKED = -1e9
_MANY = 8.0
_ROWS = 256


def used_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows (B, U, columns) of a list (B, 50, columns) up to the longest of the batch, at least one."""
    most = int((rows[..., TYPE] > 0).sum(1).max()) if len(rows) else 0
    return rows[:, : max(1, most)]


def team_view(seen: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The observations as that of a commander who has all units of the side: the same for each of its commanders.

    Sight, money, enemies and resources are shared already. Sentences stay the officer's own; where RL is done, at the
    action level "red", there are none. The rows of own units keep their order.
    """
    own = seen[OWN].clone()
    own[..., IS_MINE] = (own[..., TYPE] > 0) & (own[..., IS_SITE] == 0)
    return {**seen, OWN: own}


class Marks(NamedTuple):
    """Units on the maps of a batch: each adds one at a plane and a cell of a row.

    Attributes:
        row: Row of the batch (N,).
        plane: Plane of the map (N,).
        cell: Cell, y * 32 + x (N,).
    """

    row: torch.Tensor
    plane: torch.Tensor
    cell: torch.Tensor


def distinct_views(seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with different `team_view`s (D,), and for each row which of them it shares (B,).

    Views are known by their hashes of 64 bits, in which the order of own units is no matter.
    """
    own = seen[OWN].index_fill(-1, torch.tensor(IS_MINE, device=seen[OWN].device), 0)
    hashed = _hashed(own)
    total = ((hashed ^ (hashed >> 29)) * _factors(1, hashed.device)).sum(1)
    others = [seen[name].flatten(1) for name in (ENEMIES, RESOURCES, SIGHT, MONEY, SENTENCES, AGES)]
    as_bytes = [part if part.dtype == torch.uint8 else part.contiguous().view(torch.uint8) for part in others]
    total = total + _hashed(torch.cat(as_bytes, 1))
    distinct, shared = total.unique(return_inverse=True)
    first = torch.full((len(distinct),), len(total), device=total.device)
    numbers = torch.arange(len(total), device=total.device)
    return first.scatter_reduce_(0, shared, numbers, "amin"), shared


def _hashed(values: torch.Tensor) -> torch.Tensor:
    """Hashes (...) of bytes (..., N)."""
    return (values.long() * _factors(values.shape[-1], values.device)).sum(-1)


def _factors(count: int, device: torch.device) -> torch.Tensor:
    """Odd random numbers of 64 bits, always the same."""
    drawn = np.random.default_rng(23).integers(-(2**63), 2**63 - 1, count) | 1
    return torch.from_numpy(drawn).to(device)


def planes_of(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """float32 (B, P, 32, 32): y / 32 and x / 32; never, once, now seen; grass, water, unknown; numbers of the side's
    units by type, of known enemies by type, of resources; of the officer's own units, and of building sites.
    """
    batch, device = len(seen[OWN]), seen[OWN].device
    planes = torch.zeros(batch, NUM_PLANES, CELLS, device=device)
    planes[:, : GROUND.start] = coordinates(device)
    planes[:, GROUND] = ground_of(seen)
    marks = marks_of(seen)
    at = (marks.row * NUM_PLANES + marks.plane) * CELLS + marks.cell
    planes.view(-1).index_add_(0, at, torch.ones(len(at), device=device))
    return planes.view(batch, NUM_PLANES, SIZE, SIZE)


def coordinates(device: torch.device | None = None) -> torch.Tensor:
    """float32 (2, 1024): y / 32 and x / 32 of each cell."""
    steps = torch.arange(SIZE, device=device) / SIZE
    return torch.stack([steps.repeat_interleave(SIZE), steps.repeat(SIZE)])


def ground_of(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """float32 (B, 6, 1024): the planes of sight and terrain. The first is the last: never seen, unknown."""
    ever, now, water = _bits(seen[SIGHT]).unbind(1)
    return torch.stack([~ever, ever & ~now, now, ever & ~water, water, ~ever], 1).float()


def marks_of(seen: Mapping[str, torch.Tensor]) -> Marks:
    """The units on the maps."""
    own, enemies, resources = (used_rows(seen[name]) for name in (OWN, ENEMIES, RESOURCES))
    finished = own[..., IS_SITE] == 0
    parts = [
        _marks(own, finished, _OWN - 1 + own[..., TYPE].long()),
        _marks(own, own[..., IS_MINE] > 0, _MINE),
        _marks(own, ~finished, _SITE),
        _marks(enemies, True, _ENEMY - 1 + enemies[..., TYPE].long()),
        _marks(resources, True, _RESOURCE),
    ]
    return Marks(*(torch.cat(column) for column in zip(*parts, strict=True)))


def marks_of_others(seen: Mapping[str, torch.Tensor]) -> Marks:
    """Additions of `team_view` to the map: the finished units of other commanders, as the officer's own."""
    own = used_rows(seen[OWN])
    return _marks(own, (own[..., IS_SITE] == 0) & (own[..., IS_MINE] == 0), _MINE)


def allowed_values(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """bool (B, 139): the first five parts of `collective_command.masks`."""
    own = used_rows(seen[OWN])
    ready = (own[..., TYPE] > 0) & (own[..., IS_SITE] == 0)
    side, mine = _types(own, ready), _types(own, ready & (own[..., IS_MINE] > 0))
    enemies, resources = ((seen[name][..., TYPE] > 0).sum(1) for name in (ENEMIES, RESOURCES))
    makes = torch.where(_MADE_BY.to(own.device) >= 0, _MADE_BY.to(own.device), NUM_TYPES)
    made = functional.pad(mine, (0, 1))[:, makes]
    built, trained = made & (makes == PEASANT), made & (makes != PEASANT)
    always = torch.ones(len(own), dtype=torch.bool, device=own.device)
    kinds = [
        always,
        mine[:, PEASANT] & side[:, TOWN_HALL] & (resources > 0),
        (mine & _CAN_ATTACK.to(own.device)).any(1) & (enemies > 0),
        built.any(1),
        trained.any(1),
        (mine & _IS_MOBILE.to(own.device)).any(1),
        always,
    ]
    parts = [torch.stack(kinds, 1), _first(resources), _first(enemies), _filled(trained), _filled(built)]
    return torch.cat(parts, 1)[:, : sum(HEADS[:SITE_AT])]


def _bits(packed: torch.Tensor) -> torch.Tensor:
    """bool (B, 3, 1024) of uint8 (B, 3, 128), the highest bit first."""
    shifts = torch.arange(7, -1, -1, device=packed.device, dtype=torch.uint8)
    return ((packed[..., None] >> shifts) & 1).flatten(2).bool()


def _marks(rows: torch.Tensor, which: torch.Tensor | bool, planes: torch.Tensor | int) -> Marks:
    """Some of the units of a list."""
    batch, place = ((rows[..., TYPE] > 0) & which).nonzero(as_tuple=True)
    cells = rows[..., ROW].long() * SIZE + rows[..., COLUMN].long()
    plane = torch.full_like(batch, planes) if isinstance(planes, int) else planes[batch, place]
    return Marks(batch, plane, cells[batch, place])


def _types(rows: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
    """bool (B, 16): the types among some of the rows."""
    kinds = torch.where(which, rows[..., TYPE].long(), 0)
    found = torch.zeros(len(rows), NUM_TYPES + 1, dtype=torch.bool, device=rows.device)
    return found.scatter_(1, kinds, True)[:, 1:]


def _first(count: torch.Tensor) -> torch.Tensor:
    return torch.arange(HEADS[1], device=count.device) < count.clamp(min=1)[:, None]


def _filled(part: torch.Tensor) -> torch.Tensor:
    """The part, or its first value alone where nothing is possible."""
    first = torch.zeros_like(part)
    first[:, 0] = True
    return torch.where(part.any(1, keepdim=True), part, first)


class SentenceEncoder(nn.Module):
    """Sentences in force as vectors: word vectors, an LSTM, and vectors of their place and age."""

    def __init__(self, settings: OfficerSettings) -> None:
        super().__init__()
        self.words = nn.Embedding(NUM_WORDS, settings.words, padding_idx=0)
        self.lstm = nn.LSTM(settings.words, 2 * settings.words, batch_first=True)
        self.place = nn.Embedding(MOST_SENTENCES, _POSITION)
        self.age = nn.Embedding(OLDEST + 1, _AGE)
        self.size = 2 * settings.words + _POSITION + _AGE

    def forward(self, sentences: torch.Tensor, ages: torch.Tensor) -> Heard:
        """Vectors (B, S, size), which of them are sentences (B, S), and the vector of the newest (B, size).

        Args:
            sentences: (B, S, 15) numbers of words.
            ages: (B, S) in decisions.
        """
        batch, most, length = sentences.shape
        distinct, rows = distinct_rows(sentences.reshape(batch * most, length))
        distinct, rows = distinct.to(sentences.device).long(), rows.to(sentences.device)
        ends = (distinct > 0).sum(1)
        states, _ = self.lstm(self.words(distinct[:, : max(1, int(ends.max()))]))
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

    def forward(self, rows: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        """Vectors (B, U, width), 0 where there is no unit.

        Args:
            rows: (B, U, columns), as of `officer_view`.
            here: (B, U, F), the map's features at their cells.
        """
        kinds = rows[..., TYPE].long()
        parts = [self.kind(kinds), self.health(rows[..., HEALTH].long() * _HP_BINS // 256)]
        numbers = [rows[..., COLUMN] / SIZE, rows[..., ROW] / SIZE]
        if self.order is not None and self.making is not None:
            parts += [self.order(rows[..., ORDER].long()), self.making(rows[..., MAKING].long())]
            numbers += [rows[..., TARGET_COLUMN] / SIZE, rows[..., TARGET_ROW] / SIZE]
            numbers += [rows[..., IS_MINE].float(), rows[..., IS_SITE].float()]
        embedded = self.embed(torch.cat([*parts, torch.stack(numbers, -1)], -1))
        vectors: torch.Tensor = functional.relu(embedded) * self.map(here)
        return vectors * (kinds > 0)[..., None]


class MapEncoder(nn.Module):
    """The map as features, and as a key for every cell.

    Of the planes only sight and terrain are dense. What a unit adds to the first layer's output is looked up in its
    weights, so the planes are made for those maps alone whose cells' keys are asked for.
    """

    taps: torch.Tensor
    steps: torch.Tensor

    def __init__(self, settings: OfficerSettings) -> None:
        super().__init__()
        filters, stride = settings.filters, settings.stride
        self.first = nn.Conv2d(NUM_PLANES, filters, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(filters, filters, 3, padding=1)
        self.third = nn.Conv2d(filters, filters, 3, padding=1)
        self.keys = nn.ConvTranspose2d(filters, settings.keys, stride, stride=stride)
        self.near = nn.Conv2d(NUM_PLANES, settings.keys, 1)
        taps, steps = _reach(stride)
        self.register_buffer("taps", taps, persistent=False)
        self.register_buffer("steps", steps, persistent=False)

    def begin(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Output of the first layer (B, F, H, W), that of `first(planes_of(seen))`."""
        weight, ground = self.first.weight, ground_of(seen)
        stride, places = self.first.stride, coordinates(ground.device).view(1, -1, SIZE, SIZE)
        of_places = functional.conv2d(places, weight[:, : GROUND.start], self.first.bias, stride, 1)
        # What was never seen is unknown, too: one plane with the weights of both.
        of_ground = torch.cat([weight[:, 2:3] + weight[:, 7:8], weight[:, 3:7]], 1)
        dense = ground[:, :-1].reshape(len(ground), -1, SIZE, SIZE)
        dense = dense.contiguous(memory_format=torch.channels_last)
        begun = functional.conv2d(dense, of_ground, None, stride, 1)
        return begun.add_(of_places).add_(self.added(marks_of(seen), len(ground)))

    def added(self, marks: Marks, batch: int) -> torch.Tensor:
        """Share of units in the output of the first layer (B, F, H, W)."""
        weight, side = self.first.weight, SIZE // self.first.stride[0]
        taps = self.taps[marks.cell]
        reached = taps >= 0
        to = (marks.row[:, None] * side * side + self.steps[marks.cell])[reached]
        to, order = to.sort()
        used = (taps * weight.shape[1] + marks.plane[:, None])[reached][order]
        ends = torch.bincount(to, minlength=batch * side * side).cumsum(0)
        table = weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0])
        sums = functional.embedding_bag(used, table, functional.pad(ends, (1, 0)), mode="sum", include_last_offset=True)
        return sums.view(batch, side, side, -1).permute(0, 3, 1, 2)

    def finish(self, begun: torch.Tensor) -> torch.Tensor:
        """Features (B, F, H, W) of the output of the first layer."""
        return self.third(self.second(begun.relu()).relu_()).relu_()

    def at_units(self, features: torch.Tensor, lists: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Features (B, U, F) at the cells of the units of each list, all looked up at once.

        Args:
            features: (B, F, H, W).
            lists: (B, U, columns), as of `officer_view`.
        """
        stride, width = self.first.stride[0], features.shape[3]
        rows = torch.cat([units[..., [COLUMN, ROW]] for units in lists], 1).long() // stride
        cells = rows[..., 1] * width + rows[..., 0]
        flat = features.permute(0, 2, 3, 1).reshape(-1, features.shape[1])
        first = torch.arange(len(features), device=features.device) * (width * features.shape[2])
        found = functional.embedding(cells + first[:, None], flat)
        return found.split([units.shape[1] for units in lists], 1)

    def cell_keys(self, features: torch.Tensor, planes: torch.Tensor) -> torch.Tensor:
        """Keys of the cells (B, 1024, K), of the result of `finish` and of planes (B, P, 32, 32)."""
        keys: torch.Tensor = functional.relu(self.keys(features)) + self.near(planes)
        return keys.flatten(2).transpose(1, 2)


def _reach(stride: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Per cell the taps of a 3 x 3 kernel under which it lies, -1 for none, and the outputs that these add to."""
    side = SIZE // stride
    reached: list[list[tuple[int, int]]] = [[] for _ in range(CELLS)]
    for place, tap in itertools.product(range(side * side), range(9)):
        row, column = place // side * stride + tap // 3 - 1, place % side * stride + tap % 3 - 1
        if 0 <= row < SIZE and 0 <= column < SIZE:
            reached[row * SIZE + column].append((tap, place))
    most = max(map(len, reached))
    filled = torch.tensor([[*found, *[(-1, 0)] * (most - len(found))] for found in reached])
    return filled[..., 0], filled[..., 1]


class CellKeys:
    """Keys of the cells of a batch of maps, computed for the rows that are asked for: few actions have a cell.

    Args:
        features: (B, F, H, W).
    """

    def __init__(self, encoder: MapEncoder, features: torch.Tensor, seen: Mapping[str, torch.Tensor]) -> None:
        self._encoder, self._features, self._seen = encoder, features, seen

    def __getitem__(self, rows: Any) -> Any:
        """Keys (R, 1024, K) of some rows; of a slice `CellKeys`."""
        seen, features = {name: part[rows] for name, part in self._seen.items()}, self._features[rows]
        if isinstance(rows, slice):
            return CellKeys(self._encoder, features, seen)
        return self._encoder.cell_keys(features, planes_of(seen))


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
    """Observations of `officer_view` to a distribution over RED's actions, and to values."""

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
        """The distribution of a batch of observations, and values (B,)."""
        choice, whole = self.choose(seen)
        return choice, self.values(whole)

    def values(self, whole: torch.Tensor) -> torch.Tensor:
        """Values (B,) of global vectors (B, D), those of the view that the critic reads."""
        return self.value(whole)[:, 0]

    def judged(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (B,) of observations, without the distribution; piece by piece, as maps take much memory."""
        first, shared = self._read_by_critic(seen)
        wholes = []
        for rows in first.split(_ROWS):
            views = {name: part[rows] for name, part in seen.items()}
            wholes.append(self._criticized(views, self.map.begin(views), self._encode_sentences(views)).whole)
        return self.values(torch.cat(wholes)[shared])

    def choice(self, seen: Mapping[str, torch.Tensor]) -> CollectiveChoice:
        """The distribution of a batch of observations, without their values."""
        return self._choice(seen, self._encoded(seen, self.map.begin(seen), self._encode_sentences(seen)))

    def choose(self, seen: Mapping[str, torch.Tensor]) -> tuple[CollectiveChoice, torch.Tensor]:
        """The distribution of a batch of observations, and the global vectors (B, D) of what the critic reads."""
        begun, heard = self.map.begin(seen), self._encode_sentences(seen)
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

    def _encode_sentences(self, seen: Mapping[str, torch.Tensor]) -> Heard:
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
