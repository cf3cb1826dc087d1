"""The posts: four equal agents, four posts, ten steps, and a reward of 1 in each step in which no two share a post.

An agent sees its own last post and how many stood at each. Many games are played at once as arrays.
"""

from __future__ import annotations

import copy

import torch

from rllib_llm_comm.agents.q_network import epsilon_greedy
from rllib_llm_comm.agents.q_team import QTeam
from rllib_llm_comm.learners.q_losses import TeamLoss

POSTS, STEPS, GAMES, KEPT = 4, 10, 32, 1024


def play(team, epsilon, sample=True, games=GAMES):
    """Episodes (games, ...) as tensors."""
    seen = torch.zeros(games, POSTS, 2 * POSTS)
    memory, last = team.initial_memory(games), torch.full((games, 1, POSTS), -1)
    views, actions, rewards = [seen], [], []
    team.eval()
    for _ in range(STEPS):
        with torch.no_grad():
            out = team.unroll(seen[:, None], last, memory, sample=sample)
        memory, last = out.memory, epsilon_greedy(out.values, torch.ones_like(out.values), epsilon)
        stood = torch.nn.functional.one_hot(last[:, 0], POSTS).float()
        counts = stood.sum(1, keepdim=True)
        seen = torch.cat([stood, counts.expand_as(stood) / POSTS], -1)
        views.append(seen)
        actions.append(last[:, 0])
        rewards.append((counts[:, 0] == 1).all(-1).float())
    return {
        "seen": torch.stack(views, 1),
        "state": torch.stack(views, 1).flatten(2),
        "action_mask": torch.ones(games, STEPS + 1, POSTS, POSTS),
        "active": torch.ones(games, STEPS + 1, POSTS),
        "actions": torch.stack(actions, 1),
        "rewards": torch.stack(rewards, 1),
        "terminated": torch.zeros(games, STEPS),
        "filled": torch.ones(games, STEPS),
    }


def train(settings, loss=None, rounds=600, seed=0, lr=1e-3, gamma=0.5):
    """A team after as many updates as rounds, each after `GAMES` games."""
    torch.manual_seed(seed)
    live = QTeam(settings, 2 * POSTS, POSTS, POSTS, 2 * POSTS * POSTS)
    target = copy.deepcopy(live).eval()
    loss, kept = loss or TeamLoss(gamma), None
    loss.gamma = gamma
    optimizer = torch.optim.RMSprop(live.parameters(), lr=lr, alpha=0.99, eps=1e-5)
    for number in range(rounds):
        if number % 20 == 0:
            target.load_state_dict(live.state_dict())
        new = play(live, max(0.05, 1 - 2 * number / rounds))
        kept = new if kept is None else {k: torch.cat([kept[k], v])[-KEPT:] for k, v in new.items()}
        rows = torch.randint(len(kept["rewards"]), (GAMES,))
        value, _ = loss(live.train(), target, {name: values[rows] for name, values in kept.items()})
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(live.parameters(), 10.0)
        optimizer.step()
    return live.eval()


def earned(team, sample=False):
    """Mean reward per step of greedy play."""
    return float(play(team, 0.0, sample, 256)["rewards"].mean())
