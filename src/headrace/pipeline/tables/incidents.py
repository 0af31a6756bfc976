"""Gold `incidents`: what went wrong, and what came of it: publisher stall → destination drop → audience exit.

An incident is caused by the newest trouble of the publisher that is going on when it begins, or ended at most
CAUSE_MS before. Viewers leave all the time; they are an incident only where such a cause is there.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from headrace.pipeline.schema import LONG, STRING, TIMESTAMP, at, select_as, table
from headrace.pipeline.tables.stream_health import STARVED_MS

CAUSE_MS = 10_000  # players and servers wait about so long before they give up
SCHEMA = table(
    ("node", STRING, "the node it was seen on"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("incident_id", STRING, "made of node, stream_id, kind, start and destination"),
    ("kind", STRING, "publisher_stall, publisher_lost, destination_drop or audience_exit"),
    ("started_at", TIMESTAMP, "to a second for a stall"),
    ("ended_at", TIMESTAMP, "null if it has not ended"),
    ("duration_ms", LONG, "null if it has not ended"),
    ("destination", STRING, "of a destination_drop"),
    ("viewers", LONG, "how many left, of an audience_exit"),
    ("cause", STRING, "the kind of what caused it, else the error class or the reason, else publisher"),
    ("cause_id", STRING, "incident_id of what caused it"),
    ("destinations_dropped", ArrayType(STRING), "what it caused"),
    ("viewers_exited", LONG, "what it caused"),
)

_STREAM = ["node", "stream", "stream_id"]
_COLUMNS = [*_STREAM, "kind", "started_ms", "ended_ms", "destination", "viewers", "own_cause"]


def build(events: DataFrame, sessions: DataFrame, destination_states: DataFrame) -> DataFrame:
    troubles = _identified(_stalls(events).unionByName(_losses(events)))
    caused = _caused(_drops(destination_states).unionByName(_exits(sessions)), troubles)
    nothing = {"cause": F.lit(None).cast("string"), "cause_id": F.lit(None).cast("string")}
    rows = troubles.withColumns(nothing).unionByName(_identified(_together(caused)))
    # A trouble and all that it caused, added up where they stand: a join would make the plan twice as large.
    of_trouble = Window.partitionBy(F.coalesce("cause_id", "incident_id"))
    is_effect = F.col("cause_id").isNotNull()
    dropped = F.collect_set(F.when(is_effect, F.col("destination"))).over(of_trouble)
    exited = F.sum(F.when(is_effect, F.col("viewers"))).over(of_trouble)
    rows = rows.withColumns(
        {
            "started_at": at(F.col("started_ms")),
            "ended_at": at(F.col("ended_ms")),
            "duration_ms": F.col("ended_ms") - F.col("started_ms"),
            "cause": F.coalesce("cause", "own_cause"),
            "destinations_dropped": F.when(is_effect, F.array().cast("array<string>")).otherwise(F.array_sort(dropped)),
            "viewers_exited": F.when(is_effect, 0).otherwise(F.coalesce(exited, F.lit(0))),
        }
    )
    return select_as(rows, SCHEMA)


def _stalls(events: DataFrame) -> DataFrame:
    """Samples in a row without a message; any silence above two seconds has at least one."""
    order = Window.partitionBy(*_STREAM, "conn").orderBy("boot", "seq")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    samples = events.where("type = 'publisher_sample'").withColumns(
        {
            "run": F.sum((F.col("messages") > 0).cast("int")).over(until_here),
            "next_gap_ms": F.lead("max_gap_ms").over(order),
            "next_ms": F.lead("time_ms").over(order),
        }
    )
    silent = (
        samples.where("messages = 0")
        .groupBy(*_STREAM, "conn", "run")
        .agg(
            F.min(F.col("time_ms") - F.col("interval_ms")).alias("began_ms"),
            F.max("time_ms").alias("silent_until_ms"),
            F.max_by("next_ms", "seq").alias("next_ms"),
            F.max_by("next_gap_ms", "seq").alias("gap_ms"),
        )
    )
    # The sample that ends it knows how long it was, and it ended within that sample's second.
    silent_ms = F.col("silent_until_ms") - F.col("began_ms")
    length_ms = F.greatest(silent_ms, F.coalesce("gap_ms", F.lit(0)))
    ended_ms = F.when(F.col("next_ms").isNotNull(), F.col("began_ms") + length_ms)
    rows = silent.where(length_ms > STARVED_MS).withColumns({"started_ms": F.col("began_ms"), "ended_ms": ended_ms})
    return _as_incidents(rows, "publisher_stall", F.lit("publisher"))


def _losses(events: DataFrame) -> DataFrame:
    own = events.where("type in ('publish_started', 'publish_stopped', 'stream_ended')")
    following_ms = F.lead("time_ms").over(Window.partitionBy(*_STREAM).orderBy("boot", "seq"))
    rows = own.withColumns({"started_ms": F.col("time_ms"), "ended_ms": following_ms})
    rows = rows.where("type = 'publish_stopped' and reason in ('lost', 'dropped')")
    return _as_incidents(rows, "publisher_lost", F.col("reason"))


def _drops(states: DataFrame) -> DataFrame:
    order = Window.partitionBy("node", "stream_id", "destination", "feed").orderBy("started_at", "seq")
    after = order.rowsBetween(1, Window.unboundedFollowing)
    started_ms = F.unix_millis("started_at")
    connected_ms = F.first(F.when(F.col("state") == "connected", started_ms), ignorenulls=True).over(after)
    rows = states.withColumns({"started_ms": started_ms, "ended_ms": connected_ms})
    rows = rows.where("previous_state = 'connected' and state in ('waiting', 'error')")
    return _as_incidents(rows, "destination_drop", F.coalesce("error_class", F.lit("unknown")), destination=True)


def _exits(sessions: DataFrame) -> DataFrame:
    left = sessions.where("kind = 'play' and stopped_at is not null").withColumns(
        {"started_ms": F.unix_millis("stopped_at"), "ended_ms": F.lit(None)}
    )
    return _as_incidents(left, "audience_exit", F.lit(None))


def _together(caused: DataFrame) -> DataFrame:
    """Drops as they are, and one incident for all who left because of the same trouble."""
    is_drop = F.col("kind") == "destination_drop"
    rows = caused.where(is_drop | F.col("cause_id").isNotNull()).withColumns(
        {"own_start_ms": F.when(is_drop, F.col("started_ms")), "own_end_ms": F.when(is_drop, F.col("ended_ms"))}
    )
    own = ["destination", "own_cause", "own_start_ms", "own_end_ms"]  # all of them null for who left
    return (
        rows.groupBy(*_STREAM, "kind", "cause", "cause_id", *own)
        .agg(
            F.min("started_ms").alias("started_ms"),
            F.max(F.when(is_drop, F.col("ended_ms")).otherwise(F.col("started_ms"))).alias("ended_ms"),
            F.count(F.when(~is_drop, 1)).alias("left"),
        )
        .select(
            *_STREAM,
            "kind",
            "started_ms",
            "ended_ms",
            "destination",
            F.when(~is_drop, F.col("left")).alias("viewers"),
            "own_cause",
            "cause",
            "cause_id",
        )
    )


def _caused(incidents: DataFrame, troubles: DataFrame) -> DataFrame:
    """With cause and cause_id: of all troubles that reach to the incident's start the one that began last."""
    reasons = troubles.select(
        *_STREAM,
        F.col("incident_id").alias("cause_id"),
        F.col("kind").alias("cause"),
        F.col("started_ms").alias("from_ms"),
        (F.col("ended_ms") + CAUSE_MS).alias("until_ms"),
    )
    reasons, own = reasons.alias("reason"), incidents.alias("own")
    same = [F.col(f"own.{name}") == F.col(f"reason.{name}") for name in _STREAM]
    begins_ms = F.col("own.started_ms")
    reaches = (F.col("from_ms") <= begins_ms) & (F.col("until_ms").isNull() | (begins_ms <= F.col("until_ms")))
    joined = own.join(reasons, on=[*same, reaches], how="left")
    place = F.struct("from_ms", "cause_id")
    return joined.groupBy(*[F.col(f"own.{name}") for name in _COLUMNS]).agg(
        F.max_by("cause", place).alias("cause"), F.max_by("cause_id", place).alias("cause_id")
    )


def _as_incidents(rows: DataFrame, kind: str, own_cause: Column, *, destination: bool = False) -> DataFrame:
    return rows.select(
        *_STREAM,
        F.lit(kind).alias("kind"),
        F.col("started_ms").cast("long").alias("started_ms"),
        F.col("ended_ms").cast("long").alias("ended_ms"),
        (F.col("destination") if destination else F.lit(None)).cast("string").alias("destination"),
        F.lit(None).cast("long").alias("viewers"),
        own_cause.cast("string").alias("own_cause"),
    )


def _identified(rows: DataFrame) -> DataFrame:
    names = [F.col(name) for name in ("node", "stream_id", "kind")]
    parts = [*names, F.col("started_ms").cast("string"), F.coalesce("destination", F.lit(""))]
    return rows.withColumn("incident_id", F.substring(F.sha2(F.concat_ws("\n", *parts), 256), 1, 16))
