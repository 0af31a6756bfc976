"""Gold `recordings`: the catalogue. What the server said of each file, and what is in it."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, LONG, STRING, TIMESTAMP, at, list_of, select_as, table
from headrace.pipeline.tables import timeline

SCHEMA = table(
    ("node", STRING, "the node that recorded"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("path", STRING, "as the server wrote it"),
    ("opened_at", TIMESTAMP, "when it was begun"),
    ("closed_at", TIMESTAMP, "null while it is written, or if the server died"),
    ("is_open", BOOLEAN, "has no end yet"),
    ("error", STRING, "why it ended early"),
    ("bytes", LONG, "size of the file as the server said at its end"),
    ("tags", LONG, "tags as the server said at its end"),
    ("duration_ms", LONG, "as the server said at its end"),
    ("found_path", STRING, "the file in the lake; null if its tags are not there"),
    ("found_tags", LONG, "tags in it"),
    ("found_duration_ms", LONG, "media time from its first frame to its last"),
    ("video_codec", STRING, "of its first video frame"),
    ("audio_codec", STRING, "of its first audio frame"),
    ("video_frames", LONG, "without sequence headers"),
    ("audio_frames", LONG, "without sequence headers"),
    (
        "keyframes",
        list_of(media_ms=LONG, byte_offset=LONG),
        "index: media time since the file's first frame, and place",
    ),
    ("digest", STRING, "of all frames' digests and timestamps in order: equal files have equal ones"),
)


def build(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    told = events.where("type in ('recording_opened', 'recording_closed')")
    is_closed = F.col("type") == "recording_closed"
    files = told.groupBy("node", "stream", "stream_id", "path").agg(
        at(F.min(F.when(~is_closed, F.col("time_ms")))).alias("opened_at"),
        at(F.max(F.when(is_closed, F.col("time_ms")))).alias("closed_at"),
        (~F.max(is_closed)).alias("is_open"),
        F.max(F.when(is_closed, F.col("error"))).alias("error"),
        F.max("bytes_total").alias("bytes"),
        F.max("tags_total").alias("tags"),
        F.max("duration_ms").alias("duration_ms"),
    )
    rows = files.join(_contents(stream_tags), on=["node", "stream_id", "path"], how="left")
    return select_as(rows, SCHEMA)


def _contents(stream_tags: DataFrame) -> DataFrame:
    """By the path that the server gave the file."""
    counts = stream_tags.groupBy("node", "stream_id", "path", "named").agg(F.count(F.lit(1)).alias("found_tags"))
    frames = timeline.with_media_time(stream_tags)
    first_ms = F.first("media_ms").over(Window.partitionBy("node", "stream_id", "path").orderBy("byte_offset"))
    frames = frames.withColumn("from_start_ms", F.col("media_ms") - first_ms)
    is_video = F.col("kind") == "video"
    index = F.struct(F.col("byte_offset"), F.col("from_start_ms").alias("media_ms"))
    content = F.struct("byte_offset", "kind", "timestamp_ms", "payload_digest")
    facts = frames.groupBy("node", "stream_id", "path").agg(
        F.max("from_start_ms").alias("found_duration_ms"),
        F.min_by("codec", F.when(is_video, F.col("byte_offset"))).alias("video_codec"),
        F.min_by("codec", F.when(~is_video, F.col("byte_offset"))).alias("audio_codec"),
        F.count_if(is_video).alias("video_frames"),
        F.count_if(~is_video).alias("audio_frames"),
        F.array_sort(F.collect_list(F.when(F.col("is_keyframe"), index))).alias("by_offset"),
        F.lower(F.hex(F.xxhash64(F.array_sort(F.collect_list(content))))).alias("digest"),
    )
    keyframes = F.transform("by_offset", lambda one: F.struct(one["media_ms"], one["byte_offset"]))
    return (
        facts.withColumn("keyframes", keyframes)
        .join(counts, on=["node", "stream_id", "path"], how="inner")
        .withColumnsRenamed({"path": "found_path", "named": "path"})
    )
