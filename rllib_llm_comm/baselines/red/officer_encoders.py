"""Parts of a MiniRTS officer's network: sentences, units and the map as vectors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rllib_llm_comm.baselines.red.officer_inputs import (
    GROUND,
    NUM_PLANES,
    Marks,
    coordinates,
    ground_of,
    marks_of,
    planes_of,
)
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.envs.minirts.commanders.executor import MOST_SENTENCES, OLDEST
from rllib_llm_comm.envs.minirts.commanders.tasks import NUM_WORDS
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.state import CELLS, ORDER_NAMES
from rllib_llm_comm.envs.minirts.engine.units import NUM_TYPES
from rllib_llm_comm.envs.minirts.view.officer_view import (
    COLUMN,
    HEALTH,
    IS_MINE,
    IS_SITE,
    MAKING,
    ORDER,
    ROW,
    TARGET_COLUMN,
    TARGET_ROW,
    TYPE,
)
from rllib_llm_comm.language.packing import distinct_rows

_HP_BINS = 11
_POSITION, _AGE = 8, 8
Heard = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Result of a `SentenceEncoder`."""


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

    Args:
        settings: Sizes.
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
        """Output of the first layer (B, F, H, W), that of `first(planes_of(seen))`.

        Args:
            seen: The arrays of `officer_view`, stacked.
        """
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
        """Share of units in the output of the first layer (B, F, H, W).

        Args:
            marks: The units.
            batch: Number of maps.
        """
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
        """Features (B, F, H, W).

        Args:
            begun: Output of the first layer.
        """
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
        """Keys of the cells (B, 1024, K).

        Args:
            features: Result of `finish`.
            planes: (B, P, 32, 32).
        """
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
        encoder: The map's.
        features: (B, F, H, W).
        seen: The arrays of `officer_view`, stacked.
    """

    def __init__(self, encoder: MapEncoder, features: torch.Tensor, seen: Mapping[str, torch.Tensor]) -> None:
        self._encoder, self._features, self._seen = encoder, features, seen

    def __getitem__(self, rows: Any) -> Any:
        """Keys (R, 1024, K) of some rows; of a slice `CellKeys`."""
        seen, features = {name: part[rows] for name, part in self._seen.items()}, self._features[rows]
        if isinstance(rows, slice):
            return CellKeys(self._encoder, features, seen)
        return self._encoder.cell_keys(features, planes_of(seen))
