"""Gold `audience`: who watched each stream, and who could not.

A row per stream; plays that were refused because there was no such stream have a row without a stream_id.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import DOUBLE, LONG, STRING, TIMESTAMP, select_as, table

SCHEMA = table(
    ("node", STRING, "the node that served them"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone; null for refused plays"),
    ("first_at", TIMESTAMP, "the first play"),
    ("last_at", TIMESTAMP, "the newest event of a play"),
    ("attempts", LONG, "plays granted or refused"),
    ("plays", LONG, "plays that got a first keyframe, as far as that is known"),
    ("open_plays", LONG, "plays without an end yet: whether they got a keyframe is told at the end"),
    ("unique_viewers", LONG, "distinct addresses"),
    ("peak_viewers", LONG, "most at the same time"),
    ("mean_viewers", DOUBLE, "watch_ms / time from first_at to last_at"),
    ("watch_ms", LONG, "of all plays together"),
    ("startup_ms", LONG, "mean time from play command to first keyframe"),
    ("startup_score", DOUBLE, "mean of 8 / (8 + seconds) * 100"),
    ("exits_before_video", LONG, "plays that ended without a keyframe"),
    ("blocked_plays", LONG, "plays whose socket took nothing for some time: rebuffering"),
    ("blocked_ms", LONG, "that time, of all plays together"),
    ("bytes", LONG, "sent to players"),
    ("refused", LONG, "plays that were refused"),
    ("refused_reason", STRING, "of the newest refused"),
)

_STREAM = ["node", "stream", "stream_id"]


def build(sessions: DataFrame) -> DataFrame:
    plays = sessions.where("kind in ('play', 'refused')").withColumn("end_at", F.coalesce("stopped_at", "last_seen_at"))
    is_play = F.col("kind") == "play"
    has_picture = F.col("first_keyframe_ms").isNotNull()
    # Whole microunits, so that no order of adding up changes the last digit.
    score = F.round(800_000_000 / (8 + F.col("first_keyframe_ms") / 1000)).cast("long")
    span_ms = F.unix_millis(F.max("end_at")) - F.unix_millis(F.min("started_at"))
    watch_ms = F.coalesce(F.sum(F.when(is_play, F.col("duration_ms"))), F.lit(0))
    rows = plays.groupBy(*_STREAM).agg(
        F.min("started_at").alias("first_at"),
        F.max("end_at").alias("last_at"),
        F.count(F.lit(1)).alias("attempts"),
        F.count_if(is_play & has_picture).alias("plays"),
        F.count_if(is_play & F.col("is_open")).alias("open_plays"),
        F.count_distinct("viewer").alias("unique_viewers"),
        F.when(span_ms > 0, watch_ms / span_ms).alias("mean_viewers"),
        watch_ms.alias("watch_ms"),
        (F.sum("first_keyframe_ms") / F.count("first_keyframe_ms")).alias("startup_ms"),
        (F.sum(score) / F.count(score) / 1_000_000).alias("startup_score"),
        F.count_if(is_play & ~F.col("is_open") & ~has_picture).alias("exits_before_video"),
        F.count_if(F.col("blocked_ms") > 0).alias("blocked_plays"),
        F.sum("blocked_ms").alias("blocked_ms"),
        F.coalesce(F.sum(F.when(is_play, F.col("bytes"))), F.lit(0)).alias("bytes"),
        F.count_if(~is_play).alias("refused"),
        F.max_by("reason", F.when(~is_play, F.struct("started_at", "boot", "first_seq"))).alias("refused_reason"),
    )
    # A refused play has no stream_id, so it finds no peak.
    rows = rows.join(_peaks(plays.where(is_play)), on=_STREAM, how="left")
    return select_as(rows.withColumn("peak_viewers", F.coalesce("peak_viewers", F.lit(0))), SCHEMA)


def _peaks(plays: DataFrame) -> DataFrame:
    """One in, one out, added up in order; at the same moment leaving comes first."""
    steps = plays.select(
        *_STREAM,
        F.explode(
            F.array(
                F.struct(F.col("started_at").alias("at"), F.lit(1).alias("step")),
                F.struct(F.col("end_at").alias("at"), F.lit(-1).alias("step")),
            )
        ).alias("change"),
    ).select(*_STREAM, "change.at", "change.step")
    order = Window.partitionBy(*_STREAM).orderBy("at", "step")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    present = steps.withColumn("viewers", F.sum("step").over(until_here))
    # A play of no length leaves before it came.
    return present.groupBy(*_STREAM).agg(F.greatest(F.max("viewers"), F.lit(1)).alias("peak_viewers"))
