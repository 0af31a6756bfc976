"""Tables of few rows, in the driver: plans made once, run over rows that pyarrow reads and writes.

Of a live stream's tables the rows cost nothing and the plans everything: see docs/decisions/0005.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.pipeline.jobs.lake import Lake, Unit, file_of
from headrace.pipeline.jobs.plans import Slot, quick_session, run_again
from headrace.pipeline.jobs.units import Selection
from headrace.pipeline.tables import (
    audience,
    destination_health,
    destination_states,
    gops,
    incidents,
    recordings,
    relay_audit,
    sessions,
    stream_health,
    stream_windows,
    timeline,
)
from headrace.pipeline.tables.catalog import TABLES

# Tables that do not need each other are built side by side.
_THREADS = 2

Around = Callable[[Collection[Unit]], tuple[set[Unit], set[Unit]]]


class FewRows:
    """Every silver and gold table as a plan over slots."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = quick_session(spark)
        self._lake = lake
        self._directory = lake.working_directory("slots")
        self._events, self._opened, self._wide_events = map(self._slot, ("events", "opened", "wide_events"))
        self._tags = self._slot("tags")
        self._of_streams = timeline.of_streams(self._opened.frame, self._tags.frame)
        self._stream_tags = self._slot("stream_tags", self._of_streams.schema)
        self._wide_tags = self._slot("wide_tags", self._of_streams.schema)
        names = ("sessions", "destination_states", "stream_windows")
        self._slots = {name: self._slot(name) for name in names}
        self._plans: dict[str, DataFrame] = {}

    def build(self, selection: Selection, around: Around) -> None:
        self.build_of_events(selection)
        self.build_of_tags(selection, around)

    def build_of_events(self, selection: Selection) -> None:
        """What events alone tell, and stream_health with the windows that there are already."""
        files = selection.files
        self._events.put(selection.events())
        self._slots["stream_windows"].put(self._lake.read_units("stream_windows", files))
        _together(
            lambda: self._publish("sessions", files),
            lambda: self._publish("destination_states", files),
        )
        _together(
            lambda: self._publish("incidents", files),
            lambda: self._publish("stream_health", files),
            lambda: self._publish("destination_health", files),
            lambda: self._publish("audience", files),
        )

    def build_of_tags(self, selection: Selection, around: Around) -> None:
        """What it takes recordings for. After `build_of_events` of the same streams."""
        files = selection.files
        events = selection.events()
        self._events.put(events)
        self._put_tags(selection, self._stream_tags)
        _together(
            lambda: self._publish("stream_windows", files),
            lambda: self._build_relay_audit(selection, events, *around(selection.units)),
            lambda: self._publish("recordings", files),
            lambda: self._publish("gops", files),
        )
        self._publish("stream_health", files)

    def _slot(self, name: str, schema: StructType | None = None) -> Slot:
        kind = "tags" if name == "tags" else "events" if name not in TABLES else name
        return Slot(self._spark, self._directory, name, schema or TABLES[kind].schema)

    def _plan(self, table: str) -> DataFrame:
        """Made when it is first asked for: what events tell need not wait for the rest."""
        if table not in self._plans:
            self._plans[table] = self._make_plan(table)
        return self._plans[table]

    def _make_plan(self, table: str) -> DataFrame:
        events, tags = self._events.frame, self._stream_tags.frame
        own_sessions, states = self._slots["sessions"].frame, self._slots["destination_states"].frame
        windows = self._slots["stream_windows"].frame
        wide_events, wide_tags = self._wide_events.frame, self._wide_tags.frame
        make: dict[str, Callable[[], DataFrame]] = {
            "stream_windows": lambda: stream_windows.build(events, tags),
            "sessions": lambda: sessions.build(events),
            "destination_states": lambda: destination_states.build(events),
            "incidents": lambda: incidents.build(events, own_sessions, states),
            "destination_health": lambda: destination_health.build(events, own_sessions, states),
            "stream_health": lambda: stream_health.build(events, windows),
            "audience": lambda: audience.build(own_sessions),
            "recordings": lambda: recordings.build(events, tags),
            "gops": lambda: gops.build(tags),
            "relay_audit": lambda: relay_audit.build(wide_events, wide_tags),
            # Nobody else's recording to compare with: Spark drops the comparison, which is most of the plan.
            "relay_audit_alone": lambda: relay_audit.build(wide_events, wide_tags.where(F.lit(False))),
        }
        return make[table]()

    def _publish(self, table: str, files: list[str]) -> None:
        rows = run_again(self._plan(table))
        self._lake.replace_units(table, rows, files)
        if table in self._slots:
            self._slots[table].put(rows)

    def _put_tags(self, selection: Selection, slot: Slot) -> None:
        self._opened.put(selection.opened())
        self._tags.put(selection.tags())
        rows = run_again(self._of_streams)
        slot.put(rows.filter(pc.is_in(rows["stream_id"], value_set=pa.array(selection.ids, pa.string()))))

    def _build_relay_audit(self, selection: Selection, events: pa.Table, beside: set[Unit], around: set[Unit]) -> None:
        wide = selection.of(around)
        if around != set(selection.units):
            events = wide.events()
        self._wide_events.put(events)
        has_destination = pc.any(pc.equal(events["type"], "destination_state")).as_py()
        plan = "relay_audit_alone"
        if has_destination and len(set(wide.opened()["stream_id"].to_pylist())) > 1:
            self._put_tags(wide, self._wide_tags)
            plan = "relay_audit"
        rows = run_again(self._plan(plan))
        ids = pa.array([unit.stream_id for unit in beside], pa.string())
        own = rows.filter(pc.is_in(rows["stream_id"], value_set=ids))
        self._lake.replace_units("relay_audit", own, [file_of(unit) for unit in beside])


def _together(*works: Callable[[], Any]) -> None:
    """All of them done; the first error if one fails."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for work in [threads.submit(work) for work in works]:
            work.result()
