"""A small lake, written by hand: one night with a show that breaks, a news stream that does not, and who watched.

The show runs from 20:00 to 20:10. At 20:04 its bitrate sinks, at 20:05:03 the encoder is silent for twelve seconds,
one of its destinations drops because of it, and two of its viewers leave. docs/query.md asks about this night.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.tables.catalog import BRONZE

START = datetime(2027, 1, 14, 20, 0, tzinfo=UTC)
SHOW = {"node": "n1", "stream": "live/show", "stream_id": "n1.b.1"}
NEWS = {"node": "n1", "stream": "live/news", "stream_id": "n1.b.2"}
STALL_ID, DROP_ID, EXIT_ID = "5ca1ab1e00000001", "5ca1ab1e00000002", "5ca1ab1e00000003"
SLOW_MINUTES = {4: 1_800_000, 5: 900_000}

Row = dict[str, Any]


def after(seconds: float) -> datetime:
    """That long after eight in the evening."""
    return START + timedelta(seconds=seconds)


def write_lake(root: Path, more: Mapping[str, list[Row]] | None = None) -> Path:
    """The night on disk, as a job leaves it, with rows of a test's own if it has some."""
    with open_lake(root, "a test") as lake:
        for table, rows in {**NIGHT, **(more or {})}.items():
            write_rows(lake, table, rows)
    return root


def write_rows(lake: Lake, table: str, rows: list[Row], part: str = "part") -> None:
    written = pa.Table.from_pylist(rows, lake.arrow_schema(table))
    if table in BRONZE:
        lake.add_part(table, part, written)
    else:
        lake.replace_units(table, written, ())


