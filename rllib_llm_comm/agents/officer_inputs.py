"""Inputs of a MiniRTS officer's network, made of the small arrays of `officer_view.observe`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from rllib_llm_comm.envs.minirts.collective_command import HEADS, SITE_AT
from rllib_llm_comm.envs.minirts.engine.mapgen import SIZE
from rllib_llm_comm.envs.minirts.engine.state import CELLS
from rllib_llm_comm.envs.minirts.engine.units import CAN_ATTACK, IS_MOBILE, MADE_BY, NUM_TYPES, PEASANT, TOWN_HALL
from rllib_llm_comm.envs.minirts.view.officer_view import (
    COLUMN,
    ENEMIES,
    IS_MINE,
    IS_SITE,
    OWN,
    RESOURCES,
    ROW,
    SIGHT,
    TYPE,
)

_COORDINATES, _SEEN, _TERRAIN = 2, 3, 3
_OWN = _COORDINATES + _SEEN + _TERRAIN
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
        seen: The arrays of `officer_view.observe`, stacked.
    """
    own = seen[OWN].clone()
    own[..., IS_MINE] = (own[..., TYPE] > 0) & (own[..., IS_SITE] == 0)
    return {**seen, OWN: own}


def planes_of(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """float32 (B, P, 32, 32): y / 32 and x / 32; never, once, now seen; grass, water, unknown; numbers of the side's
    units by type, of known enemies by type, of resources; of the officer's own units, and of building sites.

    Args:
        seen: The arrays of `officer_view.observe`, stacked.
    """
    batch, device = len(seen[OWN]), seen[OWN].device
    ever, now, water = _bits(seen[SIGHT]).unbind(1)
    steps = torch.arange(SIZE, device=device) / SIZE
    planes = torch.zeros(batch, NUM_PLANES, CELLS, device=device)
    planes[:, 0], planes[:, 1] = steps.repeat_interleave(SIZE), steps.repeat(SIZE)
    planes[:, 2], planes[:, 3], planes[:, 4] = ~ever, ever & ~now, now
    planes[:, 5], planes[:, 6], planes[:, 7] = ever & ~water, water, ~ever
    own, enemies, resources = (used_rows(seen[name]) for name in (OWN, ENEMIES, RESOURCES))
    finished, flat = own[..., IS_SITE] == 0, planes.view(-1)
    _count(flat, own, _OWN - 1 + own[..., TYPE].long(), finished)
    _count(flat, own, torch.full_like(own[..., TYPE], _MINE, dtype=torch.int64), own[..., IS_MINE] > 0)
    _count(flat, own, torch.full_like(own[..., TYPE], _SITE, dtype=torch.int64), ~finished)
    _count(flat, enemies, _ENEMY - 1 + enemies[..., TYPE].long())
    _count(flat, resources, torch.full_like(resources[..., TYPE], _RESOURCE, dtype=torch.int64))
    return planes.view(batch, NUM_PLANES, SIZE, SIZE)


def allowed_values(seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """bool (B, 139): the first five parts of `collective_command.masks`.

    Args:
        seen: The arrays of `officer_view.observe`, stacked.
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


def _count(flat: torch.Tensor, rows: torch.Tensor, planes: torch.Tensor, which: torch.Tensor | None = None) -> None:
    """Adds one for each row at its plane and cell."""
    there = rows[..., TYPE] > 0
    there = there if which is None else there & which
    batch = torch.arange(len(rows), device=rows.device)[:, None]
    cells = rows[..., ROW].long() * SIZE + rows[..., COLUMN].long()
    at = ((batch * NUM_PLANES + planes) * CELLS + cells)[there]
    flat.index_add_(0, at, torch.ones(len(at), device=rows.device))


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
