"""Demonstrated actions as token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.rllib.utils.annotations import override

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.verco.encoding import CRITIC_IDS, ObservationEncoder, TextObservation
from rllib_llm_comm.verco.learned_rows import LearnedRows
from rllib_llm_comm.verco.teachers.label_store import DEMONSTRATIONS


class ActionPreLearner(OfflinePreLearner):
    """Turns demonstrations into the observations of a policy, and its choices among their candidates.

    Prompts are filled here, from the words and messages of the rows, as they are when the policy plays.

    Args:
        encoder: Writes observations as token ids.
    """

    def __init__(self, encoder: ObservationEncoder) -> None:
        self._encoder = encoder

    @override(OfflinePreLearner)
    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """`obs`: arrays of `encoded_space` without the critic's (N, ...), and `actions` (N,)."""
        rows = [read_demonstration(*row) for row in zip(*(batch[name] for name in DEMONSTRATIONS.learned), strict=True)]
        most = max(len(view.candidates) for view, _, _ in rows)
        encoded = [self._encoder.encode(_widened(view, most), heard) for view, heard, _ in rows]
        names = [name for name in encoded[0] if name != CRITIC_IDS]
        return {
            Columns.OBS: {name: np.stack([one[name] for one in encoded]) for name in names},
            Columns.ACTIONS: np.array([chosen for *_, chosen in rows], np.int64),
        }


def read_demonstration(
    text: str, subgoal: str, heard: str, candidates: str, chosen: int
) -> tuple[TextObservation, dict[str, str], int]:
    """Observation, messages by speaker, and choice of a row.

    Raises:
        UserError: If the row is none that `collect_demonstrations` writes.
    """
    try:
        said, phrases = json.loads(heard), json.loads(candidates)
        good = all(isinstance(one, str) for one in (*said, *said.values(), *phrases)) and isinstance(phrases, list)
    except (ValueError, TypeError, AttributeError, RecursionError):
        good = False
    if not good or not 0 <= chosen < len(phrases):
        raise UserError(
            f"`input_` has a row with `heard` {heard[:100]!r}, `candidates` {candidates[:100]!r} and `chosen` {chosen} "
            "instead of a JSON object of speaker to message, a JSON list of phrases, and the index of one of them; "
            "give Parquet files as `collect_demonstrations` writes them."
        )
    return TextObservation(text, tuple(phrases), (True,) * len(phrases), subgoal), said, chosen


def _widened(view: TextObservation, count: int) -> TextObservation:
    """An observation with forbidden candidates behind its own, so that all rows have as many."""
    more = count - len(view.candidates)
    return TextObservation(view.text, view.candidates + ("",) * more, view.mask + (False,) * more, view.subgoal)


class ActionDemonstrations(LearnedRows):
    """Reads demonstrations."""

    form = DEMONSTRATIONS
