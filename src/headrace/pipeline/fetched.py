"""What a command reads of a lake elsewhere, copied into a temporary directory of this machine: no JVM, no lock.

Whoever reads lakes on a disk then reads it as any other. The copy has the lake's layout: all tables as directories, and
the files of those that are wanted. A job may write meanwhile: each file is copied as it was at one time, and one that
went away before, because its rows are in another file by now, makes another look.
"""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.progress import human_bytes
from headrace.pipeline.layout import LAYERS, LAYOUT_VERSION, VERSION_FILE
from headrace.pipeline.query.lake import PAUSE_S, TRIES, not_there, stored_files

if TYPE_CHECKING:
    from headrace.pipeline.stores.store import Store

# Every command copies anew, and on many machines what is temporary lies in memory.
MAX_BYTES = 2_000_000_000
_REQUESTS = 16  # at once: most files are small, and take as long as an answer does


@contextmanager
def fetched(
    place: Path | str,
    is_wanted: Callable[[str], bool],
    *,
    instead: str = "",
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Path]:
    """A directory with the wanted tables, as long as the block lasts; a lake on a disk is its own.

    `instead` is what may be done where they are too large. Raises PipelineError.
    """
    if isinstance(place, Path):
        yield place
        return
    from headrace.pipeline.stores.places import existing_store_at  # whose pyarrow a lake on a disk does without

    store = existing_store_at(place)
    with tempfile.TemporaryDirectory(prefix="headrace-lake-") as root, _said_of(store.address, root):
        _Copy(store, Path(root), is_wanted, instead).make(pause)
        yield Path(root)


class _Copy:
    def __init__(self, store: Store, root: Path, is_wanted: Callable[[str], bool], instead: str) -> None:
        self._store, self._root = store, root
        self._is_wanted, self._instead = is_wanted, instead
        self._done: set[str] = set()
        self._is_over = threading.Event()

    def make(self, pause: Callable[[float], None]) -> None:
        for look in range(1, TRIES + 1):
            try:
                self._look()
                return
            except OSError as error:
                if not _is_gone(error):
                    reason = str(error).strip().partition("\n")[0]
                    raise PipelineError(
                        "LAKE_NOT_REACHED", path=self._store.address, who="this job", reason=reason
                    ) from None
                if look == TRIES:
                    reason = f"{error.filename} is {error.strerror}, at {TRIES} looks"
                    raise PipelineError("LAKE_UNREADABLE", path=self._store.address, reason=reason) from None
            pause(PAUSE_S)

    def _look(self) -> None:
        """Copies what is there and was not copied yet."""
        sizes = self._list()
        self._require_room(sizes)
        for gone in self._done - sizes.keys():
            (self._root / gone).unlink()  # its rows are in another file by now
            self._done.remove(gone)
        missing = [file for file in sizes if file not in self._done]
        with ThreadPoolExecutor(_REQUESTS) as threads:
            try:
                moved = [error for error in threads.map(self._copy, missing) if error is not None]
            except BaseException:
                self._is_over.set()  # nobody waits for the end of a long file
                raise
        if moved:
            raise moved[0]

    def _list(self) -> dict[str, int]:
        """The wanted files with their sizes; makes the directories of all tables."""
        try:
            lake = self._store.read_note(VERSION_FILE)
        except ValueError:
            reason = f"{VERSION_FILE} is damaged"
            raise PipelineError("LAKE_UNREADABLE", path=self._store.address, reason=reason) from None
        if lake is None:
            raise not_there(VERSION_FILE)
        (self._root / VERSION_FILE).write_text(json.dumps(lake), "utf-8")
        tables = lake.get("tables")
        if lake.get("layout") != LAYOUT_VERSION or not isinstance(tables, dict):
            return {}  # whoever reads it says what is wrong
        layers = {entry.name: layer for layer in LAYERS for entry in self._store.entries(layer) if entry.is_directory}
        for table in tables.keys() - layers.keys():  # put aside for a moment, by a job that merges its files
            raise not_there(table)
        files: dict[str, int] = {}
        for table, layer in layers.items():
            directory = f"{layer}/{table}"
            (self._root / directory).mkdir(parents=True, exist_ok=True)
            if self._is_wanted(table):
                files |= {f"{directory}/{file.name}": file.size_bytes for file in stored_files(self._store, directory)}
        return files

    def _require_room(self, sizes: dict[str, int]) -> None:
        size_bytes = sum(sizes.values())
        if size_bytes > MAX_BYTES:
            raise PipelineError(
                "LAKE_TOO_LARGE",
                path=self._store.address,
                found=human_bytes(size_bytes),
                limit=human_bytes(MAX_BYTES),
                instead=self._instead,
            )
        needed_bytes = size_bytes - sum(sizes.get(file, 0) for file in self._done)
        free_bytes = shutil.disk_usage(self._root).free
        if needed_bytes > free_bytes:
            where = tempfile.gettempdir()
            raise PipelineError(
                "DISK_TOO_SMALL", path=where, free=human_bytes(free_bytes), needed=human_bytes(needed_bytes)
            )

    def _copy(self, file: str) -> OSError | None:
        """An error that another look may mend is told to the one who looks, when all others are copied."""
        path = self._root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("wb") as copy:
                for chunk in self._store.chunks(file):
                    if self._is_over.is_set():
                        return None
                    _write(copy, chunk)
        except OSError as error:
            if not _is_gone(error):
                raise
            path.unlink()
            is_replaced = error.errno == errno.ESTALE
            return OSError(errno.ESTALE, "replaced all the time", file) if is_replaced else not_there(file)
        self._done.add(file)
        return None


def _write(copy: BinaryIO, chunk: bytes) -> None:
    try:
        copy.write(chunk)
        copy.flush()  # or the end of it fails where nobody expects it
    except OSError as error:
        raise PipelineError("OUTPUT_NOT_WRITABLE", path=tempfile.gettempdir(), reason=error.strerror) from None


def _is_gone(error: OSError) -> bool:
    """Taken away by a job, or replaced, since it was listed or opened."""
    return isinstance(error, FileNotFoundError) or error.errno == errno.ESTALE


@contextmanager
def _said_of(address: str, root: str) -> Iterator[None]:
    """What is said of the copy is meant of the lake."""
    try:
        yield
    except PipelineError as error:
        told = {name: str(value).replace(root, address) for name, value in error.parameters.items()}
        raise PipelineError(error.condition, **told) from None
