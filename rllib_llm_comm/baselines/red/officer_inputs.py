"""Inputs of a MiniRTS officer's network, made of the small arrays of `officer_view`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from rllib_llm_comm.envs.minirts.collective_command import HEADS, SITE_AT
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.state import CELLS
from rllib_llm_comm.envs.minirts.engine.units import CAN_ATTACK, IS_MOBILE, MADE_BY, NUM_TYPES, PEASANT, TOWN_HALL
from rllib_llm_comm.envs.minirts.view.officer_view import (
    AGES,
    COLUMN,
    ENEMIES,
    IS_MINE,
    IS_SITE,
    MONEY,
    OWN,
    RESOURCES,
    ROW,
    SENTENCES,
    SIGHT,
    TYPE,
)

GROUND = slice(2, 8)
"""Planes of sight and terrain; those before are coordinates, those behind are counts of units."""
_OWN = GROUND.stop
_ENEMY, _RESOURCE = _OWN + NUM_TYPES, _OWN + 2 * NUM_TYPES
_MINE, _SITE = _RESOURCE + 1, _RESOURCE + 2
NUM_PLANES = _SITE + 1
"""Planes of the map: those of `observations.planes` that can differ from 0, and one for building sites."""
_CAN_ATTACK, _IS_MOBILE = torch.from_numpy(CAN_ATTACK.copy()), torch.from_numpy(IS_MOBILE.copy())
_MADE_BY = torch.from_numpy(MADE_BY.astype("int64"))


def used_rows(rows: torch.Tensor) -> torch.Tensor:
    """The rows (B, U, columns) of a list up to the longest of the batch, at least one.

    Args:
        rows: (B, 50, columns).
    """
    most = int((rows[..., TYPE] > 0).sum(1).max()) if len(rows) else 0
    return rows[:, : max(1, most)]


def team_view(seen: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The observations as that of a commander who has all units of the side: the same for each of its commanders.

    Sight, money, enemies and resources are shared already. Sentences stay the officer's own; where RL is done, at the
    action level "red", there are none. The rows of own units keep their order.

    Args:
        seen: The arrays of `officer_view`, stacked.
    """
    own = seen[OWN].clone()
    own[..., IS_MINE] = (own[..., TYPE] > 0) & (own[..., IS_SITE] == 0)
    return {**seen, OWN: own}


@dataclass(frozen=True)
class Marks:
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

    Args:
        seen: The arrays of `officer_view`, stacked.
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

    Args:
        seen: The arrays of `officer_view`, stacked.
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
    """float32 (B, 6, 1024): the planes of sight and terrain. The first and the last are the same: never seen, unknown.

    Args:
        seen: The arrays of `officer_view`, stacked.
    """
    ever, now, water = _bits(seen[SIGHT]).unbind(1)
    return torch.stack([~ever, ever & ~now, now, ever & ~water, water, ~ever], 1).float()


def marks_of(seen: Mapping[str, torch.Tensor]) -> Marks:
    """The units on the maps.

    Args:
        seen: The arrays of `officer_view`, stacked.
    """
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
    """Additions of `team_view` to the map: the finished units of other commanders, as the officer's own.

    Args:
        seen: The arrays of `officer_view`, stacked.
    """
    own = used_rows(seen[OWN])
    return Marks(*_marks(own, (own[..., IS_SITE] == 0) & (own[..., IS_MINE] == 0), _MINE))


def allowed_values(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """bool (B, 139): the first five parts of `collective_command.masks`.

    Args:
        seen: The arrays of `officer_view`, stacked.
    """
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


def _marks(
    rows: torch.Tensor, which: torch.Tensor | bool, planes: torch.Tensor | int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Row, plane and cell of some of the units of a list."""
    batch, place = ((rows[..., TYPE] > 0) & which).nonzero(as_tuple=True)
    cells = rows[..., ROW].long() * SIZE + rows[..., COLUMN].long()
    plane = torch.full_like(batch, planes) if isinstance(planes, int) else planes[batch, place]
    return batch, plane, cells[batch, place]


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
