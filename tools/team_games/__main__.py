"""Value decomposition in small games of teams, what came out. `python -m tools.team_games --json FILE`

    python -m tools.team_games --json docs/results/value_decomposition/team_games.json

Posts (roles), predator and prey (the mixer), corridor (subgoals of the replay). A game alone: `--game corridor`. What
the file holds of other games stays.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from rllib_llm_comm.baselines.value.ldsa import LDSALoss
from rllib_llm_comm.baselines.value.maser import MASERLoss, MASERTraining
from rllib_llm_comm.baselines.value.q_network import QSettings
from rllib_llm_comm.baselines.value.roma import ROMALoss, ROMATraining
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss
from tools.team_games.corridor import Corridor
from tools.team_games.posts import Posts
from tools.team_games.predator_prey import MOST, PredatorPrey
from tools.team_games.training import Batch, earned, falling, train

Row = dict[str, Any]
SYSTEMS: dict[str, tuple[dict[str, Any], TeamLoss]] = {
    "VDN": ({"mixer": "vdn"}, TeamLoss()),
    "QMIX": ({}, TeamLoss()),
    "LDSA": ({"kind": "ldsa"}, LDSALoss()),
    "LDSA, subtasks drawn": ({"kind": "ldsa", "random_subtasks": True}, LDSALoss()),
    "ROMA": ({"kind": "roma"}, ROMALoss()),
    "ROMA without its losses": ({"kind": "roma"}, ROMALoss(ROMATraining(raw_roles=True))),
    "MASER": ({"distance_width": 32}, MASERLoss()),
    "MASER as released": ({"distance_width": 32}, MASERLoss(MASERTraining(faithful=True))),
}
"""Name -> settings of the networks, and the loss, whose discount is that of the game."""
SUCCESSES, TOGETHER = 10, 8


def discounted(loss: TeamLoss, gamma: float) -> TeamLoss:
    """A loss like another one, with a discount of its own."""
    return type(loss)(loss.settings.replace(gamma=gamma))


def posts(seeds: int, rounds: int) -> Iterator[Row]:
    """Reward per step with ids of all five systems, and without ids of those that can part by drawing."""
    for ids, names in ((True, ("VDN", "QMIX", "LDSA", "ROMA", "MASER")), (False, tuple(SYSTEMS)[1:6])):
        for name in names:
            for seed in range(seeds):
                team = posts_team(name, ids, seed, rounds)
                for sample in (False, True):
                    value = earned(Posts(), team, sample=sample) / Posts.steps
                    yield {"system": name, "ids": ids, "seed": seed, "draws": sample, "reward_per_step": value}


def posts_team(name: str, ids: bool, seed: int = 0, rounds: int = 600) -> Any:
    """A team that learned the posts."""
    settings, loss = SYSTEMS[name]
    chosen = QSettings(agent_ids=ids, width=32, init_seed=seed, **settings)
    return train(Posts(), chosen, discounted(loss, 0.5), rounds, epsilon=falling(rounds), seed=seed)


def predator_prey(seeds: int, rounds: int) -> Iterator[Row]:
    """Share of the greatest return of VDN and QMIX."""
    for name in ("VDN", "QMIX"):
        for seed in range(seeds):
            yield {"system": name, "seed": seed, "share_of_most": hunt(name, seed, rounds)}


def hunt(name: str, seed: int = 0, rounds: int = 1500) -> float:
    """Share of the greatest return that a trained team earns."""
    settings, loss = SYSTEMS[name]
    chosen = QSettings(init_seed=seed, **settings)
    team = train(
        PredatorPrey(),
        chosen,
        discounted(loss, 0.97),
        rounds,
        epsilon=falling(rounds),
        seed=seed,
        games=16,
        lr=5e-4,
        copy_every=50,
    )
    return earned(PredatorPrey(), team) / MOST


def corridor(seeds: int, rounds: int) -> Iterator[Row]:
    """Episodes until the tenth success."""
    for name in ("QMIX", "MASER", "MASER as released"):
        for seed in range(seeds):
            yield {"system": name, "seed": seed, "episodes_to_ten": episodes_to_ten(name, seed, rounds)}


def episodes_to_ten(name: str, seed: int, rounds: int = 1000) -> int | None:
    """Episodes until a team has been paid ten times; `None` if the rounds are too few."""
    settings, loss = SYSTEMS[name]
    paid: list[int] = []

    def ten_times(number: int, new: Batch) -> bool:
        paid.append(int(new["rewards"].sum()))
        return sum(paid) >= SUCCESSES

    chosen = QSettings(width=32, init_seed=seed, **settings)
    fall = falling(rounds)
    train(Corridor(), chosen, discounted(loss, 0.95), rounds, epsilon=fall, seed=seed, games=TOGETHER, watch=ten_times)
    return len(paid) * TOGETHER if sum(paid) >= SUCCESSES else None


# Of each game: its rows, seeds per system, rounds.
GAMES: dict[str, tuple[Callable[[int, int], Iterator[Row]], int, int]] = {
    "posts": (posts, 3, 600),
    "predator_prey": (predator_prey, 3, 1500),
    "corridor": (corridor, 5, 1000),
}


def main() -> None:
    """Plays games and writes their rows as they come."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="file of the rows")
    parser.add_argument("--game", choices=tuple(GAMES), action="append", help="play this one; all by default")
    parser.add_argument("--seeds", type=int, help="runs per system; 3, and 5 in the corridor")
    parser.add_argument("--rounds", type=int, help="updates of a run; 600, 1500 and 1000")
    options = parser.parse_args()
    torch.set_num_threads(1)
    told: dict[str, list[Row]] = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    for name in options.game or GAMES:
        game, seeds, rounds = GAMES[name]
        told[name] = []
        for row in game(options.seeds or seeds, options.rounds or rounds):
            print(name, row, flush=True)
            told[name].append(row)
            partial = options.json.with_suffix(".partial")
            partial.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
            partial.replace(options.json)


if __name__ == "__main__":
    main()
