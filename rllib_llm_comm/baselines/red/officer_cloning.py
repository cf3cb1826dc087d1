"""Behaviour cloning of MiniRTS officers: the network learns what demonstrated officers ordered when told so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field

from rllib_llm_comm.baselines.red.officer_demonstrations import ACTION, GAME, OfficerRows, read_demonstrations
from rllib_llm_comm.baselines.red.officer_network import OfficerNetwork
from rllib_llm_comm.baselines.red.officer_settings import OfficerSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.minirts.collective_command import GO_ON_AT
from rllib_llm_comm.envs.minirts.game import ENV_ID
from rllib_llm_comm.envs.minirts.view.officer_view import officer_spaces
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import OFFICER, PolicyManifest

SEEN = tuple(officer_spaces())
"""Names of the arrays that the network reads."""
_LOOK_AHEAD = 2
_GRAD_NORM = 0.5


class OfficerCloningSettings(Settings):
    """Settings of the behaviour cloning before RL; those of the original code unless marked."""

    network: OfficerSettings = OfficerSettings()
    """The network."""
    lr: float = Field(2e-3, ge=1e-12, le=1)
    """Learning rate of Adamax."""
    epochs: int = Field(8, ge=1, le=10**4)
    """Most passes over the decisions (ours). The original: 50."""
    batch_size: int = Field(128, ge=1, le=10**6)
    """Decisions per gradient step."""
    idle: float = Field(0.3, ge=1e-3, le=1)
    """Share of the decisions at which nothing was ordered that is taken in a pass; each counts for as many as are left
    out (ours)."""
    held_out: float = Field(0.1, ge=0.01, le=0.5)
    """Share of the games that is held out (ours)."""
    seed: int = Field(0, ge=-(2**63), le=2**63 - 1)
    """Seed of weights and batches."""
    start: str | None = None
    """Policy folder of an officer with the same network to go on from; None for fresh weights (ours)."""


@dataclass(frozen=True)
class OfficerCloningResult:
    """Figures of a cloned officer.

    Attributes:
        network: The network, as it was after the pass with the lowest held-out loss.
        decisions: Number of decisions that it learned from, and that were held out.
        nll: Mean negative log-likelihood of the held-out decisions, in nats, after each pass.
    """

    network: OfficerNetwork
    decisions: tuple[int, int]
    nll: tuple[float, ...]


def clone_officers(
    rows: OfficerRows,
    settings: OfficerCloningSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep: Callable[[OfficerCloningResult], None] | None = None,
) -> OfficerCloningResult:
    """Trains an officer until its passes are over, or the held-out loss has not fallen for two of them.

    Args:
        rows: The demonstrations.
        settings: The settings; `None` for the defaults.
        progress: Called with the numbers of gradient steps that were done and of all.
        keep: Called with the figures so far after each pass that is the best yet.

    Raises:
        UserError: If there are too few games, or the officer to go on from has another network.
    """
    how = settings or OfficerCloningSettings()
    learned, held_out = split(rows, how.held_out)
    network = _begun(how)
    optimizer = torch.optim.Adamax(network.parameters(), lr=how.lr)
    rng, found, best = np.random.default_rng(how.seed), list[float](), dict[str, torch.Tensor]()
    done, counts = 0, (len(learned), len(held_out))
    for _ in range(how.epochs):
        drawn, weights = drawn_decisions(rows.columns[ACTION], learned, how.idle, rng)
        steps = -(-len(drawn) // how.batch_size)
        for batch in np.array_split(np.arange(len(drawn)), steps):
            loss = weighted_nll(network, rows, drawn[batch], weights[batch])
            take_step(network, optimizer, loss)
            done += 1
            if progress:
                progress(done, max(done, steps * how.epochs))
        found.append(mean_nll(network, rows, held_out))
        if found[-1] == min(found):
            best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            if keep:
                keep(OfficerCloningResult(network, counts, tuple(found)))
        elif min(found[-_LOOK_AHEAD:]) > min(found):
            break
    network.load_state_dict(best)
    return OfficerCloningResult(network.eval(), counts, tuple(found))


def _begun(how: OfficerCloningSettings) -> OfficerNetwork:
    """The network that training starts from."""
    network = OfficerNetwork(how.network.replace(init_seed=how.seed))
    if how.start is not None:
        from rllib_llm_comm.baselines.red.officer_executor import load_officer

        earlier = load_officer(how.start, "start")
        if earlier.settings.shape() != how.network.shape():
            raise UserError(
                f"the officer {how.start!r} has the network {earlier.settings.to_dict()}; set the same, or leave "
                "`start` away."
            )
        network.load_state_dict(earlier.state_dict())
    return network


def split(rows: OfficerRows, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the decisions that are learned from, and of those that are held out: the last games, at least one.

    Args:
        rows: The demonstrations.
        held_out: Share of the games.

    Raises:
        UserError: If there is but one game.
    """
    games = int(rows.columns[GAME].max()) + 1
    if games < 2:
        raise UserError("there is one game of demonstrations only; give at least two, one of which is held out.")
    last = min(games - max(1, round(games * held_out)), games - 1)
    of_last = rows.columns[GAME] >= last
    return np.flatnonzero(~of_last), np.flatnonzero(of_last)


