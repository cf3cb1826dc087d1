"""Behaviour cloning of MiniRTS officers, and its demonstrations.

These are games of imperfect scripted officers under a mixture of commanders, in a folder.

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
from typing import Any

import numpy as np
import torch

from rllib_llm_comm.baselines.red.officer_network import SEEN, OfficerNetwork
from rllib_llm_comm.baselines.red.officer_policy import load_officer
from rllib_llm_comm.baselines.red.officer_settings import OfficerCloningSettings, OfficerDemonstrationSettings
from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import disk_error, read_foreign_json, write_atomically
from rllib_llm_comm.core.places import local_path
from rllib_llm_comm.envs.minirts import ENV_ID
from rllib_llm_comm.envs.minirts.collective_command import GO_ON_AT, SIZES, CollectiveLabels, disturbed
from rllib_llm_comm.envs.minirts.commanders import Commander, MoodyCommander, make_commander
from rllib_llm_comm.envs.minirts.env import MiniRTS
from rllib_llm_comm.envs.minirts.executor import Instructions
from rllib_llm_comm.envs.minirts.officer_view import observe, officer_spaces
from rllib_llm_comm.envs.minirts.words import WAIT, all_commands, wordings
from rllib_llm_comm.policies.play_loop import PlayedGame
from rllib_llm_comm.policies.policy_folder import network_file, write_policy
from rllib_llm_comm.policies.policy_manifest import OFFICER, PolicyManifest

INDEX = "demonstrations.json"
ACTION, GAME = "action", "game"
_GAMES_PER_PART = 25
_MOST_BYTES = 2**28
_RANDOM = "random"
_LOOK_AHEAD = 2
_GRAD_NORM = 0.5
_AT_ONCE = 256


@dataclass(frozen=True)
class OfficerRows:
    """Decisions of officers.

    Attributes:
        columns: Per part of `officer_view`, `action` (int16 (N, 58)) and `game` (int32 (N,), the number of the
            game), an array with a row for each decision.
        games: Per game its `commander`, `result` (1 won, 0 drawn, -1 lost), `ticks`, and `decisions`.
    """

    columns: Mapping[str, np.ndarray]
    games: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.columns[ACTION])


def record_game(
    env: MiniRTS, settings: OfficerDemonstrationSettings, number: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plays a game of the demonstrations.

    Args:
        env: From `OfficerDemonstrationSettings.env`.

    Returns:
        The columns of its decisions, and its figures.
    """
    rng = np.random.default_rng([settings.seed, number])
    shares = np.array(list(settings.commanders.values()), float)
    name = str(rng.choice(list(settings.commanders), p=shares / shares.sum()))
    game = PlayedGame(env, int(rng.integers(2**31)), reads=False)  # officers' views are taken from the engine
    commands, told = all_commands(), Instructions(env.executor.orders)
    moody = MoodyCommander(env.executor, commands, rng) if name == _RANDOM else None
    commander: Commander = moody or make_commander(name, env.executor, commands)
    labels, rows = CollectiveLabels(env.team, settings.rule), list[dict[str, Any]]()
    while not game.over:
        for officer in range(env.team.size):
            command = commander(officer)
            if command.verb == WAIT or env.executor.refusal(officer, command):
                continue
            env.executor.command(officer, command)
            texts = wordings(command)
            told.give(officer, command, env.executor.orders[officer], texts[int(rng.integers(len(texts)))])
        meant = labels.actions(env.executor.give_orders())
        actions = [disturbed(one, env.team, rng, settings.delay, settings.wrong) for one in meant]
        for officer, action in enumerate(actions):
            seen = observe(env.team, officer, told.in_force(officer, env.executor.orders[officer]))
            rows.append({**seen, ACTION: action.astype(np.int16), GAME: np.int32(number)})
        game.advance(dict(zip(env.agents, actions, strict=True)))
        told.pass_time()
    columns = {part: np.stack([row[part] for row in rows]) for part in rows[0]}
    result = (env.game.winner == env.team.player) - (env.game.winner == 1 - env.team.player)
    return columns, {"commander": name, "result": result, "ticks": env.game.tick, "decisions": len(rows)}


# ---- on disk ------------------------------------------------------------------------------------------------


