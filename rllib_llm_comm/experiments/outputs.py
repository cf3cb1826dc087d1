"""The files that commands write: whether they can be written is found out before anything is played."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from rllib_llm_comm.core.errors import UserError


def require_writable(files: Mapping[str, Path | None]) -> None:
    """Refuses files that could not be written in the end.

    Args:
        files: By option; `None` where nothing is written. Folders above a file need not be there yet.

    Raises:
        UserError: If one is a folder or something else that is no file, or its folder takes no files.
    """
    for option, path in files.items():
        if path is None:
            continue
        try:
            if path.exists() and not path.is_file():
                kind = "is a folder" if path.is_dir() else "is no ordinary file"
                raise UserError(f"{option} is {str(path)!r}, which {kind}; give the path of a file.")
            folder = next(above for above in path.absolute().parents if above.exists())
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise UserError(
                f"{option} is {str(path)!r}, which cannot be written ({error.strerror}); give another path."
            ) from error
