"""Gold `stream_health`: was the stream healthy, per ten seconds, in the words that platforms use.

A row for every window between the stream's start and its end, `noData` where nothing came in. Thresholds are below,
each with its reason; an issue carries what was measured and the threshold it crossed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import DOUBLE, LONG, STRING, TIMESTAMP, at, list_of, select_as, table

WINDOW_S = 10
STARVED_MS = 2_000  # what players buffer at most: a longer silence is seen
GOP_LONG_MS, GOP_OVER_MS = 4_000, 8_000  # platforms complain above 4 s; twice that and late joiners give up
GOP_SHORT_MS = 500  # two keyframes a second and more waste the bitrate
FASTER_MS, FASTER_RATIO = 2_000, 1.2  # more in ten seconds than clocks and buffers explain
BURST_MS = 3_000  # encoders begin with a burst: a second as a rule, more where the machine is busy
OFF_BY = 0.5  # of the declared bitrate: encoders vary by less, a cut picture or a full uplink by more
RATED_MS = 3_000  # in less than that a keyframe weighs as much as all else, and a rate says nothing
FRAME_RATE_MAX = 60.5  # no platform takes more than 60, and a window may hold half a frame more
SAMPLE_RATES = (44_100, 48_000)
VIDEO_CODECS = ("h264", "hevc", "av1", "vp9")
AUDIO_CODECS = ("aac", "mp3", "opus", "ac3", "eac3", "flac")

SCHEMA = table(
    ("node", STRING, "the node that took the stream in"),
    ("stream", STRING, "app/name"),
    ("stream_id", STRING, "of this stream alone"),
    ("started_at", TIMESTAMP, f"of the window of {WINDOW_S} s"),
    ("status", STRING, "good, ok (a warning), bad (an error) or noData"),
    (
        "issues",
        list_of(name=STRING, severity=STRING, measured=DOUBLE, threshold=DOUBLE, unit=STRING),
        "what is wrong: severity info, warning or error",
    ),
    ("total_bps", LONG, "as in stream_windows"),
    ("frame_rate", DOUBLE, "as in stream_windows"),
    ("keyframe_interval_max_ms", LONG, "as in stream_windows"),
    ("av_skew_ms", LONG, "as in stream_windows"),
    ("max_gap_ms", LONG, "as in stream_windows"),
    ("drift_ms", LONG, "as in stream_windows"),
    ("declared_video_kbps", DOUBLE, "what the encoder says of itself"),
    ("declared_frame_rate", DOUBLE, "the same"),
    ("video_codec", STRING, "detected"),
    ("audio_codec", STRING, "detected"),
    ("width", LONG, "detected"),
    ("height", LONG, "detected"),
)

_KEYS = ["node", "stream_id"]


def build(events: DataFrame, stream_windows: DataFrame) -> DataFrame:
    measured = stream_windows.where(f"clock = 'wall' and window_s = {WINDOW_S}").drop("stream", "started_at")
    rows = _every_window(events).join(measured, on=[*_KEYS, "start_ms"], how="left")
    rows = rows.join(_said_and_detected(events), on=_KEYS, how="left")
    # Further ahead than ever before: an encoder that catches up after a stall is not ahead of anybody.
    order = Window.partitionBy(*_KEYS).orderBy("start_ms")
    until_here = order.rowsBetween(Window.unboundedPreceding, 0)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("lead_ms", F.sum(-F.coalesce("drift_ms", F.lit(0))).over(until_here))
    furthest_ms = F.greatest(F.max("lead_ms").over(before), F.lit(BURST_MS))
    rows = rows.withColumn("ahead_ms", F.col("lead_ms") - furthest_ms)
    has_data = F.coalesce(F.col("messages"), F.lit(0)) > 0
    rows = rows.withColumn("issues", F.when(has_data, _issues()).otherwise(_no_issues()))
    severities = F.transform("issues", lambda issue: issue["severity"])
    status = (
        F.when(~has_data, "noData")
        .when(F.array_contains(severities, "error"), "bad")
        .when(F.array_contains(severities, "warning"), "ok")
        .otherwise("good")
    )
    return select_as(rows.withColumns({"status": status, "started_at": at(F.col("start_ms"))}), SCHEMA)


def _every_window(events: DataFrame) -> DataFrame:
    """From the first sample's window to the last one's, or to where the stream or its publisher ended."""
    own = events.where("type in ('publish_started', 'publisher_sample', 'publish_stopped', 'stream_ended')")
    # As in stream_windows: a sample belongs where the middle of its second is.
    moment_ms = F.col("time_ms") - F.coalesce("interval_ms", F.lit(0)) / 2
    size_ms = WINDOW_S * 1000
    spans = own.groupBy("node", "stream", "stream_id").agg(
        (F.floor(F.min(moment_ms) / size_ms) * size_ms).alias("first_ms"),
        # Less one: what ends at the border of a window has nothing in it.
        (F.floor((F.max(moment_ms) - 1) / size_ms) * size_ms).alias("last_ms"),
    )
    last_ms = F.greatest("first_ms", "last_ms")
    return spans.select(
        "node",
        "stream",
        "stream_id",
        F.explode(F.sequence(F.col("first_ms"), last_ms, F.lit(size_ms))).alias("start_ms"),
    )


def _said_and_detected(events: DataFrame) -> DataFrame:
    """The newest of each: a stream that changes its codec has the new one in all its rows."""
    own = events.where("type in ('codec_detected', 'metadata')")
    newest = {
        "video": "video_codec",
        "audio": "audio_codec",
        "width": "width",
        "height": "height",
        "sample_rate": "sample_rate",
        "declared_video_kbps": "declared_video_kbps",
        "declared_audio_kbps": "declared_audio_kbps",
        "declared_frame_rate": "declared_frame_rate",
    }
    # Structs are compared field by field, and one with a null for its place is taken last.
    place = F.struct("boot", "seq")
    columns = [F.max_by(name, F.when(F.col(name).isNotNull(), place)).alias(alias) for name, alias in newest.items()]
    return own.groupBy(*_KEYS).agg(*columns)


def _issues() -> Column:
    gop_ms, frame_rate = F.col("keyframe_interval_max_ms"), F.col("frame_rate") * _caught_up()
    is_rated = F.col("covered_ms") - _silence_ms() >= RATED_MS
    has_video, has_audio = is_rated & (F.col("video_bps") > 0), is_rated & (F.col("audio_bps") > 0)
    lacks_video, lacks_audio = F.col("video_bps") == 0, F.col("audio_bps") == 0
    silence_ms = _silence_ms()
    ahead_ms = F.col("ahead_ms")
    is_faster = (ahead_ms > FASTER_MS) & (F.col("media_ms") > F.col("covered_ms") * FASTER_RATIO)
    declared_video, declared_audio = F.col("declared_video_kbps"), F.col("declared_audio_kbps")
    found = [
        _issue("videoIngestionStarved", "error", silence_ms > STARVED_MS, silence_ms, STARVED_MS, "ms"),
        _issue("videoIngestionFasterThanRealtime", "warning", is_faster, ahead_ms, FASTER_MS, "ms"),
        _issue("noVideoStream", "error", has_audio & lacks_video, F.col("video_bps"), 0, "bps"),
        _issue("noAudioStream", "warning", has_video & lacks_audio, F.col("audio_bps"), 0, "bps"),
        _issue("gopSizeOver", "error", gop_ms > GOP_OVER_MS, gop_ms, GOP_OVER_MS, "ms"),
        _issue("gopSizeLong", "warning", (gop_ms > GOP_LONG_MS) & (gop_ms <= GOP_OVER_MS), gop_ms, GOP_LONG_MS, "ms"),
        _issue("gopSizeShort", "info", has_video & (gop_ms < GOP_SHORT_MS), gop_ms, GOP_SHORT_MS, "ms"),
        *_off_declared("bitrate", "warning", F.col("video_bps"), declared_video, has_video),
        *_off_declared("audioBitrate", "info", F.col("audio_bps"), declared_audio, has_audio),
        _issue("frameRateHigh", "warning", is_rated & (frame_rate > FRAME_RATE_MAX), frame_rate, FRAME_RATE_MAX, "fps"),
        _issue(
            "audioSampleRate",
            "warning",
            ~F.col("sample_rate").isin(*SAMPLE_RATES),
            F.col("sample_rate"),
            SAMPLE_RATES[0],
            "Hz",
        ),
        _issue("videoCodec", "warning", ~F.col("video_codec").isin(*VIDEO_CODECS), F.lit(None), None, None),
        _issue("audioCodec", "warning", ~F.col("audio_codec").isin(*AUDIO_CODECS), F.lit(None), None, None),
    ]
    return F.array_compact(F.array(*found))


def _off_declared(name: str, severity: str, bps: Column, declared: Column, is_there: Column) -> list[Column]:
    low, high = declared * (1 - OFF_BY), declared * (1 + OFF_BY)
    # A silence is told as such, and what comes after it in a burst is no more than was to come before.
    stall_ms = F.when(_silence_ms() > STARVED_MS, _silence_ms()).otherwise(0)
    sounding = F.col("covered_ms") / F.greatest(F.col("covered_ms") - stall_ms, F.lit(1))
    least_kbps, most_kbps = bps / 1000 * sounding, bps / 1000 * _caught_up()
    return [
        _issue(f"{name}Low", severity, is_there & (declared > 0) & (least_kbps < low), least_kbps, low, "kbps"),
        _issue(f"{name}High", severity, is_there & (declared > 0) & (most_kbps > high), most_kbps, high, "kbps"),
    ]


def _silence_ms() -> Column:
    return F.greatest("max_gap_ms", "starved_ms")


def _caught_up() -> Column:
    """By how much less a window would hold if its media had come in real time; 1 if they did."""
    covered_ms = F.col("covered_ms")
    return covered_ms / F.greatest(covered_ms, F.coalesce("media_ms", covered_ms), F.lit(1))


def _issue(
    name: str, severity: str, is_there: Column, measured: Column, threshold: Column | float | None, unit: str | None
) -> Column:
    limit = threshold if isinstance(threshold, Column) else F.lit(threshold)
    return F.when(
        is_there,
        F.struct(
            F.lit(name).alias("name"),
            F.lit(severity).alias("severity"),
            measured.cast("double").alias("measured"),
            limit.cast("double").alias("threshold"),
            F.lit(unit).cast("string").alias("unit"),
        ),
    )


def _no_issues() -> Column:
    return F.array().cast(SCHEMA["issues"].dataType)
