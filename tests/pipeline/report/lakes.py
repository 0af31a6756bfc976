"""Small lakes written by hand: rows as the tables hold them, in the files that jobs would leave. No Spark runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.layout import LAYOUT_VERSION, Unit, file_of
from headrace.pipeline.report.choosing import Broadcast, Catalogue
from headrace.pipeline.report.facts import Report
from headrace.pipeline.report.gather import build_report
from headrace.pipeline.report.tables import LakeTables
from headrace.pipeline.tables.catalog import DERIVED, TABLES

Row = dict[str, Any]
Rows = dict[str, list[Row]]

NODE, STREAM, STREAM_ID = "n1", "live/show", "n1.b.1"
FEED = f"{STREAM_ID}/1"
START = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
OWN = {"node": NODE, "stream": STREAM, "stream_id": STREAM_ID}


def at(offset_s: float) -> datetime:
    return START + timedelta(seconds=offset_s)


def write_lake(root: Path, rows: Rows, **options: Any) -> Path:
    """A lake of these tables, each unit's rows in its file; `options` are those of the parquet writer."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "_lake.json").write_text(json.dumps({"layout": LAYOUT_VERSION, "events": 1, "tables": {}}))
    for table in DERIVED:
        if table not in rows:
            continue  # a job that has only begun has not made it either
        directory = root / TABLES[table].layer / table
        directory.mkdir(parents=True, exist_ok=True)
        schema = to_arrow_schema(TABLES[table].schema, timezone="UTC")
        pq.write_table(schema.empty_table(), directory / "schema.parquet")
        units: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows.get(table, ()):
            assert row.keys() <= set(schema.names), row.keys() - set(schema.names)
            units[file_of(Unit.of(row["node"], row["stream_id"], row["stream"]))].append(row)
        for name, own in units.items():
            pq.write_table(pa.Table.from_pylist(own, schema=schema), directory / f"{name}.parquet", **options)
    return root


def merged(*some: Rows) -> Rows:
    tables: defaultdict[str, list[Row]] = defaultdict(list)
    for rows in some:
        for table, own in rows.items():
            tables[table] += own
    return dict(tables)


def catalogue(root: Path) -> Catalogue:
    return Catalogue(LakeTables(root))


def report_of(root: Path, rows: Rows, what: str | None = None) -> Report:
    """The report of the lake that these rows make."""
    lake = LakeTables(write_lake(root, rows))
    known = Catalogue(lake)
    chosen: Broadcast = known.newest() if what is None else known.named(what)
    return build_report(lake, chosen, known.refusals_beside(chosen))


# Rows of each table, with what a test does not care about filled in ---------------------------------------------------


def publish(start_s: float = 0, stop_s: float | None = 60, **fields: Any) -> Row:
    return _session("publish", start_s, stop_s, **{"reason": None if stop_s is None else "unpublished", **fields})


def play(start_s: float, stop_s: float | None, **fields: Any) -> Row:
    usual = {"viewer": "aa", "first_keyframe_ms": 12, "reason": None if stop_s is None else "left", "dropped": {}}
    return _session("play", start_s, stop_s, **{**usual, **fields})


def refused(start_s: float, stream: str = STREAM, kind: str = "refused", **fields: Any) -> Row:
    usual = {"stream": stream, "stream_id": None, "is_open": False, "reason": "NetStream.Play.StreamNotFound"}
    return _session(kind, start_s, start_s, **{**usual, **fields})


def _session(kind: str, start_s: float, stop_s: float | None, **fields: Any) -> Row:
    last_s = start_s + 60 if stop_s is None else stop_s
    usual = {
        "kind": kind,
        "conn": "c1",
        "boot": "b",
        "first_seq": int(start_s * 10),
        "started_at": at(start_s),
        "stopped_at": None if stop_s is None else at(stop_s),
        "last_seen_at": at(last_s),
        "is_open": stop_s is None,
        "duration_ms": round((last_s - start_s) * 1000),
        "messages": 100,
        "bytes": 1000,
        "blocked_ms": 0,
    }
    return {**OWN, **usual, **fields}


