"""Places that settings and options name: paths of this machine, `file://`, `s3://`, and the refusal of all others."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from rllib_llm_comm.core.errors import UserError, one_line, shown
from rllib_llm_comm.core.files import cache_folder, claim_file

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# One letter is a drive of Windows. `Path` makes one slash of two.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(.*)", re.DOTALL)
# What is meant as a place in a store, or with a variable, but would make a folder of that name here.
_LIKE_URI = re.compile(
    r"\s.*|.*\s|[^/]+://.*|[A-Za-z][A-Za-z0-9+.-]+::.*|(?:abfss?|arn|az|file|ftp|gcs|gs|hdfs|https?|memory|s3a?):.*",
    re.DOTALL | re.I,
)
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})(?:/.*)?", re.DOTALL)
_REMOTE = "s3"
_AT_ONCE = 8  # files
_MOST_FILES = 1_000_000
_REASON = 300  # characters

COPIES: dict[Path, str] = {}
"""Folder or file of this machine -> the URI that it is a copy of, of all that this process has dealt with."""
Wanted = Callable[[str], bool]
"""Whether a file is fetched, by its path in the folder."""


def scheme_of(place: object) -> str:
    """The scheme of a URI in small letters, such as "s3"; empty for a path of this machine and for what is no place.

    Args:
        place: Value of a setting.
    """
    found = _URI.fullmatch(os.fspath(place)) if isinstance(place, str | os.PathLike) else None
    return found.group(1).lower() if found else ""


def is_remote(place: object) -> bool:
    """True for a place in a store from which folders are fetched: `s3://BUCKET/...`.

    Args:
        place: Value of a setting.
    """
    return scheme_of(place) == _REMOTE


def local_path(place: str | os.PathLike[str], setting: str = "path") -> Path:
    """The path of this machine that a setting names, itself or as `file:///...`; `~` is the user's home.

    Args:
        place: Value of the setting.
        setting: Its name, for messages.

    Raises:
        UserError: If it is a URI of another kind, or no path can be like that.
    """
    text = os.fspath(place)
    scheme = scheme_of(text)
    if scheme == "file":
        try:
            parts = urlsplit(text)
        except ValueError:  # half an address of IPv6
            parts = urlsplit("file://?")
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or not parts.path:
            raise UserError(f"`{setting}` is {shown(text)} but a path as URI is file:///FOLDER, with three slashes.")
        return _path(unquote(parts.path, errors="surrogateescape"), setting)
    if scheme:
        uri = _without_user(_URI.sub(r"\1://\2", text))
        raise UserError(
            f"`{setting}` is {shown(uri)}, but this must be a path of this machine, or file:///PATH; {_remedy(scheme)}."
        )
    if _LIKE_URI.fullmatch(text):
        raise UserError(
            f"`{setting}` is {shown(text)}, which is neither a path nor a place such as s3://BUCKET/FOLDER; write it "
            "without blanks around it, a path that has a colon with ./ in front."
        )
    if _VARIABLE.fullmatch(text):
        raise UserError(f"`{setting}` is {shown(text)}, but variables in it are not replaced; write the path out.")
    return _path(text, setting)


def _path(text: str, setting: str) -> Path:
    """A path, if one can be like that; `~` is the user's home."""
    if not is_text(text) or "\0" in text:
        raise UserError(f"`{setting}` is {shown(text)}, which is no path in UTF-8; rename it, or give another one.")
    try:
        path = Path(text).expanduser()
        os.lstat(path)
    except RuntimeError:  # the home of a user whom nobody knows
        raise UserError(f"`{setting}` is {shown(text)} but nobody knows this home; write the path out.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"`{setting}` is {shown(text)}, which is too long for a path; give another one.") from None
    return path


def _remedy(scheme: str) -> str:
    if scheme == _REMOTE:
        return "copy it here, since only `storage_path`, checkpoints and what a training reads can lie at s3://"
    return f"copy it here, since {scheme}:// is not supported"


def is_text(text: str) -> bool:
    """False for a path whose bytes are not UTF-8, which Python holds as halves of characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def below(uri: str, *names: str) -> str:
    """A URI with names added to its path, in front of its options.

    Args:
        uri: Of a folder in a store.
        *names: Folders below it.
    """
    path, mark, options = uri.partition("?")
    return "/".join([path.rstrip("/"), *(name.strip("/") for name in names)]) + mark + options


def fetched(place: str | os.PathLike[str], setting: str, wanted: Wanted | None = None) -> Path:
    """The path of something that is only read: where it is on this machine, or a copy of what lies in a store.

    Args:
        place: A path, `file:///...`, or `s3://...` of a folder or file; a copy is kept in this user's cache, and what
            has not changed is not fetched again.
        setting: Name of the setting or option, for messages.
        wanted: Which files of a folder are fetched; all by default.

    Raises:
        UserError: If it is another URI, nothing is there, or it cannot be fetched.
    """
    if not is_remote(place):
        return local_path(place, setting)
    store = Store(place, setting)
    copy = store_cache("read", store.uri) / PurePosixPath(store.root).name
    with claim_file(copy.parent / ".lock"):
        COPIES[store.pull(copy, wanted)] = store.uri
    return copy


def original_of(path: Path) -> str | None:
    """The URI of what a path is a copy of, or lies in a copy of; `None` for a path of this machine alone.

    Args:
        path: An absolute path.
    """
    for copy, uri in COPIES.items():
        if path.is_relative_to(copy):
            return below(uri, *path.relative_to(copy).parts)
    return None


def store_uri(place: str | os.PathLike[str], setting: str) -> str:
    """The URI of a place in a store.

    Args:
        place: Value of the setting.
        setting: Its name, for messages.

    Raises:
        UserError: If it names no bucket, or holds a key.
    """
    uri = _URI.sub(rf"{_REMOTE}://\2", os.fspath(place))
    try:
        bucket = urlsplit(uri).netloc
    except ValueError:  # half an address of IPv6
        bucket = ""
    if not bucket:
        raise UserError(f"`{setting}` is {shown(uri)}, which names no bucket; write s3://BUCKET/FOLDER.")
    if "@" in bucket:
        raise UserError(
            f"`{setting}` is {shown(_without_user(uri))} with a key in it, which would be written down; give the key "
            "in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a profile of AWS."
        )
    return uri


def store_cache(use: str, uri: str) -> Path:
    """The folder for copies of what lies at a URI."""
    return cache_folder() / "stores" / use / hashlib.sha256(uri.encode()).hexdigest()[:16]


class Store:
    """A folder, or a single file, in a store that pyarrow reaches; its keys and endpoint are those of the environment.

    Args:
        place: `s3://BUCKET/...`, with pyarrow's options, such as `?endpoint_override=...&region=...`.
        setting: Name of the setting or option, for messages.

    Raises:
        UserError: If it is no such URI, or holds a key.
    """

    def __init__(self, place: str | os.PathLike[str], setting: str) -> None:
        self.uri, self._setting = store_uri(place, setting), setting
        from pyarrow.fs import FileSystem

        with self._told():
            self._system: FileSystem
            self._system, self.root = FileSystem.from_uri(self.uri)
        self.root = self.root.rstrip("/")

    def files(self) -> dict[str, tuple[int, int]]:
        """Size in bytes and time of the last change in ns of all files below, by path; of a single file under "".

        Raises:
            UserError: If they cannot be listed, or a name leads out of the folder.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._told():
            infos = self._system.get_file_info(FileSelector(self.root, recursive=True, allow_not_found=True))
            if not infos:
                infos = self._system.get_file_info([self.root])
        found = {
            info.path[len(self.root) :].lstrip("/"): (info.size, info.mtime_ns)
            for info in infos
            if info.type == FileType.File
        }
        strange = [name for name in found if name and {"", ".", ".."} & set(name.split("/")) or "\0" in name]
        if strange or len(found) > _MOST_FILES:
            what = f"the name {shown(strange[0])}" if strange else f"{len(found)} files"
            raise UserError(f"`{self._setting}` is {shown(self.uri)}, which holds {what}; give another folder.")
        return found

    def pull(self, copy: Path, wanted: Wanted | None = None) -> Path:
        """Makes a folder or file of this machine equal to what lies in the store.

        Args:
            copy: The folder or file; files that are not in the store go.
            wanted: Files that this is about; all by default.

        Returns:
            `copy`.

        Raises:
            UserError: If nothing is there, or it cannot be fetched.
        """
        found = {name: about for name, about in self.files().items() if not name or wanted is None or wanted(name)}
        if not found:
            raise UserError(f"`{self._setting}` is {shown(self.uri)} but nothing is there; correct it.")
        with self._told():
            if copy.is_dir() if "" in found else copy.is_file():
                shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
            for path in [path for path in copy.rglob("*") if path.is_file() or path.is_symlink()]:
                name = path.relative_to(copy).as_posix()
                if name not in found and (wanted is None or wanted(name)):
                    path.unlink()
            changed = [name for name, about in found.items() if _about(copy / name) != (about[0], about[1] // 10**9)]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda name: self._get(name, copy / name, found[name][1]), changed))
        return copy

    def _get(self, name: str, target: Path, changed: int) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{uuid.uuid4().hex[:12]}.tmp")
        try:
            copy_files(
                self._at(name), str(scratch), source_filesystem=self._system, destination_filesystem=LocalFileSystem(),
                use_threads=False,
            )  # fmt: skip
            os.utime(scratch, ns=(changed, changed))
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)

    def put(self, name: str, source: Path) -> None:
        """Writes a file to the store.

        Raises:
            OSError: If the file or the store fails.
        """
        from pyarrow.fs import LocalFileSystem, copy_files

        copy_files(
            str(source), self._at(name), source_filesystem=LocalFileSystem(), destination_filesystem=self._system,
            use_threads=False,
        )  # fmt: skip

    def delete(self, name: str) -> None:
        """Deletes a file of the store.

        Raises:
            OSError: If the store fails.
        """
        self._system.delete_file(self._at(name))

    def require_writable(self) -> None:
        """Refuses a place where no file can be written.

        Raises:
            UserError: If that is so.
        """
        mark = f".writable-{uuid.uuid4().hex[:8]}"
        with self._told("cannot be written to"):
            with self._system.open_output_stream(self._at(mark)) as stream:
                stream.write(b"-")
            self.delete(mark)

    def _at(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    @contextlib.contextmanager
    def _told(self, fault: str = "cannot be read") -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            reason = one_line(str(error), _REASON)
            raise UserError(
                f"`{self._setting}` is {shown(self.uri)}, which {fault} ({reason}); correct it, its options, or the "
                "keys and the region in the environment."
            ) from error


def _about(path: Path) -> tuple[int, int]:
    """Size and time of the last change in whole seconds; (-1, -1) if it is no file."""
    try:
        about = path.stat()
    except OSError:
        return -1, -1
    return about.st_size, about.st_mtime_ns // 10**9


def _without_user(uri: str) -> str:
    return re.sub(r"(?<=/)[^/?#]*@", "...@", uri, count=1)
