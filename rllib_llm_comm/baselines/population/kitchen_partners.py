"""Frozen partners at the tables of many onion-soup games: pool, draw of seats, actions and matches."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rllib_llm_comm.baselines.population.responder import Matches
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai import ENV_ID, kernel
from rllib_llm_comm.envs.overcooked_ai.env import difference
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.planner import CookWalker, plan
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS, KitchenBatch, SoupKitchen
from rllib_llm_comm.policies.partner_settings import CHECKPOINT, FUNCTION, PEOPLE, SCRIPTED, STAY, PartnerSettings
from rllib_llm_comm.policies.policy_folder import (
    PolicyExport,
    array_network_of,
    find_policy,
    load_array_network,
    network_file,
)
from rllib_llm_comm.policies.policy_manifest import NUMERIC, PolicyManifest, read_manifest
from rllib_llm_comm.rl.kitchen_games import kitchen_batch

ITSELF = -1
"""Partner index of a game that the learner plays with itself."""
PLANES = 26


class StackedActors:
    """Logits of rows that belong to different numeric networks.

    Plain MLPs of one shape and activation are computed together, each row by its own network's weights; others, such as
    those with layer norms, in a pass each. The logits are those of each network alone up to rounding.

    Args:
        actors: The actor of each row's network; the same object for rows of one network.
    """

    def __init__(self, actors: Sequence[nn.Sequential]) -> None:
        rows: dict[int, list[int]] = {}
        for row, actor in enumerate(actors):
            rows.setdefault(id(actor), []).append(row)
        owned = [(actors[own[0]], own) for own in rows.values()]
        owned.sort(key=lambda one: str(one[0]))  # which tells layers and sizes
        self._parts = [_StackedNetworks(list(alike)) for _, alike in groupby(owned, key=lambda one: str(one[0]))]
        self._count = len(actors)

    def logits(self, seen: torch.Tensor) -> np.ndarray:
        """Logits (B, K), a row for each given actor, of what they see (B, V)."""
        out = np.zeros((0, 0), np.float32)
        for part in self._parts:
            for rows, logits in part.run(seen):
                if not out.size:
                    out = np.zeros((self._count, logits.shape[-1]), np.float32)
                out[rows] = logits.numpy()
        return out


class _StackedNetworks:
    """Networks of one shape, each with the rows that are its own."""

    def __init__(self, owned: list[tuple[nn.Sequential, list[int]]]) -> None:
        self._owned = [(actor, np.array(rows)) for actor, rows in owned]
        layers = list(owned[0][0])
        self._stacked = len(owned) > 1 and all(isinstance(one, nn.Linear | nn.ReLU | nn.Tanh) for one in layers)
        if not self._stacked:
            return
        widest = max(len(rows) for _, rows in owned)
        padded = [[*rows, *[rows[0]] * (widest - len(rows))] for _, rows in owned]
        self._table, self._rows = torch.tensor(padded), np.array(padded)
        self._layers: list[Any] = [
            _stack([actor[place] for actor, _ in owned]) if isinstance(layer, nn.Linear) else layer
            for place, layer in enumerate(layers)
        ]

    def run(self, seen: torch.Tensor) -> list[tuple[np.ndarray, torch.Tensor]]:
        """Rows and their logits; padding repeats a row with its own logits."""
        if not self._stacked:
            return [(rows, actor(seen[rows])) for actor, rows in self._owned]
        hidden = seen[self._table]
        for layer in self._layers:
            hidden = torch.baddbmm(layer[1], hidden, layer[0]) if isinstance(layer, tuple) else layer(hidden)
        return [(self._rows, hidden)]


def _stack(layers: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (P, in, out) and biases (P, 1, out)."""
    weights = torch.stack([layer.weight.detach() for layer in layers]).transpose(1, 2).contiguous()
    return weights, torch.stack([layer.bias.detach() for layer in layers])[:, None]


@dataclass
class _Cook:
    kitchen: SoupKitchen
    player: int
    walker: CookWalker


