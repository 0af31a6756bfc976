"""Into bronze: rows that are not there yet, as one part, once.

Owns what "there already" means: an event by node, boot and seq, a tag by file and offset. Batch and stream take in
rows by the same functions, so one may go on where the other stopped.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.copies import has_copies
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.schema import select_as
from headrace.pipeline.session import is_in_process
from headrace.pipeline.sources import events as event_source
from headrace.pipeline.tables import events, problems, tags

# A part of a few seconds is one small file, and one of a whole archive still has work for several cores.
FILES = 4


class Taken(NamedTuple):
    rows: int
    problems: int


def take_in_lines(spark: SparkSession, lake: Lake, part: str, lines: DataFrame) -> Taken:
    """Lines of the event log. Problems first: the part of events says that the batch is done."""
    if lake.has_part("events", part):
        return Taken(0, 0)  # from before a crash
    counted = Observation()
    parsed = event_source.parse(lines).observe(counted, F.count("found").alias("bad"))
    rows = select_as(event_source.good(parsed), events.SCHEMA)
    with lake.staged("events", _in_few_files(spark, rows)) as staged:
        found = _take_in_bad_lines(spark, lake, part, lines) if counted.get.get("bad") else 0
        span = staged.event_span()
        if span is not None and has_copies(lake, staged):
            rows = events.build(event_source.good(event_source.parse(lines)))
            known = lake.read(spark, "events", lake.parts_between(*span))
            rows = _without(rows, known, events.KEY)
            return Taken(lake.add_part("events", part, _in_few_files(spark, rows)), found)
        staged.become(part)
        return Taken(staged.rows, found)


def _take_in_bad_lines(spark: SparkSession, lake: Lake, part: str, lines: DataFrame) -> int:
    bad = problems.build_from_events(event_source.bad(event_source.parse(lines)))
    return _add_new(spark, lake, "problems", part, bad, problems.KEY)


def take_in_tags(spark: SparkSession, lake: Lake, part: str, rows: DataFrame, own_prefix: str | None = None) -> Taken:
    """Tags of recordings. Parts that begin with `own_prefix` are of the same stream, whose offsets never overlap."""
    return Taken(_add_new(spark, lake, "tags", part, tags.build(rows), tags.KEY, own_prefix), 0)


def take_in_problems(spark: SparkSession, lake: Lake, part: str, rows: DataFrame) -> Taken:
    found = problems.build_from_recordings(rows)
    return Taken(0, _add_new(spark, lake, "problems", part, found, problems.KEY))


def _add_new(
    spark: SparkSession,
    lake: Lake,
    table: str,
    part: str,
    rows: DataFrame,
    key: tuple[str, ...],
    own_prefix: str | None = None,
) -> int:
    others = [name for name in lake.parts(table) if own_prefix is None or not name.startswith(own_prefix)]
    if others:
        rows = _without(rows, lake.read(spark, table, others), key)
    return lake.add_part(table, part, _in_few_files(spark, rows))


def _in_few_files(spark: SparkSession, rows: DataFrame) -> DataFrame:
    # On a cluster Spark puts small partitions together by itself, and so many as there are cores are left.
    return rows.coalesce(FILES) if is_in_process(spark) else rows


def _without(rows: DataFrame, known: DataFrame, key: tuple[str, ...]) -> DataFrame:
    keys = known.select([F.col(name).alias(f"known_{name}") for name in key])
    is_same = [F.col(name).eqNullSafe(F.col(f"known_{name}")) for name in key]
    return rows.join(keys, on=is_same, how="left_anti")
