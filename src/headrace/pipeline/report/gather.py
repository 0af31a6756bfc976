"""From the rows of one broadcast to what its report says.

Reads the tables. What rows mean is the business of the modules it calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from pathlib import PurePath

from headrace.pipeline.report import destinations, happenings, ingest, viewers
from headrace.pipeline.report.choosing import Broadcast
from headrace.pipeline.report.facts import (
    MAX_DESTINATIONS,
    MAX_INCIDENTS,
    MAX_RECORDINGS,
    Audience,
    Ingest,
    Recording,
    Refusals,
    Report,
)
from headrace.pipeline.report.tables import LakeTables, Row
from headrace.pipeline.report.verdict import judge
from headrace.pipeline.resolutions import WINDOWS_S

RECORDING_COLUMNS = (
    "path",
    "opened_at",
    "closed_at",
    "is_open",
    "error",
    "bytes",
    "tags",
    "duration_ms",
    "found_path",
    "found_tags",
    "found_duration_ms",
    "video_codec",
    "audio_codec",
    "video_frames",
    "audio_frames",
    "keyframes",
)


def build_report(lake: LakeTables, broadcast: Broadcast, refusals: Broadcast | None) -> Report:
    """`refusals`: what was refused under the same name, if there is any."""
    unit, until = broadcast.unit, broadcast.last_seen_at
    sessions = lake.rows("sessions", unit, viewers.SESSION_COLUMNS)
    publishes = [row for row in sessions if row["kind"] == "publish"]
    span_ms = round((until - broadcast.started_at) / timedelta(milliseconds=1))
    window_s = ingest.window_for(span_ms)
    health = lake.rows("stream_health", unit, ingest.HEALTH_COLUMNS)
    source = ingest.build_source(health)
    audits = lake.rows("relay_audit", unit, destinations.AUDIT_COLUMNS)
    all_destinations = destinations.build_destinations(
        lake.rows("destination_health", unit, destinations.HEALTH_COLUMNS),
        lake.rows("destination_states", unit, destinations.STATE_COLUMNS),
        audits,
        until,
    )
    incidents = happenings.build_incidents(
        lake.rows("incidents", unit, happenings.INCIDENT_COLUMNS), {row["started_at"] for row in publishes}
    )
    recordings = build_recordings(lake.rows("recordings", unit, RECORDING_COLUMNS))
    last = max(publishes, key=lambda row: row["started_at"], default=None)
    found = Report(
        node=broadcast.node,
        stream=broadcast.stream,
        stream_id=broadcast.stream_id,
        state=broadcast.state,
        started_at=broadcast.started_at,
        last_seen_at=until,
        duration_ms=span_ms,
        live_ms=sum(row["duration_ms"] or 0 for row in publishes) if publishes else span_ms,
        publishers=len(publishes),
        end_reason=last["reason"] if last is not None else None,
        status="unknown",
        verdict="",
        source=source,
        ingest=_ingest(lake, broadcast, window_s, health),
        issues=ingest.build_issues(health, source),
        incidents_total=len(incidents),
        incidents=incidents,
        destinations_total=len(all_destinations),
        destinations=all_destinations,
        recorders=tuple(audit for audit in destinations.build_audits(audits) if audit.reader != "destination"),
        audience=_audience(lake, broadcast, sessions),
        refusals=_refusals(lake, broadcast, refusals),
        recordings_total=len(recordings),
        recordings=recordings,
    )
    # Judged by all there is, shown up to the caps.
    status, verdict = judge(found)
    return dataclasses.replace(
        found,
        status=status,
        verdict=verdict,
        incidents=happenings.most_telling(found.incidents, MAX_INCIDENTS),
        destinations=found.destinations[:MAX_DESTINATIONS],
        recorders=found.recorders[:MAX_DESTINATIONS],
        recordings=found.recordings[:MAX_RECORDINGS],
    )


def build_recordings(rows: Sequence[Row]) -> tuple[Recording, ...]:
    """What the server said of a file at its end; of one without an end what is in it."""
    ordered = sorted(rows, key=lambda row: (str(row["opened_at"]), str(row["path"])))
    return tuple(
        Recording(
            path=row["path"] or "",
            file_name=PurePath(row["path"] or "").name,
            opened_at=row["opened_at"],
            closed_at=row["closed_at"],
            is_open=bool(row["is_open"]),
            error=row["error"],
            duration_ms=_first(row["duration_ms"], row["found_duration_ms"]),
            bytes=row["bytes"],
            tags=_first(row["tags"], row["found_tags"]),
            video_codec=row["video_codec"],
            audio_codec=row["audio_codec"],
            video_frames=row["video_frames"],
            audio_frames=row["audio_frames"],
            keyframes=None if row["keyframes"] is None else len(row["keyframes"]),
            is_in_lake=row["found_path"] is not None,
        )
        for row in ordered
    )


def _ingest(lake: LakeTables, broadcast: Broadcast, window_s: int, health: Sequence[Row]) -> Ingest | None:
    def windows(size_s: int) -> list[Row]:
        return lake.rows("stream_windows", broadcast.unit, ingest.WINDOW_COLUMNS, clock="wall", window_s=size_s)

    # Fine windows are kept for hours, coarse ones for years: the finest that are left.
    sizes_s = [size_s for size_s in WINDOWS_S if size_s >= window_s]
    window_s, own = next(((size_s, found) for size_s in sizes_s if (found := windows(size_s))), (window_s, []))
    keyed_s = ingest.keyframe_window_for(window_s)
    return ingest.build_ingest(
        window_s,
        own,
        own if keyed_s == window_s else windows(keyed_s),
        health,
        lake.rows("gops", broadcast.unit, ingest.GOP_COLUMNS),
        broadcast.started_at,
        broadcast.last_seen_at,
    )


def _audience(lake: LakeTables, broadcast: Broadcast, sessions: Sequence[Row]) -> Audience | None:
    if broadcast.is_refusals:
        return None
    plays = [row for row in sessions if row["kind"] == "play"]
    return viewers.build_audience(
        lake.rows("audience", broadcast.unit, viewers.AUDIENCE_COLUMNS), plays, broadcast.last_seen_at
    )


def _refusals(lake: LakeTables, broadcast: Broadcast, refusals: Broadcast | None) -> Refusals | None:
    if broadcast.is_refusals:
        return viewers.build_refusals(lake.rows("sessions", broadcast.unit, viewers.SESSION_COLUMNS), None)
    if refusals is None:
        return None
    rows = lake.rows("sessions", refusals.unit, viewers.SESSION_COLUMNS)
    return viewers.build_refusals(rows, (broadcast.started_at, broadcast.last_seen_at))


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)
