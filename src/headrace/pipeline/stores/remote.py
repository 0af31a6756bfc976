"""What lakes on HDFS and in object stores have in common: pyarrow reads and writes, a lease keeps others out.

Every listing is a request, so which parts there are is listed once and then remembered: nobody else changes them while
the lake is held. Every write sees first that it still is.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.lease import Lease, is_held
from headrace.pipeline.stores.store import Note, Store, parse_note

_MAX_REASON = 300
_READS = 10
_READ_AGAIN_S = 0.05


class RemoteStore(Store):
    def __init__(self, filesystem: pafs.FileSystem, root: str, address: str) -> None:
        self.address = address
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._lease: Lease | None = None
        self._scratch: Path | None = None
        self._parts: dict[str, dict[str, list[str]]] = {}  # by directory: the files of each part
        self._parts_lock = threading.RLock()

    # Who uses it --------------------------------------------------------------------------------------------------

    def knock(self) -> None:
        """pyarrow's own clients give up within seconds."""

    @contextmanager
    def held(self, job: str) -> Iterator[None]:
        lease = Lease(self, job)
        with self._reached():
            self._prepare()
            lease.take()
        self._lease = lease
        self._scratch = Path(tempfile.mkdtemp(prefix="headrace-"))
        try:
            yield
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
            with suppress(OSError):  # else it is taken over when it is old
                lease.give_back()
            self._lease = None

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """The first calls tell whether anybody answers, and lets us in."""
        try:
            yield
        except OSError as error:
            reason = str(error).strip().partition("\n")[0][:_MAX_REASON] or type(error).__name__
            raise PipelineError("LAKE_NOT_REACHED", path=self.address, who="this job", reason=reason) from error

    def _prepare(self) -> None:
        """What must be there before anything else."""

    def _require_held(self) -> None:
        if self._lease is not None:  # somebody who only asks has none
            self._lease.require()

    def is_held_by(self, pid: int) -> bool:
        """Whoever it is: a process of another machine may have the same number."""
        return is_held(self, time.time())

    def clean_up(self) -> None:
        if self._lease is not None and self._lease.is_lost:
            return  # it is somebody else's by now
        self._mend()
        with self._parts_lock:
            self._parts.clear()

    @abstractmethod
    def _mend(self) -> None:
        """Finish or undo what was begun, and throw away what is temporary."""

    def working_directory(self, name: str) -> Path:
        assert self._scratch is not None, "only while it is held"
        path = self._scratch / name
        path.mkdir(exist_ok=True)
        return path

    def spark_path(self, name: str) -> str:
        return f"{self.address}/{name}"

    # Reading ------------------------------------------------------------------------------------------------------

    def parts(self, directory: str) -> list[str]:
        return sorted(self._known_parts(directory))

    def has_part(self, directory: str, part: str) -> bool:
        return part in self._known_parts(directory)

    def part_files(self, directory: str, part: str) -> list[str]:
        return self._known_parts(directory).get(part, [])

    def _known_parts(self, directory: str) -> dict[str, list[str]]:
        with self._parts_lock:
            if directory not in self._parts:
                found: dict[str, list[str]] = {}
                for entry in sorted(self.entries(directory, is_recursive=True)):
                    part, slash, file = entry.name.partition("/")
                    if slash and file.endswith(".parquet"):
                        found.setdefault(part, []).append(f"{directory}/{entry.name}")
                self._parts[directory] = found
            return dict(self._parts[directory])

    def _remember(self, directory: str, part: str, files: list[str]) -> None:
        with self._parts_lock:
            self._known_parts(directory)
            self._parts[directory][part] = files

    def _forget(self, directory: str) -> None:
        with self._parts_lock:
            self._parts.pop(directory, None)

    def dataset(self, place: str | list[str], schema: pa.Schema) -> ds.Dataset:
        files = self._path(place) if isinstance(place, str) else [self._path(file) for file in place]
        return ds.dataset(files, schema=schema, format="parquet", filesystem=self._filesystem)

    def metadata(self, file: str) -> pq.FileMetaData:
        return pq.read_metadata(self._path(file), filesystem=self._filesystem)

    def read_note(self, name: str) -> Note | None:
        for is_last in (*[False] * (_READS - 1), True):
            try:
                return parse_note(self._read_bytes(name))
            except FileNotFoundError:
                return None
            except (OSError, ValueError):
                # pyarrow asks how long an object is, then for so many bytes. Between the two it may be replaced, and
                # what comes is an error, the beginning of the new one, or that and some bytes of nobody.
                if is_last:
                    raise
            time.sleep(_READ_AGAIN_S)  # or one that is replaced all the time is met in the same moment again
        return None

    def _read_bytes(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(self._path(name)) as file:
            content: bytes = file.readall()
        return content

    # Writing ------------------------------------------------------------------------------------------------------

    def write_note(self, name: str, content: Note, *, is_durable: bool = True) -> None:
        self._require_held()
        self.put_note(name, content)

    @abstractmethod
    def put_note(self, name: str, content: Note) -> None:
        """In one step, and whoever holds the lake: the lease's own way."""

    def delete(self, name: str) -> None:
        self._require_held()
        self.remove(name)

    @abstractmethod
    def remove(self, name: str) -> None:
        """A file, if it is there, whoever holds the lake."""

    def write_rows(self, rows: pa.Table, file: str) -> None:
        self._put_rows(rows, file)

    def _put_rows(self, rows: pa.Table, file: str) -> None:
        # First in memory: a file that is closed before its end would be there, cut short.
        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer)
        self._put_bytes(file, buffer.getvalue())

    def _put_bytes(self, file: str, content: pa.Buffer | bytes) -> None:
        with self._filesystem.open_output_stream(self._path(file)) as written:
            written.write(content)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