class SingleGameCooks:
    """The scripted player of single games, which plans anew in every step; many times slower than a network.

    Args:
        games: The games; the scripts look at their states and change none.

    Raises:
        UserError: If the kitchen is none that the planner knows.
    """

    def __init__(self, games: KitchenBatch) -> None:
        games.layout.require_classic("Scripted partners")
        self._games = games
        self._cooks: dict[int, _Cook] = {}

    def begin(self, game: int, player: int, rng: np.random.Generator) -> None:
        """Takes a seat in a game that begins.

        Args:
            player: The cook, 0 or 1.
            rng: Gives the seed of the random steps of cooks that block each other.
        """
        if game in self._cooks:
            kitchen = self._cooks[game].kitchen
        else:
            kitchen = SoupKitchen(self._games.layout, self._games.dynamics, self._games.horizon)
        walker = CookWalker(kitchen, player)
        walker.reset(np.random.default_rng(int(rng.integers(2**31))))
        self._cooks[game] = _Cook(kitchen, player, walker)

    def action(self, game: int) -> int:
        """The next action in a game."""
        cook = self._cooks[game]
        cook.kitchen.state = self._games.states[game]
        return cook.walker.action(plan(cook.kitchen)[cook.player].cell)


@dataclass(frozen=True)
class FrozenPartner:
    """A player that holds a seat and does not learn.

    Attributes:
        player: `"random"`, `"stay"` or `"scripted"`, or a numeric policy, with what it needs to act.
        weight: > 0: how often it is drawn from its pool, relative to the others.
        noise: In [0, 1]: the share of its actions that are drawn uniformly.
        pauses: In [0, 1 - noise]: the share of its steps in which it stays.
        greedy: True if a network's most likely action is taken instead of a sampled one.
    """

    name: str
    player: str | PolicyExport
    weight: float = 1.0
    noise: float = 0.0
    pauses: float = 0.0
    greedy: bool = False


@dataclass(frozen=True)
class PartnerPool:
    """Partners from which one is drawn for every game that begins.

    Attributes:
        partners: The partners; at least one unless the learner plays all games with itself.
        self_play_share: In [0, 1]: the share of games that the learner plays with itself. It is exact: the first
            `self_play_games` of the games side by side are such games, so that every batch has the same rows (ours).
        key: Identifies the pool: runners whose pool has another key begin all games anew.
    """

    partners: tuple[FrozenPartner, ...]
    self_play_share: float = 0.0
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


def self_play_games(games: int, share: float) -> int:
    """The number of games side by side that the learner plays with itself: the share (in [0, 1]) of all, rounded."""
    return round(games * share)


