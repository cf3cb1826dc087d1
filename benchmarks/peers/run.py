"""One PPO iteration over candidate actions by lamorel, by TRL and by this package, and messages by `generate`.

    python benchmarks/peers/install.py ENVIRONMENTS
    python benchmarks/peers/run.py --environments ENVIRONMENTS --json docs/results/benchmarks/peers.json

Each party is a process in an environment of its own (`install.py` makes them). All get one folder: model, adapters,
prompts, candidates, the actions taken and their advantages (`problem.py`). Nothing is timed before the
log-probabilities of all candidates agree to 0.001; who differs is refused, who is not installed is skipped, each with
one sentence. Then the parties take turns. Seconds are CPU seconds of a party's busiest process: other jobs may run on
the machine.

An iteration is: log-probabilities of all candidates without gradient, then the epochs of the update, in which all
candidates are computed again with gradients into LoRA adapters of the same shape.

vLLM is not among the parties: its wheels want a GPU and a torch of several gigabytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from compare import require_same_scores, require_same_words  # noqa: E402
from harness import Row, main  # noqa: E402
from parties import OURS, PEERS, TRANSFORMERS, Party, PartyError, Process  # noqa: E402
from problem import RANDOM, Problem, sizes, write_problem  # noqa: E402
from rllib_llm_comm.core.errors import UserError  # noqa: E402

GOAL = 3.0


def options_of(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--environments", type=Path, help="folder that install.py has filled")
    parser.add_argument("--base-model", default=RANDOM, help="as in a run, such as smollm2; random weights by default")
    parser.add_argument("--decisions", type=int, default=32, help="decisions of the batch, at least 2")
    parser.add_argument("--candidates", type=int, default=8, help="candidates of each decision, at least 2")
    parser.add_argument("--problem", type=Path, help="keep the problem and the parties' logs in this folder")


def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    for name in ("decisions", "candidates"):
        if getattr(options, name) < 2:
            raise UserError(f"`--{name}` is {getattr(options, name)} but must be at least 2.")
    with ExitStack() as stack:
        folder = options.problem or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        decisions = 4 if options.smoke else options.decisions
        problem = write_problem(folder, options.base_model, decisions, options.candidates, tiny=options.smoke)
        settings = {**sizes(problem), "base_model": options.base_model, "clock": "CPU seconds of the busiest process",
                    "weights": _weights(options)}  # fmt: skip

        def start(party: Party) -> Process:
            """A party that runs until all is measured."""
            log = folder / f"{party.name}.log"
            process = Process(party, folder, options.environments, options.threads, log)
            stack.callback(process.close)
            return process

        ours = start(OURS)
        missing: list[str] = []
        settings["versions"], settings["not_compared"] = {"ours": ours.versions}, missing
        messages = message_rows(ours, start, problem, settings, options.rounds, missing)
        rows = iteration_rows(ours, start, problem, settings, options.rounds, missing)
        return rows + messages


def iteration_rows(
    ours: Process,
    start: Callable[[Party], Process],
    problem: Problem,
    settings: dict[str, Any],
    rounds: int,
    missing: list[str],
) -> list[Row]:
    """A row for each peer that is installed and computes the same; sentences about the others go to `missing`."""
    wanted = ours.ask("scores")
    peers: list[Process] = []
    apart: dict[str, float] = {}
    for party in PEERS:
        try:
            peer = start(party)
            apart[party.name] = require_same_scores(party.name, wanted, peer.ask("scores"))
            peers.append(peer)
            settings["versions"][party.name] = peer.versions
        except PartyError as reason:
            print(reason)
            missing.append(str(reason))
    if not peers:
        return []
    seconds = in_turn([ours, *peers], "iteration", rounds)
    count = len(problem.prompts)
    return [_row(f"peers/iteration against {peer.name}", seconds[0], other, count, "s/decision",
                 {**settings, "largest_difference": apart[peer.name]})
            for peer, other in zip(peers, seconds[1:], strict=True)]  # fmt: skip


def message_rows(
    ours: Process,
    start: Callable[[Party], Process],
    problem: Problem,
    settings: dict[str, Any],
    rounds: int,
    missing: list[str],
) -> list[Row]:
    """Messages against the library's `generate`."""
    try:
        other = start(TRANSFORMERS)
        same = require_same_words(other.name, ours.ask("messages"), other.ask("messages"))
    except PartyError as reason:
        print(reason)
        missing.append(str(reason))
        return []
    seconds = in_turn([ours, other], "messages", rounds)
    other.close()
    settings["versions"][other.name] = other.versions
    count = len(problem.message_prompts)
    own = {**settings, "messages": count, "max_words": problem.max_words, "same": same}
    return [_row("peers/messages against generate", *seconds, count, "s/message", own)]


def in_turn(processes: Sequence[Process], work: str, rounds: int) -> list[list[float]]:
    """Seconds of each process in each round."""
    found: list[list[float]] = [[] for _ in processes]
    for _ in range(rounds):
        for process, own in zip(processes, found, strict=True):
            own.append(process.seconds(work))
    return found


def _row(
    name: str, ours: Sequence[float], other: Sequence[float], count: int, unit: str, settings: dict[str, Any]
) -> Row:
    ratio = statistics.median(b / a for a, b in zip(ours, other, strict=True))
    seconds = statistics.median(ours) / count
    goal = GOAL if name.startswith("peers/iteration") else None
    return Row(name, seconds, seconds * ratio, unit, goal, settings, lower_is_better=True)


def _weights(options: argparse.Namespace) -> str:
    if options.base_model != RANDOM:
        return "pretrained"
    return "random, a tiny shape" if options.smoke else "random, SmolLM2-135M's shape"


if __name__ == "__main__":
    try:
        main(__doc__.splitlines()[0], measure, options_of)
    except (UserError, PartyError) as error:
        sys.exit(str(error))
