"""Demonstrations for MiniRTS officers: games of imperfect scripted officers under a mixture of commanders, in a folder.

    demonstrations.json    settings, and the figures of every game
    part-00000.npz         the decisions of the first games, arrays of whole numbers; no pickles
    ...

A part appears at once or not at all. A call that was cut off goes on with the next part.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from rllib_llm_comm.core.errors import UserError, require_choice
from rllib_llm_comm.core.files import disk_error, read_foreign_json, write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.core.settings import Settings
from rllib_llm_comm.envs.minirts.collective_command import GO_ON_AT, SIZES
from rllib_llm_comm.envs.minirts.commanders.collective_label import CollectiveLabels
from rllib_llm_comm.envs.minirts.commanders.command_level import NAMES, Commander, make_commander
from rllib_llm_comm.envs.minirts.commanders.imperfect import MoodyCommander, disturbed
from rllib_llm_comm.envs.minirts.commanders.instructions import Instructions
from rllib_llm_comm.envs.minirts.commanders.tasks import WAIT, all_commands
from rllib_llm_comm.envs.minirts.commanders.wordings import wordings
from rllib_llm_comm.envs.minirts.env import MAX_TICK, MiniRTS
from rllib_llm_comm.envs.minirts.view.compiled_officer_view import observe
from rllib_llm_comm.envs.minirts.view.officer_view import officer_spaces

INDEX = "demonstrations.json"
ACTION, GAME = "action", "game"
_GAMES_PER_PART = 25
_MOST_BYTES = 2**28
_RANDOM = "random"


class DemonstrationSettings(Settings):
    """Settings of demonstrations; people's games took their place in the paper, so all of it is ours."""

    games: int = Field(400, ge=1, le=10**6)
    """Number of games; the people's data of the paper: about 4,600."""
    opponent: str = "medium2"
    """The scripted opponent, as of `envs.minirts` (SAMA)."""
    num_agents: int = 2
    """Commanders of the side, 1 to 3 (SAMA)."""
    max_tick: int = MAX_TICK
    """Length of a game (RED)."""
    commanders: dict[str, Annotated[float, Field(ge=0, le=1e6)]] = {"oracle": 0.4, "random": 0.4, "adversarial": 0.2}
    """Share of games of each scripted commander, by name; not all 0."""
    delay: float = Field(0.2, ge=0, le=0.99)
    """Chance that an officer orders nothing at a decision."""
    wrong: float = Field(0.15, ge=0, le=1)
    """Chance that what it orders has a wrong target."""
    rule: Literal["turns", "same", "majority"] = "turns"
    """Rule of the label, as of `CollectiveLabels`."""
    seed: int = Field(0, ge=0)
    """The same seed gives the same demonstrations."""

    @field_validator("commanders")
    @classmethod
    def _known_commanders(cls, commanders: dict[str, float]) -> dict[str, float]:
        for name in commanders:
            require_choice("commanders", name, NAMES)
        if not sum(commanders.values()) > 0:
            raise UserError(f"`commanders` is {commanders!r} but at least one share must be above 0.")
        return commanders

    def env(self) -> MiniRTS:
        """The game that is played; refuses settings that it does not allow."""
        return MiniRTS(self.num_agents, self.opponent, "red", max_tick=self.max_tick, observe=["vector"])

    def identity(self) -> dict[str, Any]:
        """The settings that determine the games, but not their number; JSON-able."""
        return {name: value for name, value in self.to_dict().items() if name != "games"}


@dataclass(frozen=True)
class OfficerRows:
    """Decisions of officers.

    Attributes:
        columns: Per part of `officer_view`, `action` (int16 (N, 58)) and `game` (int32 (N,), the number of the
            game), an array with a row for each decision.
        games: Per game its `commander`, `result` (1 won, 0 drawn, -1 lost), `ticks`, and `decisions`.
        settings: Of the demonstrations.
    """

    columns: Mapping[str, np.ndarray]
    games: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.columns[ACTION])