class SeatedPartners:
    """Partner and seat of every game; both are drawn again whenever a game ends.

    Attributes:
        partner: int (N,): index into the pool's partners, `ITSELF` in games with itself.
        seat: int (N,): the learner's seat, 0 or 1, by a fair coin; 0 in games with itself, where it has both.
        own: int (R,): rows (2 * game + seat) in which the learner acts. R is the same at all times, and the row of one
            place belongs to one game until that ends.

    Args:
        pool: The partners; `None`: the learner plays all games with itself.
        seed: Of draws of partners, seats and actions.
    """

    def __init__(self, pool: PartnerPool | None, games: KitchenBatch, seed: int | Sequence[int]) -> None:
        count = len(games.states)
        self._pool, self._games = pool, games
        self._rng = np.random.default_rng(seed)
        alone = count if pool is None else self_play_games(count, pool.self_play_share)
        self.partner = np.full(count, ITSELF)
        self.seat = np.zeros(count, int)
        self._shared = np.arange(alone, count)
        partners = () if pool is None else pool.partners
        weights = np.array([partner.weight for partner in partners], float)
        self._chances = weights / weights.sum() if len(weights) else weights
        self._networks = [
            array_network_of(partner.player) if isinstance(partner.player, PolicyExport) else None
            for partner in partners
        ]
        self._scripts = SingleGameCooks(games) if any(p.player == SCRIPTED for p in partners) else None
        self.own = np.arange(2 * count)
        self.redraw(np.ones(count, bool))

    @property
    def together(self) -> bool:
        """True if a game is played with another player than the learner itself."""
        return bool(len(self._shared))

    def name(self, game: int) -> str | None:
        """The name of a game's partner; `None` if the learner plays with itself."""
        index = int(self.partner[game])
        return None if self._pool is None or index == ITSELF else self._pool.partners[index].name

    def redraw(self, games: np.ndarray) -> None:
        """Draws partner and seat of the games (N,) bool that begin."""
        drawn = self._shared[games[self._shared]]
        if not len(drawn):
            return
        self.partner[drawn] = self._rng.choice(len(self._chances), len(drawn), p=self._chances)
        self.seat[drawn] = self._rng.integers(0, 2, len(drawn))
        alone = np.arange(2 * self._shared[0])
        self.own = np.concatenate([alone, 2 * self._shared + self.seat[self._shared]])
        self._theirs = 2 * self._shared + 1 - self.seat[self._shared]
        if self._scripts is not None:
            for game in drawn:
                self._scripts.begin(int(game), 1 - int(self.seat[game]), self._rng)
        self._deal()

    def _deal(self) -> None:
        """Sorts the partners' rows by who plays them."""
        assert self._pool is not None
        held = self.partner[self._shared]
        self._groups = [(self._pool.partners[index], index, np.flatnonzero(held == index)) for index in np.unique(held)]
        networks = [self._networks[index] for index in held]
        self._judged = np.array([place for place, network in enumerate(networks) if network is not None], int)
        self._actors = StackedActors([network.actor for network in networks if network is not None])
        partners = [self._pool.partners[index] for index in held]
        self._noise = np.array([partner.noise for partner in partners])
        self._pauses = np.array([partner.pauses for partner in partners])
        self._draws = np.array([not partner.greedy for partner in partners])[:, None]
        self._disturbed = bool(self._noise.any() or self._pauses.any())

    def act(self, planes: np.ndarray, actions: np.ndarray) -> None:
        """Chooses for all partners; networks of one shape that play at the moment share a pass.

        Args:
            planes: uint8 (2 * N, V): what every cook sees.
            actions: int (2 * N,): the partners' actions are written into their rows.
        """
        count = len(self._theirs)
        seen = torch.from_numpy(planes[self._theirs]).float()
        logits = np.zeros((count, NUM_ACTIONS), np.float32)
        if len(self._judged):  # all actions are allowed, so actors alone are enough
            logits[self._judged] = self._actors.logits(seen[self._judged])
        # Gumbel noise makes the largest a draw of the softmax; without a network all are alike.
        chosen = (logits + self._draws * self._rng.gumbel(size=logits.shape)).argmax(1)
        for partner, _, places in self._groups:
            if partner.player == SCRIPTED and self._scripts is not None:
                chosen[places] = [self._scripts.action(int(game)) for game in self._shared[places]]
            elif partner.player == STAY:
                chosen[places] = kernel.STAY
        if self._disturbed:
            draw = self._rng.random(count)
            chosen = np.where(draw < self._noise, self._rng.integers(0, NUM_ACTIONS, count), chosen)
            chosen[(draw >= self._noise) & (draw < self._noise + self._pauses)] = kernel.STAY
        actions[self._theirs] = chosen


def check_partner(partner: PartnerSettings, env_config: Mapping[str, Any]) -> None:
    """Refuses a partner that cannot play in arrays of games; of a checkpoint only `policy.json` is read.

    Raises:
        UserError: If it is a function, talks, has a habit or `unstuck`, or is a policy that is not numeric or of
            another kitchen.
    """
    where = f"the partner {partner.name!r}"
    refused = {
        "policy": partner.kind in (FUNCTION, PEOPLE),
        "habit": bool(partner.habit),
        "unstuck": bool(partner.unstuck),
        "speech": partner.speech == "scripted",
        "word_noise": bool(partner.word_noise),
        "word_order": partner.word_order != "own",
    }
    for setting in (name for name, found in refused.items() if found):
        raise UserError(
            f"`{setting}` of {where} is {getattr(partner, setting)!r}, which the arrays of games do not know; take "
            "checkpoints, 'scripted', 'random' or 'stay', without habits, `unstuck`, and words."
        )
    if partner.kind == CHECKPOINT:
        _check_manifest(read_manifest(find_policy(partner.policy)), where, env_config)


