"""From bronze to silver and gold: which streams have news, and their rows anew, by the tables' own functions.

Batch and stream both end here, so they cannot give different answers. A stream is always built from all its rows, so
late and repeated events need no special care, and a crash in between is mended by doing it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.lake import Lake, Unit, file_of
from headrace.pipeline.jobs.small import fetch, local_frame, quick_plans
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

# A far end's stream lives at the same time as ours. More than the clocks' difference and the grace period.
_AROUND = timedelta(minutes=2)


_REFUSED = ("play_refused", "publish_refused")  # of no stream: they belong to the name that was asked for
# What is fetched rather than kept: half an hour of a few streams. Beyond it the executors do the work.
MAX_SMALL_EVENTS = 50_000
# Of a few live streams the work is planning, not rows: tables that do not need each other are built side by side.
_THREADS = 3


@dataclass(frozen=True)
class Inputs:
    """The events and tags of some streams, complete."""

    events: DataFrame
    stream_tags: DataFrame
    files: list[str]  # of their units
    is_small: bool  # so few events that they, and the tables made of them, are here in the driver

    def let_go(self) -> None:
        self.events.unpersist()
        self.stream_tags.unpersist()


def build_pending(spark: SparkSession, lake: Lake) -> int | None:
    """Build what the newest parts of bronze touch. How many streams that was; None if there are no such parts."""
    parts = lake.pending()
    if not any(parts.values()):
        return None
    units = _touched(lake, parts)
    if units:
        _build(spark, lake, units)
    lake.mark_built(parts)
    return len(units)


def _touched(lake: Lake, parts: dict[str, list[str]]) -> set[Unit]:
    has_unit = pc.field("stream_id").is_valid() | pc.field("type").isin(_REFUSED)
    own = lake.distinct("events", ("node", "stream_id", "stream"), has_unit, parts["events"])
    # New tags are news of the stream they were recorded of. So is a file that a second stream claims: see timeline.
    is_opened = pc.field("type") == "recording_opened"
    paths = lake.distinct("events", ("path",), is_opened, parts["events"]) | lake.distinct(
        "tags", ("path",), None, parts["tags"]
    )
    names = {_file_name(path) for (path,) in paths}
    opened = lake.distinct("events", ("node", "stream_id", "stream", "path"), is_opened)
    own |= {(node, stream_id, stream) for node, stream_id, stream, path in opened if _file_name(path) in names}
    return {Unit.of(*row) for row in own}


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


def _build(spark: SparkSession, lake: Lake, units: Collection[Unit]) -> None:
    inputs = _settled(spark, _inputs(spark, lake, units))
    events, stream_tags = inputs.events, inputs.stream_tags
    kept: list[DataFrame] = []

    def publish(table: str, rows: DataFrame) -> DataFrame:
        """Into the lake; what comes back is for the tables that are made of it."""
        if inputs.is_small:
            found = rows.toArrow()
            lake.replace_units(table, found, inputs.files)
            return local_frame(spark, found, rows.schema)
        rows = rows.persist()
        kept.append(rows)
        lake.replace_units(table, rows, inputs.files)
        return rows

    try:
        with quick_plans(spark) if inputs.is_small else nullcontext():
            windows, own_sessions, states = _together(
                lambda: publish("stream_windows", stream_windows.build(events, stream_tags)),
                lambda: publish("sessions", sessions.build(events)),
                lambda: publish("destination_states", destination_states.build(events)),
            )
            _together(
                lambda: publish("incidents", incidents.build(events, own_sessions, states)),
                lambda: _build_relay_audit(spark, lake, units, inputs),
                lambda: publish("destination_health", destination_health.build(events, own_sessions, states)),
                lambda: publish("stream_health", stream_health.build(events, windows)),
                lambda: publish("audience", audience.build(own_sessions)),
                lambda: publish("recordings", recordings.build(events, stream_tags)),
                lambda: publish("gops", gops.build(stream_tags)),
            )
    finally:
        inputs.let_go()
        for rows in kept:
            rows.unpersist()


def _together(*works: Callable[[], Any]) -> list[Any]:
    """All of them done; the first error if one fails."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return [work.result() for work in [threads.submit(work) for work in works]]


