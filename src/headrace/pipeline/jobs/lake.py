"""The lake on disk: where tables lie, how rows get there whole, and that one job at a time writes them.

    LAKE/bronze/TABLE/PART/*.parquet    a part is renamed into place once and never changes
    LAKE/silver/TABLE/STREAM.parquet    the rows of one stream; a newer file replaces it in one step
    LAKE/gold/TABLE/STREAM.parquet      the same
    LAKE/_*                             ours; no reader of a table comes here

So whoever reads a table's directory, with whatever program, sees each row once, also after a kill -9. Every table has
an empty `schema.parquet`, so that it can be read before it has rows. Renames must be atomic: a disk or a shared file
system, no object store.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.exchange import aside_directory, exchange, mend
from headrace.pipeline.jobs.sharing import Sharing
from headrace.pipeline.layout import LAYOUT_VERSION, SETTLED, VERSION_FILE, Unit, file_of
from headrace.pipeline.tables.catalog import BRONZE, DERIVED, TABLES
from headrace.telemetry.events import SCHEMA_VERSION

_LOCK_FILE = "_lock"
_TOLD_FILE, _BUILT_FILE, _SETTLED_FILE = "_told.json", "_built.json", "_settled.json"
_TEMPORARY, _CHECKPOINTS = "_tmp", "_checkpoints"
_SCHEMA_FILE = "schema.parquet"


def _file_column() -> Column:
    """`file_of` of a row."""
    shown = F.regexp_replace(F.coalesce("stream_id", "stream"), "[^A-Za-z0-9._-]", "_")
    name = F.when(F.col("stream_id").isNull(), F.col("stream"))
    identity = F.concat_ws("\n", "node", F.coalesce("stream_id", F.lit("")), name)
    return F.concat(F.substring(F.sha2(identity, 256), 1, 12), F.lit("-"), F.substring(shown, 1, 100))


class Lake:
    """One lake, opened by one job. See `open_lake`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sharing = Sharing()  # among the threads of this job: who reads parts, and who merges them
        self.on_replaced: Callable[[str], None] = lambda table: None  # called when a table of streams was written
        self._notes: dict[str, set[str]] = {}
        self._notes_lock = threading.Lock()
        self._settled: dict[str, int] | None = None

    def directory(self, table: str) -> Path:
        return self.root / TABLES[table].layer / table

    def working_directory(self, name: str) -> Path:
        """A directory for as long as the lake is open. Nothing in it outlives the job."""
        path = self.root / _TEMPORARY / name
        path.mkdir(exist_ok=True)
        return path

    def checkpoint(self, name: str) -> Path:
        return self.root / _CHECKPOINTS / name

    def read(self, spark: SparkSession, table: str, parts: Iterable[str] | None = None) -> DataFrame:
        """A table, or some parts of it. Columns that older files lack are null."""
        directory = self.directory(table)
        paths = [str(directory)] if parts is None else [str(directory / part) for part in parts]
        reader = spark.read.schema(TABLES[table].schema).option("recursiveFileLookup", "true")
        return reader.parquet(*(paths or [str(directory / _SCHEMA_FILE)]))

    def arrow_schema(self, table: str) -> pa.Schema:
        return to_arrow_schema(TABLES[table].schema, timezone="UTC")

    def dataset(self, table: str, parts: Iterable[str] | None = None) -> ds.Dataset:
        """A table, or some parts of it, by pyarrow, which reads few rows sooner than Spark plans a job."""
        directory = self.directory(table)
        files: Path | list[Path] = directory
        if parts is not None:
            files = [file for part in parts for file in sorted((directory / part).glob("*.parquet"))]
        return ds.dataset(files, schema=self.arrow_schema(table), format="parquet")

    def newest_event_ms(self, parts: Iterable[str]) -> int | None:
        """Of some parts of events, by what their files say of their columns."""
        spans = [span for part in parts if (span := self.event_span(part)) is not None]
        return max((last for _, last in spans), default=None)

    def event_span(self, part: str) -> tuple[int, int] | None:
        """The times of the first and the last event of a part."""
        spans = [
            column.statistics
            for file in (self.directory("events") / part).glob("*.parquet")
            for column in _columns(pq.read_metadata(file))
            if column.path_in_schema == "time_ms"
        ]
        return (min(span.min for span in spans), max(span.max for span in spans)) if spans else None

    # Bronze: parts ------------------------------------------------------------------------------------------------

    def parts(self, table: str) -> list[str]:
        with os.scandir(self.directory(table)) as found:
            return sorted(entry.name for entry in found if entry.is_dir())

    def has_part(self, table: str, part: str) -> bool:
        return (self.directory(table) / part).exists()

    def add_part(self, table: str, part: str, rows: DataFrame | pa.Table) -> int:
        """Write rows as a part; how many there are. A part that is there already is from before a crash."""
        if self.has_part(table, part):
            return 0
        with self._temporary() as written:
            write = _write_part if isinstance(rows, DataFrame) else _write_few
            write(rows, written)
            # The files tell without another run over the rows.
            count: int = sum(pq.read_metadata(path).num_rows for path in written.glob("*.parquet"))
            if count:
                _sync(written)
                written.rename(self.directory(table) / part)
        return count

    # Silver and gold: a file for each stream ----------------------------------------------------------------------

    def replace_units(self, table: str, rows: DataFrame | pa.Table, files: Iterable[str]) -> None:
        """Put rows in the place of those that these units' files had before."""
        directory = self.directory(table)
        stale = set(files)
        with self._temporary() as written:
            write = _write_units if isinstance(rows, DataFrame) else _write_few_units
            for name, file in write(rows, written):
                os.replace(file, directory / f"{name}.parquet")
                stale.discard(name)
        for name in stale:
            (directory / f"{name}.parquet").unlink(missing_ok=True)
        self.on_replaced(table)

    # What the derived tables hold already -------------------------------------------------------------------------

    def untold(self) -> list[str]:
        """Parts of events that the tables of events were not built from yet."""
        told = self._noted(_TOLD_FILE)
        return [part for part in self.parts("events") if f"events/{part}" not in told]

    def mark_told(self, parts: list[str]) -> None:
        self._note(_TOLD_FILE, {f"events/{part}" for part in parts})

    def pending(self) -> dict[str, list[str]]:
        """Parts that the tables of recordings were not built from yet. Of events only those that are told."""
        told, built = self._noted(_TOLD_FILE), self._noted(_BUILT_FILE)
        return {
            "events": [
                part for part in self.parts("events") if f"events/{part}" in told and f"events/{part}" not in built
            ],
            "tags": [part for part in self.parts("tags") if f"tags/{part}" not in built],
        }

    def mark_built(self, parts: dict[str, list[str]]) -> None:
        self._note(_BUILT_FILE, {f"{table}/{part}" for table, names in parts.items() for part in names})

    def _noted(self, file: str) -> set[str]:
        # Asked for several times a second. Nobody else writes it while we have the lock.
        if file not in self._notes:
            self._notes[file] = set(self._read_json(file).get("parts", ()))
        return self._notes[file]

    def _note(self, file: str, parts: set[str], gone: Collection[str] = ()) -> None:
        with self._notes_lock:
            noted = (self._noted(file) | parts).difference(gone)
            self._write_json(file, {"parts": sorted(noted)})
            self._notes[file] = noted

    # Merging: see `compact` ---------------------------------------------------------------------------------------

    def finished_parts(self, table: str) -> list[str]:
        """Those that everything was built from."""
        if table == "problems":  # nothing is built from them
            return self.parts(table)
        built = self._noted(_BUILT_FILE)
        told = self._noted(_TOLD_FILE) if table == "events" else built
        return [part for part in self.parts(table) if f"{table}/{part}" in built and f"{table}/{part}" in told]

    def swap_parts(self, table: str, gone: Collection[str], merged: dict[str, pa.Table]) -> None:
        """Some parts for others, in one step for whoever reads the table."""
        notes = {"events": (_TOLD_FILE, _BUILT_FILE), "tags": (_BUILT_FILE,)}.get(table, ())
        with self._temporary() as fresh:
            fresh.mkdir()
            for part, rows in merged.items():
                _write_few(rows, fresh / part)
                _sync(fresh / part)
            # Known before they are there: a crash in between costs nothing.
            for note in notes:
                self._note(note, {f"{table}/{part}" for part in merged})
            with self.sharing.alone():
                _link_others(self.directory(table), fresh, gone)
                exchange(self.root, self.directory(table), fresh)
        for note in notes:
            self._note(note, set(), {f"{table}/{part}" for part in gone})

    def swap_units(self, table: str, gone: Collection[str], merged: dict[str, pa.Table]) -> None:
        """The same of files of silver and gold."""
        with self._temporary() as fresh:
            fresh.mkdir()
            for file, rows in merged.items():
                pq.write_table(rows, fresh / file)
            _sync(fresh)
            with self.sharing.alone():
                _link_others(self.directory(table), fresh, gone)
                exchange(self.root, self.directory(table), fresh)

    def replace_unchanged(self, path: Path, seen: os.stat_result, rows: pa.Table) -> bool:
        """Another content for a unit's file, unless somebody has written it since it was `seen`."""
        with self._temporary() as fresh:
            fresh.mkdir()
            pq.write_table(rows, fresh / path.name)
            _sync(fresh)
            with self.sharing.alone():
                try:
                    now = path.stat()
                except FileNotFoundError:
                    return False
                if (now.st_ino, now.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns):
                    return False
                os.utime(fresh / path.name, ns=(seen.st_atime_ns, seen.st_mtime_ns))
                os.replace(fresh / path.name, path)
        return True

    def settled(self) -> dict[str, int]:
        """Units that are never built again, because what they were built from is gone: file to newest event's time."""
        with self._notes_lock:
            if self._settled is None:
                self._settled = self._read_json(_SETTLED_FILE).get("units", {})
            return self._settled

    def settle(self, units: dict[str, int], gone: Collection[str] = ()) -> None:
        kept = {file: time_ms for file, time_ms in (self.settled() | units).items() if file not in gone}
        with self._notes_lock:
            self._write_json(_SETTLED_FILE, {"units": kept})
            self._settled = kept

    # Opening ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make what is missing, migrate what is old, or refuse. Call only with the lock held."""
        self.clean_up()
        known = self._read_json(VERSION_FILE)
        columns = {name: json.loads(table.schema.json())["fields"] for name, table in TABLES.items()}
        shapes = {name: {field["name"]: field["type"] for field in fields} for name, fields in columns.items()}
        if known:
            self._require("layout", known.get("layout"), LAYOUT_VERSION)
            self._require("event schema version", known.get("events"), SCHEMA_VERSION)
            self._migrate(known["tables"], shapes)
        for name, table in TABLES.items():
            directory = self.directory(name)
            directory.mkdir(parents=True, exist_ok=True)
            if not known or known["tables"].get(name) != shapes[name] or not (directory / _SCHEMA_FILE).exists():
                self._write_schema(directory, table.schema)
        self._write_json(VERSION_FILE, {"layout": LAYOUT_VERSION, "events": SCHEMA_VERSION, "tables": shapes})

    def clean_up(self) -> None:
        """Nothing unfinished is left, and nothing that was put aside is lost."""
        mend(self.root)
        shutil.rmtree(aside_directory(self.root), ignore_errors=True)
        shutil.rmtree(self.root / _TEMPORARY, ignore_errors=True)
        (self.root / _TEMPORARY).mkdir()

    def _migrate(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """A new column of bronze is null in old rows; derived tables are built again. Anything else is refused."""
        for name in BRONZE:
            for column, kind in old.get(name, {}).items():
                found = new[name].get(column, "none")
                if found != kind:
                    raise PipelineError(
                        "LAKE_COLUMN", path=self.root, table=name, column=column, found=kind, expected=found
                    )
        if old != new:
            for file in (_TOLD_FILE, _BUILT_FILE):
                (self.root / file).unlink(missing_ok=True)
            for name in DERIVED:
                for path in self.directory(name).glob("*.parquet"):
                    # What is settled cannot be built again: columns that are new are null in it.
                    if not path.name.startswith(SETTLED):
                        path.unlink()

    def _require(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise PipelineError("LAKE_VERSION", path=self.root, what=what, found=found, expected=expected)

    def _write_schema(self, directory: Path, schema: Any) -> None:
        unfinished = self.root / _TEMPORARY / f"{directory.name}.parquet"
        pq.write_table(to_arrow_schema(schema, timezone="UTC").empty_table(), unfinished)
        os.replace(unfinished, directory / _SCHEMA_FILE)

    @contextmanager
    def _temporary(self) -> Iterator[Path]:
        path = self.root / _TEMPORARY / uuid.uuid4().hex
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.root / name).read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return content

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        unfinished = self.root / f"{name}.new"
        with unfinished.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, self.root / name)


