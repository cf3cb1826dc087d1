"""Runs every client on every game and writes the table of the docs: which works, in which form, or why not.

`python -m tools.foreign_clients` writes docs/results/clients.json and the tables of docs/guides/elsewhere.md. It ends
with 1 if a client fails for a reason that is not known to be its own limit, or is not installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.files import write_atomically
from tools.client_runs import CLIENTS, GAMES, Client, Game

ROOT = Path(__file__).parents[1]
JSON = ROOT / "docs" / "results" / "clients.json"
PAGE = ROOT / "docs" / "guides" / "elsewhere.md"
BEGIN, END = "<!-- table: tools/foreign_clients.py -->", "<!-- end of the table -->"
WORKS, LIMITED, FAILS, ABSENT = "works", "limit", "fails", "not installed"


def outcome(client: Client, game: Game) -> dict[str, Any]:
    """The result of a client on a game, as a record.

    Returns:
        `client`, `game`, `status` ("works", "limit": a known one of the client, "fails", "not installed"), `told` (what
        was seen, or the reason), and `seconds`.
    """
    record = {"client": client.name, "game": game.name}
    if client.missing:
        return {**record, "status": ABSENT, "told": f"not installed: {', '.join(client.missing)}", "seconds": 0.0}
    begin = time.perf_counter()
    try:
        status, told = WORKS, client.run(game)
    except Exception as error:
        limit = client.limits.get(game.name)
        known = limit is not None and limit.error in repr(error)
        status, told = (LIMITED, limit.reason) if limit and known else (FAILS, f"{type(error).__name__}: {error}")
    return {**record, "status": status, "told": told, "seconds": round(time.perf_counter() - begin, 1)}


def run_all() -> dict[str, Any]:
    """All clients on all games: versions, settings and results."""
    results = []
    for client in CLIENTS:
        for game in GAMES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PettingZoo's advice on names and spaces of agents
                results.append(outcome(client, game))
            print(*results[-1].values(), sep=" | ", flush=True)
    return {
        "command": "python -m tools.foreign_clients",
        "python": platform.python_version(),
        "versions": {client.distribution: _version(client.distribution) for client in CLIENTS},
        "games": {game.name: {"module": game.module, "settings": dict(game.settings)} for game in GAMES},
        "results": results,
    }


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def tables(found: Mapping[str, Any]) -> str:
    """The tables of the docs.

    Args:
        found: Result of `run_all`.
    """
    return "\n".join([*_overview(found), "", *_forms(found), "", *_reasons(found)])


def _overview(found: Mapping[str, Any]) -> Iterator[str]:
    status = {(one["client"], one["game"]): one["status"] for one in found["results"]}
    words = {WORKS: "yes", LIMITED: "no", FAILS: "fails", ABSENT: "not run"}
    yield f"| Client | {' | '.join(game.heading for game in GAMES)} |"
    yield "| --- " * (len(GAMES) + 1) + "|"
    for client in CLIENTS:
        yield f"| {client.name} | {' | '.join(words[status[client.name, game.name]] for game in GAMES)} |"


def _forms(found: Mapping[str, Any]) -> Iterator[str]:
    """Version, licence and form of each client."""
    yield "| Client | Version | Licence | Form of `env` |"
    yield "| --- | --- | --- | --- |"
    for client in CLIENTS:
        yield f"| {client.name} | {found['versions'][client.distribution]} | {client.licence} | {client.form} |"


def _reasons(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| Not | Game | Why |"
    yield "| --- | --- | --- |"
    for one in found["results"]:
        if one["status"] != WORKS:
            yield f"| {one['client']} | {one['game']} | {one['told']} |"


def with_tables(page: str, found: Mapping[str, Any]) -> str:
    """The page with its tables written anew.

    Args:
        page: Its text.
        found: Result of `run_all`.
    """
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{tables(found)}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Runs the command; returns its status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, default=JSON, help="where the results go")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose tables are written anew")
    arguments = parser.parse_args()
    found = run_all()
    write_atomically(arguments.json, json.dumps(found, indent=1) + "\n")
    write_atomically(arguments.page, with_tables(arguments.page.read_text(encoding="utf-8"), found))
    return int(any(one["status"] in (FAILS, ABSENT) for one in found["results"]))


if __name__ == "__main__":
    raise SystemExit(main())
