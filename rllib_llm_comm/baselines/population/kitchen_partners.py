"""Frozen partners at the tables of many onion-soup games: the draw of partners and seats, and the partners' actions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rllib_llm_comm.baselines.population.kitchen_scripts import ScriptedCooks
from rllib_llm_comm.baselines.population.stacked_actors import StackedActors
from rllib_llm_comm.envs.overcooked_ai import kernel
from rllib_llm_comm.envs.overcooked_ai.batch import KitchenBatch
from rllib_llm_comm.envs.overcooked_ai.rules import NUM_ACTIONS
from rllib_llm_comm.policies.partner_settings import SCRIPTED, STAY
from rllib_llm_comm.policies.policy_folder import PolicyExport, network_of

ITSELF = -1
"""Partner index of a game that the learner plays with itself."""


@dataclass(frozen=True)
class FrozenPartner:
    """A player that holds a seat and does not learn.

    Attributes:
        name: Its name in the figures.
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
    """The number of games side by side that the learner plays with itself: the share of all, rounded.

    Args:
        games: All games, >= 1.
        share: In [0, 1].
    """
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
        games: The games.
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
            network_of(partner.player) if isinstance(partner.player, PolicyExport) else None for partner in partners
        ]
        self._scripts = ScriptedCooks(games) if any(p.player == SCRIPTED for p in partners) else None
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
        """Draws partner and seat of games that begin.

        Args:
            games: bool (N,).
        """
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


def uniform_pool(policies: Mapping[str, PolicyExport], self_play_share: float = 0.0) -> PartnerPool:
    """A pool from which all are drawn equally often.

    Args:
        policies: Numeric policies by name.
        self_play_share: As of `PartnerPool`.
    """
    return weighted_pool(policies, [1.0] * len(policies), self_play_share)


def weighted_pool(
    policies: Mapping[str, PolicyExport], weights: Sequence[float], self_play_share: float = 0.0
) -> PartnerPool:
    """A pool of policies that are in memory, such as those of a population.

    Args:
        policies: Numeric policies by name.
        weights: Weight of each, > 0.
        self_play_share: As of `PartnerPool`.
    """
    pairs = zip(policies.items(), weights, strict=True)
    return PartnerPool(tuple(FrozenPartner(name, one, float(w)) for (name, one), w in pairs), self_play_share)
