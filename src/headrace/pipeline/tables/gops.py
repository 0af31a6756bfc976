"""Silver `gops`: each group of pictures of each recording, from one keyframe up to the next."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, LONG, STRING, select_as, table
from headrace.pipeline.tables import timeline

SCHEMA = table(
    ("node", STRING, "the node that recorded"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("path", STRING, "the recording"),
    ("byte_offset", LONG, "of the keyframe's tag; with path the key"),
    ("start_ms", LONG, "media time of the keyframe since the stream's first frame"),
    ("duration_ms", LONG, "media time up to the next keyframe; of the last one up to its last frame"),
    ("is_last", BOOLEAN, "no keyframe follows, so it may be incomplete"),
    ("frames", LONG, "video frames"),
    ("video_bytes", LONG, "their payloads"),
    ("codec", STRING, "of the keyframe"),
    ("first_position", LONG, "of the keyframe in the stream's log, as in relay_audit; null where nobody tells"),
    ("last_position", LONG, "of its last video frame"),
)


def build(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    tags = timeline.with_log_position(events, stream_tags)
    frames = timeline.with_media_time(tags).where("kind = 'video'")
    order = Window.partitionBy("node", "stream_id").orderBy("opened_seq", "path", "byte_offset")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Frames before the first keyframe belong to no group.
    numbered = frames.withColumn("gop", F.sum(F.col("is_keyframe").cast("int")).over(until_here)).where("gop > 0")
    groups = numbered.groupBy("node", "stream", "stream_id", "gop").agg(
        F.min_by("path", F.struct("opened_seq", "path", "byte_offset")).alias("path"),
        F.min_by("byte_offset", F.struct("opened_seq", "path", "byte_offset")).alias("byte_offset"),
        F.min_by("media_ms", F.struct("opened_seq", "path", "byte_offset")).alias("start_ms"),
        F.max("media_ms").alias("end_ms"),
        F.count(F.lit(1)).alias("frames"),
        F.sum("size_bytes").alias("video_bytes"),
        F.min_by("codec", F.struct("opened_seq", "path", "byte_offset")).alias("codec"),
        F.min_by("log_position", F.struct("opened_seq", "path", "byte_offset")).alias("first_position"),
        F.max_by("log_position", F.struct("opened_seq", "path", "byte_offset")).alias("last_position"),
    )
    following_ms = F.lead("start_ms").over(Window.partitionBy("node", "stream_id").orderBy("gop"))
    rows = groups.withColumns({"is_last": following_ms.isNull(), "stop_ms": F.coalesce(following_ms, F.col("end_ms"))})
    return select_as(rows.withColumn("duration_ms", F.col("stop_ms") - F.col("start_ms")), SCHEMA)
