"""Games that are begun while others wait for a planner's answers, and how well a planner's next question is foreseen.

python benchmarks/asking_ahead.py --json docs/results/benchmarks/asking_ahead.json

The server answers by rules after a fixed delay, as in `questions.py`. The cooks are the package's EMMA. The planner of
the foreseen states is the scripted one.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from questions import server

from harness import Row, compare, main
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.policies.decision import Decision, Policy, Request
from rllib_llm_comm.policies.load_policy import load_policy
from rllib_llm_comm.sama.data_set import words_of
from rllib_llm_comm.sama.planners import make_planner
from rllib_llm_comm.sama.plans import PlanRequest, made_plan
from rllib_llm_comm.sama.reflection import Rounds

COOKS = "zoo:emma_cramped_room"
STEPS_AHEAD = (1, 2, 4, 8)


def played(policy: Any, url: str, trials: int | None, games: int, horizon: int, **chat: int) -> list[Any]:
    """Games under a planner that asks the server."""
    asked = {"model": "rules", "base_url": url, "requests_per_minute": 1e6, **chat}
    planning = {"planner": {"name": "chat", "examples": 0, "chat": asked}}
    settings = {"horizon": horizon, "commit": False}
    return play_planned(policy, planning=planning, trials=trials, episodes=games, env_config=settings)


def compared(
    name: str,
    delay: float,
    trials: int | None,
    ours: Mapping[str, int],
    other: Mapping[str, int],
    options: argparse.Namespace,
    games: int,
    horizon: int,
) -> Row:
    """Seconds of a game with two settings of the chat model; both must play the same games."""
    policy, found = load_policy(COOKS), dict[str, Any]()

    def play(which: str, chat: Mapping[str, int]) -> None:
        games_played = played(policy, url, trials, games, horizon, **chat)
        found[which] = [(game.returns, game.length, game.metrics["plan_requests"]) for game in games_played]

    with server(delay) as url:
        seconds, slower = compare(lambda: play("ours", ours), lambda: play("other", other), options.rounds)
    assert found["ours"] == found["other"], found
    requests = sum(one[2] for one in found["ours"])
    settings = {"games": games, "delay": delay, "horizon": horizon, "requests": requests, "ours": ours, "other": other}
    return Row(
        f"asking_ahead/{name}, answers after {delay:g} s",
        seconds / games,
        slower / games,
        "s/game",
        None,
        dict(settings),
        lower_is_better=True,
    )


class Cooks(Policy):
    """The policy, which may have to take given decisions first.

    Attributes:
        given: Decisions that are taken before its own.
    """

    def __init__(self, policy: Any) -> None:
        self._policy, self.given, self.taken = policy, list[dict[Any, Decision]](), list[dict[Any, Decision]]()

    def reset(self, seed: int | None = None) -> None:
        """As of the policy."""
        self._policy.reset(seed)

    def begin(self, seed: int) -> Any:
        """The policy's memory."""
        return self._policy.begin(seed)

    def act_together(self, requests: Sequence[Request], explore: bool = True) -> list[dict[Any, Decision]]:
        """The given decisions while there are any, then the policy's."""
        chosen = [self.given.pop(0)] if self.given else self._policy.act_together(requests, explore)
        self.taken += chosen
        return chosen


def foreseen(games: int, horizon: int) -> list[Row]:
    """Seconds between two plans, and shares of their states that the same cooks reach once more.

    Some steps before the end of each round the cooks go on with other random numbers. That is the best guess there is:
    game and policy are those that play, so only what the policy draws is unknown.
    """
    policy, hits = load_policy(COOKS), {steps: list[bool]() for steps in STEPS_AHEAD}
    cooks, acted, rng = Cooks(policy), list[float](), np.random.default_rng(0)
    rounds = Rounds(policy.env(planning={"planner": None}, horizon=horizon, commit=False), cooks)
    planner = make_planner("scripted")
    for seed in range(games):
        rounds.begin(seed)
        while rounds.running:
            start = rounds.save()
            plan = made_plan(planner, PlanRequest(rounds.game, rounds.game.state(), outcomes=start.outcomes))
            cooks.taken, begun = [], time.perf_counter()
            rounds.attempt(plan)
            acted.append(time.perf_counter() - begun)
            if not rounds.running:
                break
            taken, there = list(cooks.taken), words_of(rounds.game, rounds.game.state())
            end, counts = rounds.save(), copy.deepcopy(rounds._actions)
            for steps in STEPS_AHEAD:
                if steps > len(taken):
                    continue
                rounds.restore(start)
                rounds._memory.rng = np.random.default_rng(int(rng.integers(2**31)))
                cooks.given = taken[: len(taken) - steps]
                rounds.attempt(plan)
                hits[steps].append(rounds.running and words_of(rounds.game, rounds.game.state()) == there)
            rounds.restore(end)
            rounds._actions = counts
    about = {"games": games, "horizon": horizon, "plans": len(acted)}
    rows = [Row("asking_ahead/acting between two plans", float(np.mean(acted)), None, "s", None, about)]
    for steps, same in hits.items():
        about = {"games": games, "horizon": horizon, "compared": len(same)}
        name = f"asking_ahead/state foreseen, {steps} steps before"
        rows.append(Row(name, float(np.mean(same)) if same else 0.0, None, "share", None, about))
    return rows


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    ahead, alone, four = ({"max_concurrent": at, "ask_ahead": more} for at, more in ((1, 1), (1, 0), (4, 1)))
    if options.smoke:
        return [compared("one game more begun", 0.02, 0, ahead, alone, options, 2, 10), *foreseen(1, 20)]
    return [
        *(compared("one game more begun", delay, 0, ahead, alone, options, 4, 40) for delay in (0.05, 0.25)),
        compared("without rounds, 4 at once", 0.25, None, four, alone, options, 4, 40),
        *foreseen(5, 200),
    ]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
