"""`headrace pipeline batch`: what is there now, or the part of it between two times, into the lake.

The two times say what is taken in. Tables are always of all that the lake holds of a stream, so a stream that began
before `--from` is not cut in gold if the lake has its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.board import Board
from headrace.pipeline.jobs.build import EventTables, RecordingTables
from headrace.pipeline.jobs.ingest import Taken, take_in_lines, take_in_problems, take_in_tags
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.report import Say, describe
from headrace.pipeline.session import flv_options
from headrace.pipeline.sources import events as event_source
from headrace.pipeline.tables import timeline


@dataclass(frozen=True, slots=True)
class Range:
    """From `start` up to, not including, `stop`; None is no limit."""

    start: datetime | None = None
    stop: datetime | None = None

    @property
    def is_everything(self) -> bool:
        return self.start is None and self.stop is None

    def has_hour(self, hour: datetime) -> bool:
        is_late_enough = self.start is None or hour + timedelta(hours=1) > self.start
        return is_late_enough and (self.stop is None or hour < self.stop)

    def limit(self, rows: DataFrame, column: str) -> DataFrame:
        if self.start is not None:
            rows = rows.where(F.col(column) >= int(self.start.timestamp() * 1000))
        if self.stop is not None:
            rows = rows.where(F.col(column) < int(self.stop.timestamp() * 1000))
        return rows


def run(
    spark: SparkSession,
    lake: Lake,
    data_dirs: list[Path],
    record_dirs: list[Path],
    wanted: Range,
    say: Say,
    board: Board | None = None,
) -> None:
    board = board or Board(lake.store, "batch")
    part = _next_part(lake)
    for number, data_dir in enumerate(data_dirs):
        board.watch(f"events-{number}", "events", data_dir)
        lines = _lines(spark, data_dir, wanted)
        if lines is not None:
            began_s = time.monotonic()
            taken = take_in_lines(spark, lake, f"{part}-{number}", lines)
            board.took_in(f"events-{number}", *taken, time.monotonic() - began_s)
            say(describe("events", taken.rows, taken.problems, time.monotonic() - began_s))
    for number, record_dir in enumerate(record_dirs):
        began_s = time.monotonic()
        board.watch(f"recordings-{number}", "recordings", record_dir)
        taken = _take_in_recordings(spark, lake, f"{part}-{number}", record_dir, wanted)
        board.took_in(f"recordings-{number}", *taken, time.monotonic() - began_s)
        say(describe("tags", taken.rows, taken.problems, time.monotonic() - began_s))
    streams = 0
    began_s = time.monotonic()
    for lane, tables in (("events", EventTables(spark, lake)), ("recordings", RecordingTables(spark, lake))):
        since_s = time.monotonic()
        built = tables.build()
        if built is not None:
            streams = max(streams, built.streams)
            board.built(lane, built.streams, time.monotonic() - since_s, built.newest_event_ms)
    say(describe("tables", streams, 0, time.monotonic() - began_s))


def _next_part(lake: Lake) -> str:
    numbers = [
        int(name.split("-")[1])
        for table in ("events", "tags", "problems")
        for name in lake.parts(table)
        if name.startswith("batch-")
    ]
    return f"batch-{max(numbers, default=0) + 1:06d}"


def _lines(spark: SparkSession, data_dir: Path, wanted: Range) -> DataFrame | None:
    folder = data_dir / event_source.FOLDER
    if not any(folder.glob("**/*.jsonl")):
        return None
    if wanted.is_everything:
        return event_source.read_lines(spark, data_dir)
    hours = [str(path) for path, hour in _hours(folder) if wanted.has_hour(hour)]
    if not hours:
        return None
    lines = event_source.read_lines(spark, data_dir, hours)
    time_ms = F.get_json_object("line", "$.time_ms").cast("long")
    # A line without a time is a problem of its hour.
    with_time = lines.withColumn("time_ms", time_ms)
    inside = wanted.limit(with_time, "time_ms")
    return inside.unionByName(with_time.where(F.col("time_ms").isNull())).drop("time_ms")


def _hours(folder: Path) -> Iterator[tuple[Path, datetime]]:
    for path in sorted(folder.glob("date=*/hour=*")):
        try:
            text = f"{path.parent.name.partition('=')[2]} {path.name.partition('=')[2]}"
            yield path, datetime.strptime(text, "%Y-%m-%d %H").replace(tzinfo=UTC)
        except ValueError:
            continue


def _take_in_recordings(spark: SparkSession, lake: Lake, part: str, record_dir: Path, wanted: Range) -> Taken:
    paths = sorted(str(path) for path in record_dir.glob("**/*.flv"))
    if not wanted.is_everything:
        # A file's own name tells only roughly when it is from: the event of its opening tells.
        opened = wanted.limit(timeline.opened_files(lake.read(spark, "events")), "opened_ms").select("file_name")
        names = {row.file_name for row in opened.distinct().collect()}
        paths = [path for path in paths if Path(path).name in names]
    if not paths:
        return Taken(0, 0)
    where: str | list[str] = str(record_dir) if wanted.is_everything else paths
    flv = spark.read.format("flv").options(**flv_options(spark))
    rows = take_in_tags(spark, lake, part, flv.load(where)).rows
    found = take_in_problems(spark, lake, f"{part}-recordings", flv.option("rows", "problems").load(where))
    return Taken(rows, found.problems)
