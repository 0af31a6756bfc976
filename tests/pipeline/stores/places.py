"""The three places that a lake may lie in, as tests use them: real ones, on loopback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from headrace.pipeline.filesystems import connect
from headrace.pipeline.stores.places import store_at
from headrace.pipeline.stores.remote import RemoteStore
from headrace.pipeline.stores.store import Store
from headrace.pipeline.tables.catalog import TABLES

HDFS = pytest.param("hdfs", marks=pytest.mark.xdist_group("spark"))
REMOTE = [HDFS, "s3"]
EVERYWHERE = ["local", *REMOTE]
_STEPS = ("rename", "delete", "mkdirs", "open_output_stream", "copy_file", "delete_file", "delete_dir")


class Killed(BaseException):
    """As if by kill -9: nothing in the job catches it, and whatever it does then does nothing."""


class Place:
    """Where a lake of its own may be."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address

    def store(self) -> Store:
        return store_at(self.address)

    def read(self, directory: str, column: str) -> list[Any]:
        """What any reader of parquet sees in a directory."""
        filesystem, root = self.filesystem()
        rows = ds.dataset(f"{root}/{directory}", format="parquet", filesystem=filesystem).to_table(columns=[column])
        return sorted(rows[column].to_pylist())

    def rows(self, table: str) -> list[dict[str, Any]]:
        filesystem, root = self.filesystem()
        place = f"{root}/{TABLES[table].layer}/{table}"
        found: list[dict[str, Any]] = ds.dataset(place, format="parquet", filesystem=filesystem).to_table().to_pylist()
        return found

    def upload(self, root: Path) -> None:
        """A lake of a disk, as it is."""
        filesystem, place = self.filesystem()

        def put(path: Path) -> None:
            with filesystem.open_output_stream(f"{place}/{path.relative_to(root).as_posix()}") as file:
                file.write(path.read_bytes())

        with ThreadPoolExecutor(16) as threads:  # a file of HDFS takes a moment
            list(threads.map(put, [path for path in root.rglob("*") if path.is_file()]))

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        if self.kind == "local":
            return pafs.LocalFileSystem(), self.address
        return connect(self.address)


def place_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if kind == "hdfs":
        return Place(kind, f"{request.getfixturevalue('hdfs').address}/lakes/{uuid4().hex}")
    if kind == "s3":
        return Place(kind, request.getfixturevalue("object_store").bucket().address("a/lake", scheme="s3a"))
    return Place(kind, str(tmp_path / "lake"))


class Fuse:
    """Kills at the n-th step that changes something, before it is done."""

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.is_blown = False

    def step(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.is_blown = True
            raise Killed


def kill_at(store: Store, fuse: Fuse, patch: pytest.MonkeyPatch) -> None:
    """Everything by which the store changes what is there goes through the fuse."""
    if isinstance(store, RemoteStore):
        store._filesystem = _Fused(store._filesystem, fuse)
        if hasattr(store, "_client"):
            store._client = _Fused(store._client, fuse)
        return
    for owner, name in ((os, "replace"), (os, "link"), (Path, "rename"), (Path, "mkdir"), (shutil, "rmtree")):
        patch.setattr(owner, name, _fused(getattr(owner, name), fuse))


class _Fused:
    def __init__(self, target: Any, fuse: Fuse) -> None:
        self._target = target
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return _fused(found, self._fuse) if name in _STEPS else found


def _fused(call: Callable[..., Any], fuse: Fuse) -> Callable[..., Any]:
    def fused(*arguments: Any, **named: Any) -> Any:
        fuse.step()
        return call(*arguments, **named)

    return fused
