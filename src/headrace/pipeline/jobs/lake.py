"""The lake on disk: where tables lie, how rows get there whole, and that one job at a time writes them.

    LAKE/bronze/TABLE/PART/*.parquet    a part is renamed into place once and never changes
    LAKE/silver/TABLE/STREAM.parquet    the rows of one stream; a newer file replaces it in one step
    LAKE/gold/TABLE/STREAM.parquet      the same
    LAKE/_lake.json, _told.json, _built.json, _lock, _tmp/, _checkpoints/    ours; no reader of a table comes here

So whoever reads a table's directory, with whatever program, sees each row once, also after a kill -9. Every table has
an empty `schema.parquet`, so that it can be read before it has rows. Renames must be atomic: a disk or a shared file
system, no object store.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.tables.catalog import BRONZE, DERIVED, TABLES
from headrace.telemetry.events import SCHEMA_VERSION

LAYOUT_VERSION = 1  # raised when what lies where changes its meaning
_VERSION_FILE, _LOCK_FILE = "_lake.json", "_lock"
_TOLD_FILE, _BUILT_FILE = "_told.json", "_built.json"
_TEMPORARY, _CHECKPOINTS = "_tmp", "_checkpoints"
_SCHEMA_FILE = "schema.parquet"


class Unit(NamedTuple):
    """What is rebuilt as a whole: a stream of a node, or what was refused of a name."""

    node: str
    stream_id: str | None
    stream: str | None  # only where there is no stream_id

    @classmethod
    def of(cls, node: str, stream_id: str | None, stream: str | None) -> Unit:
        """The unit of a row."""
        return cls(node, stream_id, None if stream_id is not None else stream)


def file_of(unit: Unit) -> str:
    """The name of a unit's file: readable, and safe whatever a stream is called."""
    identity = [unit.node, unit.stream_id or "", *([unit.stream or ""] if unit.stream_id is None else [])]
    shown = re.sub("[^A-Za-z0-9._-]", "_", unit.stream_id or unit.stream or "")
    return f"{hashlib.sha256(chr(10).join(identity).encode()).hexdigest()[:12]}-{shown[:100]}"


def _file_column() -> Column:
    """The same of a row."""
    shown = F.regexp_replace(F.coalesce("stream_id", "stream"), "[^A-Za-z0-9._-]", "_")
    name = F.when(F.col("stream_id").isNull(), F.col("stream"))
    identity = F.concat_ws("\n", "node", F.coalesce("stream_id", F.lit("")), name)
    return F.concat(F.substring(F.sha2(identity, 256), 1, 12), F.lit("-"), F.substring(shown, 1, 100))


class Lake:
    """One lake, opened by one job. See `open_lake`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on_replaced: Callable[[str], None] = lambda table: None  # called when a table of streams was written
        self._notes: dict[str, set[str]] = {}

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

    def _note(self, file: str, parts: set[str]) -> None:
        noted = self._noted(file) | parts
        self._write_json(file, {"parts": sorted(noted)})
        self._notes[file] = noted

    # Opening ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make what is missing, migrate what is old, or refuse. Call only with the lock held."""
        known = self._read_json(_VERSION_FILE)
        columns = {name: json.loads(table.schema.json())["fields"] for name, table in TABLES.items()}
        shapes = {name: {field["name"]: field["type"] for field in fields} for name, fields in columns.items()}
        if known:
            self._require("layout", known.get("layout"), LAYOUT_VERSION)
            self._require("event schema version", known.get("events"), SCHEMA_VERSION)
            self._migrate(known["tables"], shapes)
        self.clean_up()
        for name, table in TABLES.items():
            directory = self.directory(name)
            directory.mkdir(parents=True, exist_ok=True)
            if not known or known["tables"].get(name) != shapes[name] or not (directory / _SCHEMA_FILE).exists():
                self._write_schema(directory, table.schema)
        self._write_json(_VERSION_FILE, {"layout": LAYOUT_VERSION, "events": SCHEMA_VERSION, "tables": shapes})

    def clean_up(self) -> None:
        """Nothing unfinished is left."""
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
                shutil.rmtree(self.directory(name), ignore_errors=True)

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
