"""From bronze to silver and gold: which streams have news, and their rows anew, by the tables' own functions.

Batch and stream both end here, so they cannot give different answers. A stream is always built from all its rows, so
late and repeated events need no special care, and a crash in between is mended by doing it again. What events tell and
what it takes recordings for are built apart, because the first is a hundredth of the work and wanted at once. Streams
of few rows are built in the driver (`few`), the others by the executors (`many`), by the same functions. On a cluster
the executors build all of them, those of few rows by plans that are for few.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.few import FewEvents, FewRecordings
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.many import build_events, build_recordings
from headrace.pipeline.jobs.parts import EventParts, Parts
from headrace.pipeline.jobs.plans import quick_session
from headrace.pipeline.jobs.units import Selection, file_name
from headrace.pipeline.layout import Unit, file_of
from headrace.pipeline.session import is_in_process

# A far end's stream lives at the same time as ours. More than the clocks' difference and the grace period.
_AROUND = timedelta(minutes=2)


class Built(NamedTuple):
    streams: int
    newest_event_ms: int | None  # among what was new


def build_all(spark: SparkSession, lake: Lake) -> int:
    """Everything that is new. How many streams that was."""
    built = [tables.build() for tables in (EventTables(spark, lake), RecordingTables(spark, lake))]
    return max(one.streams if one is not None else 0 for one in built)


class EventTables:
    """Builds what events tell, again and again."""

    def __init__(self, spark: SparkSession, lake: Lake, events: EventParts | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._events = events or EventParts(lake)

    def build(self) -> Built | None:
        """What the newest parts touch; None if there are no such parts."""
        with self._lake.sharing.used():
            return self._build()

    def _build(self) -> Built | None:
        parts = self._lake.untold()
        if not parts:
            return None
        units = _unsettled(self._lake, self._touched(parts))
        selection = Selection(self._events, None, units)
        if units and selection.is_few() and is_in_process(self._spark):
            self._few.build(selection)
        elif units:
            spark = self._quick if selection.is_few() else self._spark
            build_events(spark, self._lake, units, self._events.all_keys())
        self._lake.mark_told(parts)
        return Built(len(units), self._lake.newest_event_ms(parts))

    def _touched(self, parts: list[str]) -> set[Unit]:
        return {unit for part in parts for unit in self._events.units(part)}

    @cached_property
    def _few(self) -> FewEvents:
        return FewEvents(self._spark, self._lake)

    @cached_property
    def _quick(self) -> SparkSession:
        return quick_session(self._spark)


class RecordingTables:
    """Builds what it takes recordings for, again and again. Only of events that are told: it asks who lived when."""

    def __init__(self, spark: SparkSession, lake: Lake, events: EventParts | None = None, *, threads: int = 1) -> None:
        self._spark = spark
        self._threads = threads
        self._lake = lake
        self._events = events or EventParts(lake)
        self._tags = Parts(lake, "tags", "path", "byte_offset")
        self._few: FewRecordings | None = None
        self._making_few = threading.Lock()

    def prepare(self) -> None:
        """What another thread can do before the tables of events are there: make plans, if they are for few rows."""
        with self._lake.sharing.used():
            parts = self._lake.pending()
            units = self._touched({**parts, "events": [*parts["events"], *self._lake.untold()]})
            if units and is_in_process(self._spark) and Selection(self._events, self._tags, units).is_few():
                self._for_few().prepare()

    def build(self) -> Built | None:
        """What the newest parts touch; None if there are no such parts."""
        with self._lake.sharing.used():
            return self._build()

    def _build(self) -> Built | None:
        parts = self._lake.pending()
        if not any(parts.values()):
            return None
        units = _unsettled(self._lake, self._touched(parts))
        selection = Selection(self._events, self._tags, units)
        if units and selection.is_few(self._after()) and is_in_process(self._spark):
            self._for_few().build(selection, self._around)
        elif units:
            if self._few is not None:
                self._few.forget(units)
            spark = self._quick if selection.is_few() else self._spark
            build_recordings(spark, self._lake, units, self._events.all_keys(), self._around)
        self._lake.mark_built(parts)
        return Built(len(units), self._lake.newest_event_ms(parts["events"]))

    def _after(self) -> dict[str, int]:
        return self._few.after() if self._few is not None else {}

    def _for_few(self) -> FewRecordings:
        with self._making_few:
            if self._few is None:
                self._few = FewRecordings(self._spark, self._lake, self._threads)
            return self._few

    @cached_property
    def _quick(self) -> SparkSession:
        return quick_session(self._spark)

    def _touched(self, parts: dict[str, list[str]]) -> set[Unit]:
        units: set[Unit] = set()
        paths: set[str] = set()
        for part in parts["events"]:
            units |= self._events.units(part)
            # A file that a second stream claims is news of the first: see timeline.
            paths.update(self._events.opened(part)["path"].to_pylist())
        # New tags are news of the stream they were recorded of.
        for part in parts["tags"]:
            paths.update(path for (path,) in self._tags.distinct(part, ("path",)))
        names = {file_name(path) for path in paths}
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
        beside = own | _unsettled(self._lake, _beside(lives, own))
        return beside, beside | _beside(lives, beside)

    def _lives(self) -> dict[Unit, tuple[datetime, datetime]]:
        """From when to when each stream had a publisher."""
        columns = ["node", "stream_id", "started_at", "last_seen_at"]
        publishes = self._lake.read_rows("sessions", columns, pc.field("kind") == "publish")
        lives: dict[Unit, tuple[datetime, datetime]] = {}
        for row in publishes.to_pylist():
            unit = Unit(row["node"], row["stream_id"], None)
            first, last = lives.get(unit, (row["started_at"], row["last_seen_at"]))
            lives[unit] = min(first, row["started_at"]), max(last, row["last_seen_at"])
        return lives


def _unsettled(lake: Lake, units: set[Unit]) -> set[Unit]:
    """Without those whose rows in bronze are gone: what was built of them stays as it is."""
    settled = lake.settled()
    return {unit for unit in units if file_of(unit) not in settled} if settled else units


def _beside(lives: dict[Unit, tuple[datetime, datetime]], units: set[Unit]) -> set[Unit]:
    """The streams whose publishers were there at the same time."""
    own = [lives[unit] for unit in units if unit in lives]
    return {
        unit
        for unit, (start, stop) in lives.items()
        if any(start - _AROUND <= last and first <= stop + _AROUND for first, last in own)
    }
