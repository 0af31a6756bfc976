"""Tables of many rows, by the executors: inputs are read once and kept there, and each table is written by a job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.few import Around
from headrace.pipeline.jobs.lake import Lake, Unit, file_of
from headrace.pipeline.jobs.units import REFUSED
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


@dataclass(frozen=True)
class Inputs:
    """The events and tags of some streams, complete."""

    events: DataFrame
    stream_tags: DataFrame

    def let_go(self) -> None:
        self.events.unpersist()
        self.stream_tags.unpersist()


def build_many(spark: SparkSession, lake: Lake, units: Collection[Unit], around: Around) -> None:
    inputs = _inputs(spark, lake, units)
    events, stream_tags = inputs.events, inputs.stream_tags
    files = [file_of(unit) for unit in units]
    kept: list[DataFrame] = []

    def publish(table: str, rows: DataFrame) -> DataFrame:
        """Into the lake; what comes back is for the tables that are made of it."""
        rows = rows.persist()
        kept.append(rows)
        lake.replace_units(table, rows, files)
        return rows

    try:
        windows = publish("stream_windows", stream_windows.build(events, stream_tags))
        own_sessions = publish("sessions", sessions.build(events))
        states = publish("destination_states", destination_states.build(events))
        publish("incidents", incidents.build(events, own_sessions, states))
        publish("destination_health", destination_health.build(events, own_sessions, states))
        publish("stream_health", stream_health.build(events, windows))
        publish("audience", audience.build(own_sessions))
        publish("recordings", recordings.build(events, stream_tags))
        publish("gops", gops.build(stream_tags))
        _build_relay_audit(spark, lake, inputs, set(units), *around(units))
    finally:
        inputs.let_go()
        for rows in kept:
            rows.unpersist()


def _build_relay_audit(
    spark: SparkSession, lake: Lake, inputs: Inputs, units: set[Unit], beside: set[Unit], around: set[Unit]
) -> None:
    wider = inputs if around == units else _inputs(spark, lake, around)
    ids = sorted(unit.stream_id or "" for unit in beside)
    rows = relay_audit.build(wider.events, wider.stream_tags).where(F.col("stream_id").isin(ids))
    lake.replace_units("relay_audit", rows, [file_of(unit) for unit in beside])
    if wider is not inputs:
        wider.let_go()


def _inputs(spark: SparkSession, lake: Lake, units: Collection[Unit]) -> Inputs:
    ids = sorted({unit.stream_id for unit in units if unit.stream_id is not None})
    names = sorted({unit.stream for unit in units if unit.stream is not None})
    events = lake.read(spark, "events")
    is_refused = F.col("stream_id").isNull() & F.col("type").isin(*REFUSED) & F.col("stream").isin(names)
    own = events.where(F.col("stream_id").isin(ids) | is_refused)
    own_files = timeline.opened_files(own).select("file_name").distinct()
    tags = lake.read(spark, "tags").withColumn("file_name", timeline.file_name(F.col("path")))
    tags = tags.join(own_files, on="file_name", how="left_semi").drop("file_name")
    stream_tags = timeline.of_streams(events, tags).where(F.col("stream_id").isin(ids))
    return Inputs(own.persist(), stream_tags.persist())
