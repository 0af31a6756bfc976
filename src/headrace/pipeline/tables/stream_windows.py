"""Silver `stream_windows`: what came in, per window of 1 s, 10 s, 1 min, 5 min and 1 h.

Rows of clock `wall` are of the publisher's samples, by the time of arrival. Rows of clock `media` are of the recorded
tags, by media time since the stream's first frame: what the stream is, however it arrived.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.resolutions import WINDOWS_S
from headrace.pipeline.schema import DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, at, select_as, table
from headrace.pipeline.tables import timeline

SCHEMA = table(
    ("node", STRING, "the node that took the stream in"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("clock", STRING, "wall: samples by arrival; media: recorded tags by media time"),
    ("window_s", INTEGER, "1, 10, 60, 300 or 3600"),
    ("start_ms", LONG, "of the window: since 1970 (wall), since the stream's first frame (media)"),
    ("started_at", TIMESTAMP, "the same as a time; null for media"),
    ("covered_ms", LONG, "how much of the window was measured (wall), or up to its last frame (media)"),
    ("media_ms", LONG, "media time that passed"),
    ("messages", LONG, "messages, or tags"),
    ("video_bps", LONG, "bits a second of video payload over covered_ms"),
    ("audio_bps", LONG, "the same for audio"),
    ("total_bps", LONG, "both"),
    ("bitrate_cv", DOUBLE, "coefficient of variation of total_bps among the samples; null for media"),
    ("frames", LONG, "video frames"),
    ("frame_rate", DOUBLE, "frames a second over covered_ms"),
    ("keyframes", LONG, "video keyframes"),
    ("keyframe_interval_ms", LONG, "covered_ms per keyframe; null without one"),
    ("keyframe_interval_max_ms", LONG, "longest time since a keyframe; of samples to a second, of tags exact"),
    ("av_skew_ms", LONG, "newest video less newest audio timestamp, where furthest from 0"),
    ("max_gap_ms", LONG, "longest time between arrivals (wall), or between timestamps of a track (media)"),
    ("starved_ms", LONG, "time of samples without any message; null for media"),
    ("backward_steps", LONG, "timestamps that went back within a track"),
    ("jumps", LONG, f"steps of more than {timeline.JUMP_MS} ms; null for wall"),
    ("drift_ms", LONG, "covered_ms less media_ms: wall time that brought no media; null for media"),
)

ADDED = ("messages", "video_bytes", "audio_bytes", "frames", "keyframes", "backward_steps", "jumps")
LARGEST = ("last_ms", "keyframe_interval_max_ms", "max_gap_ms")
SUMS = table(
    ("node", STRING, "as in the table"),
    ("stream", STRING, "the same"),
    ("stream_id", STRING, "the same"),
    ("of_s", INTEGER, "the stretch's length"),
    ("start_ms", LONG, "media time"),
    *[(name, LONG, "to be added up") for name in ADDED],
    *[(name, LONG, "of which the largest counts") for name in LARGEST],
    ("av_skew_ms", LONG, "of which that furthest from 0 counts"),
)

_KEYS = ("node", "stream", "stream_id")
_WINDOW = (*_KEYS, "window_s", "start_ms")


def build(events: DataFrame, stream_tags: DataFrame) -> DataFrame:
    return by_arrival(events).unionByName(by_media_time(sums_of(stream_tags)))


def by_arrival(events: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_KEYS).orderBy("boot", "seq")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    samples = events.where("type = 'publisher_sample' and interval_ms > 0")
    last_key_ms = F.last(F.when(F.col("keyframes") > 0, F.col("media_ms")), ignorenulls=True).over(before)
    samples = samples.withColumns(
        {
            # Where the sample before is lost, its media time counts here: the sum over a stream stays right.
            "passed_ms": F.col("media_ms") - F.coalesce(F.lag("media_ms").over(order), F.lit(0)),
            "since_key_ms": (F.col("media_ms") - last_key_ms) / F.greatest(F.col("keyframes"), F.lit(1)),
            "skew_ms": timeline.signed_step_ms(F.col("video_ms"), F.col("audio_ms")),
            "bps": _bps(F.col("video_bytes") + F.col("audio_bytes"), F.col("interval_ms")),
        }
    )
    middle_ms = F.col("time_ms") - F.col("interval_ms") / 2
    bps, n = F.col("bps").cast("decimal(19,0)"), F.count(F.lit(1))
    rows = (
        _in_windows(samples, middle_ms)
        .groupBy(*_WINDOW)
        .agg(
            F.sum("interval_ms").alias("covered_ms"),
            F.sum("passed_ms").alias("media_ms"),
            F.sum("messages").alias("messages"),
            F.sum("video_bytes").alias("video_bytes"),
            F.sum("audio_bytes").alias("audio_bytes"),
            # From whole numbers, so that no order of adding up changes the last digit.
            # Null where nothing came at all.
            F.try_divide(
                F.sqrt((n * F.sum(bps * bps) - F.sum(bps) * F.sum(bps)).cast("double")), F.sum("bps").cast("double")
            ).alias("bitrate_cv"),
            F.sum("frames").alias("frames"),
            F.sum("keyframes").alias("keyframes"),
            F.max("since_key_ms").alias("keyframe_interval_max_ms"),
            _furthest_from_zero("skew_ms"),
            F.max("max_gap_ms").alias("max_gap_ms"),
            F.coalesce(F.sum(F.when(F.col("messages") == 0, F.col("interval_ms"))), F.lit(0)).alias("starved_ms"),
            F.sum("backward_steps").alias("backward_steps"),
        )
    )
    rows = rows.withColumns({"drift_ms": F.col("covered_ms") - F.col("media_ms"), "jumps": F.lit(None)})
    return _finished(rows, "wall", at(F.col("start_ms")))


def sums_of(stream_tags: DataFrame) -> DataFrame:
    """By seconds of media time: a second is a row where there were a hundred. Everything in it adds up."""
    frames = timeline.with_media_time(stream_tags)
    order = Window.partitionBy(*_KEYS).orderBy("opened_seq", "path", "byte_offset")
    track = Window.partitionBy(*_KEYS, "kind").orderBy("opened_seq", "path", "byte_offset")
    until_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    is_video = F.col("kind") == "video"
    newest_video = F.last(F.when(is_video, F.col("media_ms")), ignorenulls=True).over(until_here)
    newest_audio = F.last(F.when(~is_video, F.col("media_ms")), ignorenulls=True).over(until_here)
    last_key_ms = F.last(F.when(F.col("is_keyframe"), F.col("media_ms")), ignorenulls=True).over(before)
    frames = frames.withColumns(
        {
            "track_step_ms": F.col("media_ms") - F.lag("media_ms").over(track),
            "skew_ms": newest_video - newest_audio,
            "since_key_ms": F.when(is_video, F.col("media_ms") - last_key_ms),
            "video_bytes": F.when(is_video, F.col("size_bytes")).otherwise(0),
            "audio_bytes": F.when(is_video, 0).otherwise(F.col("size_bytes")),
        }
    )
    seconds = (
        frames.withColumn("start_ms", F.floor(F.col("media_ms") / 1000) * 1000)
        .groupBy(*_KEYS, "start_ms")
        .agg(
            F.max("media_ms").alias("last_ms"),
            F.count(F.lit(1)).alias("messages"),
            F.sum("video_bytes").alias("video_bytes"),
            F.sum("audio_bytes").alias("audio_bytes"),
            F.sum(is_video.cast("long")).alias("frames"),
            F.sum(F.col("is_keyframe").cast("long")).alias("keyframes"),
            F.max("since_key_ms").alias("keyframe_interval_max_ms"),
            _furthest_from_zero("skew_ms"),
            F.max("track_step_ms").alias("max_gap_ms"),
            F.sum((F.col("track_step_ms") < 0).cast("long")).alias("backward_steps"),
            F.sum(F.col("is_jump").cast("long")).alias("jumps"),
        )
    )
    return select_as(seconds.withColumn("of_s", F.lit(1)), SUMS)


def by_media_time(sums: DataFrame) -> DataFrame:
    """From seconds, or from minutes, which make longer windows only: their own is known already."""
    rows = (
        _in_windows(sums, F.col("start_ms"))
        .where("of_s = 1 or window_s > of_s")
        .groupBy(*_WINDOW)
        .agg(
            *[F.sum(name).alias(name) for name in ADDED],
            *[F.max(name).alias(name) for name in LARGEST],
            _furthest_from_zero("av_skew_ms"),
        )
    )
    # A window that the stream went beyond is a whole one; the last is as long as there are frames.
    newest_ms = F.max("last_ms").over(Window.partitionBy(*_KEYS))
    whole_ms = F.col("window_s") * 1000
    rows = rows.withColumns(
        {
            "covered_ms": F.when(newest_ms >= F.col("start_ms") + whole_ms, whole_ms).otherwise(
                F.col("last_ms") - F.col("start_ms")
            ),
            **{name: F.lit(None) for name in ("bitrate_cv", "starved_ms", "drift_ms")},
        }
    )
    return _finished(rows.withColumn("media_ms", F.col("covered_ms")), "media", F.lit(None))


def _in_windows(rows: DataFrame, moment_ms: Column) -> DataFrame:
    sized = rows.withColumn("window_s", F.explode(F.array(*[F.lit(size) for size in WINDOWS_S])))
    size_ms = F.col("window_s") * 1000
    return sized.withColumn("start_ms", F.floor(moment_ms / size_ms) * size_ms)


def _finished(rows: DataFrame, clock: str, started_at: Column) -> DataFrame:
    covered_ms = F.col("covered_ms")
    rows = rows.withColumns(
        {
            "clock": F.lit(clock),
            "started_at": started_at,
            "video_bps": _bps(F.col("video_bytes"), covered_ms),
            "audio_bps": _bps(F.col("audio_bytes"), covered_ms),
            "total_bps": _bps(F.col("video_bytes") + F.col("audio_bytes"), covered_ms),
            "frame_rate": F.when(covered_ms > 0, F.col("frames") * 1000 / covered_ms),
            "keyframe_interval_ms": F.when(F.col("keyframes") > 0, covered_ms / F.col("keyframes")),
        }
    )
    return select_as(rows, SCHEMA)


def _bps(size_bytes: Column, during_ms: Column) -> Column:
    return F.when(during_ms > 0, F.round(size_bytes * 8000 / during_ms)).cast("long")


def _furthest_from_zero(name: str) -> Column:
    # Of -3 and 3 the larger, so that a rerun gives the same.
    return F.max_by(F.col(name), F.struct(F.abs(name), F.col(name))).alias("av_skew_ms")
