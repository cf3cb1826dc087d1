"""Results at `s3://`: what runs writes to a copy on this machine, which is sent to the store while it runs.

Checkpoints are sealed, signed and replaced at once, which a store cannot; so a run that goes on finds in the store what
a run that was killed a moment ago finds on a disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import filelock

from rllib_llm_comm.core.errors import UserError, one_line
from rllib_llm_comm.core.files import SCRATCH_FOLDERS, claim_file, read_text, write_atomically
from rllib_llm_comm.core.places import COPIES, Store, below, is_remote, local_path, store_cache, store_uri
from rllib_llm_comm.experiments.console import say

SECONDS = 30.0
"""From the end of one transfer to the begin of the next."""
_UNSENT = ".unsent.json"
_Sizes = dict[str, tuple[int, int]]


def results_folder(storage: str, name: str, setting: str = "storage_path") -> Path:
    """The folder on this machine to which an experiment writes.

    Args:
        storage: The place above it: a path, `file:///...` or `s3://...`; other URIs are refused.
        name: The experiment's name.
        setting: Name of the setting, for messages.
    """
    if not is_remote(storage):
        return local_path(storage, setting) / name
    uri = below(store_uri(storage, setting), name)
    folder = store_cache("write", uri) / name
    COPIES[folder] = uri
    return folder


@contextlib.contextmanager
def sent(folders: Collection[Path]) -> Iterator[None]:
    """Fetches results that lie in stores, and sends what is written to their folders, every half a minute and at the
    end.

    Args:
        folders: From `results_folder`; those of this machine are left as they are.

    Raises:
        UserError: If a store cannot be read or written, or another command or machine writes there.
    """
    with contextlib.ExitStack() as stack:
        for folder in sorted(folders):
            if uri := COPIES.get(folder):
                stack.enter_context(_Sender(folder, uri).running())
        yield


class _Sender:
    """Sends one folder, oldest files first, so that a signature does not come before what it signs."""

    def __init__(self, folder: Path, uri: str) -> None:
        self._folder, self._unsent = folder, folder.parent / _UNSENT
        self._store = Store(uri, "storage_path")
        self._seen: _Sizes = {}
        self._told = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Fetches, sends beside what runs, and sends the rest at the end."""
        try:
            with claim_file(self._folder.parent / ".lock", wait=False):
                self._fetch()
                ended = threading.Event()
                beside = threading.Thread(target=self._send_beside, args=(ended,), daemon=True)
                beside.start()
                try:
                    yield
                finally:
                    ended.set()
                    beside.join()
                    self._finish()
        except filelock.Timeout:
            raise UserError(
                f"Another `rllib train` is writing to {self._store.uri}; wait for it, or choose another "
                "`--experiment-name`."
            ) from None

    def _fetch(self) -> None:
        """Begins with what is in the store, or with what an earlier command could not send."""
        self._store.require_writable()
        there = self._store.files()
        if self._unsent.exists():
            self._require_no_other_writer(there)
            say(f"Results of an earlier call that were not yet sent to {self._store.uri} are sent now.")
        elif there:
            self._store.pull(self._folder)
            self._seen = self._files()
        self._note(there)

    def _require_no_other_writer(self, there: _Sizes) -> None:
        try:
            known = json.loads(read_text(self._unsent))
        except (OSError, ValueError):
            known = {}
        own = self._files()
        for name, about in there.items():
            if known.get(name) != list(about) and (name not in own or own[name][0] != about[0]):
                raise UserError(
                    f"{self._store.uri} was written to by another machine since results of this one were not sent; "
                    f"move {str(self._folder.parent)!r}, which holds them, away, or choose another "
                    "`--experiment-name`."
                )

    def _note(self, there: _Sizes) -> None:
        """Keeps what the store held when it was last read or written, until everything is sent."""
        write_atomically(self._unsent, json.dumps(there))

    def _send_beside(self, ended: threading.Event) -> None:
        while not ended.wait(SECONDS):
            try:
                self._send()
            except (OSError, ValueError) as error:
                if not self._told:
                    say(
                        f"Nothing could be sent to {self._store.uri} ({one_line(str(error), 300)}); it is tried again.",
                        "red",
                    )
                self._told = True

    def _send(self) -> None:
        files = self._files()
        changed = [name for name, about in files.items() if self._seen.get(name) != about]
        for name in sorted(changed, key=lambda name: files[name][1]):
            with contextlib.suppress(FileNotFoundError):  # it was replaced or taken away meanwhile
                self._store.put(name, self._folder / name)
                self._seen[name] = files[name]
        lost = [name for name in self._seen if name not in files]
        for name in lost:
            with contextlib.suppress(FileNotFoundError):
                self._store.delete(name)
            del self._seen[name]
        if changed or lost:
            self._note(self._store.files())

    def _finish(self) -> None:
        try:
            self._send()
            there = self._store.files()
            for name in set(there) & set(self._seen):  # what is equal now need not be fetched again
                os.utime(self._folder / name, ns=(there[name][1], there[name][1]))
            self._unsent.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"The results could not all be sent to {self._store.uri} ({one_line(str(error), 300)}); they are in "
                f"{str(self._folder)!r}, and the same command sends them."
            ) from error

    def _files(self) -> _Sizes:
        """Size and time of the last change of all files; scratch files and locks are nobody else's business."""
        found: _Sizes = {}
        for above, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(SCRATCH_FOLDERS)]
            for name in names:
                path = Path(above, name)
                if name.endswith((".tmp", ".lock")) or path.is_symlink() or not path.is_file():
                    continue
                with contextlib.suppress(FileNotFoundError):
                    about = path.stat()
                    found[path.relative_to(self._folder).as_posix()] = about.st_size, about.st_mtime_ns
        return found
