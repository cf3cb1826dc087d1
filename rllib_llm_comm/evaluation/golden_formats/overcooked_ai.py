"""Golden episodes and single transitions of the onion-soup kitchen."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.envs.overcooked_ai.rules import Kitchen, StepResult
from rllib_llm_comm.evaluation.golden_report import GoldenReport

_LARGEST = 64 * 2**20


def replay(episode: Mapping[str, Any], report: GoldenReport) -> None:
    """Replays an episode, or a block of single transitions, and notes differences.

    Args:
        episode: The recorded episode.
        report: Takes the differences.

    Raises:
        UserError: If its kind is unknown.
    """
    kitchen = Kitchen(episode["layout"], episode["dynamics"], int(episode.get("horizon", 400)))
    if episode["kind"] == "episode":
        _replay_episode(episode, kitchen, report)
    elif episode["kind"] == "transitions":
        _replay_transitions(episode, kitchen, report)
    else:
        raise UserError(f"`kind` is {episode['kind']!r} but must be 'episode' or 'transitions'.")


def _replay_episode(episode: Mapping[str, Any], kitchen: Kitchen, report: GoldenReport) -> None:
    planes = _array(episode["lossless"])
    # Left out where the original takes too long for them.
    features = _array(episode["featurize"]) if "featurize" in episode else [None] * len(planes)
    name = str(episode["id"])
    report.compare(name, 0, "state", episode["states"][0], kitchen.snapshot())
    _compare_encodings(report, name, 0, planes[0], features[0], kitchen)
    for number, actions in enumerate(episode["actions"], 1):
        result = kitchen.step(actions)
        report.steps += 1
        at = number - 1
        expected = (episode["sparse_r"][at], episode["shaped_r"][at], episode["events"][at])
        _compare_result(report, name, number, expected, result)
        report.compare(name, number, "state", episode["states"][number], kitchen.snapshot())
        report.compare(name, number, "done", bool(episode["done"][at]), kitchen.over)
        _compare_encodings(report, name, number, planes[number], features[number], kitchen)


def _replay_transitions(episode: Mapping[str, Any], kitchen: Kitchen, report: GoldenReport) -> None:
    planes, features = _array(episode["lossless_next"]), _array(episode["featurize_next"])
    name = str(episode["id"])
    for number, (before, actions, after, *expected) in enumerate(episode["cases"], 1):
        kitchen.restore(before)
        report.compare(name, number, "state before", before, kitchen.snapshot())
        result = kitchen.step(actions)
        report.steps += 1
        _compare_result(report, name, number, expected, result)
        report.compare(name, number, "state", after, kitchen.snapshot())
        _compare_encodings(report, name, number, planes[number - 1], features[number - 1], kitchen)


def _compare_result(report: GoldenReport, name: str, number: int, expected: Sequence[Any], result: StepResult) -> None:
    sparse, shaped, events = expected
    report.compare(name, number, "sparse reward", list(sparse), list(result.sparse))
    report.compare(name, number, "shaped reward", list(shaped), list(result.shaped))
    ours = sorted([event, i] for i in range(2) for event in result.events[i])
    report.compare(name, number, "events", sorted(events), ours)


def _compare_encodings(
    report: GoldenReport, name: str, number: int, planes: np.ndarray, features: np.ndarray | None, kitchen: Kitchen
) -> None:
    ours = kitchen.lossless()
    if planes.shape != ours.shape or (planes != ours).any():
        report.compare(name, number, "lossless encoding", planes.tolist(), ours.tolist())
    if features is not None:
        report.compare(name, number, "features", features.tolist(), kitchen.features().tolist())


def _array(packed: Mapping[str, Any]) -> np.ndarray:
    """An array from base64 of zlib of its bytes, in bounds."""
    raw = zlib.decompressobj().decompress(base64.b64decode(packed["b64zlib"]), _LARGEST)
    return np.frombuffer(raw, np.dtype(packed["dtype"])).reshape(packed["shape"])
