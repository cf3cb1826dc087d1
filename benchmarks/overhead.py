"""Games through PettingZoo and RLlib, beside an earlier checkout of this package, in CPU seconds.

    git worktree add ../before 88ae142e~1
    python benchmarks/overhead.py --before ../before --json docs/results/benchmarks/overhead.json

Two processes, one with the earlier code and one with this, play the same games in turn, with the same actions and
seeds. Nothing is timed before a digest of all that games showed, paid and told agrees; of roll-outs, of all that the
episodes hold. Every round has new episodes, whose actions a third process draws, so that words are new as in play. A
row is the median of the rounds' ratios, by CPU seconds. Without `--before` the yardstick's column stays empty, but for
`lean EnvRunner`, whose yardstick is RLlib's own EnvRunner in the same process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from env_runners import Stopwatch

from harness import Row, main

GOAL = 3.0
KITCHENS = 16
ONION_SOUP = {
    "planes": {"observe": ["planes"]},
    "vector": {"observe": ["vector"]},
    "vector and words": {"observe": ["vector", "text"]},
}
TEXT_KITCHEN, KNOWN = "textual kitchen with words", "textual kitchen, all words known"
ROLL_OUT, STOCK, GAME = "roll-out of SymbolicPPO", "stock", "game"
BARE = "onion soup, rules and planes alone"


def works() -> list[str]:
    """Names of all that is timed in both checkouts."""
    return [*(f"onion soup, {name}" for name in ONION_SOUP), TEXT_KITCHEN, ROLL_OUT]


# ---- one side, in a process of its own -----------------------------------------------------------------------


Drawn = list[tuple[int, dict[str, int] | None]]
"""Actions by step; none where an episode begins, whose seed is the number before."""


def player(work: str, steps: int) -> Callable[[Any, Drawn], float | None]:
    """A function that plays a work once, with drawn actions, and hands what it saw to its first argument, if any."""
    if work.startswith(ROLL_OUT):
        return roll_out(steps, stock=work.endswith(STOCK), game=work.endswith(GAME))
    if work == BARE:
        return bare
    env = environment(work)

    def replay(see: Any, drawn: Drawn) -> float | None:
        """All steps once."""
        for number, actions in drawn:
            result = env.reset(seed=number) if actions is None else env.step(actions)
            if see is not None:
                see(result)
        return None

    return replay


def bare(see: Any, drawn: Drawn) -> float | None:
    """The steps of `planes` without the environment around them."""
    from rllib_llm_comm.envs.overcooked_ai.rules import SoupKitchen

    kitchen = SoupKitchen()
    for _, actions in drawn:
        if actions is None:
            kitchen.reset()
        else:
            kitchen.advance(actions["alice"], actions["bob"])
        kitchen.lossless()
    return None


def environment(work: str) -> Any:
    """The PettingZoo environment of a work."""
    if work == BARE:
        work = "onion soup, planes"
    if work in (TEXT_KITCHEN, KNOWN):
        from rllib_llm_comm.envs.overcooked_text import parallel_env as make_text

        return make_text(map_name="B")
    from rllib_llm_comm.envs.overcooked_ai import parallel_env as make

    return make(**ONION_SOUP[work.removeprefix("onion soup, ")])


def draws(env: Any, first: int, steps: int) -> Iterator[tuple[int, dict[str, int] | None]]:
    """Random allowed actions of so many steps, of which the first has a number."""
    from rllib_llm_comm.envs.interface import asked

    rng = random.Random(first)
    env.agents = []
    for number in range(first, first + steps):
        if not env.agents:
            observations, infos = env.reset(seed=number)
            yield number, None
        actions = {
            agent: rng.choice(np.flatnonzero(observations[agent]["action_mask"]).tolist())
            for agent in asked(env.agents, infos)
        }
        yield number, actions
        observations, _, _, _, infos = env.step(actions)


def roll_out(decisions: int, stock: bool, game: bool) -> Callable[[Any, Drawn], float | None]:
    """Roll-outs of the small network in kitchens with two orders."""
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

    from rllib_llm_comm import SymbolicPPOConfig

    config: Any = SymbolicPPOConfig().environment(
        "rllib_llm_comm/overcooked_text-v0", env_config={"map_name": "B", "recipe": "lettuce-tomato salad"}
    )
    config.debugging(seed=0).env_runners(num_env_runners=0, num_envs_per_env_runner=KITCHENS)
    config.validate()
    torch.manual_seed(0)
    cls = MultiAgentEnvRunner if stock else config.env_runner_cls or MultiAgentEnvRunner
    runner = cls(config=config, worker_index=0)

    watch = Stopwatch(time.process_time)
    for kitchen in runner.env.envs if game else ():
        inner = kitchen.unwrapped.env
        inner.step, inner.reset = watch.around(inner.step), watch.around(inner.reset)

    def sample(see: Any, drawn: Drawn) -> float | None:
        """One roll-out; the network chooses. Gives the seconds of the games, if these alone count."""
        watch.seconds = 0.0
        for episode in runner.sample(num_timesteps=decisions):
            for agent, single in episode.agent_episodes.items():
                if see is not None:
                    extra = {k: single.get_extra_model_outputs(k) for k in sorted(single.extra_model_outputs)}
                    seen = [single.get_observations(), single.get_actions(), single.get_rewards(), single.get_infos()]
                    see([agent, *seen, extra])
        runner.get_metrics()
        return watch.seconds if game else None

    return sample


class Digest:
    """Hash of values, dictionaries in their own order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def __call__(self, value: Any) -> None:
        """Adds a value."""
        if isinstance(value, dict):
            for key in value:
                self._hash.update(repr(key).encode())
                self(value[key])
        elif isinstance(value, (list, tuple)):
            for one in value:
                self(one)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._hash.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            self._hash.update(repr(value).encode())

    @property
    def text(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


def serve() -> None:
    """Plays what standard input asks for, and answers on standard output."""
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print
    players: dict[str, Callable[[Any, Drawn], float | None]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        work = asked["work"]
        if "draw" in asked:
            answer: Any = list(draws(environment(work), asked["draw"], asked["steps"]))
        else:
            if work not in players:
                players[work] = player(work, asked["steps"])
            digest = Digest() if asked["digest"] else None
            start = time.process_time()
            own = players[work](digest, asked["drawn"])
            seconds = time.process_time() - start if own is None else own
            answer = {"seconds": seconds, "digest": digest.text if digest else ""}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class Side:
    """A process that plays with the package of one checkout."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout,
        )  # fmt: skip

    def ask(self, **question: Any) -> Any:
        """The answer to a question of `serve`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"The process that plays {question['work']!r} has ended; its messages are above.")
        return json.loads(answer)

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---- both sides ----------------------------------------------------------------------------------------------


class Sides:
    """The processes: this code, the earlier one (if there is one), and one that draws actions."""

    def __init__(self, before: Path | None, rounds: int) -> None:
        own = Path(__file__).resolve().parents[1]
        self.here, self._drawer = Side(own), Side(own)
        self.before = Side(before) if before is not None else None
        self._rounds = rounds

    def close(self) -> None:
        """Ends the processes."""
        for side in filter(None, (self.here, self.before, self._drawer)):
            side.close()

    def drawn(self, work: str, number: int, steps: int) -> Drawn:
        """New actions for round `number`."""
        if work.startswith(ROLL_OUT):
            return []
        number = 0 if work == KNOWN else number
        answer: Drawn = self._drawer.ask(work=work, draw=number * steps, steps=steps)
        return answer

    def timed(self, players: list[tuple[Side, str]], steps: int) -> list[list[float]]:
        """Seconds of each player in each round; they take turns."""
        seconds: list[list[float]] = [[] for _ in players]
        for number in range(1, self._rounds + 1):
            drawn = self.drawn(players[0][1], number, steps)
            for (side, work), own in zip(players, seconds, strict=True):
                own.append(side.ask(work=work, steps=steps, drawn=drawn, digest=False)["seconds"])
        return seconds


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    steps, decisions = (200, 64) if options.smoke else (4000, 1024)
    sides = Sides(options.before, options.rounds)
    try:
        rows = [compared(sides, work, decisions if work == ROLL_OUT else steps) for work in works()]
        rows.append(runners(sides, decisions))
        rows += [within(sides, BARE, "onion soup, planes", steps), within(sides, KNOWN, TEXT_KITCHEN, steps)]
        rows.append(within(sides, f"{ROLL_OUT}, {GAME}", ROLL_OUT, decisions))
    finally:
        sides.close()
    return rows


def compared(sides: Sides, work: str, steps: int) -> Row:
    """This code against the earlier one."""
    players = [(side, work) for side in (sides.here, sides.before) if side is not None]
    drawn = sides.drawn(work, 0, steps)
    digests = {side.ask(work=work, steps=steps, drawn=drawn, digest=True)["digest"] for side, _ in players}
    if len(digests) > 1:
        raise SystemExit(f"{work!r} is not the same in both checkouts; nothing is timed.")
    unit = "decisions/s" if work == ROLL_OUT else "steps/s"
    goal = GOAL if sides.before is not None else None
    return row(work, sides.timed(players, steps), steps, unit, goal, {"digest": digests.pop()[:16]})


def runners(sides: Sides, decisions: int) -> Row:
    """The lean EnvRunner against RLlib's own, in one process: words are remembered for both."""
    players = [(sides.here, ROLL_OUT), (sides.here, f"{ROLL_OUT}, {STOCK}")]
    sides.timed(players, decisions)
    return row("lean EnvRunner", sides.timed(players, decisions), decisions, "decisions/s", None, {})


def within(sides: Sides, part: str, whole: str, steps: int) -> Row:
    """Microseconds of a part of this code's work, and of the whole."""
    sides.here.ask(work=part, steps=steps, drawn=sides.drawn(part, 0, steps), digest=False)
    seconds = [statistics.median(sides.timed([(sides.here, work)], steps)[0]) for work in (part, whole)]
    unit = "us/decision" if whole == ROLL_OUT else "us/step"
    own, all_of_it = (1e6 * one / steps for one in seconds)
    return Row(f"overhead/{part}", own, all_of_it, unit, None, {"steps": steps, "seconds": "CPU", "reference": whole},
               lower_is_better=True)  # fmt: skip


def row(
    name: str, seconds: list[list[float]], steps: int, unit: str, goal: float | None, settings: dict[str, Any]
) -> Row:
    """Median rate of the first player, and the other's by the median of the rounds' ratios."""
    rate = steps / statistics.median(seconds[0])
    other = None
    if len(seconds) > 1:
        other = rate / statistics.median(b / a for a, b in zip(*seconds, strict=True))
    settings = {"steps": steps, "seconds": "CPU", "num_envs_per_env_runner": KITCHENS, **settings}
    return Row(f"overhead/{name}", rate, other, unit, goal, settings)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, help="folder of an earlier checkout, the yardstick")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main(__doc__.splitlines()[0], measure, _more)
