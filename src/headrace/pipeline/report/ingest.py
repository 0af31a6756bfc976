"""How a stream came in: windows, health and issues from their tables' rows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.pipeline.report import advice
from headrace.pipeline.report.facts import MAX_POINTS, Ingest, Issue, KeyframePoint, Point, Source
from headrace.pipeline.report.tables import Row

WINDOW_COLUMNS = (
    "start_ms",
    "covered_ms",
    "video_bps",
    "audio_bps",
    "total_bps",
    "frame_rate",
    "keyframes",
    "keyframe_interval_max_ms",
    "av_skew_ms",
    "starved_ms",
    "drift_ms",
)
HEALTH_COLUMNS = (
    "started_at",
    "status",
    "issues",
    "declared_video_kbps",
    "declared_frame_rate",
    "video_codec",
    "audio_codec",
    "width",
    "height",
)
GOP_COLUMNS = ("duration_ms", "is_last")
HEALTH_WINDOW_S = 10

_FEW = 20  # of which no five per cent are seldom
_SEVERITIES = ("error", "warning", "info")
_LOWEST_IS_WORST = ("bitrateLow", "audioBitrateLow", "gopSizeShort", "noVideoStream", "noAudioStream")


def window_for(duration_ms: int) -> int:
    """The finest of the windows there are that a chart can still show."""
    if duration_ms <= 10 * 60_000:
        return 1
    return 10 if duration_ms <= 4 * 3_600_000 else 60


def keyframe_window_for(window_s: int) -> int:
    """In windows of a second most have no keyframe."""
    return max(window_s, 10)


def scale_top(values: Sequence[float | None]) -> float:
    """Where a chart's scale ends: a burst after a stall must not press all the rest to the floor."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return 0.0
    usual = known[int(len(known) * 0.95)] if len(known) >= _FEW else known[-1]
    return min(known[-1], usual * 1.6) if usual > 0 and known[-1] > usual * 2.5 else known[-1]


def build_ingest(
    window_s: int,
    windows: Sequence[Row],
    keyframe_windows: Sequence[Row],
    health: Sequence[Row],
    gops: Sequence[Row],
    started_at: datetime,
    last_seen_at: datetime,
) -> Ingest | None:
    """None where there are no samples."""
    rows = sorted((row for row in windows if row["start_ms"] is not None), key=lambda row: int(row["start_ms"]))
    keyed = sorted(
        (row for row in keyframe_windows if row["start_ms"] is not None), key=lambda row: int(row["start_ms"])
    )
    if not rows:
        return None
    merged_s = window_s * _merge_factor(rows, window_s)
    keyed_s = keyframe_window_for(window_s) * _merge_factor(keyed, keyframe_window_for(window_s))
    exact = [row["duration_ms"] for row in gops if row["duration_ms"] is not None and not row["is_last"]]
    sampled = [row["keyframe_interval_max_ms"] for row in keyed if row["keyframe_interval_max_ms"] is not None]
    keyframes = sum(row["keyframes"] or 0 for row in rows)
    covered_ms = sum(row["covered_ms"] or 0 for row in rows)
    skews = [row["av_skew_ms"] for row in rows if row["av_skew_ms"] is not None]
    drifts = [row["drift_ms"] for row in rows if row["drift_ms"] is not None]
    spent = _time_by_status(health, started_at, last_seen_at)
    return Ingest(
        window_s=merged_s,
        points=tuple(_point(start_ms, group) for start_ms, group in _grouped(rows, merged_s)),
        keyframe_window_s=keyed_s,
        keyframe_points=tuple(_keyframe_point(start_ms, group) for start_ms, group in _grouped(keyed, keyed_s)),
        total_bps_mean=_weighted(rows, "total_bps"),
        total_bps_max=max((row["total_bps"] for row in rows if row["total_bps"] is not None), default=None),
        frame_rate_mean=_weighted(rows, "frame_rate"),
        keyframe_interval_mean_ms=_mean_interval(exact, covered_ms, keyframes),
        keyframe_interval_max_ms=max(exact, default=max(sampled, default=None)),
        keyframe_interval_from="recording" if exact else "samples" if keyframes or sampled else None,
        av_skew_max_ms=max(skews, key=abs, default=None),
        drift_ms=sum(drifts) if drifts else None,
        good_ms=spent["good"],
        ok_ms=spent["ok"],
        bad_ms=spent["bad"],
        no_data_ms=spent["noData"],
    )


