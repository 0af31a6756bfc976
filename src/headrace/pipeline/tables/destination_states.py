"""Silver `destination_states`: the timeline of each destination of each stream, one row per state it was in."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, LONG, STRING, TIMESTAMP, at, select_as, table

SCHEMA = table(
    ("node", STRING, "the node that relays"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("destination", STRING, "its name"),
    ("feed", STRING, "which time that it was attached to the stream; empty in logs from before there were feeds"),
    ("url", STRING, "its address without the key"),
    ("seq", LONG, "sequence number of the event that began it; with node and stream_id the key"),
    ("state", STRING, "connecting, connected, waiting, error or disconnected"),
    ("started_at", TIMESTAMP, "when it was entered"),
    ("ended_at", TIMESTAMP, "when it was left; of the last one the stream's newest event"),
    ("duration_ms", LONG, "between them"),
    ("is_last", BOOLEAN, "no other state of its feed followed"),
    ("is_backup", BOOLEAN, "on its backup address"),
    ("previous_state", STRING, "the one before; null for the first"),
    ("attempt", LONG, "which attempt in a row"),
    ("error", STRING, "why it waits or gave up"),
    ("error_class", STRING, "dns, refused, tls, handshake, rejected, auth, stalled, reset or timeout"),
)


def build(events: DataFrame) -> DataFrame:
    newest = events.where(F.col("stream_id").isNotNull()).groupBy("node", "stream_id")
    newest_ms = newest.agg(F.max("time_ms").alias("newest_ms"))
    states = events.where("type = 'destination_state'").join(newest_ms, on=["node", "stream_id"], how="left")
    states = states.withColumn("feed", F.coalesce("feed", F.lit("")))
    order = Window.partitionBy("node", "stream_id", "destination", "feed").orderBy("boot", "seq")
    next_ms = F.lead("time_ms").over(order)
    rows = states.withColumns(
        {
            "is_last": next_ms.isNull(),
            "ended_ms": F.coalesce(next_ms, F.col("newest_ms")),
            "previous_state": F.lag("state").over(order),
            "is_backup": F.coalesce("is_backup", F.lit(False)),
            "started_at": at(F.col("time_ms")),
        }
    )
    rows = rows.withColumns({"ended_at": at(F.col("ended_ms")), "duration_ms": F.col("ended_ms") - F.col("time_ms")})
    return select_as(rows, SCHEMA)
