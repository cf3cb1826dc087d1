"""The repeated lever game: two players choose one of five levers, ten times, and get a point whenever they agree.

Players are tables of logits. A blind player has one row and chooses alike in all rounds; a seeing one has a row for
each lever that its partner chose last, and one for the first round. Blind players that learn together end on one
lever, so that strangers agree in a fifth of all pairs; a seeing player can follow any of them from the second round on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

LEVERS, ROUNDS = 5, 10
GAMES = 64


def blind(generator: torch.Generator) -> torch.Tensor:
    """A blind player (1, 5) that is not quite indifferent."""
    return 0.1 * torch.randn(1, LEVERS, generator=generator)


def seeing() -> torch.Tensor:
    """A seeing player (6, 5), indifferent; the last row is that of the first round."""
    return torch.zeros(LEVERS + 1, LEVERS)


def on_lever(lever: int, surety: float = 8.0) -> torch.Tensor:
    """A blind player that chooses one lever nearly always."""
    player = torch.zeros(1, LEVERS)
    player[0, lever] = surety
    return player


def favourite(player: torch.Tensor) -> int:
    """The lever that a blind player likes best."""
    return int(player[0].argmax())


def score(player: torch.Tensor, blind_partner: torch.Tensor) -> float:
    """Expected points per round with a blind partner, computed without sampling."""
    theirs = blind_partner[0].softmax(-1)
    own = player.softmax(-1)
    first = float(own[-1] @ theirs)
    later = float(own[0] @ theirs) if len(own) == 1 else float(theirs @ (own[:LEVERS] @ theirs))
    return (first + (ROUNDS - 1) * later) / ROUNDS


def played(one: torch.Tensor, other: torch.Tensor, games: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Plays games.

    Returns:
        Points (T, games), and rows and levers (T, games) of the first player.
    """
    rows, levers, points = [], [], []
    seen = [torch.full((games,), len(table) - 1) for table in (one, other)]
    for _ in range(ROUNDS):
        chosen = [
            torch.multinomial(table[row].softmax(-1), 1, generator=generator)[:, 0]
            for table, row in zip((one, other), seen, strict=True)
        ]
        rows.append(seen[0])
        levers.append(chosen[0])
        points.append((chosen[0] == chosen[1]).float())
        seen = [chosen[1 - i] if len(table) > 1 else seen[i] for i, table in enumerate((one, other))]
    return torch.stack(points), torch.stack(rows), torch.stack(levers)


def learned(
    player: torch.Tensor,
    draw_partners: Callable[[], list[torch.Tensor]],
    updates: int,
    generator: torch.Generator,
    lr: float = 1.0,
) -> torch.Tensor:
    """A player after REINFORCE with frozen partners.

    Args:
        player: The player; it stays as it is.
        draw_partners: The partners of an update, which share out `GAMES` games equally.
        updates: Gradient steps.
        generator: Draws the games.
        lr: Step size on the logits, for the mean over games of the sum over rounds.
    """
    player = player.clone()
    for _ in range(updates):
        partners = draw_partners()
        parts = [played(player, partner, GAMES // len(partners), generator) for partner in partners]
        points, rows, levers = (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
        table = player.clone().requires_grad_()
        # A player's choice moves only the points of its own round, and a seeing partner's next one.
        to_go = points.flip(0).cumsum(0).flip(0) if any(len(partner) > 1 for partner in partners) else points
        advantage = to_go - to_go.mean(1, keepdim=True)
        chosen = table.log_softmax(-1)[rows, levers]
        (chosen * advantage).sum(0).mean().backward()
        assert table.grad is not None
        player = player + lr * table.grad
    return player
