"""Gold `destination_health`: how each destination of each stream did, while its publisher was live."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import COUNTS, DOUBLE, LONG, STRING, TIMESTAMP, select_as, table
from headrace.pipeline.tables.counts import sum_by_reason

SCHEMA = table(
    ("node", STRING, "the node that relays"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("destination", STRING, "its name"),
    ("url", STRING, "its address without the key"),
    ("state", STRING, "the newest"),
    ("first_seen_at", TIMESTAMP, "its first state"),
    ("live_ms", LONG, "time that the stream had a publisher"),
    ("connected_ms", LONG, "how much of it the destination was connected"),
    ("availability", DOUBLE, "connected_ms / live_ms"),
    ("attempts", LONG, "times it began to connect"),
    ("reconnects", LONG, "times it was connected again"),
    ("failures", LONG, "connections that were lost"),
    ("failed_attempts", LONG, "attempts that came to nothing"),
    ("mttr_ms", LONG, "mean time from a lost connection to the next; null without both"),
    ("mtbf_ms", LONG, "connected_ms per lost connection; null without one"),
    ("time_to_connect_ms", LONG, "from its first state to its first connection"),
    ("last_error", STRING, "the newest"),
    ("last_error_class", STRING, "the newest"),
    ("bytes", LONG, "sent, with the protocol's own"),
    ("messages", LONG, "sent"),
    ("dropped", COUNTS, "messages that it skipped, by reason"),
    ("max_queue_age_ms", LONG, "how far behind it was at most"),
    ("flowing_ms", LONG, "time of samples in which media went out"),
    ("ingest_bytes", LONG, "media payload that the publisher sent"),
    ("egress_ingest_ratio", DOUBLE, "bytes / ingest_bytes"),
)

_STREAM = ["node", "stream_id"]
_KEYS = [*_STREAM, "destination"]
_FAILED = ("waiting", "error")


def build(events: DataFrame, sessions: DataFrame, destination_states: DataFrame) -> DataFrame:
    publishes = sessions.where("kind = 'publish'")
    live = publishes.groupBy(*_STREAM).agg(F.sum("duration_ms").alias("live_ms"), F.sum("bytes").alias("ingest_bytes"))
    rows = (
        _timeline_facts(destination_states)
        .join(_connected(destination_states, publishes), on=_KEYS, how="left")
        .join(_samples(events), on=_KEYS, how="left")
        .join(live, on=_STREAM, how="left")
        .withColumn("connected_ms", F.coalesce("connected_ms", F.lit(0)))
    )
    rows = rows.withColumns(
        {
            "availability": _ratio(F.col("connected_ms"), F.col("live_ms")),
            "mtbf_ms": _ratio(F.col("connected_ms"), F.col("failures")),
            "egress_ingest_ratio": _ratio(F.col("bytes"), F.col("ingest_bytes")),
        }
    )
    return select_as(rows, SCHEMA)


def _timeline_facts(states: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_KEYS).orderBy("started_at", "seq")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    is_connected = F.col("state") == "connected"
    has_failed = F.col("state").isin(*_FAILED)
    is_lost = has_failed & (F.col("previous_state") == "connected")
    started_ms = F.unix_millis("started_at")
    lost_ms = F.last(F.when(is_lost, started_ms), ignorenulls=True).over(before)
    connected_ms = F.last(F.when(is_connected, started_ms), ignorenulls=True).over(before)
    noted = states.withColumns(
        {
            "started_ms": started_ms,
            "is_reconnect": is_connected & connected_ms.isNotNull(),
            # A loss before the connection before has been recovered from already.
            "recovery_ms": F.when(is_connected & (lost_ms >= connected_ms), started_ms - lost_ms),
        }
    )
    place = F.struct("started_at", "seq")
    return noted.groupBy(*_KEYS).agg(
        F.max("stream").alias("stream"),
        F.max_by("url", place).alias("url"),
        F.max_by("state", place).alias("state"),
        F.min("started_at").alias("first_seen_at"),
        F.count_if(F.col("state") == "connecting").alias("attempts"),
        F.count_if("is_reconnect").alias("reconnects"),
        F.count_if(is_lost).alias("failures"),
        F.count_if(has_failed & ~is_lost).alias("failed_attempts"),
        (F.sum("recovery_ms") / F.count("recovery_ms")).alias("mttr_ms"),
        (F.min(F.when(is_connected, F.col("started_ms"))) - F.min("started_ms")).alias("time_to_connect_ms"),
        F.max_by("error", F.when(F.col("error").isNotNull(), place)).alias("last_error"),
        F.max_by("error_class", F.when(F.col("error_class").isNotNull(), place)).alias("last_error_class"),
    )


def _connected(states: DataFrame, publishes: DataFrame) -> DataFrame:
    """How long each destination was connected while a publisher was there."""
    connected = states.where("state = 'connected'").select(*_KEYS, "started_at", "ended_at")
    live = publishes.select(
        *_STREAM,
        F.col("started_at").alias("live_from"),
        F.coalesce("stopped_at", "last_seen_at").alias("live_until"),
    )
    start = F.greatest(F.unix_millis("started_at"), F.unix_millis("live_from"))
    stop = F.least(F.unix_millis("ended_at"), F.unix_millis("live_until"))
    # Not an inner join: Spark then forgets that all of it is in one partition, where it is, and shuffles it.
    both = connected.join(live, on=_STREAM, how="left")
    common_ms = F.when(F.col("live_from").isNotNull(), F.greatest(stop - start, F.lit(0)))
    return both.groupBy(*_KEYS).agg(F.sum(common_ms).alias("connected_ms"))


def _samples(events: DataFrame) -> DataFrame:
    return (
        events.where("type = 'destination_sample'")
        .groupBy(*_KEYS)
        .agg(
            F.sum("bytes").alias("bytes"),
            F.sum("messages").alias("messages"),
            sum_by_reason("dropped"),
            F.max("queue_age_ms").alias("max_queue_age_ms"),
            F.coalesce(F.sum(F.when(F.col("flowing"), F.col("interval_ms"))), F.lit(0)).alias("flowing_ms"),
        )
    )


def _ratio(part: Column, whole: Column) -> Column:
    return F.when(whole > 0, part / whole)
