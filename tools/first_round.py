"""Measures the time from the first command after installing to the end of the first round with a shipped agent.

    python -m venv .venv && .venv/bin/pip install '.[play]'
    .venv/bin/python -m tools.first_round --rllib .venv/bin/rllib --out first_round.json

The person is a script that sees the page alone, in a headless Chromium, and presses keys. Installing is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.browser import Page, browser, find_chromium

POLICY = "zoo:told_salad"
SEAT = "alice"
_READY = "document.body && document.body.dataset.status === 'ready' && typeof game === 'object' && game !== null"
_ASKED = "(game.over || game.asked && game.chosen === null) && `${game.episode}.${game.moment}`"
_MOST_MOMENTS = 100
_PAGE = 9
_STOP_SECONDS = 60.0
# What a cook does who reads the menu: the first of these that is offered. {food} is the food of the order.
_WISHES = (
    "serve the bowl of {food}", "put the chopped {food} from", "chop the {food}", "put the raw {food} on the first",
    "get the raw {food} from the counter", "get the empty bowl from the counter", "wait",
)  # fmt: skip


@dataclass
class FirstRound:
    """The times of a first round, in seconds from the start of the command.

    Attributes:
        policy: The shipped agents.
        seat: The person's seat.
        address: The command has printed the page's address.
        page: The page shows the game in the browser.
        end: The round is over.
        moments: Decisions of the person.
        outcome: The page's word for the end, such as "served".
        asked: The message of the person to the agent.
        python: Version of Python.
        cpus: Processors of the machine.
        load: Processes that ran or waited on the machine just before, as `os.getloadavg` tells of the last minute.
    """

    policy: str
    seat: str
    address: float = 0.0
    page: float = 0.0
    end: float = 0.0
    moments: int = 0
    outcome: str = ""
    asked: str = ""
    python: str = platform.python_version()
    cpus: int = os.cpu_count() or 1
    load: float = 0.0


@contextlib.contextmanager
def serving(rllib: Sequence[str], policy: str, folder: Path, seed: int = 0) -> Iterator[str]:
    """`rllib play`, as a user types it; the page's address.

    Args:
        rllib: The command `rllib`.
        policy: The shipped policy.
        folder: The folder in which it is typed.
        seed: Seed of the episode.

    Raises:
        RuntimeError: If it ends before it has told the address.
    """
    command = [*rllib, "play", policy, "--no-browser", "--seed", str(seed)]
    with (folder / "errors.txt").open("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=errors,
            env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip
        try:
            found = next(filter(None, (re.search(r"http://\S+token=\S+", line) for line in process.stdout or ())), None)
            if found is None:
                errors.seek(0)
                raise RuntimeError(f"`{' '.join(command)}` told no address: {errors.read()[-2000:]}")
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def play_round(page: Page, seat: str) -> tuple[int, str]:
    """Plays to the end of the round by what the page shows.

    Args:
        page: The page, on which the person has sat down.
        seat: The person's seat.

    Returns:
        The number of decisions, and what the person wrote.

    Raises:
        RuntimeError: If the round does not end.
    """
    food = page.value("game.told").split()[0]  # "tomato salad"
    asked = f"please bring the {food}"
    page.key("m")
    page.write(asked)
    page.key("Enter")
    page.until("game.said !== ''")
    for moments in range(_MOST_MOMENTS):
        now = page.until(_ASKED)
        if page.value("game.over"):
            return moments, asked
        phrases = page.value("game.options.map((option) => option.phrase)")
        wishes = (wish.format(food=food) for wish in _WISHES)
        place = next(place for wish in wishes for place, phrase in enumerate(phrases) if phrase.startswith(wish))
        for _ in range(place // _PAGE):
            page.key("]")
        page.key(str(place % _PAGE + 1))
        page.until(f"game.over || `${{game.episode}}.${{game.moment}}` !== {json.dumps(now)}")
    raise RuntimeError(f"{seat} has played {_MOST_MOMENTS} moments and the round is not over")


def first_round(rllib: Sequence[str], chromium: str, policy: str = POLICY, seat: str = SEAT) -> FirstRound:
    """Plays one round and takes the times.

    Args:
        rllib: The command `rllib`.
        chromium: Path of the browser.
        policy: The shipped policy; its game is one of salads, of which the seat is told the order.
        seat: The person's seat.

    Raises:
        RuntimeError: If the command serves no page or the round does not end.
    """
    told = FirstRound(policy, seat, load=round(os.getloadavg()[0], 2))
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        with serving(rllib, policy, Path(scratch)) as address:
            told.address = round(time.monotonic() - begun, 1)
            with browser(chromium, Path(scratch) / "profile") as running:
                page = running.open(address)
                page.until(_READY)
                told.page = round(time.monotonic() - begun, 1)
                page.click(f"button[data-seat={seat}]")
                page.until(f"game.you === {json.dumps(seat)}")
                told.moments, told.asked = play_round(page, seat)
                told.end = round(time.monotonic() - begun, 1)
                told.outcome = page.value("game.outcome")
    return told


def main() -> int:
    """Measures, prints and writes the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rllib", type=Path, help="the command; by default that of this interpreter")
    parser.add_argument("--out", type=Path, help="a JSON file for the times")
    given = parser.parse_args()
    if (chromium := find_chromium()) is None:
        print("no Chromium on this machine")
        return 1
    command = [sys.executable, "-m", "rllib_llm_comm.cli.main"] if given.rllib is None else [str(given.rllib.resolve())]
    told = asdict(first_round(command, chromium))
    print(json.dumps(told, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
