"""Gold `recordings`: the catalogue. What the server said of each file, and what is in it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.schema import BOOLEAN, INTEGER, LONG, STRING, TIMESTAMP, at, list_of, select_as, table
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
    ("digest", STRING, "of all frames' digests, timestamps and places: equal files have equal ones"),
)


_PIECE = ("node", "stream_id", "path", "piece")
_CODECS = ("video_codec", "audio_codec")
_DIGESTS = ("digest_low", "digest_high")
CONTENTS = table(
    ("node", STRING, "as in the table"),
    ("stream_id", STRING, "the same"),
    ("path", STRING, "the file in the lake"),
    ("named", STRING, "as the server wrote it"),
    ("piece", INTEGER, "which part of the file"),
    ("byte_offset", LONG, "where the piece begins"),
    ("found_tags", LONG, "tags in it"),
    ("first_ms", LONG, "media time of its first frame"),
    ("last_ms", LONG, "the largest media time"),
    *[(name, STRING, "of its first such frame") for name in _CODECS],
    ("video_frames", LONG, "without sequence headers"),
    ("audio_frames", LONG, "without sequence headers"),
    ("keyframes", list_of(media_ms=LONG, byte_offset=LONG), "in any order"),
    *[(name, LONG, "of all frames, in any order") for name in _DIGESTS],
)


def build(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    return of_contents(events, contents_of(stream_tags))


def of_contents(events: DataFrame, contents: DataFrame) -> DataFrame:
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
    rows = files.join(_added_up(contents), on=["node", "stream_id", "path"], how="left")
    return select_as(rows, SCHEMA)


def contents_of(stream_tags: DataFrame) -> DataFrame:
    """What is in each file, or in each `piece` of it, in a form that adds up."""
    counts = stream_tags.groupBy(*_PIECE, "named").agg(
        F.count(F.lit(1)).alias("found_tags"), F.min("byte_offset").alias("byte_offset")
    )
    frames = timeline.with_media_time(stream_tags)
    is_video = F.col("kind") == "video"
    content = F.struct("byte_offset", "kind", "timestamp_ms", "payload_digest")
    facts = frames.groupBy(*_PIECE).agg(
        F.min_by("media_ms", "byte_offset").alias("first_ms"),
        F.max("media_ms").alias("last_ms"),
        F.min_by("codec", F.when(is_video, F.col("byte_offset"))).alias("video_codec"),
        F.min_by("codec", F.when(~is_video, F.col("byte_offset"))).alias("audio_codec"),
        F.count_if(is_video).alias("video_frames"),
        F.count_if(~is_video).alias("audio_frames"),
        F.collect_list(F.when(F.col("is_keyframe"), F.struct("media_ms", "byte_offset"))).alias("keyframes"),
        # The place of each is in it, so the order counts, and adding them up needs none.
        *[F.bit_xor(F.xxhash64(F.lit(seed), content)).alias(name) for seed, name in enumerate(_DIGESTS)],
    )
    return select_as(counts.join(facts, on=list(_PIECE), how="left"), CONTENTS)


def _added_up(contents: DataFrame) -> DataFrame:
    """By the path that the server gave the file."""
    first = F.when(F.col("first_ms").isNotNull(), F.col("byte_offset"))
    files = contents.groupBy("node", "stream_id", "path", "named").agg(
        F.sum("found_tags").alias("found_tags"),
        F.min_by("first_ms", first).alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        *[F.min_by(name, F.when(F.col(name).isNotNull(), F.col("byte_offset"))).alias(name) for name in _CODECS],
        *[F.sum(name).alias(name) for name in ("video_frames", "audio_frames")],
        F.flatten(F.collect_list("keyframes")).alias("keyframes"),
        *[F.bit_xor(name).alias(name) for name in _DIGESTS],
    )
    by_offset = F.array_sort(F.transform("keyframes", lambda one: F.struct(one["byte_offset"], one["media_ms"])))
    index = F.transform(
        by_offset, lambda one: F.struct((one["media_ms"] - F.col("first_ms")).alias("media_ms"), one["byte_offset"])
    )
    # A file without a frame has nothing to tell.
    return (
        files.where(F.col("first_ms").isNotNull())
        .withColumns(
            {
                "found_duration_ms": F.col("last_ms") - F.col("first_ms"),
                "keyframes": index,
                # Not by `lower`: at its first use Spark learns the title case of every character there is, for 2 s.
                "digest": F.translate(
                    F.concat(*[F.lpad(F.hex(name), 16, "0") for name in _DIGESTS]), "ABCDEF", "abcdef"
                ),
            }
        )
        .withColumnsRenamed({"path": "found_path", "named": "path"})
    )