def _health(seconds: int) -> Row:
    row: Row = {"started_at": after(seconds), "status": "good", "issues": [], "frame_rate": 30.0}
    row["total_bps"] = SLOW_MINUTES.get(seconds // 60, 4_500_000)
    if seconds // 60 == 4:
        low = {"name": "bitrateLow", "severity": "warning", "measured": 1800.0, "threshold": 2250.0, "unit": "kbps"}
        row |= {"status": "ok", "issues": [low]}
    elif seconds == 300:
        starved = {"name": "videoIngestionStarved", "severity": "error", "measured": 7000.0, "threshold": 2000.0}
        row |= {"status": "bad", "issues": [{**starved, "unit": "ms"}], "total_bps": 1_300_000, "frame_rate": 9.1}
    elif seconds == 310:
        row |= {"status": "noData", "total_bps": None, "frame_rate": None}
    return row


def _minute(minute: int, of: Row, bps: int) -> Row:
    start = after(60 * minute)
    clock = {"clock": "wall", "window_s": 60, "start_ms": int(start.timestamp() * 1000), "started_at": start}
    return {**of, **clock, "covered_ms": 60_000, "total_bps": bps, "video_bps": bps - 128_000, "audio_bps": 128_000}


def _play(viewer: str, of: Row, start: float, stop: float | None, keyframe_ms: int, **fields: Any) -> Row:
    end = after(600 if stop is None else stop)
    times = {"started_at": after(start), "stopped_at": None if stop is None else end, "last_seen_at": end}
    length_ms = int((end - after(start)).total_seconds() * 1000)
    told = {"duration_ms": length_ms, "is_open": stop is None, "first_keyframe_ms": keyframe_ms}
    return {**of, "kind": "play", "conn": f"c-{viewer}", "viewer": viewer, "boot": "b", **times, **told, **fields}


def _destination(name: str, **fields: Any) -> Row:
    url = f"rtmp://{name.lower()}.example/live/****"
    of = {**SHOW, "destination": name, "url": url, "state": "disconnected", "first_seen_at": after(0)}
    usual = {"live_ms": 588_000, "connected_ms": 588_000, "availability": 1.0, "attempts": 1, "reconnects": 0}
    return {**of, **usual, "failures": 0, "failed_attempts": 0, "dropped": {}, "bytes": 0, **fields}


def _audit(reader: str, name: str, skipped: Mapping[str, int], **fields: Any) -> Row:
    lost = sum(skipped.values())
    counted = {"ingested": 42_000, "delivered": 42_000 - lost, "skipped": lost, "skipped_by_reason": dict(skipped)}
    none = {"before_start": 0, "after_end": 0, "pending": 0, "holes": 0, "hole_messages": 0, "overlaps": 0}
    told = {"is_final": True, "is_accounted": True, **none}
    return {**SHOW, "reader": reader, "name": name, "feed": "f1", **counted, **told, **fields}


def _incident(incident_id: str, kind: str, start: float, stop: float, **fields: Any) -> Row:
    times = {"started_at": after(start), "ended_at": after(stop), "duration_ms": round((stop - start) * 1000)}
    nothing = {"destinations_dropped": [], "viewers_exited": 0}
    return {**SHOW, "incident_id": incident_id, "kind": kind, **times, **nothing, **fields}


def _event(seq: int, kind: str, seconds: float, **fields: Any) -> Row:
    time_ms = int(after(seconds).timestamp() * 1000)
    return {"v": 1, "node": "n1", "boot": "b", "seq": seq, "time_ms": time_ms, "type": kind, **fields}


def _recording(of: Row, start: float, stop: float, tags: int, found_tags: int, **fields: Any) -> Row:
    path = f"/rec/{of['stream'].replace('/', '_')}_{after(start):%Y%m%d_%H%M%S}.flv"
    length_ms = int((stop - start) * 1000)
    told = {"is_open": False, "bytes": tags * 8000, "tags": tags, "duration_ms": length_ms}
    found = {"found_path": path, "found_tags": found_tags, "found_duration_ms": length_ms, "digest": "d1"}
    index = [{"media_ms": 0, "byte_offset": 400}, {"media_ms": 2000, "byte_offset": 900_000}]
    times = {"opened_at": after(start), "closed_at": after(stop)}
    return {**of, "path": path, **times, **told, **found, "keyframes": index, **fields}


def _tag(offset: int, timestamp_ms: int, **fields: Any) -> Row:
    of = {"path": "/rec/live_show_20270114_200000.flv", "stream": "live/show", "kind": "video", "codec": "h264"}
    usual = {"size_bytes": 8000, "is_keyframe": offset == 400, "is_config": False, "is_frame": True}
    return {**of, "byte_offset": offset, "timestamp_ms": timestamp_ms, **usual, **fields}


NIGHT: dict[str, list[Row]] = {
    "events": [
        _event(1, "publish_started", 0, conn="c1", stream="live/show", stream_id="n1.b.1", resumed=False, position=0),
        _event(2, "destination_state", 303, destination="YouTube", state="waiting", stream="live/show", attempt=1),
        _event(3, "stream_ended", 600, stream="live/show", stream_id="n1.b.1", reason="unpublished", position=42_000),
    ],
    "tags": [_tag(400, 0), _tag(8415, 33), _tag(16430, 67)],
    "stream_health": [
        *({**SHOW, **_health(seconds)} for seconds in range(0, 600, 10)),
        *(
            {**NEWS, "started_at": after(seconds), "status": "good", "issues": [], "total_bps": 3_000_000}
            for seconds in range(120, 360, 10)
        ),
    ],
    "stream_windows": [
        *(_minute(minute, SHOW, SLOW_MINUTES.get(minute, 4_500_000)) for minute in range(10)),
        *(_minute(minute, NEWS, 3_000_000) for minute in range(2, 6)),
    ],
    "sessions": [
        {**SHOW, "kind": "publish", "conn": "c1", "boot": "b", "started_at": after(0), "stopped_at": after(600)},
        _play("a3f0", SHOW, 5, 590, 120, bytes=330_000_000),
        _play("b771", SHOW, 30, 311.5, 180, reason="left", bytes=150_000_000, dropped={"lag": 40}),
        _play("c9d2", SHOW, 200, 314, 240, reason="left", bytes=60_000_000),
        _play("d054", SHOW, 360, None, 900, bytes=130_000_000),
        _play("e618", NEWS, 130, 350, 150, reason="left", bytes=80_000_000),
    ],
    "destination_health": [
        _destination(
            "YouTube",
            connected_ms=559_000,
            availability=559 / 588,
            attempts=3,
            reconnects=1,
            failures=1,
            mttr_ms=29_000,
            last_error="connection reset by peer",
            last_error_class="reset",
            dropped={"evicted": 1900, "lag": 120},
        ),
        _destination("Studio"),
        _destination("Archive", availability=0.0, connected_ms=0, failed_attempts=7, last_error_class="refused"),
    ],
    "relay_audit": [
        _audit("destination", "YouTube", {"evicted": 1900, "lag": 120}),
        _audit("destination", "Studio", {}),
        _audit("destination", "Archive", {"not_connected": 42_000}),
        _audit("recorder", "recorder", {}),
    ],
    "audience": [
        {
            **SHOW,
            "first_at": after(5),
            "last_at": after(600),
            "attempts": 4,
            "plays": 4,
            "open_plays": 1,
            "unique_viewers": 4,
            "peak_viewers": 3,
            "mean_viewers": 1.82,
            "watch_ms": 1_220_500,
            "startup_ms": 360,
        },
        {**NEWS, "first_at": after(130), "last_at": after(350), "attempts": 1, "plays": 1, "unique_viewers": 1},
        {"node": "n1", "stream": "live/shwo", "first_at": after(40), "attempts": 2, "plays": 0, "refused": 2},
    ],
    "incidents": [
        _incident(
            STALL_ID,
            "publisher_stall",
            303,
            315,
            cause="publisher",
            destinations_dropped=["YouTube"],
            viewers_exited=2,
        ),
        _incident(
            DROP_ID,
            "destination_drop",
            308,
            337,
            destination="YouTube",
            cause="publisher_stall",
            cause_id=STALL_ID,
        ),
        _incident(EXIT_ID, "audience_exit", 311.5, 314, viewers=2, cause="publisher_stall", cause_id=STALL_ID),
    ],
    "recordings": [
        _recording(SHOW, 0, 600, 42_000, 42_000),
        _recording(NEWS, 120, 360, 16_800, 16_650, error="No space left on device"),
    ],
}
