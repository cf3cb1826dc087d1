"""Small team games with known values, played as arrays: fixed points for value decomposition."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import torch

from rllib_llm_comm.baselines.value.joint_game import joined
from rllib_llm_comm.baselines.value.q_network import QSettings, QTeam, epsilon_greedy
from rllib_llm_comm.baselines.value.value_decomposition import TeamLoss, ValueTraining

TWO_STEP = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])


def tensors(batch):
    """A batch of `joint_game.joined` as tensors."""
    return {name: torch.as_tensor(values) for name, values in batch.items()}


def episode(seen, actions, rewards, terminated, num_actions, masks=None, state=None):
    """An episode of arrays; the state is all that agents see."""
    seen = np.asarray(seen, np.float32)
    steps, agents = len(rewards), seen.shape[1]
    over = np.zeros(steps, np.float32)
    over[-1] = terminated
    return {
        "seen": seen,
        "state": seen.reshape(steps + 1, -1) if state is None else np.asarray(state, np.float32),
        "action_mask": np.ones((steps + 1, agents, num_actions), np.int8) if masks is None else masks,
        "active": np.ones((steps + 1, agents), np.int8),
        "actions": np.asarray(actions, np.int64),
        "rewards": np.asarray(rewards, np.float32),
        "terminated": over,
    }


def two_step():
    """The two-step game of the QMIX paper, each joint plan once: the first agent chooses the second step's payoffs."""
    games = []
    for first in itertools.product(range(2), repeat=2):
        for second in itertools.product(range(2), repeat=2):
            where = 1 + first[0]
            seen = np.repeat(np.eye(3)[[0, where, 0]][:, None], 2, 1)
            games.append(episode(seen, [first, second], [0.0, TWO_STEP[where - 1][second]], True, 2))
    return games


def memory_game(games=256, length=6, seed=0):
    """Both see a bit in the first step and are paid in the last one if both play it; random actions."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(games):
        bit, actions = int(rng.integers(2)), rng.integers(0, 2, (length, 2))
        paid = float((actions[-1] == bit).all())
        made.append(episode(memory_seen(bit, length), actions, [0.0] * (length - 1) + [paid], True, 2))
    return made


def memory_seen(bit, length=6):
    """Views of both agents of a bit (length + 1, 2, 2): a clock of the last step, and the bit in the first."""
    seen = np.zeros((length + 1, 2, 2))
    seen[0, :, 1] = 2 * bit - 1
    seen[:, :, 0] = np.arange(length + 1)[:, None] == length - 1
    return seen


def endless(games=8, length=10):
    """A reward of 1 in every step for ever, cut by a time limit."""
    rng = np.random.default_rng(0)
    return [
        episode(np.ones((length + 1, 2, 1)), rng.integers(0, 2, (length, 2)), np.ones(length), False, 2)
        for _ in range(games)
    ]


def train(games, settings, updates, *, batch=None, seed=0, gamma=0.99, copy_every=100, lr=5e-4, loss=None):
    """A team that learned from episodes.

    Args:
        games: The episodes.
        batch: Episodes of an update, drawn from them; `None` for all.

    Returns:
        The team and its target.
    """
    torch.manual_seed(seed)
    data, rng = tensors(joined(games)), torch.Generator().manual_seed(seed)
    sizes = (data["seen"].shape[-1], data["action_mask"].shape[-1], data["seen"].shape[2], data["state"].shape[-1])
    live = QTeam(settings, *sizes)
    target = copy.deepcopy(live).eval()
    loss = loss or TeamLoss(ValueTraining(gamma=gamma))
    optimizer = torch.optim.RMSprop(live.parameters(), lr=lr, alpha=0.99, eps=1e-5)
    for update in range(updates):
        if update % copy_every == 0:
            target.load_state_dict(live.state_dict())
        drawn = data
        if batch is not None:
            rows = torch.randint(len(games), (batch,), generator=rng)
            drawn = {name: values[rows] for name, values in data.items()}
        value, _ = loss(live, target, drawn)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(live.parameters(), 10.0)
        optimizer.step()
    return live.eval(), target


def plain(**settings):
    """Settings of a feed-forward team without what a game of few states has no use for."""
    return QSettings(**{"recurrent": False, "last_action": False, "init_seed": 0, **settings})


def table(team, states, state=None):
    """Team values (A, A) of all joint actions of two agents that both see a state."""
    seen = torch.as_tensor(np.asarray(states, np.float32)).reshape(1, 1, 1, -1).expand(1, 1, 2, -1)
    with torch.no_grad():
        values = team.unroll(seen, torch.full((1, 1, 2), -1)).values[0, 0]
        actions = values.shape[-1]
        pairs = torch.stack([values[0][:, None].expand(actions, actions), values[1].expand(actions, actions)], -1)
        whole = seen.reshape(1, 1, -1).expand(actions, actions, -1)
        return team.total(pairs, whole)[..., 0].numpy()


def greedy(team, seen):
    """Best actions (n,) in what agents see (n, size)."""
    seen = torch.as_tensor(np.asarray(seen, np.float32))[None, None]
    with torch.no_grad():
        values = team.unroll(seen, torch.full((1, 1, seen.shape[2]), -1), sample=False).values[0, 0]
    return epsilon_greedy(values, torch.ones_like(values), 0.0).numpy()
