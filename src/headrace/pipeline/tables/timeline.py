"""The tags of a stream in order, with media time: what several tables begin with.

Recordings are tied to streams by the `recording_opened` event that names the file. Timestamps wrap at 2^32, start
anew when an encoder does, and jump; media time goes on through all of it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

# Beyond this a step in timestamps is a new start and no pause: media time goes on where it was.
JUMP_MS = 10_000
_HALF, _WHOLE = 1 << 31, 1 << 32
_OF_FILE = ("node", "stream", "stream_id", "named", "opened_seq", "opened_ms", "frame_position")


def opened_files(events: DataFrame) -> DataFrame:
    """What the server said of each file it records: whose it is, `named` (the path), file_name, when, and where."""
    return events.where("type = 'recording_opened'").select(
        "node",
        "stream",
        "stream_id",
        F.col("path").alias("named"),
        file_name(F.col("path")).alias("file_name"),
        F.col("seq").alias("opened_seq"),
        F.col("time_ms").alias("opened_ms"),
        "frame_position",
    )


def of_streams(events: DataFrame, tags: DataFrame) -> DataFrame:
    """All tags with what `opened_files` says of their file.

    The server may have been given a relative directory, so its path may be the end of ours. A file that two streams
    claim that way belongs to neither: rows must not mix.
    """
    files = tags.select("path").distinct().withColumn("file_name", file_name(F.col("path")))
    # Not an inner join: Spark then forgets that all of it is in one partition, where it is, and shuffles it.
    claims = files.join(opened_files(events), on="file_name", how="left")
    is_claim = (F.col("path") == F.col("named")) | F.endswith("path", F.concat(F.lit("/"), F.col("named")))
    claim = {name: F.when(is_claim, F.col(name)) for name in _OF_FILE}
    owned = claims.groupBy("path").agg(
        F.count_distinct(claim["node"], claim["stream_id"]).alias("claims"),
        *[F.min(column).alias(name) for name, column in claim.items()],
    )
    of_streams = tags.drop("stream").join(owned.where("claims = 1").drop("claims"), on="path", how="inner")
    # Where these are not all of a stream's tags: the media time of the first, and which piece it is. See `jobs.heads`.
    return of_streams.withColumns({"base_ms": F.lit(None).cast("long"), "piece": F.lit(0)})


def frames_of(stream_tags: DataFrame) -> DataFrame:
    """The audio and video frames. Tags that were taken in before is_frame was there are judged by is_config."""
    return stream_tags.where("kind in ('audio', 'video') and coalesce(is_frame, not is_config, true)")


def with_media_time(stream_tags: DataFrame) -> DataFrame:
    """The audio and video frames with media_ms since the stream's first, step_ms since the one before, is_jump."""
    frames = frames_of(stream_tags)
    order = Window.partitionBy("node", "stream_id").orderBy("opened_seq", "path", "byte_offset")
    step_ms = signed_step_ms(F.col("timestamp_ms"), F.lag("timestamp_ms").over(order))
    steps = frames.withColumn("step_ms", F.coalesce(step_ms, F.lit(0)))
    steps = steps.withColumn("is_jump", F.abs("step_ms") > JUMP_MS)
    counted_ms = F.when(F.col("is_jump"), 0).otherwise(F.col("step_ms"))
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return steps.withColumn("media_ms", F.coalesce("base_ms", F.lit(0)) + F.sum(counted_ms).over(until_here))


def with_log_position(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    """All tags with their place in the stream's log, where it is known.

    From a file's first frame on every tag is the next message of the log, up to where the recorder skipped some.
    """
    place = Window.partitionBy("node", "stream_id", "path").orderBy("byte_offset")
    is_frame = F.coalesce("is_frame", ~F.col("is_config"), F.lit(True)) & F.col("kind").isin("audio", "video")
    tags = stream_tags.withColumns({"nth": F.row_number().over(place), "is_media": is_frame})
    first = F.min(F.when(F.col("is_media"), F.col("nth"))).over(Window.partitionBy("node", "stream_id", "path"))
    position = F.when(F.col("nth") >= first, F.col("frame_position") + F.col("nth") - first)
    skips = events.where("type = 'delivery' and reader = 'recorder' and outcome = 'skipped'")
    starts = skips.groupBy("node", "stream_id").agg(F.collect_set("start").alias("skips"))
    tags = tags.withColumn("log_position", position).join(starts, on=["node", "stream_id"], how="left")
    in_file = F.filter("skips", lambda start: start >= F.col("frame_position"))
    is_known = F.coalesce(F.col("log_position") < F.array_min(in_file), F.lit(True))
    known = tags.withColumn("log_position", F.when(is_known, F.col("log_position")))
    return known.drop("nth", "is_media", "skips")


def signed_step_ms(newer: Column, older: Column) -> Column:
    """The difference of two 32-bit timestamps, the shorter way round."""
    return F.pmod(newer - older + _HALF, F.lit(_WHOLE)) - _HALF


def file_name(path: Column) -> Column:
    return F.substring_index(path, "/", -1)