def _settled(spark: SparkSession, inputs: Inputs) -> Inputs:
    """The same rows, read once: events are fetched if they are few, else kept by the executors, as tags are."""
    stream_tags = inputs.stream_tags.persist()
    events = fetch(inputs.events, MAX_SMALL_EVENTS)
    if events is None:
        return Inputs(inputs.events.persist(), stream_tags, inputs.files, is_small=False)
    return Inputs(local_frame(spark, events, inputs.events.schema), stream_tags, inputs.files, is_small=True)


def _build_relay_audit(spark: SparkSession, lake: Lake, units: Collection[Unit], inputs: Inputs) -> None:
    """Also of the streams that live beside these: one of these may be their far end, or has been taken for it."""
    own = {unit for unit in units if unit.stream_id is not None}
    beside = own | _beside(lake, own)
    around = beside | _beside(lake, beside)
    wider = inputs if around == own else _settled(spark, _inputs(spark, lake, around))
    stream_tags = wider.stream_tags
    recorded = timeline.opened_files(wider.events).select("node", "stream_id").distinct().count()
    if recorded < 2 or wider.events.where("type = 'destination_state'").isEmpty():
        # Nobody else's recording to compare with. Spark drops the comparison from the plan, most of whose time it is.
        stream_tags = stream_tags.where(F.lit(False))
    ids = sorted(unit.stream_id or "" for unit in beside)
    rows = relay_audit.build(wider.events, stream_tags).where(F.col("stream_id").isin(ids))
    lake.replace_units("relay_audit", rows.toArrow() if wider.is_small else rows, [file_of(unit) for unit in beside])
    if wider is not inputs:
        wider.let_go()


def _beside(lake: Lake, units: set[Unit]) -> set[Unit]:
    """The streams whose publishers were there at the same time."""
    if not units:
        return set()
    publishes = lake.distinct(
        "sessions", ("node", "stream_id", "started_at", "last_seen_at"), pc.field("kind") == "publish"
    )
    lives: dict[tuple[str, str], tuple[datetime, datetime]] = {}
    for node, stream_id, start, stop in publishes:
        first, last = lives.get((node, stream_id), (start, stop))
        lives[node, stream_id] = min(first, start), max(last, stop)
    own = [life for unit in units if (life := lives.get((unit.node, unit.stream_id or "")))]
    return {
        Unit(node, stream_id, None)
        for (node, stream_id), (start, stop) in lives.items()
        if any(start - _AROUND <= last and first <= stop + _AROUND for first, last in own)
    }


def _inputs(spark: SparkSession, lake: Lake, units: Collection[Unit]) -> Inputs:
    # A stream_id on two nodes, which only a made-up log has, takes in both: each is complete, so no harm is done.
    ids = sorted({unit.stream_id for unit in units if unit.stream_id is not None})
    names = sorted({unit.stream for unit in units if unit.stream is not None})
    events = lake.read(spark, "events")
    is_refused = F.col("stream_id").isNull() & F.col("type").isin(*_REFUSED) & F.col("stream").isin(names)
    own = events.where(F.col("stream_id").isin(ids) | is_refused)
    own_files = timeline.opened_files(own).select("file_name").distinct()
    tags = lake.read(spark, "tags").withColumn("file_name", timeline.file_name(F.col("path")))
    tags = tags.join(own_files, on="file_name", how="left_semi").drop("file_name")
    stream_tags = timeline.of_streams(events, tags).where(F.col("stream_id").isin(ids))
    return Inputs(own, stream_tags, [file_of(unit) for unit in units], is_small=False)
