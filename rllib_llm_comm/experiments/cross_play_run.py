"""Cross-play with a progress bar, tables on the console, and files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.core.trust import names_code, texts_in
from rllib_llm_comm.experiments.console import print_table, say, say_stand_ins, short_path
from rllib_llm_comm.experiments.experiment_file import load_file
from rllib_llm_comm.experiments.progress import counting_bar

if TYPE_CHECKING:
    from rllib_llm_comm.evaluation.cross_play import CrossPlaySettings

_PAIR = 2


def run_cross_play(
    players: Sequence[str],
    settings: CrossPlaySettings,
    *,
    partners: Path | None = None,
    json_path: Path | None = None,
    html_path: Path | None = None,
    replay: str | None = None,
    replay_path: Path | None = None,
) -> dict[str, Any]:
    """Plays policies with each other, prints tables and writes files.

    Args:
        players: Paths, or NAME=PATH.
        settings: Settings of play.
        partners: YAML or JSON file: a mapping from groups to lists of partners that were not seen in training.
        json_path: File of the figures; `None` for none.
        html_path: File of the page; `None` for none.
        replay: Names or numbers of those who hold the seats of a recorded episode, joined by commas; `None` for none.
        replay_path: File of the replay; `None` for `crossplay_replay.html` in this folder.

    Returns:
        The figures.

    Raises:
        UserError: If something cannot be loaded or played.
    """
    from rllib_llm_comm.evaluation.cross_play import CrossPlay
    from rllib_llm_comm.evaluation.cross_play_figures import write_cross_play

    cross = CrossPlay([_named(one) for one in players], _read_partners(partners, settings.loading.trust), settings)
    seats = None if replay is None else _seats(replay, cross.names, len(cross.agents))
    for note in cross.notes:
        say(f"Note: {note}")
    say_stand_ins(cross.stand_ins)
    with counting_bar("playing pairs") as progress:
        result = cross.play(progress)
    told = result.to_json()
    _print(told)
    say_stand_ins(cross.stand_ins)
    if json_path is not None:
        write_atomically(json_path, json.dumps(told, indent=2) + "\n")
        say(f"Written to {short_path(json_path)}")
    if html_path is not None:
        say(f"Open {short_path(write_cross_play(result, html_path))} in a browser.")
    if seats is not None:
        from rllib_llm_comm.evaluation.replay import write_replay

        page = write_replay(
            cross.record(seats),
            replay_path or Path("crossplay_replay.html"),
            title=" and ".join(seats),
            stand_ins=cross.stand_ins,
        )
        say(f"The replay of {' and '.join(seats)} is {short_path(page)}")
    return told


def _read_partners(file: Path | None, trust: bool) -> Any:
    """The groups of partners in a file, which names no function whose module the user has not imported."""
    groups = None if file is None else load_file(file)
    for text in () if trust else texts_in(groups):
        if names_code(text):
            raise UserError(
                f"`--partners` {str(file)!r} names {text!r}, which may be code; import its module with `--import "
                "MODULE`, or say `--trust` if you know where the file comes from."
            )
    return groups


def _named(player: str) -> str | dict[str, str]:
    """A player of the command line: a policy, or NAME=POLICY."""
    name, sign, policy = player.partition("=")
    return {"name": name, "policy": policy} if sign and not Path(player).exists() else player


def _seats(text: str, names: Sequence[str], count: int) -> list[str]:
    """The names in `--replay`; a number counts players from 0, then partners."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != count:
        raise UserError(
            f"--replay is {text!r} but must be {count} names or numbers, joined by commas; names with commas by number."
        )
    found = []
    for part in parts:
        if part not in names and not (part.isdigit() and int(part) < len(names)):
            listed = ", ".join(f"{number} {name}" for number, name in enumerate(names))
            raise UserError(f"--replay has {part!r} but must have names or numbers of {listed}.")
        found.append(part if part in names else names[int(part)])
    return found


def _print(told: Mapping[str, Any]) -> None:
    from rllib_llm_comm.evaluation.cross_play_figures import estimate_text, others_text

    agents, names = told["agents"], [one["name"] for one in told["players"]]
    for agent in agents:
        lines = [[f"as {agent}", *names, "all others"]]
        for number, (name, row) in enumerate(zip(names, told["matrix"][agent], strict=True)):
            lines.append([name, *(f"{score:.4g}" for score in row), others_text(told, agent, number)])
        print_table(lines, "the row holds the seat, the column all others")
    lines = [["", "all seats", *(f"as {agent}" for agent in agents)]]
    blank = [""] * len(agents)
    lines.append(["self-play", estimate_text(told["self_play"]), *blank])
    for label, part in {"cross-play": told["cross_play"], **told["groups"]}.items():
        apart = [estimate_text(part["by_seat"][agent]) for agent in agents]
        # With two seats each game among players has a player in both, so that both means are the same.
        same = part is told["cross_play"] and len(agents) == _PAIR
        lines.append([label, estimate_text(part), *(blank if same else apart)])
    lines.append(["gap", estimate_text(told["gap"]), *blank])
    print_table(
        lines, f"mean ± standard error over {len(names)} players, {told['episodes']} episodes per pair and seat"
    )
