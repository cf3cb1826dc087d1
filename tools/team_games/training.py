"""Teams that learn a small game: many episodes side by side as arrays, a replay, one update per round."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Protocol

import torch

from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, epsilon_greedy
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss

Batch = dict[str, torch.Tensor]


class TeamGame(Protocol):
    """A game of a team, of many episodes at once.

    Attributes:
        agents: n.
        actions: A.
        steps: Longest episode.
        size: Length of what an agent sees.
        state_size: Length of the state.
    """

    agents: int
    actions: int
    steps: int
    size: int
    state_size: int

    def begin(self, games: int) -> None:
        """Begins as many episodes."""

    def see(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Views (games, n, size), states (games, state_size) and open actions (games, n, A)."""

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rewards (games,) of the actions (games, n), and true (games,) where that was the last step."""


def play(game: TeamGame, team: QTeam, epsilon: float, games: int, sample: bool = True) -> Batch:
    """Episodes as of `team_episodes.joined`, as tensors.

    Args:
        game: The game.
        team: The team.
        epsilon: Share of random actions.
        games: Episodes.
        sample: False in a test: LDSA's agents then take their likeliest subtask.
    """
    game.begin(games)
    memory, last = team.initial_memory(games), torch.full((games, 1, game.agents), -1)
    alive, told = torch.ones(games, dtype=torch.bool), [game.see()]
    actions, rewards, ended, filled = [], [], [], []
    team.eval()
    for _ in range(game.steps):
        seen, _, mask = told[-1]
        with torch.no_grad():
            out = team.unroll(seen[:, None], last, memory, sample=sample)
        memory, last = out.memory, epsilon_greedy(out.values, mask[:, None], epsilon)
        reward, over = game.step(last[:, 0])
        told.append(game.see())
        actions.append(last[:, 0])
        rewards.append(reward * alive)
        ended.append((over & alive).float())
        filled.append(alive.float())
        alive = alive & ~over
    views, states, masks = (torch.stack(one, 1) for one in zip(*told, strict=True))
    return {
        "seen": views,
        "state": states,
        "action_mask": masks,
        "active": torch.ones(views.shape[:3]),
        "actions": torch.stack(actions, 1),
        "rewards": torch.stack(rewards, 1),
        "terminated": torch.stack(ended, 1),
        "filled": torch.stack(filled, 1),
    }


def train(
    game: TeamGame,
    settings: QSettings,
    loss: TeamLoss,
    rounds: int,
    *,
    epsilon: Callable[[int], float],
    games: int = 32,
    batch: int = 32,
    kept: int = 1024,
    copy_every: int = 20,
    lr: float = 1e-3,
    seed: int = 0,
    watch: Callable[[int, Batch], bool] = lambda number, new: False,
) -> QTeam:
    """A team that has learned.

    Args:
        game: The game.
        settings: Of the team.
        loss: Of a batch.
        rounds: Updates, each after `games` episodes.
        epsilon: Share of random actions by round.
        games: Episodes per round.
        batch: Episodes of an update.
        kept: Newest episodes that are kept.
        copy_every: Rounds between two copies of the target.
        lr: Step size of RMSprop.
        seed: Of all that is random.
        watch: Gets the round and its episodes; true ends the training.
    """
    torch.manual_seed(seed)
    live = QTeam(settings, game.size, game.actions, game.agents, game.state_size)
    target = copy.deepcopy(live).eval()
    optimizer = torch.optim.RMSprop(live.parameters(), lr=lr, alpha=0.99, eps=1e-5)
    replay: Batch | None = None
    for number in range(rounds):
        if number % copy_every == 0:
            target.load_state_dict(live.state_dict())
        new = play(game, live, epsilon(number), games)
        if watch(number, new):
            break
        replay = new if replay is None else {name: torch.cat([replay[name], new[name]])[-kept:] for name in new}
        rows = torch.randint(len(replay["rewards"]), (batch,))
        value, _ = loss(live.train(), target, {name: values[rows] for name, values in replay.items()})
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(live.parameters(), 10.0)
        optimizer.step()
    return live.eval()


def falling(rounds: int, share: float = 0.5, low: float = 0.05) -> Callable[[int], float]:
    """A share of random actions that falls from 1 to `low` within a share of the rounds."""
    return lambda number: max(low, 1.0 - (1.0 - low) * number / (share * rounds))


def earned(game: TeamGame, team: QTeam, games: int = 256, sample: bool = False) -> float:
    """Mean sum of rewards of episodes in which all take their best actions.

    Args:
        game: The game.
        team: The team.
        games: Episodes.
        sample: As of `play`.
    """
    return float(play(game, team, 0.0, games, sample)["rewards"].sum(1).mean())
