"""Bring a game of your own: observations in words, candidate actions as phrases, agents that talk about it.

This example:
    - writes a PettingZoo parallel environment whose observations are dicts of `text`, `candidates` and `action_mask`:
      each of two scouts sees the colour of the door that the *other* one has to open;
    - registers it with PettingZoo, so that `rllib check env`, YAML files, `collect_labels` and `load_policy` find it;
    - checks it with `check_env`, the contract tests that our own games pass;
    - writes a teacher for it (`request.state` is the game's `teacher_state`) and trains Verco twice on it, with the
      teacher's messages and with everybody saying the same.

How to run this script
----------------------
`python own_text_environment.py`, or with `--smoke` for two small iterations of each.

Results to expect
-----------------
"15 checks passed", then a line per iteration of each run. A door opened by guessing is the right one in a third of the
cases: with everybody saying the same the return stayed at 3.2 to 3.7 of 10; with telling messages it rose above 6
within 6 iterations and stayed there (seed 0, half a minute for both on two cores). The embedded language model had
never read of this game: it learns here what colours are good for.
"""

from __future__ import annotations

import argparse
import string
from typing import Any

import gymnasium as gym
import numpy as np
import ray
from pettingzoo import ParallelEnv
from pettingzoo.env_registry import registration

from rllib_llm_comm import VercoConfig
from rllib_llm_comm.testing import check_env
from rllib_llm_comm.verco.teachers.base import Teacher, TeacherRequest, register_teacher

COLOURS = ("red", "blue", "green")
ENV_ID = "my_games/doors-v0"


class Doors(ParallelEnv):
    """Two scouts open a door each, ten times; 1 for the right one, which only the other scout knows."""

    metadata = {"name": "doors_v0", "render_modes": ["ansi"]}
    # What a teacher is told of the game.
    task = "open the door of the right colour"
    brief = "Two scouts; each sees the colour of the door that the other one must open."

    def __init__(self, rounds: int = 10, render_mode: str | None = None) -> None:
        self.rounds, self.render_mode = rounds, render_mode
        self.possible_agents = ["ann", "ben"]
        self.agents: list[str] = []
        text = gym.spaces.Text(100, charset=string.printable)
        self._observation_space = gym.spaces.Dict(
            {
                "text": text,
                "candidates": gym.spaces.Tuple([text] * len(COLOURS)),
                "action_mask": gym.spaces.Box(0, 1, (len(COLOURS),), np.int8),
            }
        )
        self._action_space = gym.spaces.Discrete(len(COLOURS))
        self._rng = np.random.default_rng()
        self._right: dict[str, str] = {}
        self._round = 0

    @property
    def teacher_state(self) -> dict[str, str]:
        """The right door of each scout: what a scripted teacher may see."""
        return dict(self._right)

    def observation_space(self, agent: str) -> gym.Space:
        return self._observation_space  # PettingZoo wants the same object each time

    def action_space(self, agent: str) -> gym.Space:
        return self._action_space

    def _observe(self) -> dict[str, dict[str, Any]]:
        other = dict(zip(self.possible_agents, reversed(self.possible_agents), strict=True))
        return {
            agent: {
                "text": f"i am {agent}. i see a {self._right[other[agent]]} sign for {other[agent]}.",
                "candidates": tuple(f"open the {colour} door" for colour in COLOURS),
                "action_mask": np.ones(len(COLOURS), np.int8),
            }
            for agent in self.possible_agents
        }

    def _draw(self) -> None:
        self._right = {agent: str(self._rng.choice(COLOURS)) for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._round = list(self.possible_agents), 0
        self._draw()
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        rewards = {agent: float(COLOURS[int(actions[agent])] == self._right[agent]) for agent in self.agents}
        self._round += 1
        over = self._round == self.rounds
        truncations = dict.fromkeys(self.agents, over)  # a limit of rounds, not an end of the game
        terminations = dict.fromkeys(self.agents, False)
        infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._draw()
        if over:
            self.agents = []
        return self._observe(), rewards, terminations, truncations, infos

    def render(self) -> str:
        return f"round {self._round}: {self._right}"


class Telling(Teacher):
    """Each scout tells the other one which door is right."""

    name = "telling"

    def messages(self, request: TeacherRequest, *, rng: np.random.Generator) -> dict[str, str]:
        ann, ben = request.agents
        return {ann: f"open the {request.state[ben]} door", ben: f"open the {request.state[ann]} door"}


def train(messages: str, iterations: int, decisions: int) -> None:
    """Trains Verco and prints a line per iteration."""
    algo = (
        VercoConfig()
        .environment(ENV_ID)
        # The embedded model has never read such phrases and finds some a thousand times likelier than others: with its
        # plain scores the scouts would try one door only. Scores per token and a high temperature leave them curious.
        .language_model(score_normalization="token", temperature=4.0)
        .communication(messages=messages, teacher="telling")
        .training(train_batch_size_per_learner=decisions, num_epochs=2, minibatch_size=128, gamma=0.0, lr=4e-3)
        .debugging(seed=0)
        .build_algo()
    )
    try:
        for iteration in range(iterations):
            results = algo.train()["env_runners"]
            told = results.get("agent_episode_returns_mean", {"": float("nan")}).values()
            print(f"{messages:8s} {iteration + 1:2d}  return {sum(told) / len(told):5.2f} of 10", flush=True)
    finally:
        algo.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Bring a game of your own.")
    parser.add_argument("--smoke", action="store_true", help="two small iterations of each run only")
    arguments = parser.parse_args()

    registration.register("parallel", ENV_ID, entry_point=f"{__name__}:Doors")
    register_teacher("telling", Telling)
    checks = check_env(ENV_ID)
    for check in checks:
        if not check.ok:
            raise SystemExit(f"{check.name}: {check.detail}")
    print(f"{len(checks)} checks passed")

    ray.init(num_cpus=2, object_store_memory=2 * 10**8, include_dashboard=False, log_to_driver=False)
    try:
        for messages in ("teacher", "constant"):
            train(messages, 2 if arguments.smoke else 20, 160 if arguments.smoke else 512)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
