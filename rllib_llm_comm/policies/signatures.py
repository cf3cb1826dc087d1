"""Seals of checkpoints, and signatures of the run states that this user's `rllib train` wrote on this machine.

RLlib and Ray Tune unpickle what they go on from, and a pickle can run any program. So `rllib train` signs what it
writes with a secret that only this user can read (HMAC-SHA256 over the names and digests of all files), and goes on
from nothing else unless the user says `--trust`. Signed folders may be moved and copied; a changed, added or missing
file breaks the signature. Nothing is unpickled to find out.

A checkpoint's seal is its last file: it lists the digests of the others. Where they hold the checkpoint is whole,
whoever wrote it; where the code over them holds with this user's secret it is also own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rllib_llm_comm.core.errors import UserError
from rllib_llm_comm.core.files import digest_of, read_foreign_json, state_folder, sync_tree, write_atomically

SIGNATURE = "written_here.json"
_KEY = "own_work.key"
_KEY_BYTES = 32
_MOST_BYTES = 2**27  # of a seal, or a file with signatures
# Tune writes its state again and again, and a kill leaves an earlier one.
_MOST_STATES = 256


def key_file() -> Path:
    """The file with this user's secret: `own_work.key` in `$XDG_STATE_HOME/rllib_llm_comm` (by default below
    `~/.local/state`)."""
    return state_folder() / _KEY


def make_key() -> None:
    """Makes this user's secret, if there is none.

    Raises:
        UserError: If it cannot be written, or others can read the one that is there.
    """
    path = key_file()
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, scratch = tempfile.mkstemp(dir=path.parent)  # for this user alone
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
                os.link(scratch, path)
            except FileExistsError:  # another process was faster
                pass
            finally:
                os.unlink(scratch)
    except OSError as error:
        raise UserError(
            f"the secret with which checkpoints are signed cannot be written to {str(path)!r} ({error.strerror}); set "
            "XDG_STATE_HOME to a folder of your own."
        ) from error
    _key()


def _key() -> bytes | None:
    """The secret, or `None` if there is none.

    Raises:
        UserError: If others can read it.
    """
    path = key_file()
    try:
        about, key = path.stat(), path.read_bytes()
    except OSError:
        return None
    if os.name == "posix" and (about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077):
        raise UserError(
            f"{str(path)!r}, with which checkpoints are signed, belongs to somebody else or can be read by others; "
            "delete it, and a new one is made."
        )
    return key if len(key) == _KEY_BYTES else None


def seal_checkpoint(folder: Path, algorithm: str, metrics: Mapping[str, Any] | None = None) -> None:
    """Waits until a checkpoint to which nothing is added any more is on the disk itself, then says so, and signs it.

    `metrics` is the result of the training iteration it was written after, of plain values.

    Raises:
        OSError: If the disk fails; the checkpoint does not count then.
        UserError: If there is no secret (`make_key` makes it).
    """
    sync_tree(folder)
    key, files = _key(), _digests(folder)
    if key is None or files is None:
        raise UserError(f"{str(folder)!r} cannot be signed: the secret is missing, or it holds links.")
    content = {"algorithm": algorithm, "metrics": dict(metrics or {}), "files": files}
    code = _code(key, "checkpoint", content)
    write_atomically(folder / SIGNATURE, json.dumps({**content, "code": code}) + "\n")


def sealed_metrics(folder: Path) -> dict[str, Any] | None:
    """The result that a checkpoint was sealed with; `None` without a (readable) seal."""
    seal = _read_seal(folder)
    return None if seal is None else seal["metrics"]


def is_whole(folder: Path) -> bool:
    """True if a checkpoint is sealed and has all of its files, whoever wrote them."""
    seal = _read_seal(folder)
    try:
        return seal is not None and seal["files"].items() <= (_digests(folder) or {}).items()
    except OSError:
        return False


def signed_algorithm(folder: str | os.PathLike[str]) -> str | None:
    """The algorithm that a checkpoint is of, if it was written here and not changed since; otherwise `None`."""
    key, seal = _key(), _read(Path(folder) / SIGNATURE)
    if key is None or not isinstance(seal, dict) or (files := _digests(Path(folder))) is None:
        return None
    algorithm, code = seal.get("algorithm"), seal.pop("code", None)
    if seal.get("files") != files:
        return None
    try:
        return algorithm if hmac.compare_digest(ascii(code), ascii(_code(key, "checkpoint", seal))) else None
    except RecursionError:  # somebody else's, nested too deeply
        return None


def is_own_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """True if a checkpoint was written here and not changed since.

    Args:
        folder: The checkpoint, or a policy folder in it, such as `population/agent_0` or `past/initial`, for which the
            checkpoint's signature speaks.
    """
    root = Path(folder).resolve()
    signed = next((one for one in (root, *root.parents[:2]) if (one / SIGNATURE).is_file()), root)
    return signed_algorithm(signed) is not None


class OwnStates:
    """The files of a run's state that were written here, among those in a stage's folder.

    Args:
        folder: The stage's folder. Its file `written_here.json` holds one code per signed content.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SIGNATURE
        self._key = _key()
        content = _read(self._path)
        content = content if isinstance(content, dict) else {}
        self._begun, codes = content.get("begun"), content.get("codes")
        self._codes = [code for code in codes if isinstance(code, str) and code] if isinstance(codes, list) else []

    def begin(self, run: str) -> None:
        """Signs that a run was begun here.

        Args:
            run: A name that no other run has.
        """
        if self._key is not None and not self.has_begun(run):
            self._begun = _code(self._key, "begun", run)
            self._write()

    def has_begun(self, run: str) -> bool:
        """True if a run was begun here; what is not signed was then half written when it was killed, or added later."""
        return self._key is not None and self._begun == _code(self._key, "begun", run)

    def sign(self, files: Iterable[Path]) -> None:
        """Signs files, wherever they lie now, under their names.

        Raises:
            OSError: If the disk fails.
        """
        fresh = [code for path in files if (code := self._code_of(path)) and code not in self._codes]
        if fresh:
            self._codes = [*self._codes, *fresh][-_MOST_STATES:]
            self._write()

    def _write(self) -> None:
        write_atomically(self._path, json.dumps({"begun": self._begun, "codes": self._codes}) + "\n")

    def holds(self, path: Path) -> bool:
        """True if a file was written here with this content."""
        return self._code_of(path) in self._codes

    def holds_content(self, name: str, content: bytes) -> bool:
        """True if a file of this name was written here with this content; nothing has to be on the disk for it."""
        return self._key is not None and self._code(name, hashlib.sha256(content).hexdigest()) in self._codes

    def _code_of(self, path: Path) -> str:
        return "" if path.is_symlink() or not path.is_file() else self._code(path.name, digest_of(path))

    def _code(self, name: str, digest: str) -> str:
        return "" if self._key is None else _code(self._key, "state", [name, digest])


def _code(key: bytes, kind: str, content: Any) -> str:
    return hmac.new(key, json.dumps([kind, content], sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _digests(folder: Path) -> dict[str, str] | None:
    """Digests of all files below a folder by relative path; `None` if there are none, or other things than files."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            return None
        if path.is_file() and path != folder / SIGNATURE:
            found[path.relative_to(folder).as_posix()] = digest_of(path)
    return found or None


def _read_seal(folder: Path) -> dict[str, Any] | None:
    content = _read(folder / SIGNATURE)
    if isinstance(content, dict) and all(isinstance(content.get(key), dict) for key in ("files", "metrics")):
        return content
    return None


def _read(path: Path) -> Any:
    try:
        return read_foreign_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None
