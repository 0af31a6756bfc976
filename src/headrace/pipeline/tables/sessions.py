"""Silver `sessions`: each publish and each play from its start to its end, and each that was refused."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, COUNTS, LONG, STRING, TIMESTAMP, at, select_as, table
from headrace.pipeline.tables.counts import sum_by_reason

SCHEMA = table(
    ("node", STRING, "the node that served it"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone; null if it was refused"),
    ("kind", STRING, "publish, play, refused (a play) or publish_refused"),
    ("conn", STRING, "the connection"),
    ("viewer", STRING, "keyed hash of the address; null for a publish that was granted"),
    ("first_seq", LONG, "sequence number of its first event; with node and boot the key"),
    ("boot", STRING, "the server's start"),
    ("started_at", TIMESTAMP, "publish or play granted, or refused"),
    ("stopped_at", TIMESTAMP, "null while it goes on, or if the server died"),
    ("last_seen_at", TIMESTAMP, "its newest event"),
    ("is_open", BOOLEAN, "has no end yet"),
    ("duration_ms", LONG, "up to its end, or to its newest event"),
    ("reason", STRING, "why it ended, or was refused"),
    ("is_resumed", BOOLEAN, "a publisher that came back within the grace period"),
    ("first_keyframe_ms", LONG, "play command to first keyframe sent; null: none so far"),
    ("messages", LONG, "received from a publisher, sent to a player"),
    ("bytes", LONG, "media payload of a publisher, all bytes sent to a player"),
    ("dropped", COUNTS, "messages that a player skipped, by reason"),
    ("blocked_ms", LONG, "time of samples in which a player's socket took nothing"),
)

_REFUSED = ("play_refused", "publish_refused")
_STARTS = ("publish_started", "play_started", *_REFUSED)
_SAMPLES = ("publisher_sample", "subscriber_sample")
_STOPS = ("publish_stopped", "play_stopped")
_KINDS = {"publish_started": "publish", "publisher_sample": "publish", "publish_stopped": "publish"}
_KINDS |= {"play_started": "play", "subscriber_sample": "play", "play_stopped": "play", "play_refused": "refused"}
_KINDS |= {"publish_refused": "publish_refused"}


def build(events: DataFrame) -> DataFrame:
    own = events.where(F.col("type").isin(*_STARTS, *_SAMPLES, *_STOPS)).withColumn("kind", _kind())
    # One connection may play a stream twice: a start begins the next session, and all up to the next is of it.
    order = Window.partitionBy("node", "boot", "stream", "stream_id", "kind", "conn").orderBy("seq")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    is_start, is_stop = F.col("type").isin(*_STARTS), F.col("type").isin(*_STOPS)
    is_refused = F.col("type").isin(*_REFUSED)
    numbered = own.withColumn("number", F.sum(is_start.cast("int")).over(until_here))
    # The end says the totals; while there is none, samples add up to them.
    sampled_bytes = F.coalesce("bytes", F.col("video_bytes") + F.col("audio_bytes"))
    is_over = F.max(is_stop)
    rows = numbered.groupBy("node", "boot", "stream", "stream_id", "kind", "conn", "number").agg(
        F.max("viewer").alias("viewer"),
        F.min("seq").alias("first_seq"),
        F.min("time_ms").alias("started_ms"),
        F.max("time_ms").alias("seen_ms"),
        F.max(F.when(is_stop, F.col("time_ms"))).alias("stopped_ms"),
        F.max(F.when(is_stop, F.col("duration_ms"))).alias("told_ms"),
        F.max(F.when(is_stop | is_refused, F.col("reason"))).alias("reason"),
        F.max("resumed").alias("is_resumed"),
        F.max("first_keyframe_ms").alias("first_keyframe_ms"),
        F.coalesce(F.max("messages_total"), F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.max("bytes_total"), F.sum(sampled_bytes), F.lit(0)).alias("bytes"),
        (~is_over & ~F.max(is_refused)).alias("is_open"),
        sum_by_reason("dropped"),
        F.coalesce(F.sum(F.when(F.col("blocked"), F.col("interval_ms"))), F.lit(0)).alias("blocked_ms"),
    )
    last_ms = F.coalesce("stopped_ms", "seen_ms")
    rows = rows.withColumns(
        {
            "started_at": at(F.col("started_ms")),
            "stopped_at": at(F.col("stopped_ms")),
            "last_seen_at": at(F.col("seen_ms")),
            "duration_ms": F.coalesce(F.col("told_ms"), last_ms - F.col("started_ms")),
        }
    )
    return select_as(rows, SCHEMA)


def _kind() -> Column:
    kind = F.lit(None)
    for name, value in _KINDS.items():
        kind = F.when(F.col("type") == name, value).otherwise(kind)
    return kind
