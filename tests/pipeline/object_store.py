"""Servers that speak S3 and Google Cloud Storage on loopback, and buckets in them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode
from uuid import uuid4

from pyarrow.fs import FileSystem, GcsFileSystem, S3FileSystem

from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually

KEY, SECRET = "access-key", "the-secret-of-the-bucket"


class Bucket:
    """One of a server's, with a name that no test has had before."""

    scheme: ClassVar[str]
    user: ClassVar[str]
    server: ClassVar[tuple[str, ...]]  # the module, and how it is told where to listen
    filesystem: FileSystem

    def __init__(self, port: int) -> None:
        self.name = f"bucket-{uuid4().hex[:12]}"
        self._place = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http"}

    def address(self, folder: str, scheme: str = "") -> str:
        return f"{scheme or self.scheme}://{self.user}@{self.name}/{folder}?{urlencode(self._place)}"

    def create(self) -> bool:
        try:
            self.filesystem.create_dir(self.name)
        except OSError:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.name}/{name}") as file:
            file.write(content)


class S3Bucket(Bucket):
    scheme, user = "s3", f"{KEY}:{SECRET}"
    server = ("moto.server", "-H", "127.0.0.1", "-p", "{port}")

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._place["region"] = "us-east-1"
        self.filesystem = S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **self._place)


class GoogleBucket(Bucket):
    scheme, user = "gs", "anonymous"
    server = ("gcp_storage_emulator", "start", "--host", "127.0.0.1", "--port", "{port}", "--in-memory")

    def __init__(self, port: int) -> None:
        super().__init__(port)
        limit_s = 10
        self.filesystem = GcsFileSystem(
            anonymous=True, project_id="tests", retry_time_limit=timedelta(seconds=limit_s), **self._place
        )
        self._place["retry_limit_seconds"] = str(limit_s)


class ObjectServer:
    def __init__(self, kind: type[Bucket], port: int) -> None:
        self._kind, self._port = kind, port

    def bucket(self) -> Bucket:
        found = self._kind(self._port)
        eventually(found.create, "the object store", deadline_s=60)
        return found


@contextmanager
def start_object_store(folder: Path, kind: type[Bucket] = S3Bucket) -> Iterator[ObjectServer]:
    port = free_port()
    words = [word.format(port=port) for word in kind.server]
    with (folder / "store.log").open("w") as log:
        store = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)
    try:
        yield ObjectServer(kind, port)
    finally:
        store.kill()
        store.wait()