def load_partners(pool: Sequence[PartnerSettings], env_config: Mapping[str, Any]) -> tuple[FrozenPartner, ...]:
    """Loads the networks of a pool's checkpoints (safetensors and JSON, no pickles).

    Raises:
        UserError: If one cannot be read or cannot play in this kitchen.
    """
    partners = []
    for one in pool:
        check_partner(one, env_config)
        player: str | PolicyExport = one.policy
        if one.kind == CHECKPOINT:
            player, _ = read_policy(find_policy(one.policy), env_config)
        partners.append(FrozenPartner(one.name, player, one.weight, one.noise, one.pauses, one.greedy))
    return tuple(partners)


def read_policy(folder: Path, env_config: Mapping[str, Any]) -> tuple[PolicyExport, PolicyManifest]:
    """A policy of a folder with its manifest (safetensors and JSON, no pickles).

    Args:
        env_config: Settings of the kitchen in which it is to play.

    Raises:
        UserError: If it cannot be read or cannot play in this kitchen.
    """
    manifest = read_manifest(folder)
    _check_manifest(manifest, f"the policy {str(folder)!r}", env_config)
    files = network_file(load_array_network(folder, manifest))
    return PolicyExport(manifest.kind, files, manifest.model_config), manifest


def _check_manifest(manifest: PolicyManifest, where: str, env_config: Mapping[str, Any]) -> None:
    settings = manifest.model_config
    if manifest.kind != NUMERIC or settings.get("network", "mlp") != "mlp" or manifest.env != ENV_ID:
        raise UserError(
            f"{where} is a policy of {manifest.algorithm} for {manifest.env!r}, but the arrays of games seat numeric "
            f"policies for {ENV_ID!r} only, such as those of SelfPlayPPO."
        )
    if reason := difference(env_config, manifest.env_config):
        raise UserError(f"{where} {reason}")
    layout = get_layout(env_config.get("layout", "cramped_room"))
    if settings.get("size") != PLANES * layout.width * layout.height:
        raise UserError(
            f"{where} sees {settings.get('size')} numbers, which are not the {PLANES} lossless planes of "
            f"{layout.name!r} alone; take policies of SelfPlayPPO, or others with `env_config.vector` 'planes'."
        )


def play_matches(
    policies: Sequence[PolicyExport],
    pairs: Sequence[tuple[int, int]],
    games: int,
    env_config: Mapping[str, Any],
    seed: int | Sequence[int],
) -> Matches:
    """Plays whole games of all pairs with sampled actions.

    Args:
        policies: Numeric policies that see the kitchen's lossless planes.
        pairs: Numbers of the policies that are player 0 and player 1, P >= 1 pairs.
        games: Games of each pair, >= 1.
        env_config: Settings of the kitchen: `layout`, `dynamics`, `horizon`.
    """
    rng = np.random.default_rng(seed)
    kitchens = kitchen_batch(len(pairs) * games, env_config)
    player = np.repeat(np.asarray(pairs, int), games, axis=0).reshape(-1)
    rows = {int(number): np.flatnonzero(player == number) for number in np.unique(player)}
    networks = {number: array_network_of(policies[number]) for number in rows}
    sparse, shaped = np.zeros(len(kitchens.states)), np.zeros(len(kitchens.states))
    logits = np.zeros((len(player), NUM_ACTIONS))
    with torch.no_grad():
        for _ in range(kitchens.horizon):
            planes = torch.from_numpy(kitchens.lossless().reshape(len(player), -1).view(np.uint8)).float()
            for number, network in networks.items():  # all actions are allowed, so the actor alone is enough
                logits[rows[number]] = network.actor(planes[rows[number]]).numpy()
            actions = (logits + rng.gumbel(size=logits.shape)).argmax(1)
            points, shares, _ = kitchens.step(actions.reshape(-1, 2))
            sparse += points.sum(1)
            shaped += shares.sum(1)
    points, shares = (sums.reshape(len(pairs), games).sum(1) for sums in (sparse, shaped))
    return Matches(points, shares, np.full(len(pairs), float(games * kitchens.horizon)), games)
