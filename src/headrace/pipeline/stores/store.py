"""What a lake needs of the place it lies in.

Names are relative to the lake and have `/` between them, wherever it is. A store must not know what a table is: it
knows directories of parts (directories that come whole and never change) and of files (each replaced in one step).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

TEMPORARY = "_tmp"
ROWS_FILE = "few.parquet"  # of a part that was written by us, not by Spark
CHUNK_BYTES = 1 << 22  # of a file on its way: sixteen at a time shall not need much memory

Note = dict[str, Any]  # what is kept as a small file of JSON


class Entry(NamedTuple):
    """What lies in a directory."""

    name: str  # within the directory that was asked for
    is_directory: bool
    size_bytes: int
    changed_s: float
    version: tuple[int, ...]  # another one whenever somebody has written it anew


def parse_note(content: bytes) -> Note:
    """Raises ValueError if it is none."""
    found = json.loads(content.decode())
    if not isinstance(found, dict):
        raise ValueError(f"found {type(found).__name__}, expected an object")
    return found


class Store(ABC):
    """One place, used by one job at a time."""

    address: str  # as people may see it: without a key
    can_swap = True  # whether many files can become few, see `swap`
    is_on_this_machine = False

    # Who uses it --------------------------------------------------------------------------------------------------

    @abstractmethod
    def knock(self) -> None:
        """Raises OSError soon where nobody answers and the first request would find that out late."""

    @abstractmethod
    def held(self, job: str) -> AbstractContextManager[None]:
        """Ours until the end. Raises PipelineError if another job has it, or nobody answers."""

    @abstractmethod
    def is_held_by(self, pid: int) -> bool:
        """Whether the job that has it, or had it, lives."""

    @abstractmethod
    def clean_up(self) -> None:
        """Finish or undo what was begun, so that nothing is lost or doubled; throw away what is temporary."""

    @abstractmethod
    def working_directory(self, name: str) -> Path:
        """A directory of this machine for as long as the store is held."""

    # Spark --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def spark_path(self, name: str) -> str: ...

    @property
    def hadoop_conf(self) -> Mapping[str, str]:
        """What Spark's file systems must be told to find it. May hold keys."""
        return {}

    # Reading ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def parts(self, directory: str) -> list[str]:
        """Sorted. Asked for several times a second."""

    @abstractmethod
    def has_part(self, directory: str, part: str) -> bool: ...

    @abstractmethod
    def part_files(self, directory: str, part: str) -> list[str]:
        """The parquet files of a part, sorted."""

    @abstractmethod
    def entries(self, directory: str, *, is_recursive: bool = False) -> list[Entry]:
        """What lies in a directory, or all files below it. Nothing if there is no such directory."""

    @abstractmethod
    def entry(self, name: str) -> Entry | None: ...

    @abstractmethod
    def dataset(self, place: str | list[str], schema: pa.Schema) -> ds.Dataset:
        """Of all files below a directory, or of some files."""

    @abstractmethod
    def metadata(self, file: str) -> pq.FileMetaData:
        """Raises FileNotFoundError."""

    @abstractmethod
    def chunks(self, file: str) -> Iterator[bytes]:
        """A file's bytes, all of one state of it. Raises FileNotFoundError, or OSError with ESTALE once it turns out
        to have been replaced meanwhile, and what came before is of no use."""

    @abstractmethod
    def read_note(self, name: str) -> Note | None:
        """As it was written, also while somebody replaces it. Raises ValueError if it is none."""

    # Writing ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def write_note(self, name: str, content: Note, *, is_durable: bool = True) -> None:
        """In one step."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """A file, if it is there."""

    @abstractmethod
    def delete_directory(self, name: str) -> None:
        """With all that is in it, if it is there."""

    @abstractmethod
    def make_directory(self, name: str) -> None: ...

    @abstractmethod
    def write_rows(self, rows: pa.Table, file: str) -> None:
        """A file among what is temporary."""

    @abstractmethod
    def move_part(self, written: str, directory: str, part: str) -> None:
        """What was written among what is temporary becomes a part, whole."""

    @abstractmethod
    def move_file(self, written: str, file: str) -> None:
        """The same of a file, in the place of what was there."""

    def put_part(self, rows: pa.Table, directory: str, part: str) -> None:
        """Rows become a part."""
        with self.temporary() as written:
            self.write_rows(rows, f"{written}/{ROWS_FILE}")
            self.move_part(written, directory, part)

    def put_file(self, rows: pa.Table, file: str) -> None:
        """Rows become a file, in the place of what was there."""
        with self.temporary() as written:
            self.write_rows(rows, f"{written}/{ROWS_FILE}")
            self.move_file(f"{written}/{ROWS_FILE}", file)

    @abstractmethod
    def move_unchanged(self, written: str, file: str, seen: Entry) -> bool:
        """As move_file, unless somebody has written the file since it was `seen`. It stays as old as it was."""

    @abstractmethod
    def swap(self, directory: str, gone: Collection[str], fresh: str) -> None:
        """What lies in `fresh` for some entries of a directory, in one step for whoever reads it."""

    @contextmanager
    def temporary(self) -> Iterator[str]:
        """The name of a directory that is not there yet, and is not there afterwards."""
        name = f"{TEMPORARY}/{uuid4().hex}"
        try:
            yield name
        finally:
            self.delete_directory(name)
