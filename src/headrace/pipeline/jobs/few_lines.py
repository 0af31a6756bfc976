"""Few lines of an event log into bronze, here in the driver: what a live server writes in seconds, or a small archive.

What is out of the ordinary (many lines, lines that are no events, two of one key) is left to `ingest`, which does the
same for any number of lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.jobs.ingest import Taken, take_in_lines
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.times import Range
from headrace.pipeline.sources.event_lines import read_events, read_texts
from headrace.pipeline.tables import events

MAX_LINES = 50_000
MAX_BYTES = 32 << 20  # half a second


def take_in_few_lines(spark: SparkSession, lake: Lake, part: str, lines: DataFrame) -> Taken:
    """Lines (`line`, `file`) of any number: those that are few or not."""
    few = lines.select("line").limit(MAX_LINES + 1).toArrow()
    if few.num_rows <= MAX_LINES:
        taken = _take_in(lake, part, read_events("\n".join(few["line"].to_pylist()).encode()))
        if taken is not None:
            return taken
    return take_in_lines(spark, lake, part, lines)


def take_in_few_files(lake: Lake, part: str, paths: Sequence[Path], wanted: Range) -> Taken | None:
    """None where it is not for us, and nothing has been done."""
    tables = [read_events(text) for text in read_texts(paths)]
    if any(table is None for table in tables):
        return None
    rows = wanted.limit_table(pa.concat_tables(tables), "time_ms") if tables else None
    return Taken(0, 0) if rows is None else _take_in(lake, part, rows)


def _take_in(lake: Lake, part: str, rows: pa.Table | None) -> Taken | None:
    if rows is None:
        return None
    keys = _keys(rows)
    if len(set(keys)) < len(keys):
        return None
    if not keys:
        return Taken(0, 0)
    times_ms = rows["time_ms"].to_pylist()
    known = _known(lake, min(times_ms), max(times_ms))
    new = rows.filter(pa.array([key not in known for key in keys], pa.bool_()))
    return Taken(lake.add_part("events", part, new), 0)


def _known(lake: Lake, start_ms: int, stop_ms: int) -> set[tuple[str, str, int]]:
    """The keys in parts of that time: a copy of an event has its time too."""
    near = lake.parts_between(start_ms, stop_ms)
    found: set[tuple[str, str, int]] = set()
    if near:
        for batch in lake.dataset("events", near).to_batches(columns=list(events.KEY)):
            found.update(_keys(batch))
    return found


def _keys(rows: pa.Table | pa.RecordBatch) -> list[tuple[str, str, int]]:
    return list(zip(*(rows.column(name).to_pylist() for name in events.KEY), strict=True))
