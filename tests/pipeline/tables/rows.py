"""Hand-written events and tags as the tables get them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.schema import EVENTS
from headrace.pipeline.tables import tags as tags_table
from headrace.pipeline.tables import timeline

T0 = 1_800_000_000_000  # a whole minute, and so a whole window of ten seconds
NODE, STREAM, STREAM_ID = "n1", "live/show", "n1.b.1"
PATH = "/rec/live_show_20270115_080000.flv"
DESTINATION = {"destination": "far", "url": "rtmp://far.example/live/****"}


def at(offset_ms: int) -> datetime:
    # What Spark hands out: local time without its zone.
    return datetime.fromtimestamp((T0 + offset_ms) / 1000, UTC).astimezone().replace(tzinfo=None)


def event(kind: str, offset_ms: int, seq: int, **fields: Any) -> dict[str, Any]:
    own = {"stream": STREAM, "stream_id": STREAM_ID}
    envelope = {"v": 1, "node": NODE, "boot": "b", "seq": seq, "time_ms": T0 + offset_ms, "type": kind}
    return {**envelope, **own, **fields}


def sample(offset_ms: int, seq: int, **fields: Any) -> dict[str, Any]:
    """A second of 100 kB video and 10 kB audio, 25 frames, one of them a keyframe."""
    usual = {
        "conn": "c1",
        "interval_ms": 1000,
        "video_bytes": 100_000,
        "audio_bytes": 10_000,
        "messages": 70,
        "frames": 25,
        "keyframes": 1,
        "media_ms": offset_ms,
        "timestamp_ms": offset_ms,
        "video_ms": offset_ms,
        "audio_ms": offset_ms - 20,
        "max_gap_ms": 40,
        "backward_steps": 0,
        "position": 70 * seq,
    }
    return event("publisher_sample", offset_ms, seq, **{**usual, **fields})


def frame_of(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(one.get(name) for name in EVENTS.names) for one in events], EVENTS)


def tag(offset: int, timestamp_ms: int, kind: str = "video", **fields: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "path": PATH,
        "stream": STREAM,
        "byte_offset": offset,
        "kind": kind,
        "timestamp_ms": timestamp_ms,
        "size_bytes": 1000,
        "codec": "h264" if kind == "video" else "aac",
        "is_keyframe": False,
        "is_config": False,
        "payload_digest": offset * 7,
    }
    return {**usual, **fields}


def tags_of(spark: SparkSession, tags: list[dict[str, Any]]) -> DataFrame:
    names = tags_table.SCHEMA.names
    return spark.createDataFrame([tuple(one.get(name) for name in names) for one in tags], tags_table.SCHEMA)


def opened(seq: int = 1, **fields: Any) -> dict[str, Any]:
    return event("recording_opened", 0, seq, **{"path": PATH, **fields})


def stream_tags_of(
    spark: SparkSession, tags: list[dict[str, Any]], events: list[dict[str, Any]] | None = None
) -> DataFrame:
    return timeline.of_streams(frame_of(spark, events or [opened()]), tags_of(spark, tags))


def dicts(rows: DataFrame, *columns: str) -> list[dict[str, Any]]:
    """The rows, or some columns of them, sorted as text so that their order does not matter."""
    chosen = rows.select(*columns) if columns else rows
    return sorted((row.asDict(recursive=True) for row in chosen.collect()), key=str)
