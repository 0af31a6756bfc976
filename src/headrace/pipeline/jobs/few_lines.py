"""The event log of a live server into bronze: a few lines every few seconds, by one plan that is made once.

What is out of the ordinary (many lines, lines that are no events, two of one key in one batch) is left to `ingest`,
which does the same for any number of lines.
"""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

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
        few = lines.limit(MAX_LINES + 1).toArrow()
        if few.num_rows <= MAX_LINES:
            self._slot.put(few)
            rows = self._plan.run()
            if rows.num_rows == few.num_rows:
                return Taken(lake.add_part("events", part, self._without_known(rows)), 0)
        return take_in_lines(spark, lake, part, lines)

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


def _keys(rows: pa.Table | pa.RecordBatch) -> list[tuple[str, str, int]]:
    return list(zip(*(rows.column(name).to_pylist() for name in events.KEY), strict=True))
