"""Gold `relay_audit`: the proof of delivery, per reader (destination or recorder) of each stream.

Every message that was taken in is delivered, skipped with a reason, from before the reader was there, or still on its
way; what is left over is a hole. Where the far end's recording is in the lake too, its frames are compared with ours
one by one: see `far_end`. A destination that was taken away and added again has a row for each time, a feed; its far
end got a part from each, so the comparison is of all of them together and stands in the row of the newest.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, COUNTS, LONG, STRING, select_as, table
from headrace.pipeline.tables import far_end
from headrace.pipeline.tables.counts import sum_by_reason

SCHEMA = table(
    ("node", STRING, "the node that relays or records"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("reader", STRING, "destination or recorder"),
    ("name", STRING, "of the destination"),
    ("feed", STRING, "which time that it was attached to the stream; empty in logs from before there were feeds"),
    ("is_final", BOOLEAN, "the stream has ended"),
    ("ingested", LONG, "messages taken in = before_start + delivered + skipped + hole + after_end + pending - overlap"),
    ("before_start", LONG, "messages from before the reader was there"),
    ("delivered", LONG, "messages"),
    ("skipped", LONG, "messages"),
    ("skipped_by_reason", COUNTS, "the same by reason"),
    ("after_end", LONG, "messages from after the reader was taken away"),
    ("pending", LONG, "messages that nothing has been told of yet"),
    ("holes", LONG, "ranges between others that nothing was told of: events were lost"),
    ("hole_messages", LONG, "their messages"),
    ("overlaps", LONG, "ranges that begin inside others"),
    ("overlap_messages", LONG, "messages told of twice"),
    ("is_accounted", BOOLEAN, "no hole, no overlap, and nothing pending at the end"),
    *far_end.COLUMNS,
    ("far_unexplained", LONG, "far_missing beyond what was skipped, on its way, or went by while no feed was there"),
)

_STREAM = ["node", "stream_id"]
_NAME = [*_STREAM, "reader", "name"]
_KEYS = [*_NAME, "feed"]
_INGEST = ("publisher_sample", "publish_stopped", "stream_ended")


def build(events: DataFrame, stream_tags: DataFrame | None) -> DataFrame:
    """Without tags where nobody else's recording is there to compare with: the comparison is most of the plan."""
    events = events.withColumn("feed", F.coalesce("feed", F.lit("")))
    ingest = events.where(F.col("type").isin(*_INGEST)).groupBy(*_STREAM)
    ingested = ingest.agg(F.max("position").alias("told"), F.max(F.col("type") == "stream_ended").alias("is_final"))
    readers = _readers(events)
    rows = (
        readers.join(_ranges(events), on=_KEYS, how="left")
        .join(ingested, on=_STREAM, how="left")
        .join(_taken_away(events), on=_KEYS, how="left")
    )
    if stream_tags is None:
        rows = rows.withColumns({name: F.lit(None).cast(kind) for name, kind, _ in far_end.COLUMNS})
    else:
        far = far_end.build(events, stream_tags).withColumns({"reader": F.lit("destination"), "is_newest": F.lit(True)})
        rows = rows.join(far, on=[*_NAME, "is_newest"], how="left")
    zeros = ("before_start", "reached", "delivered", "hole_messages", "holes", "overlaps", "overlap_messages")
    rows = rows.withColumns({name: F.coalesce(name, F.lit(0)) for name in zeros})
    rows = rows.withColumns(
        {
            # The newest proof may be ahead of the newest sample.
            "ingested": F.greatest("told", "reached"),
            "is_final": F.coalesce("is_final", F.lit(False)),
            "skipped": F.coalesce("skipped", F.lit(0)),
            "skipped_by_reason": F.coalesce("skipped_by_reason", F.create_map().cast(COUNTS)),
        }
    )
    untold = F.col("ingested") - F.col("reached")
    is_gone = F.coalesce("is_gone", F.lit(False))
    rows = rows.withColumns(
        {"after_end": F.when(is_gone, untold).otherwise(0), "pending": F.when(is_gone, 0).otherwise(untold)}
    )
    is_whole = (F.col("holes") == 0) & (F.col("overlaps") == 0)
    rows = rows.withColumns(
        {
            "is_accounted": is_whole & (~F.col("is_final") | (F.col("pending") == 0)),
            "far_unexplained": F.greatest(F.col("far_missing") - _undelivered(), F.when(F.col("far_missing") >= 0, 0)),
        }
    )
    return select_as(rows, SCHEMA)


def _undelivered() -> Column:
    """Messages that no feed of a destination claims to have delivered, and it is known why."""
    of_name = Window.partitionBy(*_NAME)
    earlier = of_name.orderBy("before_start", "reached", "feed").rowsBetween(Window.unboundedPreceding, -1)
    nobody_there = F.greatest(F.col("before_start") - F.coalesce(F.max("reached").over(earlier), F.lit(0)), F.lit(0))
    return F.sum(F.col("skipped") + nobody_there).over(of_name) + F.col("ingested") - F.max("reached").over(of_name)


def _readers(events: DataFrame) -> DataFrame:
    """Those that proved something, and destinations that never came so far."""
    proving = events.where("type = 'delivery'").select(*_KEYS, "stream", "seq")
    trying = events.where("type = 'destination_state'").select(
        *_STREAM, F.lit("destination").alias("reader"), F.col("destination").alias("name"), "feed", "stream", "seq"
    )
    readers = proving.unionByName(trying).groupBy(*_KEYS, "stream").agg(F.max("seq").alias("newest"))
    is_newest = F.col("newest") == F.max("newest").over(Window.partitionBy(*_NAME))
    return readers.withColumn("is_newest", is_newest).drop("newest")


def _taken_away(events: DataFrame) -> DataFrame:
    """Feeds that said goodbye: what they had to tell has been told."""
    states = events.where("type = 'destination_state'").withColumns(
        {"reader": F.lit("destination"), "name": F.col("destination")}
    )
    newest = F.max_by("state", F.struct("boot", "seq"))
    return states.groupBy(*_KEYS).agg((newest == "disconnected").alias("is_gone"))


def _ranges(events: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_KEYS).orderBy("start", "stop", "boot", "seq")
    reach = F.max("stop").over(order.rowsBetween(Window.unboundedPreceding, -1))
    size = F.col("stop") - F.col("start")
    is_skipped = F.col("outcome") == "skipped"
    reason = F.coalesce("reason", F.lit("unknown"))
    ranges = events.where("type = 'delivery'").withColumns(
        {
            # The first has none before it, and greatest and least look past a null.
            "hole": F.when(reach.isNull(), 0).otherwise(F.greatest(F.col("start") - reach, F.lit(0))),
            "overlap": F.when(reach.isNull(), 0).otherwise(
                F.greatest(F.least(F.col("stop"), reach) - F.col("start"), F.lit(0))
            ),
            "skipped_by_reason": F.when(is_skipped, F.create_map(reason, size)),
        }
    )
    return ranges.groupBy(*_KEYS).agg(
        F.min("start").alias("before_start"),
        F.max("stop").alias("reached"),
        F.sum(F.when(~is_skipped, size)).alias("delivered"),
        F.sum(F.when(is_skipped, size)).alias("skipped"),
        sum_by_reason("skipped_by_reason"),
        F.count_if(F.col("hole") > 0).alias("holes"),
        F.sum("hole").alias("hole_messages"),
        F.count_if(F.col("overlap") > 0).alias("overlaps"),
        F.sum("overlap").alias("overlap_messages"),
    )
