"""Cells of the table of partners: who plays with whom, and the games, kept in one JSON file per kitchen and method."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from partners_page import EMMA, FCP_FINAL, HALF_TRAINED, HELD_OUT, METHODS, OTHERS, PROXIES, SP_PAIRS

from rllib_llm_comm.core.files import write_atomically
from rllib_llm_comm.evaluation.cross_play import CrossPlay, CrossPlaySettings
from rllib_llm_comm.policies.partner_settings import parse_partners
from rllib_llm_comm.policies.policy_folder import find_policy, weights_digest
from rllib_llm_comm.policies.policy_manifest import read_manifest
from rllib_llm_comm.policies.stage_record import read_record

HELD_OUT_STAGE = "held_out"
SHOWN_PARTS = 4  # of a path that is not the study's
SCRIPTED = (
    {"policy": "scripted", "name": "scripted"},
    {"policy": "scripted", "noise": 0.1, "name": "10 % noise"},
    {"policy": "scripted", "noise": 0.3, "name": "30 % noise"},
    {"policy": "scripted", "pauses": 0.5, "name": "50 % pauses"},
    {"policy": "scripted", "habit": "one_pot", "name": "one pot"},
    {"policy": "scripted", "habit": "onions_only", "name": "onions only"},
    {"policy": "scripted", "habit": "dishes_only", "name": "dishes only"},
)


def checkpoints(stage: Path) -> list[Path]:
    """The checkpoints with which a stage ended; none if it has not ended."""
    record = read_record(stage)
    return [] if record is None or record.status != "finished" else [stage / one for one in record.outputs]


def trained(options: argparse.Namespace, kitchen: str, method: str) -> list[Path]:
    """The checkpoints of a method's seeds in a kitchen; none if its stage has not ended and no folder has them."""
    if method == SP_PAIRS:
        return [one for stage in ("self_play", HELD_OUT_STAGE) for one in trained(options, kitchen, stage)]
    elsewhere = {"fcp": options.fcp, FCP_FINAL: options.fcp_final}.get(method)
    found = sorted(elsewhere.glob(f"{kitchen}/seed_*/checkpoint_*")) if elsewhere else []
    return found or checkpoints(options.study / f"{kitchen}.{method}")


def missing(options: argparse.Namespace, kitchen: str) -> list[str]:
    """The stages of a kitchen that have not ended."""
    return [name for name in (HELD_OUT_STAGE, *METHODS) if not trained(options, kitchen, name)]


def followers(places: Sequence[str], kitchen: str) -> list[Path]:
    """The checkpoints of EMMA's seeds for a kitchen; none unless all are there.

    Args:
        places: Per seed a stage of `tuned_examples/emma.yaml`, of whose checkpoints that of the kitchen counts, or a
            checkpoint's folder with `{kitchen}` in its name. Several may be given for a seed, joined by a comma.
        kitchen: The layout.
    """
    found = []
    for seed in places:
        fitting: list[Path] = []
        for place in seed.split(","):
            path = Path(place.replace("{kitchen}", kitchen))
            if ended := checkpoints(path):
                layouts = ((one, read_manifest(find_policy(one)).env_config.get("layout")) for one in ended)
                fitting += [one for one, layout in layouts if layout == kitchen]
            elif path.exists() and read_record(path) is None:
                fitting.append(path)
        found += fitting[:1]
    return found if len(found) == len(places) else []


def kept_cell(kitchen: str, method: str, players: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """The cell of a file, played if the file is of other games; paths in it are none of this machine."""
    path = options.json / kitchen / f"{method}.json"
    if path.exists():
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = [told["players"], *(group["partners"] for group in told["groups"].values())]
        asked = [named(method, players), *_groups(options, kitchen, method).values()]
        same = (told["episodes"], told.get("planning")) == (options.episodes, _planning_of(method, options))
        if same and [list(map(_identity, one)) for one in found] == [_identities(one) for one in asked]:
            return told
    told = _cell(kitchen, method, players, options)
    told.pop("games")  # the matrices have their means
    for one in [*told["players"], *(one for group in told["groups"].values() for one in group["partners"])]:
        one["policy"] = short(one["policy"], options.study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(told, separators=(",", ":")) + "\n")
    return told


def named(prefix: str, folders: list[Path]) -> list[dict[str, str]]:
    """Checkpoints as entries of a pool, numbered in the order of their seeds."""
    return [{"policy": str(folder), "name": f"{prefix} {number}"} for number, folder in enumerate(folders)]


def short(policy: str, study: Path) -> str:
    """A checkpoint's path from the study's folder on, or its last parts; other policies as they are."""
    path = Path(policy)
    if path.is_relative_to(study):
        return str(Path(study.name) / path.relative_to(study))
    return str(Path(*path.parts[-SHOWN_PARTS:])) if path.exists() else policy


def _groups(options: argparse.Namespace, kitchen: str, method: str) -> dict[str, list[Any]]:
    """The partners that a method has not met while it learned."""
    if method == SP_PAIRS:
        return {}
    held_out = trained(options, kitchen, HELD_OUT_STAGE)
    others = [one for name in METHODS if name != method for one in named(name, trained(options, kitchen, name))]
    return {
        HELD_OUT: named("held out", held_out),
        HALF_TRAINED: named("half-trained", [one / "past" / "half_way" for one in held_out]),
        "untrained": named("untrained", [one / "past" / "initial" for one in held_out[:1]]),
        "random": ["random"],
        "stay": ["stay"],
        PROXIES: list(SCRIPTED),
        **({OTHERS: others} if others else {}),
    }


def _planning_of(method: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """The planner of a method; `None` if nobody plans."""
    return {"planner": options.planner} if method == EMMA else None


def _cell(kitchen: str, method: str, players: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Cross-play of one method in one kitchen."""
    planning = _planning_of(method, options)
    steps = {"action_level": "primitive", "commit": False}  # as in emma.yaml's evaluation
    settings = CrossPlaySettings(
        episodes=options.episodes,
        metric="score",
        planning=planning,
        env_config={} if planning is None else steps,
    )
    return CrossPlay(named(method, players), _groups(options, kitchen, method), settings).play().to_json()


def _identity(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by which two partners differ; of a checkpoint its weights stand for its path."""
    return {key: value for key, value in settings.items() if key != "policy" or "digest" not in settings}


def _identities(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Identities of entries of a pool."""
    parsed = [(one.policy, one.to_dict()) for one in parse_partners(entries)]
    return [_identity({**told, **_digest(policy)}) for policy, told in parsed]


def _digest(policy: str) -> dict[str, str]:
    return {"digest": weights_digest(policy)} if Path(policy).exists() else {}
