"""The event log of a live server into bronze: a few lines every few seconds, by one plan that is made once.

What is out of the ordinary (many lines, lines that are no events, two of one key in one batch) is left to `ingest`,
which does the same for any number of lines.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.jobs.ingest import Taken, take_in_lines
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.plans import Plan, Slot, quick_session
from headrace.pipeline.schema import STRING, table
from headrace.pipeline.sources import events as event_source
from headrace.pipeline.tables import events

MAX_LINES = 5_000
_LINES = table(("line", STRING, "as written"), ("file", STRING, "where"))


class FewLines:
    """Takes in the lines of one event log."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._lake = lake
        self._slot = Slot(quick_session(spark), lake.working_directory("slots"), f"lines-{uuid.uuid4().hex}", _LINES)
        self._plan = Plan(events.build(event_source.good(event_source.parse(self._slot.frame))))

    def take_in(self, spark: SparkSession, lake: Lake, part: str, lines: DataFrame) -> Taken:
        taken = self.take_in_few(part, lines.limit(MAX_LINES + 1).toArrow())
        return take_in_lines(spark, lake, part, lines) if taken is None else taken

    def take_in_few(self, part: str, lines: pa.Table) -> Taken | None:
        """None where it is not for us, and nothing has been done."""
        if lines.num_rows > MAX_LINES:
            return None
        self._slot.put(lines)
        rows = self._plan.run()
        if rows.num_rows != lines.num_rows:
            return None
        return Taken(self._lake.add_part("events", part, self._without_known(rows)), 0)

    def _without_known(self, rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return rows
        times_ms = rows["time_ms"].to_pylist()
        known = self._known(min(times_ms), max(times_ms))
        return rows.filter(pa.array([key not in known for key in _keys(rows)], pa.bool_()))

    def _known(self, start_ms: int, stop_ms: int) -> set[tuple[str, str, int]]:
        """The keys in parts of that time: a copy of an event has its time too."""
        near = self._lake.parts_between(start_ms, stop_ms)
        found: set[tuple[str, str, int]] = set()
        if near:
            for batch in self._lake.dataset("events", near).to_batches(columns=list(events.KEY)):
                found.update(_keys(batch))
        return found


def read_few_lines(paths: Iterable[Path]) -> pa.Table | None:
    """The lines of some files, without Spark; None if they are many, or bytes that are no text."""
    lines: list[str] = []
    files: list[str] = []
    for path in paths:
        try:
            with path.open(encoding="utf-8") as text:
                found = [line.rstrip("\n") for line in islice(text, MAX_LINES + 1)]
        except UnicodeDecodeError:
            return None
        lines += found
        files += [str(path)] * len(found)
        if len(lines) > MAX_LINES:
            return None
    return pa.table([lines, files], schema=to_arrow_schema(_LINES))


def _keys(rows: pa.Table | pa.RecordBatch) -> list[tuple[str, str, int]]:
    return list(zip(*(rows.column(name).to_pylist() for name in events.KEY), strict=True))
