"""The lake: where tables lie, how rows get there whole, and that one job at a time writes them.

    LAKE/bronze/TABLE/PART/*.parquet    a part comes whole and never changes
    LAKE/silver/TABLE/STREAM.parquet    the rows of one stream; a newer file replaces it in one step
    LAKE/gold/TABLE/STREAM.parquet      the same
    LAKE/_*                             ours; no reader of a table comes here

So whoever reads a table's directory, with whatever program, sees each row once, also after a kill -9. Every table has
an empty `schema.parquet`, so that it can be read before it has rows. How that is done where the lake lies is its
store's business.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.sharing import Sharing
from headrace.pipeline.layout import LAYOUT_VERSION, SCHEMA_FILE, SETTLED, VERSION_FILE, Unit, file_of
from headrace.pipeline.session import reach_lake
from headrace.pipeline.stores.places import store_at
from headrace.pipeline.stores.store import ROWS_FILE, Entry, Store
from headrace.pipeline.tables.catalog import BRONZE, DERIVED, TABLES
from headrace.telemetry.events import SCHEMA_VERSION

_TOLD_FILE, _BUILT_FILE, _SETTLED_FILE = "_told.json", "_built.json", "_settled.json"
_CHECKPOINTS = "_checkpoints"
_REQUESTS = 8  # at once, where each is one over a network


def table_directory(table: str) -> str:
    return f"{TABLES[table].layer}/{table}"


def _file_column() -> Column:
    """`file_of` of a row."""
    shown = F.regexp_replace(F.coalesce("stream_id", "stream"), "[^A-Za-z0-9._-]", "_")
    name = F.when(F.col("stream_id").isNull(), F.col("stream"))
    identity = F.concat_ws("\n", "node", F.coalesce("stream_id", F.lit("")), name)
    return F.concat(F.substring(F.sha2(identity, 256), 1, 12), F.lit("-"), F.substring(shown, 1, 100))


class Staged:
    """Rows of a table that are in the lake but no part of it yet."""

    def __init__(self, lake: Lake, table: str, written: str, files: list[str]) -> None:
        self._lake = lake
        self._table = table
        self._written = written
        self._files = files
        # The files tell without another run over the rows.
        self.rows: int = sum(lake.store.metadata(file).num_rows for file in files)

    def event_span(self) -> tuple[int, int] | None:
        """The times of the first and the last event."""
        return self._lake._event_span(self._files) if self.rows else None

    def dataset(self) -> ds.Dataset:
        return self._lake.store.dataset(self._files, self._lake.arrow_schema(self._table))

    def become(self, part: str) -> None:
        if self.rows:
            self._lake.store.move_part(self._written, table_directory(self._table), part)


class Lake:
    """One lake, opened by one job. See `open_lake`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sharing = Sharing()  # among the threads of this job: who reads parts, and who merges them
        self.on_replaced: Callable[[str], None] = lambda table: None  # called when a table of streams was written
        self._notes: dict[str, set[str]] = {}
        self._notes_lock = threading.Lock()
        self._settled: dict[str, int] | None = None
        self._spans: dict[str, tuple[int, int] | None] = {}  # of parts of events
        self._replacing = {table: threading.Lock() for table in DERIVED}

    @property
    def address(self) -> str:
        return self.store.address

    def working_directory(self, name: str) -> Path:
        """A directory of this machine for as long as the lake is open. Nothing in it outlives the job."""
        return self.store.working_directory(name)

    def checkpoint(self, name: str) -> str:
        """Where Spark keeps what it knows of a stream: on the lake, so that neither outlives the other."""
        return self.store.spark_path(f"{_CHECKPOINTS}/{name}")

    def drop_checkpoint(self, name: str) -> None:
        """Of a stream that is over."""
        self.store.delete_directory(f"{_CHECKPOINTS}/{name}")

    def query_id(self, name: str) -> str:
        """What Spark calls the stream that has this checkpoint."""
        return str(self._read_json(f"{_CHECKPOINTS}/{name}/metadata")["id"])

    def connect_spark(self, spark: SparkSession) -> None:
        """Tell Spark how to reach the lake, and see that it does. Raises PipelineError."""
        reach_lake(spark, self.store, f"{table_directory('problems')}/{SCHEMA_FILE}", TABLES["problems"].schema)

    def read(self, spark: SparkSession, table: str, parts: Iterable[str] | None = None) -> DataFrame:
        """A table, or some parts of it. Columns that older files lack are null."""
        directory = table_directory(table)
        names = [directory] if parts is None else [f"{directory}/{part}" for part in parts]
        reader = spark.read.schema(TABLES[table].schema).option("recursiveFileLookup", "true")
        return reader.parquet(*map(self.store.spark_path, names or [f"{directory}/{SCHEMA_FILE}"]))

    def arrow_schema(self, table: str) -> pa.Schema:
        return to_arrow_schema(TABLES[table].schema, timezone="UTC")

    def dataset(self, table: str, parts: Iterable[str] | None = None) -> ds.Dataset:
        """A table, or some parts of it, by pyarrow, which reads few rows sooner than Spark plans a job."""
        directory = table_directory(table)
        files: str | list[str] = directory
        if parts is not None:
            files = [file for part in parts for file in self.store.part_files(directory, part)]
        return self.store.dataset(files, self.arrow_schema(table))

    def newest_event_ms(self, parts: Iterable[str]) -> int | None:
        """Of some parts of events, by what their files say of their columns."""
        spans = [span for part in parts if (span := self.event_span(part)) is not None]
        return max((last for _, last in spans), default=None)

    def event_span(self, part: str) -> tuple[int, int] | None:
        """The times of the first and the last event of a part."""
        return self._event_span(self.store.part_files(table_directory("events"), part))

    def _event_span(self, files: Iterable[str]) -> tuple[int, int] | None:
        spans = [
            column.statistics
            for file in files
            for column in _columns(self.store.metadata(file))
            if column.path_in_schema == "time_ms"
        ]
        return (min(span.min for span in spans), max(span.max for span in spans)) if spans else None

    def parts_between(self, start_ms: int, stop_ms: int) -> list[str]:
        """Parts of events with some of that time."""
        # A part never changes. Those that were merged into others are gone.
        known = self._spans
        self._spans = {part: known.get(part) or self.event_span(part) for part in self.parts("events")}
        return [part for part, span in self._spans.items() if span and span[0] <= stop_ms and start_ms <= span[1]]

    # Bronze: parts ------------------------------------------------------------------------------------------------

    def parts(self, table: str) -> list[str]:
        return self.store.parts(table_directory(table))

    def has_part(self, table: str, part: str) -> bool:
        return self.store.has_part(table_directory(table), part)

    def part_times_s(self, table: str) -> dict[str, float]:
        """When each part was made."""
        entries = self.store.entries(table_directory(table))
        return {entry.name: entry.changed_s for entry in entries if entry.is_directory}

    def count_rows(self, table: str, part: str) -> int:
        files = self.store.part_files(table_directory(table), part)
        return sum(self.store.metadata(file).num_rows for file in files)

    def add_part(self, table: str, part: str, rows: DataFrame | pa.Table) -> int:
        """Write rows as a part; how many there are. A part that is there already is from before a crash."""
        if self.has_part(table, part):
            return 0
        directory = table_directory(table)
        if not isinstance(rows, DataFrame):
            if rows.num_rows:
                self.store.put_part(rows, directory, part)
            return len(rows)
        with self.staged(table, rows) as staged:
            staged.become(part)
            return staged.rows

    @contextmanager
    def staged(self, table: str, rows: DataFrame | Callable[[str], None]) -> Iterator[Staged]:
        """Rows as Spark, or whoever is called with an empty directory's path, has written them.

        They are looked through before they become a part, or are thrown away.
        """
        with self.store.temporary() as written:
            path = self.store.spark_path(written)
            if isinstance(rows, DataFrame):
                rows.write.parquet(path)
            else:
                self.store.make_directory(written)
                rows(path)
            names = [entry.name for entry in self.store.entries(written) if entry.name.endswith(".parquet")]
            yield Staged(self, table, written, [f"{written}/{name}" for name in names])

    # Silver and gold: a file for each stream ----------------------------------------------------------------------

    def replace_units(self, table: str, rows: DataFrame | pa.Table, files: Iterable[str]) -> None:
        """Put rows in the place of those that these units' files had before."""
        directory = table_directory(table)
        write = self._write_units if isinstance(rows, DataFrame) else self._write_few_units
        written = write(rows, table)
        with self._replacing[table]:
            for name in set(files) - written:
                self.store.delete(f"{directory}/{name}.parquet")
        self.on_replaced(table)

    def read_rows(self, table: str, columns: list[str], where: pc.Expression) -> pa.Table:
        """Of all streams in a table of silver or gold. Nobody replaces a file of it meanwhile.

        A disk keeps what is open until it is closed. An object store does not: the rest would be of another file.
        """
        with self._replacing[table]:
            return self.dataset(table).to_table(columns=columns, filter=where)

    def _write_units(self, rows: DataFrame, table: str) -> set[str]:
        """A file for each unit, by the executors; the names of the units that have one."""
        keyed = rows.withColumn("_unit", _file_column())
        names = set()
        with self.store.temporary() as written:
            keyed.repartition("_unit").write.partitionBy("_unit").parquet(self.store.spark_path(written))
            with self._replacing[table]:
                for entry in self.store.entries(written, is_recursive=True):
                    folder, _, file = entry.name.rpartition("/")
                    if folder and file.endswith(".parquet"):
                        name = folder.partition("=")[2]
                        self.store.move_file(f"{written}/{entry.name}", f"{table_directory(table)}/{name}.parquet")
                        names.add(name)
        return names

    def _write_few_units(self, rows: pa.Table, table: str) -> set[str]:
        """The same of rows that are here already."""
        keys = ("node", "stream_id", "stream")
        places: dict[Unit, list[int]] = {}
        for place, (node, stream_id, stream) in enumerate(zip(*(rows[key].to_pylist() for key in keys), strict=True)):
            places.setdefault(Unit.of(node, stream_id, stream), []).append(place)
        with self._replacing[table]:
            for unit, own in places.items():
                self.store.put_file(rows.take(own), f"{table_directory(table)}/{file_of(unit)}.parquet")
        return {file_of(unit) for unit in places}

    def files(self, table: str) -> list[Entry]:
        """The files of a table of silver or gold."""
        entries = self.store.entries(table_directory(table))
        return [entry for entry in entries if entry.name.endswith(".parquet") and not entry.is_directory]

    def read_file(self, table: str, name: str) -> pa.Table:
        """With the columns that the table has now."""
        return self.store.dataset([f"{table_directory(table)}/{name}"], self.arrow_schema(table)).to_table()

    def count_file_rows(self, table: str, name: str) -> int:
        rows: int = self.store.metadata(f"{table_directory(table)}/{name}").num_rows
        return rows

    def count_files(self) -> int:
        entries = (self.store.entries(table_directory(table), is_recursive=True) for table in TABLES)
        return sum(entry.name.endswith(".parquet") for found in entries for entry in found)

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
        with self.store.temporary() as fresh:
            for part, rows in merged.items():
                self.store.write_rows(rows, f"{fresh}/{part}/{ROWS_FILE}")
            # Known before they are there: a crash in between costs nothing.
            for note in notes:
                self._note(note, {f"{table}/{part}" for part in merged})
            with self.sharing.alone():
                self.store.swap(table_directory(table), gone, fresh)
        for note in notes:
            self._note(note, set(), {f"{table}/{part}" for part in gone})

    def swap_units(self, table: str, gone: Collection[str], merged: dict[str, pa.Table]) -> None:
        """The same of files of silver and gold."""
        with self.store.temporary() as fresh:
            for file, rows in merged.items():
                self.store.write_rows(rows, f"{fresh}/{file}")
            with self.sharing.alone():
                self.store.swap(table_directory(table), gone, fresh)

    def replace_unchanged(self, table: str, seen: Entry, rows: pa.Table) -> bool:
        """Another content for a unit's file, unless somebody has written it since it was `seen`."""
        with self.store.temporary() as fresh:
            self.store.write_rows(rows, f"{fresh}/{seen.name}")
            with self.sharing.alone():
                return self.store.move_unchanged(f"{fresh}/{seen.name}", f"{table_directory(table)}/{seen.name}", seen)

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
        """Make what is missing, migrate what is old, or refuse. Call only while the store is held."""
        self.store.clean_up()
        known = self._read_json(VERSION_FILE)
        columns = {name: json.loads(table.schema.json())["fields"] for name, table in TABLES.items()}
        shapes = {name: {field["name"]: field["type"] for field in fields} for name, fields in columns.items()}
        if known:
            self._require("layout", known.get("layout"), LAYOUT_VERSION)
            self._require("event schema version", known.get("events"), SCHEMA_VERSION)
            self._migrate(known["tables"], shapes)
        is_as_before = {name: bool(known) and known["tables"].get(name) == shapes[name] for name in TABLES}
        with ThreadPoolExecutor(1 if self.store.is_on_this_machine else _REQUESTS) as threads:
            for work in [threads.submit(self._make_table, name, is_as_before[name]) for name in TABLES]:
                work.result()
        self._write_json(VERSION_FILE, {"layout": LAYOUT_VERSION, "events": SCHEMA_VERSION, "tables": shapes})

    def _make_table(self, name: str, is_as_before: bool) -> None:
        schema_file = f"{table_directory(name)}/{SCHEMA_FILE}"
        self.store.make_directory(table_directory(name))
        if not is_as_before or self.store.entry(schema_file) is None:
            self.store.put_file(self.arrow_schema(name).empty_table(), schema_file)

    def _migrate(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        """A new column of bronze is null in old rows; derived tables are built again. Anything else is refused."""
        for name in BRONZE:
            for column, kind in old.get(name, {}).items():
                found = new[name].get(column, "none")
                if found != kind:
                    raise PipelineError(
                        "LAKE_COLUMN", path=self.address, table=name, column=column, found=kind, expected=found
                    )
        if old != new:
            for file in (_TOLD_FILE, _BUILT_FILE):
                self.store.delete(file)
            for table in DERIVED:
                for entry in self.files(table):
                    # What is settled cannot be built again: columns that are new are null in it.
                    if not entry.name.startswith(SETTLED):
                        self.store.delete(f"{table_directory(table)}/{entry.name}")

    def _require(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise PipelineError("LAKE_VERSION", path=self.address, what=what, found=found, expected=expected)

    def _read_json(self, name: str) -> dict[str, Any]:
        return self.store.read_note(name) or {}

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        self.store.write_note(name, content)


@contextmanager
def open_lake(place: Path | str, job: str) -> Iterator[Lake]:
    """The lake, ours until the end. Raises PipelineError if another job has it, or it is of another version."""
    store = store_at(place)
    with store.held(job):
        lake = Lake(store)
        lake.prepare()
        try:
            yield lake
        finally:
            # Whoever opens it next does it too: an error of this must not hide the one that ended the job.
            with suppress(OSError):
                store.clean_up()


def _columns(metadata: pq.FileMetaData) -> list[pq.ColumnChunkMetaData]:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [group.column(number) for group in groups for number in range(metadata.num_columns)]
