"""The work of RED's officers: a gradient step, a step of cloning, a forward pass of a roll-out, the view, games.

    python benchmarks/officers.py --json docs/results/benchmarks/officers.json

Seconds of one core's own work (CPU time), on decisions of scripted games. The yardstick is the plain way: each
observation is a map of 43 planes under a convolution, the critic reads each officer's map anew, each cell has a key.
Both ways have the same weights and give the same numbers (tests).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import Row, compare, main
from rllib_llm_comm.baselines.red.collective_choice import CollectiveChoice
from rllib_llm_comm.baselines.red.officer_cloning import (
    ACTION,
    SEEN,
    OfficerDemonstrationSettings,
    record_game,
    write_officer,
)
from rllib_llm_comm.baselines.red.officer_network import (
    MapEncoder,
    OfficerNetwork,
    OfficerSettings,
    planes_of,
    team_view,
)
from rllib_llm_comm.envs.minirts import officer_view
from rllib_llm_comm.envs.minirts.commanders import make_commander
from rllib_llm_comm.envs.minirts.env import MiniRTS
from rllib_llm_comm.evaluation.officers import OfficerScoreSettings, play_side_by_side

sys.path.append(str(Path(__file__).parents[1]))  # the plain views are a test's
from tests.envs import plain_views  # noqa: E402

# What is asked for of an iteration of RED.
GOAL = 2.0
Arrays = Mapping[str, torch.Tensor]


class PlainMap(MapEncoder):
    """The first layer as a convolution over all planes."""

    def begin(self, seen: Arrays) -> torch.Tensor:
        """Output of the first layer."""
        begun: torch.Tensor = self.first(planes_of(seen))
        return begun


class PlainNetwork(OfficerNetwork):
    """The network without what saves work."""

    def _build(self, settings: OfficerSettings) -> None:
        super()._build(settings)
        self.map = PlainMap(settings)

    def choice(self, seen: Arrays) -> CollectiveChoice:
        """The distribution, with keys of all cells."""
        encoded = self._encoded(seen, self.map.begin(seen), self._encode_sentences(seen))
        keys = self.map.cell_keys(encoded.features, planes_of(seen))
        return dataclasses.replace(self._choice(seen, encoded), cell_keys=keys)

    def choose(self, seen: Arrays) -> tuple[CollectiveChoice, torch.Tensor]:
        """The distribution, and what the critic reads, row by row."""
        shared = team_view(seen)
        return self.choice(seen), self._encoded(shared, self.map.begin(shared), self._encode_sentences(shared)).whole


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    games, size = (1, 16) if options.smoke else (6, 256)
    ours, plain = (
        kind(OfficerSettings(critic_observation="team", init_seed=0)) for kind in (OfficerNetwork, PlainNetwork)
    )
    plain.load_state_dict(ours.state_dict())
    decisions = demonstrated(games)
    pairs = np.sort(np.random.default_rng(0).permutation(len(decisions[ACTION]) // 2)[: size // 2])
    # The rows of a game are those of alice and bob in turn.
    some = {name: part[np.concatenate([2 * pairs, 2 * pairs + 1])] for name, part in decisions.items()}
    few = {name: part[:16] for name, part in some.items()}
    half = {name: part[: size // 2] for name, part in some.items()}
    timed: list[tuple[str, Callable[..., Any], Arrays]] = [
        (f"gradient step of PPO, {size} decisions", ppo_step, some),
        (f"gradient step of cloning, {size // 2} decisions", cloning_step, half),
        ("actions of 8 games, 16 decisions", act, few),
    ]
    rows = []
    for name, work, rows_of in timed:
        seconds, reference = compare(
            lambda work=work, rows_of=rows_of: work(ours, rows_of),
            lambda work=work, rows_of=rows_of: work(plain, rows_of),
            options.rounds,
            time.process_time,
        )
        goal = GOAL if work is ppo_step else None
        settings = {"filters": 32, "stride": 2, "clock": "cpu"}
        rows.append(Row(f"officers/{name}", seconds * 1e3, reference * 1e3, "ms", goal, settings, lower_is_better=True))
    return [*rows, view(10 if options.smoke else 400, options.rounds), play(options.smoke, options.rounds)]


def demonstrated(games: int) -> dict[str, torch.Tensor]:
    """Decisions of demonstrated games."""
    how = OfficerDemonstrationSettings(games=games, max_tick=6000)
    env = how.env()
    played = [record_game(env, how, number)[0] for number in range(games)]
    return {name: torch.from_numpy(np.concatenate([one[name] for one in played])) for name in (*SEEN, ACTION)}


def ppo_step(network: OfficerNetwork, rows: Arrays) -> None:
    """Forward and backward pass of a loss with the log-probabilities, the entropies and the values of decisions."""
    network.zero_grad()
    choice, whole = network.choose({name: rows[name] for name in SEEN})
    loss = network.values(whole).square().mean() - choice.logp(rows[ACTION]).mean() - choice.entropy().mean()
    loss.backward()


def cloning_step(network: OfficerNetwork, rows: Arrays) -> None:
    """Forward and backward pass of the log-probabilities of decisions."""
    network.zero_grad()
    (-network.choice({name: rows[name] for name in SEEN}).logp(rows[ACTION]).mean()).backward()


def act(network: OfficerNetwork, rows: Arrays) -> None:
    """Draws actions."""
    with torch.no_grad():
        network.choice({name: rows[name] for name in SEEN}).sample()


def view(times: int, rounds: int) -> Row:
    """The arrays of an officer, compiled and plain, at the end of a game."""
    how = OfficerDemonstrationSettings(games=1, max_tick=6000, commanders={"oracle": 1.0})
    env = how.env()
    record_game(env, how, 0)

    def seen(observe: Callable[..., Any]) -> None:
        for _ in range(times):
            observe(env.team, 0)

    seconds, plain = compare(
        lambda: seen(officer_view.observe),
        lambda: seen(plain_views.officer),
        rounds,
        time.process_time,
    )
    settings = {"own_units": len(env.team.own), "clock": "cpu"}
    micro = 1e6 / times
    return Row(
        "officers/view of an officer", seconds * micro, plain * micro, "us", None, settings, lower_is_better=True
    )


def play(smoke: bool, rounds: int) -> Row:
    """Games under commanders in lockstep, and one by one through the environment's own steps."""
    games, at_once = (2, 2) if smoke else (16, 16)
    asked = [(name, seed) for name in ("none", "random") for seed in range(games // 2)]
    with tempfile.TemporaryDirectory() as folder:
        network = OfficerNetwork(OfficerSettings(critic_observation="team", init_seed=0))
        officer = write_officer(Path(folder) / "officer", network, "BehaviorCloning", {}, {})
        settings = OfficerScoreSettings(executor=f"trained:{officer}", max_tick=300 if smoke else 6000)
        envs = [settings.env() for _ in range(at_once)]
        together, alone = compare(
            lambda: list(play_side_by_side(envs, asked)),
            lambda: [play_alone(envs[0], *game) for game in asked],
            rounds,
            time.process_time,
        )
    how = {"games": games, "at_once": at_once, "max_tick": settings.max_tick, "officer": "untrained", "clock": "cpu"}
    return Row("officers/games in lockstep, 16 at once", games / together, games / alone, "games/s", None, how)


def play_alone(env: MiniRTS, name: str, seed: int) -> None:
    """A game by the environment's own steps, with a pass of the network at each decision."""
    env.reset(seed=seed)
    commander = make_commander(name, env.executor, env.commands, seed)
    while env.agents:
        env.step({agent: env.commands.index(commander(number)) for number, agent in enumerate(env.agents)})


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