def write_demonstrations(
    folder: str | os.PathLike[str],
    settings: OfficerDemonstrationSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> OfficerRows:
    """Plays games and writes their decisions; goes on where an earlier call stopped.

    Args:
        folder: The folder; a new one, or one with demonstrations of the same settings, which gets more games.
        progress: Called with the numbers of games that are done and of all.

    Raises:
        UserError: If the folder cannot be written, or holds anything else.
    """
    how, root = settings or OfficerDemonstrationSettings(), local_path(folder, "folder")
    env, games = how.env(), _games_so_far(root, how)
    while len(games) < how.games:
        first = len(games)
        played = [record_game(env, how, number) for number in range(first, min(first + _GAMES_PER_PART, how.games))]
        games += [figures for _, figures in played]
        part = {name: np.concatenate([columns[name] for columns, _ in played]) for name in played[0][0]}
        try:
            packed = io.BytesIO()
            np.savez_compressed(packed, **part)  # type: ignore[arg-type]
            write_atomically(_part(root, first), packed.getvalue())
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


def _games_so_far(root: Path, how: OfficerDemonstrationSettings) -> list[dict[str, Any]]:
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
    """Share of the decisions at which nothing was ordered."""
    return float((rows.columns[ACTION][:, GO_ON_AT] == 1).mean())


@dataclass(frozen=True)
class OfficerCloningResult:
    """Figures of a cloned officer.

    Attributes:
        network: The network, as it was after the pass with the lowest held-out loss.
        decisions: Number of decisions that it learned from, and that were held out.
        nll: Mean negative log-likelihood of the held-out decisions, in nats, after each pass.
    """

    network: OfficerNetwork
    decisions: tuple[int, int]
    nll: tuple[float, ...]


def clone_officers(
    rows: OfficerRows,
    settings: OfficerCloningSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep: Callable[[OfficerCloningResult], None] | None = None,
) -> OfficerCloningResult:
    """Trains an officer until its passes are over, or the held-out loss has not fallen for two of them.

    Args:
        progress: Called with the numbers of gradient steps that were done and of all.
        keep: Called with the figures so far after each pass that is the best yet.

    Raises:
        UserError: If there are too few games, or the officer to go on from has another network.
    """
    how = settings or OfficerCloningSettings()
    learned, held_out = split(rows, how.held_out)
    network = _begun(how)
    optimizer = torch.optim.Adamax(network.parameters(), lr=how.lr)
    rng, found, best = np.random.default_rng(how.seed), list[float](), dict[str, torch.Tensor]()
    done, counts = 0, (len(learned), len(held_out))
    for _ in range(how.epochs):
        drawn, weights = drawn_decisions(rows.columns[ACTION], learned, how.idle, rng)
        steps = -(-len(drawn) // how.batch_size)
        for batch in np.array_split(np.arange(len(drawn)), steps):
            loss = weighted_nll(network, decisions_of(rows.columns, drawn[batch]), weights[batch])
            take_step(network, optimizer, loss)
            done += 1
            if progress:
                progress(done, max(done, steps * how.epochs))
        found.append(mean_nll(network, rows, held_out))
        if found[-1] == min(found):
            best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            if keep:
                keep(OfficerCloningResult(network, counts, tuple(found)))
        elif min(found[-_LOOK_AHEAD:]) > min(found):
            break
    network.load_state_dict(best)
    return OfficerCloningResult(network.eval(), counts, tuple(found))


def _begun(how: OfficerCloningSettings) -> OfficerNetwork:
    """The network that training starts from."""
    network = OfficerNetwork(how.network.replace(init_seed=how.seed))
    if how.start is not None:
        earlier = load_officer(how.start, "start")
        if earlier.settings.shape() != how.network.shape():
            raise UserError(
                f"the officer {how.start!r} has the network {earlier.settings.to_dict()}; set the same, "
                "or omit `start`."
            )
        network.load_state_dict(earlier.state_dict())
    return network


def split(rows: OfficerRows, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the decisions that are learned from, and of those that are held out: the last games, at least one.

    Args:
        held_out: Share of the games.

    Raises:
        UserError: If there is but one game.
    """
    games = int(rows.columns[GAME].max()) + 1
    if games < 2:
        raise UserError("there is one game of demonstrations only; give at least two, one of which is held out.")
    last = min(games - max(1, round(games * held_out)), games - 1)
    of_last = rows.columns[GAME] >= last
    return np.flatnonzero(~of_last), np.flatnonzero(of_last)


def drawn_decisions(
    actions: np.ndarray, among: np.ndarray, idle: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Decisions of one pass in random order, and the weight of each: all with orders, a share of the others.

    Args:
        actions: RED's actions (N, 58).
        among: Numbers of decisions.
        idle: Share of those without orders, which count 1 / idle each.
    """
    nothing = actions[among, GO_ON_AT] == 1
    taken = ~nothing | (rng.random(len(among)) < idle)
    order = rng.permutation(int(taken.sum()))
    weights = np.where(nothing[taken], 1.0 / idle, 1.0).astype(np.float32)
    return among[taken][order], weights[order]


def decisions_of(columns: Mapping[str, np.ndarray], numbers: np.ndarray) -> dict[str, np.ndarray]:
    """What was seen and done in some decisions of `OfficerRows.columns`."""
    return {name: columns[name][numbers] for name in (*SEEN, ACTION)}


def weighted_nll(network: OfficerNetwork, decisions: Mapping[str, np.ndarray], weights: np.ndarray) -> torch.Tensor:
    """The weighted mean negative log-likelihood of `decisions_of` some rows."""
    weight = torch.from_numpy(weights)
    loss: torch.Tensor = -(_logp(network, decisions) * weight).sum() / weight.sum()
    return loss


def mean_nll(network: OfficerNetwork, rows: OfficerRows, numbers: np.ndarray) -> float:
    """The mean negative log-likelihood of some decisions, in nats."""
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(numbers), _AT_ONCE):
            decisions = decisions_of(rows.columns, numbers[start : start + _AT_ONCE])
            total -= float(_logp(network, decisions).double().sum())
    return total / len(numbers)


def _logp(network: OfficerNetwork, decisions: Mapping[str, np.ndarray]) -> torch.Tensor:
    choice = network.choice({name: torch.from_numpy(decisions[name]) for name in SEEN})
    return choice.logp(torch.from_numpy(decisions[ACTION]))


def take_step(
    network: OfficerNetwork, optimizer: torch.optim.Optimizer, loss: torch.Tensor, norm: float = _GRAD_NORM
) -> None:
    """A gradient step; the gradient is cut to a norm."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(network.parameters(), norm)
    optimizer.step()


def clone_into(
    folder: str | os.PathLike[str],
    demonstrations: str | os.PathLike[str],
    settings: OfficerCloningSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> OfficerCloningResult:
    """Trains an officer on a folder of demonstrations and writes its policy folder, anew after each better pass.

    Args:
        folder: The policy folder; one of that name is replaced.
        demonstrations: The folder of `write_demonstrations`.
        progress: As of `clone_officers`.

    Raises:
        UserError: If there are no demonstrations, or too few games.
    """
    how, rows = settings or OfficerCloningSettings(), read_demonstrations(demonstrations)
    played = {name: rows.settings[name] for name in ("opponent", "num_agents", "max_tick")}

    def keep(found: OfficerCloningResult) -> None:
        write_officer(folder, found.network, "BehaviorCloning", played, provenance_of(rows, how, found))

    found = clone_officers(rows, how, progress, keep)
    keep(found)
    return found


def write_officer(
    folder: str | os.PathLike[str],
    network: OfficerNetwork,
    algorithm: str,
    env_config: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Path:
    """Writes an officer's policy folder, which appears at once or not at all; one of that name is replaced.

    Args:
        env_config: Settings of the game in which it gives RED's actions by itself.
    """
    manifest = PolicyManifest(
        algorithm=algorithm,
        kind=OFFICER,
        model_config=network.settings.to_dict(),
        communication={},
        env=ENV_ID,
        env_config={**env_config, "action_level": "red", "observe": ["officer"]},
        provenance=provenance,
    )
    return write_policy(folder, network_file(network), manifest)


def provenance_of(rows: OfficerRows, how: OfficerCloningSettings, result: OfficerCloningResult) -> dict[str, Any]:
    """Origin of a cloned officer, JSON-able."""
    cloning = {name: value for name, value in how.to_dict().items() if name != "network"}
    figures = {"decisions": list(result.decisions), "held_out_nll": [round(value, 4) for value in result.nll]}
    return {"demonstrations": {**rows.settings, "games": len(rows.games)}, "cloning": cloning, **figures}
