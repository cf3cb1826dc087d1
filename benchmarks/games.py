"""Game steps per second of the textual kitchen on one core.

    python benchmarks/games.py --json docs/results/benchmarks/games.json

`rules` is the game with macro-actions chosen at random; the yardstick is the original implementation, which cannot be
run here beside ours: its 6,500 macro game steps per second with two cooks were measured before on such a machine.
`with words` is the whole PettingZoo environment, observation, text and phrases for every cook included; its yardstick
is the same with nothing remembered about words.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from harness import Row, alternate, compare, main
from rllib_llm_comm.envs.interface import asked
from rllib_llm_comm.envs.overcooked_text import observation_text, parallel_env
from rllib_llm_comm.envs.overcooked_text.actions import MacroRunner
from rllib_llm_comm.envs.overcooked_text.rules import TextKitchen

ORIGINAL = 6500.0
EPISODE = 200


def rules(map_name: str, steps: int, rounds: int) -> Row:
    """The game without words."""
    runner = MacroRunner(TextKitchen(map_name))
    rng = random.Random(0)
    draws = [[rng.randrange(runner.num_actions) for _ in range(2)] for _ in range(steps)]

    def play() -> None:
        """Steps of the rules."""
        runner.reset()
        for actions in draws:
            runner.step(actions)
            if runner.kitchen.delivered or runner.kitchen.game_step >= EPISODE:
                runner.reset()

    (seconds,) = alternate([play], rounds)
    settings = {"map_name": map_name, "cooks": 2, "steps": steps, "reference_measured": "earlier, not in this run"}
    rate = steps / sorted(seconds)[len(seconds) // 2]
    return Row(f"games/rules, map {map_name}", rate, ORIGINAL, "game steps/s", 10.0, settings)


def with_words(steps: int, rounds: int) -> Row:
    """The whole environment, remembered words against words made anew."""

    def remembered() -> None:
        """Steps with remembered words."""
        observation_text.limit_memory()
        _play_environment(steps)

    def anew() -> None:
        """Steps with words made anew."""
        observation_text.limit_memory(1)
        _play_environment(steps)

    seconds, other = compare(remembered, anew, rounds)
    observation_text.limit_memory()
    settings = {"map_name": "B", "cooks": 2, "steps": steps}
    return Row("games/with words, map B", steps / seconds, steps / other, "game steps/s", None, settings)


def _play_environment(steps: int) -> None:
    env: Any = parallel_env(map_name="B")
    rng = random.Random(0)
    observations, infos = env.reset(seed=0)
    done = 0
    while done < steps:
        actions = {
            agent: rng.choice([k for k, offered in enumerate(observations[agent]["action_mask"]) if offered])
            for agent in asked(env.agents, infos)
        }
        observations, _, _, _, infos = env.step(actions)
        done += len(infos["alice"]["step_rewards"])
        if not env.agents:
            observations, infos = env.reset()


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    steps = 400 if options.smoke else 20000
    return [*(rules(name, steps, options.rounds) for name in "ABC"), with_words(steps, options.rounds)]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
