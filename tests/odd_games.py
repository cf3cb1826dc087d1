"""Games of strangers: one small game, odd in one way at a time."""

from __future__ import annotations

import string

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

from rllib_llm_comm.rl.rllib_adapter import register_parallel_env

SIZE, ACTIONS, LENGTH = 3, 3, 5
CANDIDATES = ("wait", "go left", "go right")
IDS = {"numbers": (0, 1), "tuples": (("red", 0), ("red", 1)), "NumPy's numbers": tuple(np.arange(2))}

PLAYED = (
    *IDS,
    "comes later",
    "comes later, busy",
    "leaves",
    "comes and goes",
    "all leave one by one",
    "one step",
    "whole rewards",
    "NumPy's rewards",
    "paid on arrival",
    "float64",
    "lists",
    "no mask",
    "no infos",
    "infos of None",
    "unknown before the reset",
    "NumPy's ends",
    "no truncations",
    "masked",
)
"""Games that every algorithm plays."""

IN_PLAY = {
    "reward nan": ("reward", "in step 3"),
    "reward inf": ("reward", "in step 3"),
    "reward of text": ("reward", "in step 3"),
    "no reward": ("reward", "in step 3"),
    "reward of a stranger": ("reward", "in step 3"),
    "reward 1e300": ("reward", "in step 3"),
    "nan seen": ("vector", "in step 3"),
    "inf seen": ("vector", "in step 3"),
    "-1e300 seen": ("vector", "in step 3"),
    "part missing": ("vector", "in step 3"),
    "not seen": ("observation", "in step 3"),
    "all masked": ("action_mask", "in step 3"),
    "mask too short": ("action_mask", "in step 3"),
    "mask of -1": ("action_mask", "in step 3"),
    "mask of halves": ("action_mask", "in step 3"),
    "stranger": ("possible_agents", "in step 3"),
    "comes back": ("agents", "in step 4"),
    "vanishes": ("agents", "in step 3"),
    "nobody begins": ("agents", "reset"),
    "info of text": ("info", "in step 3"),
    "other shape in the second episode": ("vector", "at the reset"),
    "other space in the second episode": ("observation space", "reset"),
    "four results": ("step", "truncations"),
}
"""Games that are refused when they are played, with what the sentence names."""

SPACES = {
    "from one": "count from 0",
    "many choices": "must be Discrete|needs Discrete",
    "continuous": "must be Discrete|needs Discrete",
}
"""Games that are refused before they are played."""


