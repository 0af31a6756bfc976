"""From bronze to silver and gold: which streams have news, and their rows anew, by the tables' own functions.

Batch and stream both end here, so they cannot give different answers. A stream is always built from all its rows, so
late and repeated events need no special care, and a crash in between is mended by doing it again. Streams of few rows
are built in the driver (`few`), the others by the executors (`many`), by the same functions.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import cached_property

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.few import FewRows
from headrace.pipeline.jobs.lake import Lake, Unit
from headrace.pipeline.jobs.many import build_many
from headrace.pipeline.jobs.parts import EventParts, Parts
from headrace.pipeline.jobs.units import REFUSED, Selection, file_name
from headrace.pipeline.session import is_local

# A far end's stream lives at the same time as ours. More than the clocks' difference and the grace period.
_AROUND = timedelta(minutes=2)
# Tables that take recordings are built so often while their stream lives, and wait no longer than so for new events.
MIN_WAIT_S = 5.0
MAX_WAIT_S = 15.0


class Builder:
    """Builds what is new in a lake, again and again."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._events = EventParts(lake)
        self._tags = Parts(lake, "tags", "path")
        self._told: set[str] = set()  # parts of events whose own tables are built already
        self._built_s = time.monotonic()  # when the rest was

    def build_pending(self) -> int | None:
        """Build what the newest parts of bronze touch. How many streams that was; None if there are no such parts."""
        parts = self._lake.pending()
        if not any(parts.values()):
            return None
        units = self._touched(parts)
        selection = Selection(self._events, self._tags, units)
        if units and self._is_few(selection):
            self._few_rows.build(selection, self._around)
        elif units:
            build_many(self._spark, self._lake, units, self._around)
        self._done(parts)
        return len(units)

    def build_next(self) -> int | None:
        """The same in steps: what new events tell comes first, what takes recordings every few seconds."""
        parts = self._lake.pending()
        news = [part for part in parts["events"] if part not in self._told]
        waited_s = time.monotonic() - self._built_s
        if news and waited_s < MAX_WAIT_S:
            units = self._touched({"events": news, "tags": []})
            selection = Selection(self._events, self._tags, units)
            if self._is_few(selection):
                if units:
                    self._few_rows.build_of_events(selection)
                self._told.update(news)
                return len(units)
        elif not news and waited_s < MIN_WAIT_S:
            return None
        return self.build_pending() if news else self._build_rest(parts)

    def _build_rest(self, parts: dict[str, list[str]]) -> int | None:
        """What recordings tell of parts whose events have been told."""
        if not any(parts.values()):
            return None
        units = self._touched(parts)
        selection = Selection(self._events, self._tags, units)
        if not self._is_few(selection):
            return self.build_pending()
        if units:
            self._few_rows.build_of_tags(selection, self._around)
        self._done(parts)
        return len(units)

    def _done(self, parts: dict[str, list[str]]) -> None:
        self._lake.mark_built(parts)
        self._told.difference_update(parts["events"])
        self._built_s = time.monotonic()

    def _is_few(self, selection: Selection) -> bool:
        return is_local(self._spark.sparkContext.master or "") and selection.is_few()

    @cached_property
    def _few_rows(self) -> FewRows:
        return FewRows(self._spark, self._lake)

    def _touched(self, parts: dict[str, list[str]]) -> set[Unit]:
        has_unit = pc.field("stream_id").is_valid() | pc.field("type").isin(REFUSED)
        # A file that a second stream claims is news of the first: see timeline.
        is_opened = pc.field("type") == "recording_opened"
        units: set[Unit] = set()
        paths: set[tuple[str]] = set()
        for part in parts["events"]:
            units |= {Unit.of(*row) for row in self._events.distinct(part, ("node", "stream_id", "stream"), has_unit)}
            paths |= self._events.distinct(part, ("path",), is_opened)
        # New tags are news of the stream they were recorded of.
        for part in parts["tags"]:
            paths |= self._tags.distinct(part, ("path",))
        names = {file_name(path) for (path,) in paths}
        for row in self._events.opened().select(["node", "stream_id", "stream", "path"]).to_pylist():
            if file_name(row["path"]) in names:
                units.add(Unit.of(row["node"], row["stream_id"], row["stream"]))
        return units

    def _around(self, units: Collection[Unit]) -> tuple[set[Unit], set[Unit]]:
        """Whose relay_audit these streams may change, and whose rows it takes to build those.

        One of these may be the far end of a stream that lives beside it, or has been taken for it.
        """
        own = {unit for unit in units if unit.stream_id is not None}
        lives = self._lives()
        beside = own | _beside(lives, own)
        return beside, beside | _beside(lives, beside)

    def _lives(self) -> dict[Unit, tuple[datetime, datetime]]:
        """From when to when each stream had a publisher."""
        columns = ["node", "stream_id", "started_at", "last_seen_at"]
        publishes = self._lake.dataset("sessions").to_table(columns=columns, filter=pc.field("kind") == "publish")
        lives: dict[Unit, tuple[datetime, datetime]] = {}
        for row in publishes.to_pylist():
            unit = Unit(row["node"], row["stream_id"], None)
            first, last = lives.get(unit, (row["started_at"], row["last_seen_at"]))
            lives[unit] = min(first, row["started_at"]), max(last, row["last_seen_at"])
        return lives


def _beside(lives: dict[Unit, tuple[datetime, datetime]], units: set[Unit]) -> set[Unit]:
    """The streams whose publishers were there at the same time."""
    own = [lives[unit] for unit in units if unit in lives]
    return {
        unit
        for unit, (start, stop) in lives.items()
        if any(start - _AROUND <= last and first <= stop + _AROUND for first, last in own)
    }
