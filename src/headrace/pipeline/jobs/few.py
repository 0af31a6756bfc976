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
from headrace.pipeline.jobs.plans import Slot, quick_plans, run_again
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
        self._spark = spark
        self._lake = lake
        self._directory = lake.working_directory("slots")
        with quick_plans(spark):
            self._events, self._opened, self._wide_events = map(self._slot, ("events", "opened", "wide_events"))
            self._tags = self._slot("tags")
            self._of_streams = timeline.of_streams(self._opened.frame, self._tags.frame)
            self._stream_tags = self._slot("stream_tags", self._of_streams.schema)
            self._wide_tags = self._slot("wide_tags", self._of_streams.schema)
            names = ("sessions", "destination_states", "stream_windows")
            self._slots = {name: self._slot(name) for name in names}
            self._plans = self._make_plans()

    def build(self, selection: Selection, around: Around) -> None:
        with quick_plans(self._spark):
            events = selection.events()
            self._events.put(events)
            _together(
                lambda: self._publish("sessions", selection.files),
                lambda: self._publish("destination_states", selection.files),
                lambda: self._put_tags(selection, self._stream_tags),
            )
            _together(
                lambda: self._publish("stream_windows", selection.files),
                lambda: self._publish("incidents", selection.files),
                lambda: self._publish("destination_health", selection.files),
                lambda: self._publish("audience", selection.files),
                lambda: self._build_relay_audit(selection, events, *around(selection.units)),
                lambda: self._publish("recordings", selection.files),
                lambda: self._publish("gops", selection.files),
            )
            self._publish("stream_health", selection.files)

    def _slot(self, name: str, schema: StructType | None = None) -> Slot:
        kind = "tags" if name == "tags" else "events" if name not in TABLES else name
        return Slot(self._spark, self._directory, name, schema or TABLES[kind].schema)

    def _make_plans(self) -> dict[str, DataFrame]:
        events, tags = self._events.frame, self._stream_tags.frame
        own_sessions, states = self._slots["sessions"].frame, self._slots["destination_states"].frame
        windows = self._slots["stream_windows"].frame
        wide_events, wide_tags = self._wide_events.frame, self._wide_tags.frame
        return {
            "stream_windows": stream_windows.build(events, tags),
            "sessions": sessions.build(events),
            "destination_states": destination_states.build(events),
            "incidents": incidents.build(events, own_sessions, states),
            "destination_health": destination_health.build(events, own_sessions, states),
            "stream_health": stream_health.build(events, windows),
            "audience": audience.build(own_sessions),
            "recordings": recordings.build(events, tags),
            "gops": gops.build(tags),
            "relay_audit": relay_audit.build(wide_events, wide_tags),
            # Nobody else's recording to compare with: Spark drops the comparison, which is most of the plan.
            "relay_audit_alone": relay_audit.build(wide_events, wide_tags.where(F.lit(False))),
        }

    def _publish(self, table: str, files: list[str]) -> None:
        rows = run_again(self._plans[table])
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
        rows = run_again(self._plans[plan])
        ids = pa.array([unit.stream_id for unit in beside], pa.string())
        own = rows.filter(pc.is_in(rows["stream_id"], value_set=ids))
        self._lake.replace_units("relay_audit", own, [file_of(unit) for unit in beside])


def _together(*works: Callable[[], Any]) -> None:
    """All of them done; the first error if one fails."""
    with ThreadPoolExecutor(_THREADS) as threads:
        for work in [threads.submit(work) for work in works]:
            work.result()
