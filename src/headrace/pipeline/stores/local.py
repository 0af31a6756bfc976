"""A lake on a disk or a shared file system: renames are atomic, and a lock ends with its process."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.exchange import aside_directory, exchange, mend
from headrace.pipeline.stores.store import CHUNK_BYTES, TEMPORARY, Entry, Note, Store, parse_note

_LOCK_FILE = "_lock"
_SPARK_MARKS = ("_SUCCESS", "._SUCCESS.crc")


class LocalStore(Store):
    is_on_this_machine = True

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self.address = str(self._root)

    # Who uses it --------------------------------------------------------------------------------------------------

    def knock(self) -> None:
        """A disk answers."""

    @contextmanager
    def held(self, job: str) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / _LOCK_FILE).open("a+", encoding="utf-8") as lock:
            # The system lets go of it when the process ends, however it ends.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "another job"
                raise PipelineError("LAKE_BUSY", path=self._root, holder=holder) from None
            lock.truncate(0)
            lock.write(f"{job}, process {os.getpid()}")
            lock.flush()
            yield

    def is_held_by(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # somebody else's, and there
        return True

    def clean_up(self) -> None:
        mend(self._root)
        shutil.rmtree(aside_directory(self._root), ignore_errors=True)
        shutil.rmtree(self._root / TEMPORARY, ignore_errors=True)
        (self._root / TEMPORARY).mkdir()

    def working_directory(self, name: str) -> Path:
        path = self._root / TEMPORARY / name
        path.mkdir(exist_ok=True)
        return path

    def spark_path(self, name: str) -> str:
        return str(self._root / name)

    # Reading ------------------------------------------------------------------------------------------------------

    def parts(self, directory: str) -> list[str]:
        with os.scandir(self._root / directory) as found:
            return sorted(entry.name for entry in found if entry.is_dir())

    def has_part(self, directory: str, part: str) -> bool:
        return (self._root / directory / part).exists()

    def part_files(self, directory: str, part: str) -> list[str]:
        return sorted(f"{directory}/{part}/{file.name}" for file in (self._root / directory / part).glob("*.parquet"))

    def entries(self, directory: str, *, is_recursive: bool = False) -> list[Entry]:
        root = self._root / directory
        if not is_recursive:
            paths = list(root.iterdir()) if root.is_dir() else []
        else:
            paths = [path for path in root.rglob("*") if path.is_file()]
        found = ((path.relative_to(root).as_posix(), self._look(path)) for path in paths)
        return [entry._replace(name=name) for name, entry in found if entry is not None]

    def entry(self, name: str) -> Entry | None:
        return self._look(self._root / name)

    def _look(self, path: Path) -> Entry | None:
        try:
            seen = path.stat()
        except FileNotFoundError:  # a file that was replaced while the directory was listed
            return None
        return Entry(path.name, path.is_dir(), seen.st_size, seen.st_mtime, (seen.st_ino, seen.st_mtime_ns))

    def dataset(self, place: str | list[str], schema: pa.Schema) -> ds.Dataset:
        files = self._root / place if isinstance(place, str) else [self._root / file for file in place]
        return ds.dataset(files, schema=schema, format="parquet")

    def metadata(self, file: str) -> pq.FileMetaData:
        return pq.read_metadata(self._root / file)

    def chunks(self, file: str) -> Iterator[bytes]:
        with (self._root / file).open("rb") as opened:  # what is open stays what it was
            while chunk := opened.read(CHUNK_BYTES):
                yield chunk

    def read_note(self, name: str) -> Note | None:
        try:
            return parse_note((self._root / name).read_bytes())
        except FileNotFoundError:
            return None

    # Writing ------------------------------------------------------------------------------------------------------

    def write_note(self, name: str, content: Note, *, is_durable: bool = True) -> None:
        unfinished = self._root / f"{name}.{os.getpid()}.new"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(unfinished, self._root / name)

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def delete_directory(self, name: str) -> None:
        shutil.rmtree(self._root / name, ignore_errors=True)

    def make_directory(self, name: str) -> None:
        (self._root / name).mkdir(parents=True, exist_ok=True)

    def write_rows(self, rows: pa.Table, file: str) -> None:
        path = self._root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as written:
            pq.write_table(rows, written)
            written.flush()
            os.fsync(written.fileno())  # before its name says that it is there

    def move_part(self, written: str, directory: str, part: str) -> None:
        source = self._root / written
        for mark in _SPARK_MARKS:
            (source / mark).unlink(missing_ok=True)
        for path in source.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        source.rename(self._root / directory / part)

    def move_file(self, written: str, file: str) -> None:
        os.replace(self._root / written, self._root / file)

    def put_file(self, rows: pa.Table, file: str) -> None:
        # As many files as a table has streams: without a directory for each.
        written = f"{TEMPORARY}/{uuid4().hex}.parquet"
        pq.write_table(rows, self._root / written)
        self.move_file(written, file)

    def move_unchanged(self, written: str, file: str, seen: Entry) -> bool:
        now = self.entry(file)
        if now is None or now.version != seen.version:
            return False
        source, place = self._root / written, self._root / file
        times = place.stat()
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        os.replace(source, place)
        return True

    def swap(self, directory: str, gone: Collection[str], fresh: str) -> None:
        live, other = self._root / directory, self._root / fresh
        other.mkdir(exist_ok=True)
        _link_others(live, other, gone)
        exchange(self._root, live, other)


def _link_others(live: Path, fresh: Path, gone: Collection[str]) -> None:
    """Everything of a directory but some entries, into another one, without a copy."""
    for entry in live.iterdir():
        if entry.name in gone:
            continue
        if entry.is_dir():
            (fresh / entry.name).mkdir()
            for file in entry.iterdir():
                os.link(file, fresh / entry.name / file.name)
            shutil.copystat(entry, fresh / entry.name)  # its age is how long it has been quiet
        else:
            os.link(entry, fresh / entry.name)