def build_source(health: Sequence[Row]) -> Source:
    """The newest that was said and detected; every row of a stream has the same."""
    row: Row = max(health, key=lambda one: one["started_at"]) if health else dict.fromkeys(HEALTH_COLUMNS)
    return Source(
        video_codec=row["video_codec"],
        audio_codec=row["audio_codec"],
        width=row["width"],
        height=row["height"],
        declared_frame_rate=row["declared_frame_rate"],
        declared_video_kbps=row["declared_video_kbps"],
    )


def build_issues(health: Sequence[Row], source: Source) -> tuple[Issue, ...]:
    """Each kind once, with its worst value; the gravest first."""
    found: defaultdict[tuple[str, str], list[tuple[datetime, dict[str, Any]]]] = defaultdict(list)
    for row in health:
        for one in row["issues"] or ():
            found[one["name"], one["severity"]].append((row["started_at"], one))
    issues = [_issue(name, severity, seen, source) for (name, severity), seen in found.items()]
    return tuple(sorted(issues, key=_gravity))


def _gravity(issue: Issue) -> tuple[int, int, str]:
    severity = _SEVERITIES.index(issue.severity) if issue.severity in _SEVERITIES else len(_SEVERITIES)
    return severity, -issue.windows, issue.name


def _issue(name: str, severity: str, seen: list[tuple[datetime, dict[str, Any]]], source: Source) -> Issue:
    moments = [when for when, _ in seen]
    numbered = [one for _, one in seen if one["measured"] is not None]
    choose = min if name in _LOWEST_IS_WORST else max
    worst = choose(numbered, key=lambda one: float(one["measured"])) if numbered else seen[0][1]
    measured = advice.Measured(
        name=name, value=worst["measured"], threshold=worst["threshold"], unit=worst["unit"], source=source
    )
    return Issue(
        name=name,
        severity=severity,
        windows=len(seen),
        window_s=HEALTH_WINDOW_S,
        first_at=min(moments),
        last_at=max(moments),
        measured=worst["measured"],
        threshold=worst["threshold"],
        unit=worst["unit"],
        finding=advice.finding(measured),
        advice=advice.advice(measured),
    )


def _merge_factor(rows: Sequence[Row], window_s: int) -> int:
    """How many windows go into one point, so that there are at most MAX_POINTS."""
    if not rows:
        return 1
    span: int = (rows[-1]["start_ms"] - rows[0]["start_ms"]) // (window_s * 1000) + 1
    factor = max(1, -(-span // MAX_POINTS))
    # Groups begin at round times, so there may be one more of them than their length tells.
    is_one_more = factor > 1 and span // factor + 1 >= MAX_POINTS
    return factor + 1 if is_one_more else factor


def _grouped(rows: Sequence[Row], size_s: int) -> list[tuple[int, list[Row]]]:
    groups: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["start_ms"] // (size_s * 1000) * size_s * 1000].append(row)
    return sorted(groups.items())


def _point(start_ms: int, rows: Sequence[Row]) -> Point:
    starved = [row["starved_ms"] for row in rows if row["starved_ms"] is not None]
    return Point(
        started_at=_at(start_ms),
        video_bps=_whole(_weighted(rows, "video_bps")),
        audio_bps=_whole(_weighted(rows, "audio_bps")),
        total_bps=_whole(_weighted(rows, "total_bps")),
        frame_rate=_weighted(rows, "frame_rate"),
        starved_ms=sum(starved) if starved else None,
    )


def _keyframe_point(start_ms: int, rows: Sequence[Row]) -> KeyframePoint:
    intervals = [row["keyframe_interval_max_ms"] for row in rows if row["keyframe_interval_max_ms"] is not None]
    return KeyframePoint(started_at=_at(start_ms), interval_max_ms=max(intervals, default=None))


def _weighted(rows: Sequence[Row], name: str) -> float | None:
    """The mean over the time that was measured."""
    known = [(row[name], row["covered_ms"]) for row in rows if row[name] is not None and row["covered_ms"]]
    covered_ms = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / covered_ms if covered_ms > 0 else None


def _mean_interval(exact: Sequence[int], covered_ms: int, keyframes: int) -> float | None:
    if exact:
        return sum(exact) / len(exact)
    return covered_ms / keyframes if keyframes else None


def _time_by_status(health: Sequence[Row], started_at: datetime, last_seen_at: datetime) -> dict[str, int]:
    """How much of the broadcast had each status: the first and the last window are not whole."""
    spent = dict.fromkeys(("good", "ok", "bad", "noData"), 0)
    for row in health:
        start = max(row["started_at"], started_at)
        stop = min(row["started_at"] + timedelta(seconds=HEALTH_WINDOW_S), last_seen_at)
        if row["status"] in spent and stop > start:
            spent[row["status"]] += round((stop - start) / timedelta(milliseconds=1))
    return spent


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
