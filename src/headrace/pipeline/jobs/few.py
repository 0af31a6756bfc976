"""Tables of few rows, in the driver: plans made once, run over rows that pyarrow reads and writes.

Of a live stream's tables the rows cost nothing and the plans everything: see docs/decisions/0005.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.plans import Slot, quick_session, run_again
from headrace.pipeline.jobs.units import Selection
from headrace.pipeline.layout import Unit, file_of
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

Around = Callable[[Collection[Unit]], tuple[set[Unit], set[Unit]]]


class _FewRows:
    """Tables as plans over slots."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = quick_session(spark)
        self._lake = lake
        self._directory = lake.working_directory(type(self).__name__)
        self._plans: dict[str, DataFrame] = {}

    def _slot(self, name: str, schema: StructType) -> Slot:
        return Slot(self._spark, self._directory, name, schema)

    def _run(self, name: str, make: Callable[[], DataFrame]) -> pa.Table:
        """The rows of a plan, which is made when it is first asked for: the first tables need not wait for the rest."""
        if name not in self._plans:
            self._plans[name] = make()
        return run_again(self._plans[name])

    def _publish(self, table: str, selection: Selection, make: Callable[[], DataFrame]) -> pa.Table:
        rows = self._run(table, make)
        self._lake.replace_units(table, rows, selection.files)
        return rows


class FewEvents(_FewRows):
    """The tables of events."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        super().__init__(spark, lake)
        self._events = self._slot("events", TABLES["events"].schema)
        self._sessions = self._slot("sessions", sessions.SCHEMA)
        self._states = self._slot("destination_states", destination_states.SCHEMA)

    def build(self, selection: Selection) -> None:
        events, own_sessions, states = self._events.frame, self._sessions.frame, self._states.frame
        self._events.put(selection.events())
        self._sessions.put(self._publish("sessions", selection, lambda: sessions.build(events)))
        self._states.put(self._publish("destination_states", selection, lambda: destination_states.build(events)))
        make: dict[str, Callable[[], DataFrame]] = {
            "incidents": lambda: incidents.build(events, own_sessions, states),
            "stream_health": lambda: stream_health.build(events, stream_windows.by_arrival(events)),
            "destination_health": lambda: destination_health.build(events, own_sessions, states),
            "audience": lambda: audience.build(own_sessions),
        }
        with ThreadPoolExecutor(2) as threads:  # they do not need each other
            for work in [threads.submit(self._publish, name, selection, one) for name, one in make.items()]:
                work.result()


class FewRecordings(_FewRows):
    """The tables that it takes recordings for."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        super().__init__(spark, lake)
        event_schema = TABLES["events"].schema
        self._events, self._wide_events, self._opened = (
            self._slot(name, event_schema) for name in ("events", "wide_events", "opened")
        )
        self._tags = self._slot("tags", TABLES["tags"].schema)
        self._of_streams = timeline.of_streams(self._opened.frame, self._tags.frame)
        self._stream_tags, self._wide_tags = (
            self._slot(name, self._of_streams.schema) for name in ("stream_tags", "wide_tags")
        )

    def build(self, selection: Selection, around: Around) -> None:
        # One after the other: another core is for the tables of events, which are wanted sooner.
        events, tags = self._events.frame, self._stream_tags.frame
        rows = selection.events()
        self._events.put(rows)
        self._put_tags(selection, self._stream_tags)
        self._publish("stream_windows", selection, lambda: stream_windows.build(events, tags))
        self._publish("gops", selection, lambda: gops.build(events, tags))
        self._publish("recordings", selection, lambda: recordings.build(events, tags))
        self._build_relay_audit(selection, rows, *around(selection.units))

    def _put_tags(self, selection: Selection, slot: Slot) -> None:
        self._opened.put(selection.opened())
        self._tags.put(selection.tags())
        rows = run_again(self._of_streams)
        slot.put(rows.filter(pc.is_in(rows["stream_id"], value_set=pa.array(selection.ids, pa.string()))))

    def _build_relay_audit(self, selection: Selection, rows: pa.Table, beside: set[Unit], around: set[Unit]) -> None:
        wide = selection.of(around)
        if around != set(selection.units):
            rows = wide.events()
        self._wide_events.put(rows)
        events, tags = self._wide_events.frame, self._wide_tags.frame
        has_destination = pc.any(pc.equal(rows["type"], "destination_state")).as_py()
        if has_destination and len(set(wide.opened()["stream_id"].to_pylist())) > 1:
            self._put_tags(wide, self._wide_tags)
            found = self._run("relay_audit", lambda: relay_audit.build(events, tags))
        else:
            # Nobody else's recording to compare with: Spark drops the comparison, which is most of the plan.
            found = self._run("alone", lambda: relay_audit.build(events, tags.where(F.lit(False))))
        ids = pa.array([unit.stream_id for unit in beside], pa.string())
        own = found.filter(pc.is_in(found["stream_id"], value_set=ids))
        self._lake.replace_units("relay_audit", own, [file_of(unit) for unit in beside])