def drawn_decisions(
    actions: np.ndarray, among: np.ndarray, idle: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of one pass in random order, and the weight of each: all with orders, a share of the others.

    Args:
        actions: RED's actions (N, 58).
        among: Numbers of decisions.
        idle: Share of those without orders, which count 1 / idle each.
        rng: Draws.
    """
    nothing = actions[among, GO_ON_AT] == 1
    taken = ~nothing | (rng.random(len(among)) < idle)
    order = rng.permutation(int(taken.sum()))
    weights = np.where(nothing[taken], 1.0 / idle, 1.0).astype(np.float32)
    return among[taken][order], weights[order]


def weighted_nll(network: OfficerNetwork, rows: OfficerRows, numbers: np.ndarray, weights: np.ndarray) -> torch.Tensor:
    """The weighted mean negative log-likelihood of some decisions.

    Args:
        network: The network.
        rows: The demonstrations.
        numbers: Numbers of the decisions.
        weights: Their weights.
    """
    choice = network.choice(batch_of(rows, numbers))
    logp, weight = choice.logp(torch.from_numpy(rows.columns[ACTION][numbers])), torch.from_numpy(weights)
    loss: torch.Tensor = -(logp * weight).sum() / weight.sum()
    return loss


def mean_nll(network: OfficerNetwork, rows: OfficerRows, numbers: np.ndarray, batch_size: int = 256) -> float:
    """The mean negative log-likelihood of some decisions, in nats.

    Args:
        network: The network.
        rows: The demonstrations.
        numbers: Numbers of the decisions.
        batch_size: Decisions at a time.
    """
    total = 0.0
    with torch.no_grad():
        for batch in _pieces(numbers, batch_size):
            choice = network.choice(batch_of(rows, batch))
            total -= float(choice.logp(torch.from_numpy(rows.columns[ACTION][batch])).double().sum())
    return total / len(numbers)


def batch_of(rows: OfficerRows, numbers: np.ndarray) -> dict[str, torch.Tensor]:
    """The arrays that the network reads, of some decisions.

    Args:
        rows: The demonstrations.
        numbers: Numbers of the decisions.
    """
    return {name: torch.from_numpy(rows.columns[name][numbers]) for name in SEEN}


def take_step(network: OfficerNetwork, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """A gradient step, with the norm of the gradient cut to 0.5.

    Args:
        network: The network.
        optimizer: Its optimizer.
        loss: The loss.
    """
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), _GRAD_NORM)
    optimizer.step()


def clone_into(
    folder: str | os.PathLike[str],
    demonstrations: str | os.PathLike[str],
    settings: OfficerCloningSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> OfficerCloningResult:
    """Trains an officer on a folder of demonstrations and writes its policy folder, anew after each better pass.

    Args:
        folder: The policy folder; one of that name is replaced.
        demonstrations: The folder of `write_demonstrations`.
        settings: The settings; `None` for the defaults.
        progress: As of `clone_officers`.

    Raises:
        UserError: If there are no demonstrations, or too few games.
    """
    how, rows = settings or OfficerCloningSettings(), read_demonstrations(demonstrations)
    played = {name: rows.settings[name] for name in ("opponent", "num_agents", "max_tick")}

    def keep(found: OfficerCloningResult) -> None:
        write_officer(folder, found.network, "BehaviorCloning", played, provenance_of(rows, how, found))

    found = clone_officers(rows, how, progress, keep)
    keep(found)
    return found


def write_officer(
    folder: str | os.PathLike[str],
    network: OfficerNetwork,
    algorithm: str,
    env_config: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Path:
    """Writes an officer's policy folder, which appears at once or not at all; one of that name is replaced.

    Args:
        folder: The target.
        network: The network.
        algorithm: Name of what trained it.
        env_config: Settings of the game in which it gives RED's actions by itself.
        provenance: Its origin, JSON-able.
    """
    manifest = PolicyManifest(
        algorithm=algorithm,
        kind=OFFICER,
        model_config=network.settings.to_dict(),
        communication={},
        env=ENV_ID,
        env_config={**env_config, "action_level": "red", "observe": ["officer"]},
        provenance=provenance,
    )
    return write_policy(folder, network_file(network), manifest)


def provenance_of(rows: OfficerRows, how: OfficerCloningSettings, result: OfficerCloningResult) -> dict[str, Any]:
    """Origin of a cloned officer, JSON-able.

    Args:
        rows: The demonstrations.
        how: The settings.
        result: The figures.
    """
    cloning = {name: value for name, value in how.to_dict().items() if name != "network"}
    figures = {"decisions": list(result.decisions), "held_out_nll": [round(value, 4) for value in result.nll]}
    return {"demonstrations": {**rows.settings, "games": len(rows.games)}, "cloning": cloning, **figures}


def _pieces(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
