"""An event log and recordings on disk, as a server leaves them, and tables as any reader of parquet sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from headrace.pipeline.jobs.lake import Lake, table_directory
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.tables.rows import DESTINATION, T0, event, sample

HOUR_MS = 3_600_000


def write_events(data_dir: Path, name: str, events: list[dict[str, Any]], hour: int = 8) -> None:
    """Like the server: written elsewhere, then renamed into place."""
    hour_dir = data_dir / "events" / "date=2027-01-15" / f"hour={hour:02d}"
    hour_dir.mkdir(parents=True, exist_ok=True)
    unfinished = data_dir / f"{name}.open"
    unfinished.write_text("".join(json.dumps(one) + "\n" for one in events), "utf-8")
    unfinished.rename(hour_dir / f"{name}.jsonl")


def some_stream(node: str, stream_id: str, first_seq: int, start_ms: int = 0) -> list[dict[str, Any]]:
    """Five seconds of a stream with a recorder, a destination that drops, a viewer, and a refused play."""
    of = {"node": node, "stream_id": stream_id}
    play = {"conn": "v1", "viewer": "aa"}
    events = [
        event("publish_started", 0, 0, conn="c1", resumed=False, position=0),
        event("recording_opened", 1, 0, path=f"rec-{node}/live_show_20270115_080000.flv"),
        event("destination_state", 2, 0, **DESTINATION, state="connecting", attempt=0),
        event("destination_state", 500, 0, **DESTINATION, state="connected", attempt=1),
        event("play_started", 900, 0, **play),
        *[sample(1000 * n, 0, position=70 * n) for n in (1, 2, 3)],
        event("delivery", 3000, 0, reader="destination", name="far", start=0, stop=210, outcome="delivered"),
        event("destination_state", 3500, 0, **DESTINATION, state="waiting", attempt=1, error_class="reset"),
        event("play_stopped", 3600, 0, **play, reason="left", duration_ms=2700, first_keyframe_ms=5),
        event("play_refused", 3700, 0, conn="v2", viewer="bb", stream="live/none", stream_id=None, reason="NotFound"),
        event("publish_stopped", 5000, 0, conn="c1", reason="unpublished", position=300),
        event("stream_ended", 5000, 0, reason="unpublished", position=300),
        event(
            "delivery", 5001, 0, reader="destination", name="far", start=210, stop=300, outcome="skipped", reason="end"
        ),
    ]
    for number, one in enumerate(events):
        if one["stream_id"] is None:
            del one["stream_id"]  # that type has none
        one.update(of if "stream_id" in one else {"node": node})
        one.update(seq=first_seq + number, time_ms=one["time_ms"] + start_ms)
    return events


def folder(lake: Lake, table: str) -> Path:
    """Of a table of a lake on a disk."""
    return Path(lake.store.spark_path(table_directory(table)))


def read(lake_dir: Path, table: str) -> list[str]:
    """The rows as text, sorted, by pyarrow from the plain directory."""
    rows = ds.dataset(lake_dir / TABLES[table].layer / table, format="parquet").to_table().to_pylist()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


def all_tables(lake_dir: Path) -> dict[str, list[str]]:
    return {table: read(lake_dir, table) for table in TABLES}


def event_keys(lake_dir: Path) -> list[tuple[str, int]]:
    rows = ds.dataset(lake_dir / "bronze" / "events", format="parquet").to_table(columns=["node", "seq"]).to_pylist()
    return sorted((row["node"], row["seq"]) for row in rows)


def at_hour(events: list[dict[str, Any]], hour: int) -> list[dict[str, Any]]:
    return [{**one, "time_ms": one["time_ms"] + (hour - 8) * HOUR_MS} for one in events]


assert T0 // HOUR_MS % 24 == 8
