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


_KEYS = ["node", "boot", "stream", "stream_id", "kind", "conn"]
_SESSION = [*_KEYS, "number"]


def build(events: DataFrame) -> DataFrame:
    return _sessions(_numbered(_own(events)))


def build_many(events: DataFrame) -> DataFrame:
    """The same of so many events that they are not to be sorted, and hardly ever have to be.

    Only a connection that plays or publishes one stream twice needs its events in order. Of all others, and of samples
    without anything but numbers, sums are enough.
    """
    own = _own(events).withColumn("key", F.xxhash64(*_KEYS))  # two keys of one hash are only counted with more care
    starts = own.where(_is(_STARTS)).groupBy(*_KEYS, "key").count()
    twice = F.broadcast(starts.where("count > 1").select("key").distinct())
    once = own.join(twice, on="key", how="left_anti").withColumn("number", F.lit(1).cast("long"))
    numbered = once.unionByName(_numbered(own.join(twice, on="key", how="left_semi"))).drop("key")
    is_plain = _is(_SAMPLES) & (F.coalesce(F.cardinality("dropped"), F.lit(0)) <= 0)
    return _sessions(_added_up(numbered.where(is_plain)).unionByName(numbered.where(~is_plain)))


def _own(events: DataFrame) -> DataFrame:
    """What the table is made of. A row may stand for several events, from `time_ms` to `until_ms`."""
    blocked_ms = F.when(F.col("blocked"), F.col("interval_ms"))
    # The end says the totals; while there is none, samples add up to them.
    sampled_bytes = F.coalesce("bytes", F.col("video_bytes") + F.col("audio_bytes"))
    return events.where(_is((*_STARTS, *_SAMPLES, *_STOPS))).select(
        *("node", "boot", "stream", "stream_id", "conn", "type", "seq", "time_ms"),
        *("viewer", "reason", "duration_ms", "resumed", "messages_total", "bytes_total", "dropped"),
        *("messages", "first_keyframe_ms"),
        _kind().alias("kind"),
        F.col("time_ms").alias("until_ms"),
        sampled_bytes.alias("bytes"),
        blocked_ms.alias("blocked_ms"),
    )


def _numbered(own: DataFrame) -> DataFrame:
    # One connection may play a stream twice: a start begins the next session, and all up to the next is of it.
    order = Window.partitionBy(*_KEYS).orderBy("seq")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return own.withColumn("number", F.sum(_is(_STARTS).cast("int")).over(until_here))


def _added_up(samples: DataFrame) -> DataFrame:
    """Several samples as one: nothing but numbers, so that Spark adds them up without sorting them."""
    sums = samples.groupBy(*_SESSION, "viewer").agg(
        F.min("seq").alias("seq"),
        F.min("time_ms").alias("time_ms"),
        F.max("until_ms").alias("until_ms"),
        F.max("first_keyframe_ms").alias("first_keyframe_ms"),
        *(F.sum(name).alias(name) for name in ("messages", "bytes", "blocked_ms")),
    )
    others = [field for field in samples.schema.fields if field.name not in sums.columns]
    return sums.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in others))


def _sessions(numbered: DataFrame) -> DataFrame:
    # Of samples that were added up nobody knows which type they were.
    is_stop, is_refused = (F.coalesce(_is(types), F.lit(False)) for types in (_STOPS, _REFUSED))
    rows = numbered.groupBy(*_SESSION).agg(
        F.max("viewer").alias("viewer"),
        F.min("seq").alias("first_seq"),
        F.min("time_ms").alias("started_ms"),
        F.max("until_ms").alias("seen_ms"),
        F.max(F.when(is_stop, F.col("time_ms"))).alias("stopped_ms"),
        F.max(F.when(is_stop, F.col("duration_ms"))).alias("told_ms"),
        F.max(F.when(is_stop | is_refused, F.col("reason"))).alias("reason"),
        F.max("resumed").alias("is_resumed"),
        F.max("first_keyframe_ms").alias("first_keyframe_ms"),
        F.coalesce(F.max("messages_total"), F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.max("bytes_total"), F.sum("bytes"), F.lit(0)).alias("bytes"),
        (~F.max(is_stop) & ~F.max(is_refused)).alias("is_open"),
        sum_by_reason("dropped"),
        F.coalesce(F.sum("blocked_ms"), F.lit(0)).alias("blocked_ms"),
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


def _is(types: tuple[str, ...]) -> Column:
    return F.col("type").isin(*types)


def _kind() -> Column:
    kind = F.lit(None)
    for name, value in _KINDS.items():
        kind = F.when(F.col("type") == name, value).otherwise(kind)
    return kind
