"""What the far end of a destination recorded, frame by frame against what we recorded: a part of `relay_audit`.

The far end's stream is found by its content, because keys are secret and no event names it: it is the one other name
in the lake with recordings of that time of which at least half the frames are frames of ours. Where several could be
meant (two destinations with the same app, a chain of relays), nothing is claimed and far_candidates tells how many
there are. Other recordings of that name, of broadcasts before and after, are none of ours.

A frame is the same if its kind, timestamp, size and digest are, and it is the n-th such of its stream: digests alone
repeat. A far end that rebased its timestamps is therefore not found. Sequence headers come again at every reconnect
and cannot be counted like frames: instead each frame that arrived is asked which one it stands behind, in its file, and
that must be the one that it stands behind in ours. Metadata is left out: every server writes its own.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import LONG, STRING
from headrace.pipeline.tables import timeline

COLUMNS = (
    ("far_candidates", LONG, "streams elsewhere in the lake with the same frames; compared only if there is 1"),
    ("far_node", STRING, "where the far end's recording is from"),
    ("far_stream", STRING, "the name that the stream has there"),
    ("near_frames", LONG, "audio and video frames in our own recording"),
    ("far_frames", LONG, "in the far end's"),
    ("far_missing", LONG, "frames of ours that it does not have"),
    ("far_duplicated", LONG, "frames that it has more often than we"),
    ("far_reordered", LONG, "frames that it has behind a later one"),
    ("far_corrupted", LONG, "frames of the same kind and timestamp but with other bytes"),
    ("far_unknown", LONG, "frames that are not from us"),
    ("far_misheaded", LONG, "frames that arrived, but behind another sequence header than ours or behind none"),
)

_NEAR = ["node", "stream_id"]
_FAR = ["far_node", "far_stream"]
_PAIR = [*_NEAR, *_FAR]
_SAME = ["kind", "timestamp_ms", "size_bytes", "payload_digest"]
_SHARE = 0.5
_AROUND_MS = 10_000  # how far apart the clocks of two nodes may be. The same file played an hour later is no far end


def build(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    """A row per destination that has a candidate: node, stream_id, name, and COLUMNS."""
    frames = timeline.frames_of(_with_header(stream_tags))
    near = frames.join(_relayed(events), on=_NEAR, how="left_semi")
    far = frames.withColumns({"far_node": F.col("node"), "far_stream": F.col("stream"), "far_id": F.col("stream_id")})
    files = _files(near.join(_lives(events), on=_NEAR, how="inner"), far)
    claims = _claims(events, files.select(*_PAIR).distinct())
    alone = claims.where("far_candidates = 1").select("name", *_PAIR)
    pairs = alone.select(*_PAIR).distinct()
    compared = _compare(near, far.drop("node", "stream_id"), pairs, files.join(pairs, on=_PAIR, how="left_semi"))
    return (
        claims.groupBy(*_NEAR, "name")
        .agg(F.max("far_candidates").alias("far_candidates"))
        .join(alone.join(compared, on=_PAIR, how="inner"), on=[*_NEAR, "name"], how="left")
    )


def _with_header(stream_tags: DataFrame) -> DataFrame:
    """The digest of the sequence header that each tag stands behind. A file is whole: it begins with its headers."""
    until_here = Window.partitionBy("path", "kind").orderBy("byte_offset")
    header = F.last(F.when(F.col("is_config"), F.col("payload_digest")), ignorenulls=True).over(until_here)
    return stream_tags.withColumn("header", header)


def _relayed(events: DataFrame) -> DataFrame:
    return events.where("type = 'destination_state'").select(*_NEAR).distinct()


def _lives(events: DataFrame) -> DataFrame:
    own = events.where(F.col("stream_id").isNotNull()).groupBy(*_NEAR)
    return own.agg(F.min("time_ms").alias("born_ms"), F.max("time_ms").alias("died_ms"))


def _files(near: DataFrame, far: DataFrame) -> DataFrame:
    """Recordings elsewhere that share at least half their frames with a stream of ours: whose, and their paths."""
    sizes = far.groupBy(*_FAR, "path").agg(F.count(F.lit(1)).alias("far_size"))
    ours = near.select(*_NEAR, *_SAME, "born_ms", "died_ms").distinct()
    theirs = far.select(*_SAME, *_FAR, "far_id", "path", F.col("opened_ms").alias("far_ms"))
    # Not the stream itself; another stream of the same node may well be a far end.
    is_other = ~((F.col("node") == F.col("far_node")) & (F.col("stream_id") == F.col("far_id")))
    is_in_time = F.col("far_ms").between(F.col("born_ms") - _AROUND_MS, F.col("died_ms") + _AROUND_MS)
    shared = ours.join(theirs, on=_SAME, how="inner").where(is_other & is_in_time)
    counted = shared.groupBy(*_PAIR, "path").agg(F.count(F.lit(1)).alias("shared"))
    counted = counted.join(sizes, on=[*_FAR, "path"], how="inner")
    return counted.where(F.col("shared") >= F.col("far_size") * _SHARE).select(*_PAIR, "path")


def _claims(events: DataFrame, pairs: DataFrame) -> DataFrame:
    """Destination and far stream where the app in the redacted address fits; far_candidates over both sides."""
    destinations = (
        events.where("type = 'destination_state'")
        .select(*_NEAR, F.col("destination").alias("name"), _app().alias("app"))
        .distinct()
    )
    fits = F.col("app") == F.regexp_extract("far_stream", "^(.+)/", 1)
    claims = destinations.join(pairs, on=_NEAR, how="inner").where(fits).drop("app").distinct()
    of_name = F.count(F.lit(1)).over(Window.partitionBy(*_NEAR, "name"))
    of_far = F.count(F.lit(1)).over(Window.partitionBy(*_PAIR))
    return claims.withColumn("far_candidates", F.greatest(of_name, of_far))


def _app() -> Column:
    """Of an address without its key: `rtmp://host/app`, or `rtmp://host/app/****` where it has a name of its own."""
    return F.regexp_extract("url", r"://[^/]+/(.+?)(/\*+)?$", 1)


def _compare(near: DataFrame, far: DataFrame, pairs: DataFrame, files: DataFrame) -> DataFrame:
    near_order = Window.partitionBy(*_PAIR).orderBy("opened_ms", "path", "byte_offset")
    same = Window.partitionBy(*_PAIR, *_SAME).orderBy("opened_ms", "path", "byte_offset")
    columns = [*_PAIR, *_SAME]
    ours = near.join(pairs, on=_NEAR, how="inner").select(
        *columns,
        F.row_number().over(same).alias("nth"),
        F.row_number().over(near_order).alias("near_rank"),
        F.col("header").alias("near_header"),
    )
    theirs = far.join(files, on=[*_FAR, "path"], how="inner").select(
        *columns,
        F.row_number().over(same).alias("nth"),
        F.row_number().over(near_order).alias("far_rank"),
        F.col("header").alias("far_header"),
    )
    both = ours.join(theirs, on=[*columns, "nth"], how="full")
    far_order = Window.partitionBy(*_PAIR).orderBy(F.col("far_rank").asc_nulls_last())
    before = far_order.rowsBetween(Window.unboundedPreceding, -1)
    only_near, only_far = F.col("far_rank").isNull(), F.col("near_rank").isNull()
    place = Window.partitionBy(*_PAIR, "kind", "timestamp_ms")
    noted = both.withColumns(
        {
            "is_reordered": ~only_near & (F.col("near_rank") < F.max("near_rank").over(before)),
            "is_known": F.max((~only_far).cast("int")).over(Window.partitionBy(*_PAIR, *_SAME)) == 1,
            # At one place as many are corrupted as are left over on both sides.
            "near_left": F.count_if(only_near).over(place),
            "far_left": F.count_if(only_far).over(place),
            "nth_left": F.row_number().over(place.orderBy(only_near.desc(), "near_rank", "far_rank")),
        }
    )
    is_corrupted = only_near & (F.col("nth_left") <= F.least("near_left", "far_left"))
    rows = noted.groupBy(*_PAIR).agg(
        F.count("near_rank").alias("near_frames"),
        F.count("far_rank").alias("far_frames"),
        F.count_if(only_near & ~is_corrupted).alias("far_missing"),
        F.count_if(only_far & F.col("is_known")).alias("far_duplicated"),
        F.count_if("is_reordered").alias("far_reordered"),
        F.count_if(is_corrupted).alias("far_corrupted"),
        F.count_if(only_far & ~F.col("is_known")).alias("far_strange"),
        F.count_if(~only_near & ~only_far & ~F.col("near_header").eqNullSafe(F.col("far_header"))).alias(
            "far_misheaded"
        ),
    )
    return rows.withColumn("far_unknown", F.greatest(F.col("far_strange") - F.col("far_corrupted"), F.lit(0)))
