"""A lake on HDFS: a directory's rename is atomic there too, and so is a file's in the place of another.

There are no hard links and no exchange, so merging takes several renames, during which a table's directory is not
there: a reader then fails, and sees no wrong rows.

    LAKE/_swap.json         which directory is put aside, what goes, and where what comes lies
    LAKE/_aside/…           that directory
"""

from __future__ import annotations

import errno
import json
import re
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.filesystems import connect
from headrace.pipeline.stores.remote import RemoteStore
from headrace.pipeline.stores.store import CHUNK_BYTES, TEMPORARY, Entry, Note

_SWAP_FILE, _ASIDE = "_swap.json", "_aside"
_REACH_DEADLINE_S = 10.0
_PERMISSION = 0o755
# As the client shows it, with the name node's stack behind the first line.
_REFUSAL = re.compile(r'RPCError\("[^"]*", "(.*?)(?:\\n|"\))')


class HdfsStore(RemoteStore):
    def __init__(self, address: str) -> None:
        filesystem, root = connect(address)
        try:
            # Replacing a file in one step is more than pyarrow's own interface has.
            self._client: Any = _Client(filesystem.handler.fs.client)
        except AttributeError:
            raise PipelineError("HDFS_CLIENT", found="pyarrow's own cannot replace a file") from None
        super().__init__(filesystem, root, address.rstrip("/"))

    def knock(self) -> None:
        place = urlsplit(self.address)
        if place.hostname is not None and place.port is not None:
            # The client itself would try for minutes. A name without a port is one of Hadoop's configuration.
            socket.create_connection((place.hostname, place.port), _REACH_DEADLINE_S).close()

    def _prepare(self) -> None:
        self.knock()
        self._client.mkdirs(self._root or "/", _PERMISSION, True)

    # Reading ------------------------------------------------------------------------------------------------------

    def _read_bytes(self, name: str) -> bytes:
        with _told():
            return super()._read_bytes(name)

    def chunks(self, file: str) -> Iterator[bytes]:
        seen = self.entry(file)
        try:
            with _told(), self._filesystem.open_input_stream(self._path(file)) as opened:
                while chunk := opened.read(CHUNK_BYTES):
                    yield chunk
        except FileNotFoundError:
            raise
        except OSError:
            # What is open stays what it was, but data nodes throw the blocks of a file that was replaced away.
            if self.entry(file) == seen:
                raise
            raise OSError(errno.ESTALE, "replaced while it was read", file) from None

    def entries(self, directory: str, *, is_recursive: bool = False) -> list[Entry]:
        path = self._path(directory)
        try:
            found = [_entry(status, path) for status in self._client.list_status(path, is_recursive)]
        except FileNotFoundError:
            return []
        return [entry for entry in found if not (is_recursive and entry.is_directory)]

    def entry(self, name: str) -> Entry | None:
        try:
            status = self._client.get_file_info(self._path(name))
        except FileNotFoundError:
            return None
        return _entry(status, self._path(name).rpartition("/")[0])

    # Writing ------------------------------------------------------------------------------------------------------

    def _put_bytes(self, file: str, content: pa.Buffer | bytes) -> None:
        with _told():
            super()._put_bytes(file, content)

    def put_note(self, name: str, content: Note) -> None:
        unfinished = f"{name}.new"
        self._put_bytes(unfinished, json.dumps(content).encode())
        self._client.rename(self._path(unfinished), self._path(name), True)

    def remove(self, name: str) -> None:
        self._client.delete(self._path(name), False)

    def delete_directory(self, name: str) -> None:
        self._client.delete(self._path(name), True)

    def make_directory(self, name: str) -> None:
        self._client.mkdirs(self._path(name), _PERMISSION, True)

    def move_part(self, written: str, directory: str, part: str) -> None:
        self.remove(f"{written}/_SUCCESS")
        files = [entry.name for entry in self.entries(written)]
        self._require_held()
        self._client.rename(self._path(written), self._path(f"{directory}/{part}"))
        self._remember(directory, part, sorted(f"{directory}/{part}/{file}" for file in files))

    def move_file(self, written: str, file: str) -> None:
        self._require_held()
        self._client.rename(self._path(written), self._path(file), True)

    def move_unchanged(self, written: str, file: str, seen: Entry) -> bool:
        now = self.entry(file)
        if now is None or now.version != seen.version:
            return False
        changed_ms = round(seen.changed_s * 1000)
        self._client.set_times(self._path(written), changed_ms, changed_ms)
        self.move_file(written, file)
        return True

    # Merging ------------------------------------------------------------------------------------------------------

    def swap(self, directory: str, gone: Collection[str], fresh: str) -> None:
        self.write_note(_SWAP_FILE, {"directory": directory, "gone": sorted(gone), "fresh": fresh})
        self._put_aside(directory)
        self._finish_swap(directory, gone, fresh)
        self._forget(directory)

    def _put_aside(self, directory: str) -> None:
        self.make_directory(f"{_ASIDE}/{directory}".rpartition("/")[0])
        self._client.rename(self._path(directory), self._path(f"{_ASIDE}/{directory}"))

    def _finish_swap(self, directory: str, gone: Collection[str], fresh: str) -> None:
        """Each step may have been done before a crash."""
        aside = f"{_ASIDE}/{directory}"
        for entry in self.entries(fresh):
            self._client.rename(self._path(f"{fresh}/{entry.name}"), self._path(f"{aside}/{entry.name}"), True)
        for name in gone:
            self.delete_directory(f"{aside}/{name}")
        self._client.rename(self._path(aside), self._path(directory))
        self.remove(_SWAP_FILE)

    def _mend(self) -> None:
        told = self.read_note(_SWAP_FILE)
        if told is not None:
            # Not put aside yet, or back in its place: nothing has changed, or everything.
            if self.entry(f"{_ASIDE}/{told['directory']}") is not None:
                self._finish_swap(**told)
            self.remove(_SWAP_FILE)
        for layer in self.entries(_ASIDE):
            for kept in self.entries(f"{_ASIDE}/{layer.name}"):
                # Nobody leaves one here, and nobody shall lose one either.
                self._client.rename(
                    self._path(f"{_ASIDE}/{layer.name}/{kept.name}"), self._path(f"{layer.name}/{kept.name}")
                )
        for name in (_ASIDE, TEMPORARY):
            self.delete_directory(name)
        self.make_directory(TEMPORARY)


class _Client:
    """hdfs-native's, with what the name node refuses as errors of the system, as all others are."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def told(*arguments: Any) -> Any:
            with _told():
                found = call(*arguments)
                return [*found] if name == "list_status" else found

        return told


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = _REFUSAL.match(str(error))
        raise OSError(reason[1] if reason else str(error)) from error


def _entry(status: Any, directory: str) -> Entry:
    return Entry(
        status.path.removeprefix(directory).lstrip("/"),
        status.isdir,
        status.length,
        status.modification_time / 1000,
        (status.modification_time, status.length),
    )
