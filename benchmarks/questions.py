"""Games in rounds under a planner that asks a server: several questions under way at once, against one at a time.

python benchmarks/questions.py --json docs/results/benchmarks/questions.json

The server is a real one on this machine. It answers by rules after a fixed delay, which stands for a language model's.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from harness import Row, compare, main
from rllib_llm_comm.envs.overcooked_ai import SUBGOAL_ENV_ID
from rllib_llm_comm.envs.overcooked_ai.layouts import get_layout
from rllib_llm_comm.envs.overcooked_ai.subgoals import parse_subgoal
from rllib_llm_comm.evaluation.planned_play import play_planned
from rllib_llm_comm.policies.decision import Decision, Policy, Request
from rllib_llm_comm.policies.policy import make_environment
from rllib_llm_comm.policies.policy_manifest import GROUNDED, PolicyManifest

sys.path.insert(0, str(Path(__file__).parents[1]))  # `tools` is beside the package, not in it

from tools.rules_chat import RulesChat  # noqa: E402

AT_ONCE = 4


class Walkers(Policy):
    """Cooks by rules that go where their subgoal is."""

    manifest = PolicyManifest(
        "EMMA",
        {},
        {},
        env=SUBGOAL_ENV_ID,
        env_config={"observe": ["entities"], "action_level": "goal_cell", "commit": True, "horizon": 120},
        kind=GROUNDED,
    )
    layout = get_layout("cramped_room")

    def env(self, *, planning: Mapping[str, Any] | None = None, **settings: Any) -> Any:
        """The kitchen."""
        return make_environment(self.manifest, settings, planning)

    def act_together(self, episodes: Sequence[Request], explore: bool = True) -> list[Any]:
        """The cells of the subgoals."""
        return [{agent: self._decision(seen) for agent, seen in by.items()} for _, by in episodes]

    def _decision(self, seen: Mapping[str, Any]) -> Decision:
        count = self.layout.width * self.layout.height
        told = parse_subgoal(self.layout, seen["subgoal"])
        x, y = (0, 0) if told is None else told.cell
        return Decision(y * self.layout.width + x, "", {}, ["x"] * count, np.full(count, 1 / count), 0.0, "")


@contextmanager
def server(delay: float) -> Iterator[str]:
    """A chat server that answers by rules after a delay; gives its address.

    Args:
        delay: In seconds.
    """
    lock, rules = threading.Lock(), RulesChat()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            start = time.perf_counter()
            with lock:
                text = rules.complete(body["messages"][-1]["content"])
            time.sleep(max(0.0, delay - (time.perf_counter() - start)))
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            payload = json.dumps({"choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    finally:
        httpd.shutdown()
        httpd.server_close()


def row(delay: float, games: int, horizon: int, rounds: int) -> Row:
    """Seconds of a game with several questions at once, and with one at a time."""
    counts: dict[int, float] = {}

    def play(at_once: int) -> None:
        """Games with so many questions under way at once."""
        chat = {"model": "rules", "base_url": url, "requests_per_minute": 1e6, "max_concurrent": at_once}
        chat["ask_ahead"] = 0  # measured by asking_ahead.py
        planning = {"planner": {"name": "chat", "examples": 0, "chat": chat}}
        played = play_planned(Walkers(), planning=planning, trials=0, episodes=games, env_config={"horizon": horizon})
        counts[at_once] = sum(episode.metrics["plan_requests"] for episode in played)

    with server(delay) as url:
        seconds, other = compare(lambda: play(AT_ONCE), lambda: play(1), rounds)
    assert counts[AT_ONCE] == counts[1], counts
    settings = {"games": games, "delay": delay, "requests": counts[1], "at_once": AT_ONCE, "horizon": horizon}
    name = f"questions/{AT_ONCE} at once, answers after {delay:g} s"
    return Row(name, seconds / games, other / games, "s/game", None, settings, lower_is_better=True)


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    if options.smoke:
        return [row(0.05, 2, 20, options.rounds)]
    return [row(delay, 4, 40, min(options.rounds, 2)) for delay in (0.25, 1.0)]


if __name__ == "__main__":
    main(__doc__.splitlines()[0], measure)
