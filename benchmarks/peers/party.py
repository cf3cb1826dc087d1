"""The part that every party's program shares: it reads a problem, then does what lines on its standard input say.

This file and the parties' programs run in the parties' own environments. So they import nothing of this package
(`ours.py` excepted), and no more than torch at their top.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def start() -> tuple[Path, dict[str, Any]]:
    """The folder on the command line and its problem; torch gets as many threads as the driver says."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    folder = Path(sys.argv[1])
    return folder, json.loads((folder / "problem.json").read_text(encoding="utf-8"))


def serve(works: Mapping[str, Callable[[], Any]], versions: Mapping[str, str]) -> None:
    """Answers requests, one name per line, with one line of JSON each, until the input ends.

    Args:
        works: Answers by request.
        versions: Versions of the libraries that matter.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    _answer(answers, {"ready": sorted(works), "versions": dict(versions)})
    for line in sys.stdin:
        _answer(answers, {"result": works[line.strip()]()})


def _answer(target: Any, content: Mapping[str, Any]) -> None:
    target.write(json.dumps(content) + "\n")
    target.flush()


def padded_rows(problem: Mapping[str, Any], pad_id: int) -> tuple[Any, Any, int]:
    """Every candidate behind its own prompt: ids and attention mask (B * K, width), and the candidates' width.

    Prompts are padded on the left and candidates on the right.
    """
    import torch

    wide = max(map(len, problem["prompt_ids"]))
    long = max(len(tail) for tails in problem["candidate_ids"] for tail in tails)
    ids, mask = [], []
    for head, tails in zip(problem["prompt_ids"], problem["candidate_ids"], strict=True):
        for tail in tails:
            before, after = wide - len(head), long - len(tail)
            ids.append([pad_id] * before + head + tail + [pad_id] * after)
            mask.append([0] * before + [1] * (len(head) + len(tail)) + [0] * after)
    return torch.tensor(ids), torch.tensor(mask), long
