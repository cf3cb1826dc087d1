"""RED's two phases in a corridor with two berries, with D_k as the learner keeps and mixes it.

Cells 0 to 10, start at 5. The left berry pays 1, the right one 0.3; "go left", "go right", or no command.
Demonstrators go where they are told, but each step is wrong with probability 0.3.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from rllib_llm_comm.baselines.red.red import WonGames, mixed_batch

NONE, LEFT, RIGHT = range(3)
CELLS, STEPS, START = 11, 20, 5
WRONG = 0.3


def inputs(cells, told):
    cells = torch.as_tensor(cells)
    return torch.cat(
        [functional.one_hot(cells, CELLS), functional.one_hot(torch.full_like(cells, told), 3)], -1
    ).float()


def play(choose, told, games, rng):
    """Cells, actions (1: right), whether a step was played, and returns, of games side by side."""
    at, paid, live = np.full(games, START), np.zeros(games), np.ones(games, bool)
    cells, actions, played = [], [], []
    for _ in range(STEPS):
        chosen = choose(at, told, rng)
        cells.append(at.copy()), actions.append(chosen), played.append(live.copy())
        at = np.where(live, at + 2 * chosen - 1, at)
        paid += live * ((at == 0) * 1.0 + (at == CELLS - 1) * 0.3)
        live &= (at > 0) & (at < CELLS - 1)
    return np.array(cells), np.array(actions), np.array(played), paid


class Network:
    """A hidden layer of 64; all methods begin with the same weights."""

    def __init__(self, of=None):
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(CELLS + 3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
        if of is not None:
            self.layers.load_state_dict(of.layers.state_dict())
        self.rl = torch.optim.Adam(self.layers.parameters(), lr=1e-3)
        self.bc = torch.optim.Adam(self.layers.parameters(), lr=2e-3)

    def choose(self, at, told, rng):
        with torch.no_grad():
            chance = self.layers(inputs(at, told)).softmax(-1)[:, 1].numpy()
        return (rng.random(len(at)) < chance).astype(np.int64)

    def reinforce(self, rng, won=None):
        """An update of REINFORCE under no command; games with the larger berry are won."""
        cells, actions, played, paid = play(self.choose, NONE, 64, rng)
        advantage = torch.from_numpy(np.broadcast_to(paid - paid.mean(), cells.shape)[played]).float()
        logits = self.layers(inputs(cells[played], NONE))
        loss = (
            functional.cross_entropy(logits, torch.from_numpy(actions[played]), reduction="none") * advantage
        ).mean()
        self.rl.zero_grad(), loss.backward(), self.rl.step()
        for game in np.flatnonzero(paid == 1.0) if won is not None else ():
            steps = played[:, game]
            told = np.full(int(steps.sum()), NONE)
            won.add({"cell": cells[steps, game], "told": told, "action": actions[steps, game]})

    def nll(self, rows):
        seen = torch.cat(
            [functional.one_hot(torch.as_tensor(rows[k]), n) for k, n in (("cell", CELLS), ("told", 3))], -1
        )
        return functional.cross_entropy(self.layers(seen.float()), torch.as_tensor(rows["action"]))

    def clone(self, shown, won, steps, rng):
        kept = None if won is None else won.columns()
        for _ in range(steps):
            loss = self.nll(mixed_batch(shown, kept, 256, 1.0, rng))
            self.bc.zero_grad(), loss.backward(), self.bc.step()

    def figures(self, rng):
        """Return without a command, and the share that goes right when told so."""
        free = play(self.choose, NONE, 400, rng)[-1].mean()
        return free, (play(self.choose, RIGHT, 400, rng)[-1] == 0.3).mean()


def demonstrations(rng, games=500):
    """Decisions under "go left" and "go right"."""

    def obey(at, told, draws):
        return np.where(draws.random(len(at)) < WRONG, told == LEFT, told == RIGHT).astype(np.int64)

    columns = {"cell": [], "told": [], "action": []}
    for told in (LEFT, RIGHT):
        cells, actions, played, _ = play(obey, told, games, rng)
        for name, values in (("cell", cells), ("told", np.full_like(cells, told)), ("action", actions)):
            columns[name].append(values[played])
    return {name: np.concatenate(parts) for name, parts in columns.items()}


@pytest.fixture(scope="module")
def results():
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    shown, held_out = demonstrations(rng), demonstrations(rng, 100)
    cloned = Network()
    cloned.clone(shown, None, 300, rng)
    found = {"cloned": cloned, "rl": Network(cloned), "red": Network(cloned), "empty": Network(cloned)}
    for _ in range(120):
        found["rl"].reinforce(rng)
    for name, won in (("red", WonGames(len(shown["cell"]))), ("empty", None)):
        for _ in range(5):
            for _ in range(10):
                found[name].reinforce(rng, won)
            found[name].clone(shown, won, 400, rng)
    return {name: (*network.figures(rng), float(network.nll(held_out).detach())) for name, network in found.items()}


def test_rl_alone_learns_to_win_and_to_ignore_commands(results):
    free, right, _ = results["rl"]
    assert free >= 0.95 and right < 0.3


def test_red_wins_by_itself_and_follows_commands(results):
    free, right, nll = results["red"]
    assert free >= 0.95 and right >= 0.75 and nll <= 1.1 * results["cloned"][2]


def test_without_won_games_cloning_takes_back_what_was_learned(results):
    assert results["red"][0] - results["empty"][0] >= 0.1 and results["empty"][1] >= 0.75


def test_the_oldest_games_go_and_the_ratio_is_that_of_the_rows():
    won = WonGames(10)
    for number in range(6):
        won.add({"cell": np.full(4, number)})
    assert len(won) == 2 and won.count == 8 and set(won.columns()["cell"]) == {4, 5}
    again = WonGames(10)
    again.set_state(won.get_state())
    assert np.array_equal(again.columns()["cell"], won.columns()["cell"])
    shown, rng = {"cell": np.full(100, -1)}, np.random.default_rng(0)
    for ratio, share in ((1.0, 0.5), (3.0, 0.75), (0.0, 0.0)):
        drawn = mixed_batch(shown, won.columns(), 20000, ratio, rng)["cell"]
        assert (drawn >= 0).mean() == pytest.approx(share, abs=0.02)
    assert (mixed_batch(shown, WonGames(1).columns(), 50, 1.0, rng)["cell"] == -1).all()