def windows(seconds: int, **fields: Any) -> list[Row]:
    """Of all three sizes, from the start on."""
    return [window(start_s, size_s, **fields) for size_s in (1, 10, 60) for start_s in range(0, seconds, size_s)]


def window(start_s: int, size_s: int, **fields: Any) -> Row:
    start_ms = round(START.timestamp() * 1000) + start_s * 1000
    usual = {
        "clock": "wall",
        "window_s": size_s,
        "start_ms": start_ms,
        "started_at": at(start_s),
        "covered_ms": size_s * 1000,
        "media_ms": size_s * 1000,
        "video_bps": 2_400_000,
        "audio_bps": 128_000,
        "total_bps": 2_528_000,
        "frames": 30 * size_s,
        "frame_rate": 30.0,
        "keyframes": max(size_s // 2, 1),
        "keyframe_interval_max_ms": 2000,
        "av_skew_ms": 20,
        "starved_ms": 0,
        "drift_ms": 0,
    }
    return {**OWN, **usual, **fields}


def health(seconds: int, **fields: Any) -> list[Row]:
    return [health_window(start_s, **fields) for start_s in range(0, seconds, 10)]


def health_window(start_s: int, status: str = "good", issues: Iterable[Row] = (), **fields: Any) -> Row:
    usual = {
        "started_at": at(start_s),
        "status": status,
        "issues": list(issues),
        "declared_video_kbps": 2500.0,
        "declared_frame_rate": 30.0,
        "video_codec": "h264",
        "audio_codec": "aac",
        "width": 1280,
        "height": 720,
    }
    return {**OWN, **usual, **fields}


def issue(name: str, severity: str, measured: float | None, threshold: float | None, unit: str | None) -> Row:
    return {"name": name, "severity": severity, "measured": measured, "threshold": threshold, "unit": unit}


def destination(name: str, **fields: Any) -> Row:
    usual = {
        "destination": name,
        "url": "rtmp://far.example/live/****",
        "state": "disconnected",
        "live_ms": 60_000,
        "connected_ms": 60_000,
        "availability": 1.0,
        "attempts": 1,
        "reconnects": 0,
        "failures": 0,
        "failed_attempts": 0,
        "time_to_connect_ms": 40,
        "bytes": 1_000_000,
        "messages": 4000,
        "dropped": {},
    }
    return {**OWN, **usual, **fields}


def state(name: str, state: str, start_s: float, stop_s: float, **fields: Any) -> Row:
    usual = {
        "destination": name,
        "feed": FEED,
        "seq": round(start_s * 1000),
        "state": state,
        "started_at": at(start_s),
        "ended_at": at(stop_s),
        "duration_ms": round((stop_s - start_s) * 1000),
    }
    return {**OWN, **usual, **fields}


def audit(name: str, delivered: int, skipped: dict[str, int] | None = None, **fields: Any) -> Row:
    lost = skipped or {}
    usual = {
        "reader": "recorder" if name == "recorder" else "destination",
        "name": name,
        "feed": FEED,
        "is_final": True,
        "ingested": delivered + sum(lost.values()),
        "before_start": 0,
        "delivered": delivered,
        "skipped": sum(lost.values()),
        "skipped_by_reason": lost,
        "after_end": 0,
        "pending": 0,
        "holes": 0,
        "hole_messages": 0,
        "overlaps": 0,
        "overlap_messages": 0,
        "is_accounted": True,
    }
    return {**OWN, **usual, **fields}


def incident(kind: str, start_s: float, stop_s: float | None, **fields: Any) -> Row:
    usual = {
        "incident_id": f"{kind}-{start_s}",
        "kind": kind,
        "started_at": at(start_s),
        "ended_at": None if stop_s is None else at(stop_s),
        "duration_ms": None if stop_s is None else round((stop_s - start_s) * 1000),
        "cause": "publisher",
        "destinations_dropped": [],
        "viewers_exited": 0,
    }
    return {**OWN, **usual, **fields}


def audience(**fields: Any) -> Row:
    usual = {
        "first_at": at(5),
        "last_at": at(50),
        "attempts": 3,
        "plays": 2,
        "open_plays": 0,
        "unique_viewers": 2,
        "peak_viewers": 2,
        "mean_viewers": 1.4,
        "watch_ms": 63_000,
        "startup_ms": 12,
        "startup_score": 99.9,
        "exits_before_video": 0,
        "blocked_plays": 0,
        "blocked_ms": 0,
        "bytes": 5_000_000,
        "refused": 0,
    }
    return {**OWN, **usual, **fields}


def recording(path: str = "/rec/live_show_20261116_080000.flv", **fields: Any) -> Row:
    usual = {
        "path": path,
        "opened_at": at(0),
        "closed_at": at(60),
        "is_open": False,
        "bytes": 19_000_000,
        "tags": 4000,
        "duration_ms": 60_000,
        "found_path": path,
        "found_tags": 4000,
        "found_duration_ms": 59_960,
        "video_codec": "h264",
        "audio_codec": "aac",
        "video_frames": 1800,
        "audio_frames": 2584,
        "keyframes": [{"media_ms": 2000 * n, "byte_offset": 9000 * n} for n in range(30)],
    }
    return {**OWN, **usual, **fields}


def gops(number: int, duration_ms: int = 2000) -> list[Row]:
    return [
        {**OWN, "path": "/rec/x.flv", "byte_offset": n, "duration_ms": duration_ms, "is_last": n == number - 1}
        for n in range(number)
    ]


# Whole broadcasts -------------------------------------------------------------------------------------------------


def healthy() -> Rows:
    """A minute that went well: one destination, three plays, a recording."""
    return {
        "sessions": [publish(), play(5, 30), play(20, 50), play(25, 38, viewer="bb")],
        "stream_windows": windows(60),
        "stream_health": health(60),
        "gops": gops(30),
        "destination_health": [destination("studio")],
        "destination_states": [
            state("studio", "connecting", 0, 0.04),
            state("studio", "connected", 0.04, 60),
            state("studio", "disconnected", 60, 60.01),
        ],
        "relay_audit": [audit("studio", 4000), audit("recorder", 4000)],
        "audience": [audience(peak_viewers=3)],
        "recordings": [recording()],
    }


def troubled() -> Rows:
    """The same with a stall that a viewer did not wait for, and a destination that was away for 20 s."""
    rows = healthy()
    rows["destination_health"].append(
        destination(
            "youtube",
            connected_ms=40_000,
            availability=40 / 60,
            attempts=4,
            reconnects=1,
            failures=1,
            failed_attempts=2,
            mttr_ms=20_000,
            last_error="Connection refused",
            last_error_class="refused",
        )
    )
    of = {"feed": f"{STREAM_ID}/2"}
    rows["destination_states"] += [
        state("youtube", "connecting", 0, 0.05, **of),
        state("youtube", "connected", 0.05, 30, **of),
        state("youtube", "waiting", 30, 31, error="closed by peer", error_class="reset", **of),
        state("youtube", "connecting", 31, 31.01, **of),
        state("youtube", "waiting", 31.01, 50, error="Connection refused", error_class="refused", **of),
        state("youtube", "connecting", 50, 50.02, **of),
        state("youtube", "connected", 50.02, 60, **of),
        state("youtube", "disconnected", 60, 60.01, **of),
    ]
    rows["relay_audit"].append(
        audit("youtube", 2796, {"evicted": 1200, "no_keyframe": 4}, far_candidates=2, feed=f"{STREAM_ID}/2")
    )
    rows["incidents"] = [
        incident("publisher_stall", 10, 16, viewers_exited=1),
        incident("audience_exit", 17, 17, viewers=1, cause="publisher_stall", cause_id="publisher_stall-10"),
        incident("destination_drop", 30, 50.02, destination="youtube", cause="reset"),
    ]
    starved = issue("videoIngestionStarved", "error", 6012.0, 2000.0, "ms")
    rows["stream_health"][1] = health_window(10, "bad", [starved])
    return rows
