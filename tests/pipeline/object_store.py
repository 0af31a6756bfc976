"""A server that speaks S3 on loopback, and buckets in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pyarrow.fs import S3FileSystem

from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually

KEY, SECRET = "access-key", "the-secret-of-the-bucket"


class Bucket:
    def __init__(self, port: int) -> None:
        self.name = f"bucket-{uuid4().hex[:12]}"
        self._place = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"}
        self.filesystem = S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **self._place)

    def address(self, folder: str, scheme: str = "s3") -> str:
        query = "&".join(f"{key}={value}" for key, value in self._place.items())
        return f"{scheme}://{KEY}:{SECRET}@{self.name}/{folder}?{query}"

    def create(self) -> bool:
        try:
            self.filesystem.create_dir(self.name)
        except OSError:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.name}/{name}") as file:
            file.write(content)


class ObjectServer:
    def __init__(self, port: int) -> None:
        self._port = port

    def bucket(self) -> Bucket:
        found = Bucket(self._port)
        eventually(found.create, "the object store", deadline_s=60)
        return found


@contextmanager
def start_object_store(folder: Path) -> Iterator[ObjectServer]:
    port = free_port()
    with (folder / "store.log").open("w") as log:
        store = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        yield ObjectServer(port)
    finally:
        store.kill()
        store.wait()