@contextmanager
def open_lake(root: Path, job: str) -> Iterator[Lake]:
    """The lake, ours until the end. Raises PipelineError if another job has it, or it is of another version."""
    if "://" in str(root) or ":/" in str(root):
        raise PipelineError("LAKE_NOT_LOCAL", path=root)
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK_FILE).open("a+", encoding="utf-8") as lock:
        # The system lets go of it when the process ends, however it ends.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise PipelineError("LAKE_BUSY", path=root, holder=lock.read().strip() or "another job") from None
        lock.truncate(0)
        lock.write(f"{job}, process {os.getpid()}")
        lock.flush()
        lake = Lake(root)
        lake.prepare()
        try:
            yield lake
        finally:
            lake.clean_up()


def _columns(metadata: pq.FileMetaData) -> list[pq.ColumnChunkMetaData]:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [group.column(number) for group in groups for number in range(metadata.num_columns)]


def _link_others(live: Path, fresh: Path, gone: Collection[str]) -> None:
    """Everything of a table's directory but some entries, into another directory, without a copy."""
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


def _write_part(rows: DataFrame, directory: Path) -> None:
    rows.write.parquet(str(directory))
    for mark in ("_SUCCESS", "._SUCCESS.crc"):
        (directory / mark).unlink(missing_ok=True)


def _write_few(rows: pa.Table, directory: Path) -> None:
    directory.mkdir()
    pq.write_table(rows, directory / "few.parquet")


def _write_units(rows: DataFrame, directory: Path) -> Iterator[tuple[str, Path]]:
    """A file for each unit, by the executors."""
    keyed = rows.withColumn("_unit", _file_column())
    keyed.repartition("_unit").write.partitionBy("_unit").parquet(str(directory))
    for folder in directory.glob("_unit=*"):
        (file,) = folder.glob("*.parquet")
        yield folder.name.partition("=")[2], file


def _write_few_units(rows: pa.Table, directory: Path) -> Iterator[tuple[str, Path]]:
    """The same of rows that are here already."""
    directory.mkdir()
    keys = ("node", "stream_id", "stream")
    places: dict[Unit, list[int]] = {}
    for place, (node, stream_id, stream) in enumerate(zip(*(rows[key].to_pylist() for key in keys), strict=True)):
        places.setdefault(Unit.of(node, stream_id, stream), []).append(place)
    for unit, own in places.items():
        file = directory / f"{file_of(unit)}.parquet"
        pq.write_table(rows.take(own), file)
        yield file_of(unit), file


def _sync(directory: Path) -> None:
    """To the disk before its name says that it is there."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
