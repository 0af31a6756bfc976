"""`headrace pipeline status`: what the newest job on a lake did and does, and what the tables hold. Starts no JVM.

Owns the question and the words of the answer. What a job notes is `board`.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from headrace.pipeline.jobs.board import Lane, Source, Status, read_status
from headrace.pipeline.layout import LAYERS
from headrace.pipeline.stores.places import existing_store_at
from headrace.pipeline.stores.store import Store
from headrace.units import format_duration

_SUFFIX = ".jsonl"
_REQUESTS = 16


@dataclass(frozen=True, slots=True)
class TableSize:
    layer: str
    table: str
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    lake: str
    status: Status | None
    is_running: bool
    behind_s: float | None
    """How much newer the newest finished file of events is than what the tables know; None if nobody can tell."""
    tables: list[TableSize]


def look(place: Path | str) -> Report:
    """Raises PipelineError if there is no lake."""
    store = existing_store_at(place)
    status = read_status(store)
    is_running = status is not None and status.state == "running" and store.is_held_by(status.pid)
    behind_s = _behind_s(status) if status is not None else None
    return Report(store.address, status, is_running, behind_s, [*_tables(store)])


def to_json(report: Report) -> dict[str, Any]:
    return asdict(report)


def to_text(report: Report, now_s: float | None = None) -> str:
    now_s = time.time() if now_s is None else now_s
    lines = [f"lake     {report.lake}", f"job      {_job(report, now_s)}"]
    if report.status is not None:
        lines += [f"source   {_source(source, now_s)}" for source in report.status.sources.values()]
        lines += [f"tables   of {name}: {_lane(lane, now_s)}" for name, lane in report.status.lanes.items()]
        if report.behind_s is not None:
            lines.append(f"lag      {_ago(report.behind_s)} behind the newest file of events")
        if report.status.last_error is not None:
            at_s = report.status.last_error_at or now_s
            lines.append(f"error    {_ago(now_s - at_s)} ago: {report.status.last_error}")
    taken, out, quarantined = _sums(report)
    lines += [f"rows     in {taken:,}, out {out:,}, quarantined {quarantined:,}", ""]
    width = max(len(table.table) for table in report.tables)
    lines.append(f"{'layer':6}  {'table':{width}}  {'rows':>13}  {'files':>7}  {'MB':>9}")
    for table in report.tables:
        size = f"{table.size_bytes / 1e6:,.1f}"
        lines.append(f"{table.layer:6}  {table.table:{width}}  {table.rows:>13,}  {table.files:>7,}  {size:>9}")
    return "\n".join(lines)


def _sums(report: Report) -> tuple[int, int, int]:
    """Of the tables: what came in, what was made of it, and what was neither a tag nor an event."""
    rows = {table.table: table.rows for table in report.tables}
    made = sum(table.rows for table in report.tables if table.layer != "bronze")
    return rows.get("events", 0) + rows.get("tags", 0), made, rows.get("problems", 0)


def _job(report: Report, now_s: float) -> str:
    status = report.status
    if status is None:
        return "none has run here yet, or only one of an older version"
    since = _ago(now_s - status.updated_at)
    if report.is_running:
        return f"{status.job}, process {status.pid}, running for {_ago(now_s - status.started_at)}"
    if status.state == "running":
        return f"{status.job}, process {status.pid}, is gone without a word; last seen {since} ago"
    return f"{status.job} {status.state} {since} ago"


def _source(source: Source, now_s: float) -> str:
    last = "nothing yet" if source.last_at is None else f"last {_ago(now_s - source.last_at)} ago"
    took = "" if source.last_took_s is None else f", took {source.last_took_s:.1f} s"
    failed = f", failed {source.failures} times" if source.failures else ""
    return (
        f"{source.what} of {source.place}: {source.rows:,} rows, {source.problems:,} quarantined,"
        f" {source.batches:,} batches; {last}{took}{failed}"
    )


def _lane(lane: Lane, now_s: float) -> str:
    if lane.last_at is None:
        return "not built yet"
    streams = f"{lane.last_streams} stream{'' if lane.last_streams == 1 else 's'}"
    until = ""
    if lane.newest_event_ms is not None:
        moment = datetime.fromtimestamp(lane.newest_event_ms / 1000, UTC)
        until = f", events up to {moment:%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"{lane.builds:,} builds; last {_ago(now_s - lane.last_at)} ago, {streams} in {lane.last_took_s:.1f} s{until}"
    )


def _ago(seconds: float) -> str:
    return format_duration(max(0, round(seconds)))


def _behind_s(status: Status) -> float | None:
    known = status.lanes.get("events")
    newest = [_newest_file_s(Path(one.place)) for one in status.sources.values() if one.what == "events"]
    found = [moment for moment in newest if moment is not None]
    if not found or known is None or known.newest_event_ms is None:
        return None
    return max(0.0, max(found) - known.newest_event_ms / 1000)


def _newest_file_s(data_dir: Path) -> float | None:
    """When the newest file of the newest hour was finished."""
    for hour in sorted((data_dir / "events").glob("date=*/hour=*"), reverse=True):
        times = [entry.stat().st_mtime for entry in os.scandir(hour) if entry.name.endswith(_SUFFIX)]
        if times:
            return max(times)
    return None


def _tables(store: Store) -> list[TableSize]:
    found = []
    for layer in LAYERS:
        for table in sorted(entry.name for entry in store.entries(layer) if entry.is_directory):
            directory = f"{layer}/{table}"
            files = [one for one in store.entries(directory, is_recursive=True) if one.name.endswith(".parquet")]
            # Many at once, for where each one is a request.
            with ThreadPoolExecutor(1 if store.is_on_this_machine else _REQUESTS) as threads:
                counts = [*threads.map(partial(_count, store), [f"{directory}/{file.name}" for file in files])]
            known = [(count, file) for count, file in zip(counts, files, strict=True) if count is not None]
            sizes = sum(file.size_bytes for _, file in known)
            found.append(TableSize(layer, table, sum(count for count, _ in known), len(known), sizes))
    return found


def _count(store: Store, file: str) -> int | None:
    try:
        rows: int = store.metadata(file).num_rows
    except FileNotFoundError:
        return None  # replaced meanwhile
    return rows