def record_game(env: MiniRTS, settings: DemonstrationSettings, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plays a game of the demonstrations.

    Args:
        env: From `DemonstrationSettings.env`.
        settings: The settings.
        number: Number of the game.

    Returns:
        The columns of its decisions, and its figures.
    """
    rng = np.random.default_rng([settings.seed, number])
    shares = np.array(list(settings.commanders.values()), float)
    name = str(rng.choice(list(settings.commanders), p=shares / shares.sum()))
    env.reset(seed=int(rng.integers(2**31)))
    commander, told = _commander(name, env, rng), Instructions(env.executor.orders)
    labels, rows = CollectiveLabels(env.team, settings.rule), list[dict[str, Any]]()
    while env.agents:
        for number_of in range(env.team.size):
            _command(env, commander, told, number_of, rng)
        meant = labels.actions(env.executor.give_orders())
        actions = [disturbed(one, env.team, rng, settings.delay, settings.wrong) for one in meant]
        for number_of, action in enumerate(actions):
            seen = observe(env.team, number_of, told.in_force(number_of, env.executor.orders[number_of]))
            rows.append({**seen, ACTION: action.astype(np.int16), GAME: np.int32(number)})
        env.step(dict(zip(env.agents, actions, strict=True)))
        told.pass_time()
    columns = {part: np.stack([row[part] for row in rows]) for part in rows[0]}
    result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
    return columns, {"commander": name, "result": result, "ticks": env.game.tick, "decisions": len(rows)}


def _commander(name: str, env: MiniRTS, rng: np.random.Generator) -> Commander:
    if name == _RANDOM:
        return MoodyCommander(env.executor, all_commands(), rng)
    return make_commander(name, env.executor, all_commands())


def _command(env: MiniRTS, commander: Commander, told: Instructions, number: int, rng: np.random.Generator) -> None:
    command = commander(number)
    if command.verb == WAIT or env.executor.refusal(number, command):
        return
    env.executor.command(number, command)
    texts = wordings(command)
    told.give(number, command, env.executor.orders[number], texts[int(rng.integers(len(texts)))])


# ---- on disk ------------------------------------------------------------------------------------------------


def write_demonstrations(
    folder: str | os.PathLike[str],
    settings: DemonstrationSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> OfficerRows:
    """Plays games and writes their decisions; goes on where an earlier call stopped.

    Args:
        folder: The folder; a new one, or one with demonstrations of the same settings, which gets more games.
        settings: The settings; `None` for the defaults.
        progress: Called with the numbers of games that are done and of all.

    Raises:
        UserError: If the folder cannot be written, or holds anything else.
    """
    how, root = settings or DemonstrationSettings(), local_path(folder, "folder")
    env, games = how.env(), _begun(root, how)
    while len(games) < how.games:
        first = len(games)
        played = [record_game(env, how, number) for number in range(first, min(first + _GAMES_PER_PART, how.games))]
        games += [figures for _, figures in played]
        part = {name: np.concatenate([columns[name] for columns, _ in played]) for name in played[0][0]}
        try:
            write_atomically(_part(root, first), _packed(part))
            write_atomically(root / INDEX, json.dumps({"settings": how.identity(), "games": games}) + "\n")
        except OSError as error:
            raise disk_error(
                error, f"demonstrations cannot be written to {str(root)!r}", "give another folder"
            ) from error
        if progress:
            progress(len(games), how.games)
    return read_demonstrations(root)


def read_demonstrations(folder: str | os.PathLike[str]) -> OfficerRows:
    """Reads a folder of demonstrations.

    Args:
        folder: The folder.

    Raises:
        UserError: If it is damaged or no such folder.
    """
    root = local_path(folder, "demonstrations")
    index = _index(root)
    if index is None:
        raise UserError(f"{str(root)!r} has no {INDEX}; write one with `rllib officer demonstrations`.")
    parts, first = [], 0
    while first < len(index["games"]):
        part = _read_part(_part(root, first))
        parts.append(part)
        first = int(part[GAME][-1]) + 1
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return OfficerRows(columns, index["games"], index["settings"])


def _begun(root: Path, how: DemonstrationSettings) -> list[dict[str, Any]]:
    """The games that are there already."""
    if (index := _index(root)) is None:
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise UserError(f"{str(root)!r} is there and holds no demonstrations; give a new folder.")
        return []
    if index["settings"] != json.loads(json.dumps(how.identity())):
        raise UserError(
            f"{str(root)!r} holds demonstrations of other settings ({json.dumps(index['settings'])}); give another "
            "folder or delete this one."
        )
    games: list[dict[str, Any]] = index["games"]
    return games


def _index(root: Path) -> dict[str, Any] | None:
    path = root / INDEX
    if not path.is_file():
        return None
    try:
        found = read_foreign_json(path, _MOST_BYTES)
        if not isinstance(found["settings"], dict) or not isinstance(found["games"], list) or not found["games"]:
            raise ValueError("settings or games are missing")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{str(path)!r} cannot be read ({error}); write the demonstrations again.") from error
    result: dict[str, Any] = found
    return result


def _part(root: Path, first: int) -> Path:
    return root / f"part-{first:05d}.npz"


def _packed(columns: Mapping[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **columns)  # type: ignore[arg-type]
    return out.getvalue()


def _read_part(path: Path) -> dict[str, np.ndarray]:
    """The columns of a part, checked: rows of the right kind and shape."""
    wanted = {name: (space.dtype, space.shape or ()) for name, space in officer_spaces().items()}
    wanted |= {ACTION: (np.dtype(np.int16), (len(SIZES),)), GAME: (np.dtype(np.int32), ())}
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in wanted}
        for name, (dtype, shape) in wanted.items():
            if columns[name].dtype != dtype or columns[name].shape != (len(columns[GAME]), *shape):
                raise ValueError(f"`{name}` has the shape {columns[name].shape}")
        actions = columns[ACTION]
        if not len(actions) or not ((actions >= 0) & (actions < np.array(SIZES))).all():
            raise ValueError("an action is out of its range")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise UserError(f"{str(path)!r} cannot be read ({error}); write the demonstrations again.") from error
    return columns


def idle_share(rows: OfficerRows) -> float:
    """Share of the decisions at which nothing was ordered.

    Args:
        rows: The decisions.
    """
    return float((rows.columns[ACTION][:, GO_ON_AT] == 1).mean())
