"""Files with data sets of subgoals, as their readers take them."""

from __future__ import annotations

import os
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import read_foreign_json
from rllib_llm_comm.core.places import local_path

_MOST_BYTES = 64 * 2**20
MADE_BY = "make one with a stage `run: collect_subgoals`"


def read_record(path: str | os.PathLike[str], setting: str = "subgoals") -> tuple[dict[str, Any], list[str]]:
    """A data set of subgoals.

    Args:
        path: A file that `SubgoalDataset.to_json` has written.
        setting: Name of the setting that holds the path, for messages.

    Returns:
        Its record, and its subgoals in words, at least one.

    Raises:
        UserError: If there is no such file, or it is none.
    """
    named = f"`{setting}` is {str(path)!r}"
    file = local_path(path, setting)
    try:
        record = read_foreign_json(file, _MOST_BYTES)
        texts = [str(entry["subgoal"]) for entry in record["subgoals"]]
    except OSError as error:
        raise UserError(f"{named}, which cannot be read ({error.strerror}); {MADE_BY}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{named}, which is no data set of subgoals ({type(error).__name__}); {MADE_BY}.") from error
    if not texts:
        raise UserError(f"{named}, which has no subgoals; {MADE_BY}.")
    return record, texts
