"""A server that speaks S3's protocol on 127.0.0.1, and how `pyarrow` finds it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

BUCKET = "results"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


class S3:
    """A bucket on a running server.

    Attributes:
        options: The part of a URI that says where the server is.
    """

    def __init__(self, port: int) -> None:
        from pyarrow.fs import FileSystem

        self.options = f"?scheme=http&region=us-east-1&endpoint_override={quote(f'http://127.0.0.1:{port}', safe='')}"
        self._system, _ = FileSystem.from_uri(self.uri() + "&allow_bucket_creation=true&allow_bucket_deletion=true")
        self._system.create_dir(BUCKET)

    def uri(self, path: str = "") -> str:
        """The URI of a place in the bucket."""
        return f"s3://{BUCKET}/{path}".rstrip("/") + self.options

    def put(self, path: str, content: bytes) -> None:
        """Writes an object."""
        with self._system.open_output_stream(f"{BUCKET}/{path}") as stream:
            stream.write(content)

    def put_by_any_name(self, path: str, content: bytes) -> None:
        """Writes an object whose name no client would send."""
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(BUCKET, path, content)

    def get(self, path: str) -> bytes:
        """The content of an object."""
        with self._system.open_input_stream(f"{BUCKET}/{path}") as stream:
            return bytes(stream.read())

    def delete(self, path: str) -> None:
        """Deletes an object."""
        self._system.delete_file(f"{BUCKET}/{path}")

    def make_bucket(self, bucket: str) -> None:
        """Makes another bucket."""
        self._system.create_dir(bucket)

    def remove_bucket(self, bucket: str) -> None:
        """Removes a bucket with all that is in it."""
        self._system.delete_dir(bucket)

    def names(self, path: str = "", bucket: str = BUCKET) -> list[str]:
        """The paths of all objects below a path."""
        from pyarrow.fs import FileSelector

        infos = self._system.get_file_info(
            FileSelector(f"{bucket}/{path}".rstrip("/"), recursive=True, allow_not_found=True)
        )
        return sorted(info.path.removeprefix(bucket + "/") for info in infos if info.is_file)


@contextmanager
def s3_server() -> Iterator[S3]:
    """A server with an empty bucket."""
    server = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        yield S3(running.get_host_and_port()[1])
    finally:
        running.stop()
