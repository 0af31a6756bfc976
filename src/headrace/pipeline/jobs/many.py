"""Tables of many rows, by the executors, each written by a job.

Each reads the columns that it is made of from bronze by itself: to keep all columns of a day's events would cost more
than to read the few that a table needs ten times. What is made of them and is small is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.few import Around
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.parts import REFUSED
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

Known = Set[str | None]  # every stream that the lake has events of


def build_events(spark: SparkSession, lake: Lake, units: Collection[Unit], known: Known) -> None:
    """The tables of events."""
    files = [file_of(unit) for unit in units]
    with _Kept() as kept:
        events = _events_of(spark, lake, units, known)
        own_sessions, states = kept(sessions.build_many(events)), kept(destination_states.build(events))
        windows = stream_windows.by_arrival(events)
        lake.replace_units("sessions", own_sessions, files)
        lake.replace_units("destination_states", states, files)
        lake.replace_units("incidents", incidents.build(events, own_sessions, states), files)
        lake.replace_units("destination_health", destination_health.build(events, own_sessions, states), files)
        lake.replace_units("stream_health", stream_health.build(events, windows), files)
        lake.replace_units("audience", audience.build(own_sessions), files)


def build_recordings(spark: SparkSession, lake: Lake, units: Collection[Unit], known: Known, around: Around) -> None:
    """The tables that it takes recordings for."""
    files = [file_of(unit) for unit in units]
    beside, around_beside = around(units)
    events = _events_of(spark, lake, units, known)
    stream_tags = _tags_of(spark, lake, events, units)
    lake.replace_units("stream_windows", stream_windows.build(events, stream_tags), files)
    lake.replace_units("gops", gops.build(events, stream_tags), files)
    lake.replace_units("recordings", recordings.build(events, stream_tags), files)
    if around_beside != set(units):
        events = _events_of(spark, lake, around_beside, known)
        stream_tags = _tags_of(spark, lake, events, around_beside)
    ids = sorted(unit.stream_id or "" for unit in beside)
    audit = relay_audit.build(events, stream_tags if lake.parts("tags") else None).where(F.col("stream_id").isin(ids))
    lake.replace_units("relay_audit", audit, [file_of(unit) for unit in beside])


class _Kept:
    """Rows that several tables are made of: the executors keep them until the end."""

    def __init__(self) -> None:
        self._rows: list[DataFrame] = []

    def __call__(self, rows: DataFrame) -> DataFrame:
        self._rows.append(rows.persist())
        return self._rows[-1]

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        for rows in self._rows:
            rows.unpersist()


def _events_of(spark: SparkSession, lake: Lake, units: Collection[Unit], known: Known) -> DataFrame:
    ids = {unit.stream_id for unit in units if unit.stream_id is not None}
    names = sorted({unit.stream for unit in units if unit.stream is not None})
    is_refused = F.col("stream_id").isNull() & F.col("type").isin(*REFUSED) & F.col("stream").isin(names)
    # A day has a thousand streams: to look for each row's among them is a large part of what it costs to read it.
    is_own = F.col("stream_id").isNotNull() if ids >= known - {None} else F.col("stream_id").isin(sorted(ids))
    return lake.read(spark, "events").where(is_own | is_refused)


def _tags_of(spark: SparkSession, lake: Lake, own: DataFrame, units: Collection[Unit]) -> DataFrame:
    """Of the files that these streams recorded. Whose a file is depends on what all events say of it."""
    if not lake.parts("tags"):
        # Nothing was recorded: Spark drops whatever is made of tags, which is most of some plans.
        own = own.where(F.lit(False))
        return timeline.of_streams(own, lake.read(spark, "tags").where(F.lit(False)))
    ids = sorted({unit.stream_id for unit in units if unit.stream_id is not None})
    own_files = timeline.opened_files(own).select("file_name").distinct()
    tags = lake.read(spark, "tags").withColumn("file_name", timeline.file_name(F.col("path")))
    tags = tags.join(own_files, on="file_name", how="left_semi").drop("file_name")
    return timeline.of_streams(lake.read(spark, "events"), tags).where(F.col("stream_id").isin(ids))