class Odd(ParallelEnv):
    """Two agents see when it is, in numbers and words, and are paid 1 a step until step 5.

    Args:
        kind: What is odd.
    """

    metadata = {"name": "odd"}

    def __init__(self, kind: str = "") -> None:
        self.kind, self.episode = kind, 0
        self.ids = IDS.get(kind, ("a", "b"))
        self.agents: list = []
        if kind != "unknown before the reset":
            self.possible_agents = list(self.ids)

    def observation_space(self, agent):
        words = gym.spaces.Text(40, min_length=0, charset=string.printable)
        size = SIZE + (self.kind == "other space in the second episode" and self.episode > 1)
        size += self.kind == "shapes differ" and agent == "b"
        kind = np.float64 if self.kind == "float64" else np.float32
        vector = gym.spaces.Box(-np.inf, np.inf, (size,), kind)
        if self.kind == "image":
            vector = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)
        parts = {"vector": vector, "text": words, "candidates": gym.spaces.Tuple([words] * self.count(agent))}
        if self.kind != "no mask":
            parts["action_mask"] = gym.spaces.Box(0, 1, (self.count(agent),), np.int8)
        return gym.spaces.Dict(parts)

    def action_space(self, agent):
        if self.kind == "many choices":
            return gym.spaces.MultiDiscrete([2, 2])
        if self.kind == "continuous":
            return gym.spaces.Box(-1, 1, (2,), np.float32)
        return gym.spaces.Discrete(self.count(agent), start=int(self.kind == "from one"))

    def count(self, agent):
        return ACTIONS + (self.kind == "actions differ" and agent == "b")

    def reset(self, seed=None, options=None):
        self.t, self.episode, self.acted = 0, self.episode + 1, []
        self.agents = list(self.ids)
        if self.kind in ("comes later", "comes later, busy", "comes and goes", "paid on arrival"):
            self.agents = self.agents[:1]
        if self.kind == "nobody begins":
            self.agents = []
        return {agent: self.seen(agent) for agent in self.agents}, self.infos(self.agents)

    def seen(self, agent):
        kind, now = self.kind, self.t == 3 and agent == self.ids[0]
        vector = np.full(self.observation_space(agent)["vector"].shape, self.t / LENGTH, np.float32)
        mask = np.ones(self.count(agent), np.int8)
        if kind in ("nan seen", "inf seen", "-1e300 seen") and now:
            vector = vector.astype(np.float64)
            vector[0] = float(kind.split()[0])
        if kind == "other shape in the second episode" and self.episode > 1:
            vector = vector[:2]
        if kind == "all masked" and now:
            mask[:] = 0
        if kind == "mask too short" and now:
            mask = mask[:2]
        if kind == "mask of -1" and now:
            mask[0] = -1
        if kind == "mask of halves" and now:
            mask = np.array([0, 0.5, 1])
        if kind == "masked":
            mask[1:] = 0
        if kind == "float64":
            vector = vector.astype(np.float64)
        if kind == "image":
            vector = np.full((4, 4, 3), 10 * self.t, np.uint8)
        phrases = (*CANDIDATES, "go up")[: self.count(agent)]
        seen = {"vector": vector, "text": f"i am {agent}, it is {self.t}.", "candidates": phrases, "action_mask": mask}
        if kind == "lists":
            seen.update(vector=vector.tolist(), action_mask=mask.tolist())
        if kind == "no mask":
            del seen["action_mask"]
        if kind == "part missing" and now:
            del seen["vector"]
        return seen

    def infos(self, agents):
        if self.kind == "no infos":
            return {}
        if self.kind == "infos of None":
            return dict.fromkeys(agents)
        if self.kind == "info of text" and self.t == 3:
            return dict.fromkeys(agents, "text")
        busy = self.kind == "comes later, busy" and self.t == 2
        return {agent: {"needs_action": not (busy and agent == "b")} for agent in agents}

    def step(self, actions):
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
            assert self.kind != "masked" or action == 0
        if self.kind == "fails":
            raise ZeroDivisionError("the game itself")
        self.acted.append(sorted(actions, key=str))
        self.t += 1
        before, kind = list(self.agents), self.kind
        first, second = self.ids
        length = 1 if kind == "one step" else LENGTH
        over = self.t >= length
        ends = dict.fromkeys(before, over)
        if kind in ("leaves", "all leave one by one", "comes and goes", "comes back") and self.t >= 3:
            ends[first] = ends.get(first, False) or first in before
        if kind == "all leave one by one" and self.t >= 4:
            ends[second] = True
        cuts = dict.fromkeys(before, False)
        after = [agent for agent in before if not ends.get(agent, False)]
        if self.t == 2 and kind in ("comes later", "comes later, busy", "comes and goes", "paid on arrival"):
            after.append(second)
        if kind == "comes back" and self.t == 4:
            after.append(first)
        if kind == "vanishes" and self.t == 3:
            after.remove(first)
        if kind == "stranger" and self.t == 3:
            after.append("c")
        self.agents = after
        told = list(dict.fromkeys([*before, *after]))
        rewards = dict.fromkeys(before, 1.0)
        if kind == "paid on arrival":
            rewards = dict.fromkeys(told, 1.0)
        if kind == "whole rewards":
            rewards = dict.fromkeys(before, 1)
        if kind == "NumPy's rewards":
            rewards = dict(zip(before, (np.float32(1.0), np.array(1.0)), strict=False))
        if self.t == 3 and kind.startswith("reward "):
            rewards |= {"reward of a stranger": {"c": 1.0}}.get(kind, {first: kind.split()[-1]})
            if kind in ("reward nan", "reward inf", "reward 1e300"):
                rewards[first] = float(kind.split()[-1])
        if kind == "no reward" and self.t == 3:
            del rewards[first]
        if kind == "NumPy's ends":
            ends = {agent: np.bool_(end) for agent, end in ends.items()}
        if kind == "no truncations":
            cuts = {}
        seen = {agent: self.seen(agent) for agent in told if agent in self.ids}
        if kind == "not seen" and self.t == 3:
            del seen[first]
        if kind == "four results":
            return seen, rewards, ends, self.infos(told)
        return seen, rewards, ends, cuts, self.infos(told)


class Mixed(Odd):
    """Each episode is odd in another way; ids, spaces and observations stay the same."""

    kinds = (
        "leaves", "comes later", "comes later, busy", "comes and goes", "all leave one by one", "one step",
        "whole rewards", "NumPy's rewards", "paid on arrival", "no infos", "infos of None", "NumPy's ends",
        "no truncations",
    )  # fmt: skip

    def reset(self, seed=None, options=None):
        self.kind = self.kinds[self.episode % len(self.kinds)]
        return super().reset(seed, options)


class Strange(Mixed):
    """Ids are tuples; observations have float64 numbers in lists and no mask."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = IDS["tuples"]
        self.possible_agents = list(self.ids)

    def observation_space(self, agent):
        kind, self.kind = self.kind, "no mask"
        space = super().observation_space(agent)
        self.kind = kind
        return space

    def seen(self, agent):
        seen = super().seen(agent)
        return {"vector": seen["vector"].astype(np.float64).tolist(), **{k: seen[k] for k in ("text", "candidates")}}


GAMES = {"odd/mixed-v0": Mixed, "odd/strange-v0": Strange, "odd/game-v0": Odd}


def register() -> None:
    """Registers the games with RLlib and PettingZoo."""
    for name, game in GAMES.items():
        register_parallel_env(name, game)
