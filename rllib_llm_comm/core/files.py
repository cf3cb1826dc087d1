"""Files and folders that are there whole or not at all, whatever the disk does, and disk faults in one sentence."""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from rllib_llm_comm.core.errors import UserError

_CHOOSE, _AGAIN = "choose another place", "type the same command again"
# Faults of a disk that no change of the program mends: error number -> (what is wrong, what to do).
_FAULTS = {
    errno.ENOSPC: ("the disk is full", "make room"),
    errno.EDQUOT: ("the quota of the disk is used up", "make room"),
    errno.EFBIG: ("the file became larger than this account or file system allows", "raise the limit"),
    errno.EROFS: ("the disk can only be read", _CHOOSE),
    errno.EACCES: ("this account may not write there", f"{_CHOOSE} or mend its rights"),
    errno.EPERM: ("this account may not write there", f"{_CHOOSE} or mend its rights"),
    errno.EIO: ("the disk fails", "check it"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
}
# Beginnings of the names of folders that are filled and then renamed; files end in `.tmp`.
SCRATCH_FOLDERS = (".policy-", ".adapter-", ".report-")
LARGEST_TEXT = 1 << 30
"""The most bytes that a file of text or JSON may have, where nothing else is told."""
_PIECE = 1 << 20  # bytes read at once
_NUMBER = re.compile(r"\[Errno (\d+)\]")


def read_text(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> str:
    """The text of a file that a user or another program wrote, with or without a byte-order mark.

    Args:
        path: A regular file in UTF-8; in UTF-16 if its mark says so.
        most: The most bytes that it may have.

    Raises:
        OSError: If it cannot be read, is no regular file (a pipe or device could hold the program up without end), or
            is larger.
        UnicodeDecodeError: If it is no text.
    """
    content = read_regular(path, most)
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if marked else "utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_tail(path: str | os.PathLike[str], most: int) -> bytes:
    """The end of a regular file.

    Raises:
        OSError: If it cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes a file so that a reader sees the old or the new content, never a part, even after a power failure.

    Args:
        path: The file; folders above it are made.
        content: Text (written as UTF-8) or bytes.

    Raises:
        OSError: If it cannot be written; the old file is untouched then and nothing else is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with scratch.open("wb") as handle:
            handle.write(content.encode("utf-8") if isinstance(content, str) else content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def replace_folder(new: Path, target: Path) -> None:
    """Puts a finished folder in the place of another, which goes only when the new one is there.

    Args:
        new: The folder with the content, on the same file system.
        target: Its new place; files of an earlier time there are deleted afterwards.
    """
    sync_tree(new)
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
    if os.path.lexists(target):
        os.replace(target, old)
    try:
        os.replace(new, target)
    except BaseException:
        if os.path.lexists(old):
            os.replace(old, target)
        raise
    _sync(target.parent)
    if old.is_symlink():  # what it leads to is not ours
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def replace_files(new: Path, target: Path) -> None:
    """Moves the finished files of a folder into another, over those of the same names.

    Args:
        new: The folder with the files, on the same file system.
        target: A folder that is there; its other files stay.
    """
    sync_tree(new)
    for path in sorted(new.iterdir()):
        os.replace(path, target / path.name)
    _sync(target)


def move_aside(path: Path, name: str) -> Path:
    """Renames a file or folder to `name-1`, `name-2`, ... beside it, the first that is free.

    Args:
        path: File or folder to move.
        name: The new name without its number.

    Returns:
        Where it is now.
    """
    number = 1
    while (aside := path.with_name(f"{name}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def digest_of(path: Path) -> str:
    """The sha256 of a file, read in pieces: 64 hexadecimal digits.

    Raises:
        OSError: If it cannot be read, or is no ordinary file.
    """
    digest = hashlib.sha256()
    with open_regular(path) as handle:
        while piece := handle.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def open_regular(path: str | os.PathLike[str], most: int | None = None) -> BinaryIO:
    """Opens a file of foreign origin to read: an ordinary one, also behind links, and no larger than asked for.

    A device may be endless or do something when it is opened, and a pipe keeps its reader waiting; so its kind is
    looked at before it is opened, and once more afterwards, as it may have been exchanged.

    Args:
        most: Its largest size in bytes; `None` for any.

    Raises:
        OSError: If it cannot be read, is something else than a file, or is larger; `strerror` tells which.
    """
    _require_regular(os.stat(path), path, most)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _require_regular(os.fstat(handle), path, most)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> bytes:
    """The content of a file of foreign origin (`open_regular`), read to its end or not at all.

    Args:
        most: Its largest size in bytes.

    Raises:
        OSError: As of `open_regular`.
    """
    with open_regular(path, most) as file:
        content = file.read(most + 1)
    if len(content) > most:  # it grows, or its size is not told, as of files of the kernel
        raise _too_large(path, most)
    return content


def foreign_lines(path: str | os.PathLike[str], most: int, most_line: int) -> Iterator[bytes]:
    """The lines of a file of foreign origin with their ends, one after the other (`open_regular`).

    Args:
        most: Its largest size in bytes.
        most_line: The longest line in bytes.

    Raises:
        OSError: As of `open_regular`, or if a line is longer.
    """
    with open_regular(path, most) as file:
        left = most
        while line := file.readline(most_line + 1):
            left -= len(line)
            if len(line) > most_line:
                raise OSError(errno.EINVAL, f"it has a line of more than {most_line} bytes", os.fspath(path))
            if left < 0:
                raise _too_large(path, most)
            yield line


def read_foreign_json(path: str | os.PathLike[str], most: int) -> Any:
    """The plain values of a JSON file of foreign origin, with or without a byte-order mark.

    Args:
        most: Its largest size in bytes. Values take up to some thirty times as much memory.

    Raises:
        OSError: As of `open_regular`.
        ValueError: If it is no JSON in UTF-8, or is nested too deeply.
    """
    try:
        return json.loads(read_text(path, most))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _require_regular(about: os.stat_result, path: str | os.PathLike[str], most: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = "a folder" if stat.S_ISDIR(about.st_mode) else "no ordinary file"
        raise OSError(errno.EINVAL, f"it is {kind}", os.fspath(path))
    if most is not None and about.st_size > most:
        raise _too_large(path, most)


def _too_large(path: str | os.PathLike[str], most: int) -> OSError:
    return OSError(errno.EINVAL, f"it is larger than {most} bytes", os.fspath(path))


def remove_scratch(folder: Path) -> None:
    """Deletes what a killed process has left while it wrote: scratch files and folders that were not put in place.

    Args:
        folder: A folder into which nobody writes now; folders below it are looked at, too.
    """
    for path in list(folder.rglob("*")):
        if path.is_dir() and path.name.startswith(SCRATCH_FOLDERS):
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == ".tmp" and path.is_file():
            path.unlink()


def sync_tree(folder: Path) -> None:
    """Waits until all files and folders below a folder are on the disk itself."""
    for path in sorted(folder.rglob("*")):
        _sync(path)
    _sync(folder)


def disk_fault(error: OSError | str) -> str | None:
    """The sentence for a fault of the disk, without a full stop, or `None` if the error is another one.

    Args:
        error: An error of this process, or the text of one from another process.
    """
    if isinstance(error, OSError):
        number, place = error.errno, error.filename
    else:
        found = _NUMBER.search(error)
        number, place = int(found.group(1)) if found else None, None
    if number not in _FAULTS:
        return None
    fault, remedy = _FAULTS[number]
    where = f"{os.fspath(place)!r} cannot be written: " if isinstance(place, str | os.PathLike) else ""
    return f"{where}{fault}; {remedy}"


def disk_fault_now(folder: Path) -> str | None:
    """The sentence for the fault that a file of a megabyte meets in a folder now; `None` if it can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as handle:
            handle.write(bytes(1 << 20))
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        return disk_fault(error)
    return None


def disk_error(error: OSError, doing: str, elsewhere: str = "") -> UserError:
    """User error for a failure while something was written.

    Args:
        doing: The failed action, as the beginning of the sentence.
        elsewhere: Remedy by another place, if there is one, such as "give another place with `--out`".
    """
    fault = disk_fault(error)
    if fault is None:
        return UserError(f"{doing}: {error.strerror or error}; {elsewhere or f'mend that and {_AGAIN}'}.")
    if not elsewhere:
        return UserError(f"{doing}: {fault} and {_AGAIN}.")
    chosen = fault.replace(_CHOOSE, elsewhere) if _CHOOSE in fault else f"{fault}, or {elsewhere}"
    return UserError(f"{doing}: {chosen}.")


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state_folder() -> Path:
    """This user's folder for what outlives a run: `$XDG_STATE_HOME/rllib_llm_comm`, by default below `~/.local/state`.

    It may not be there yet.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rllib_llm_comm"


def cache_folder() -> Path:
    """This user's folder for what can be fetched or made again: `$XDG_CACHE_HOME/rllib_llm_comm`, by default below
    `~/.cache`.

    It may not be there yet.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rllib_llm_comm"


@contextlib.contextmanager
def claim_file(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a lock between processes and threads, which ends with its process.

    Args:
        path: The lock's file; it stays and is always empty.
        wait: Whether to wait for another holder.

    Raises:
        filelock.Timeout: If another one holds it and `wait` is false.
        OSError: If the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(path, blocking=wait, thread_local=False):
        yield
