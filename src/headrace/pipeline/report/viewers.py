"""Who watched, and who could not: rows of `audience` and `sessions`. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from headrace.pipeline.report.facts import MAX_POINTS, MAX_REASONS, Audience, Refusals, ViewerPoint
from headrace.pipeline.report.tables import Row

AUDIENCE_COLUMNS = (
    "attempts",
    "plays",
    "open_plays",
    "unique_viewers",
    "peak_viewers",
    "mean_viewers",
    "watch_ms",
    "startup_ms",
    "startup_score",
    "exits_before_video",
    "blocked_plays",
    "blocked_ms",
    "bytes",
)
SESSION_COLUMNS = (
    "kind",
    "started_at",
    "stopped_at",
    "last_seen_at",
    "is_open",
    "duration_ms",
    "reason",
    "first_keyframe_ms",
    "dropped",
)


def build_audience(rows: Sequence[Row], plays: Sequence[Row], last_seen_at: datetime) -> Audience | None:
    if not rows:
        return None
    row = rows[0]
    startups = [play["first_keyframe_ms"] for play in plays if play["first_keyframe_ms"] is not None]
    dropped: Counter[str] = Counter()
    for play in plays:
        dropped.update(play["dropped"] or {})
    return Audience(
        attempts=row["attempts"] or 0,
        plays=row["plays"] or 0,
        open_plays=row["open_plays"] or 0,
        unique_viewers=row["unique_viewers"] or 0,
        peak_viewers=row["peak_viewers"] or 0,
        mean_viewers=row["mean_viewers"],
        watch_ms=row["watch_ms"] or 0,
        startup_ms=row["startup_ms"],
        startup_median_ms=statistics.median(startups) if startups else None,
        startup_max_ms=max(startups, default=None),
        startup_score=row["startup_score"],
        exits_before_video=row["exits_before_video"] or 0,
        blocked_plays=row["blocked_plays"] or 0,
        blocked_ms=row["blocked_ms"] or 0,
        bytes=row["bytes"] or 0,
        dropped_by_reason=dict(dropped.most_common(MAX_REASONS)),
        curve=viewer_curve(plays, last_seen_at),
    )


def viewer_curve(plays: Sequence[Row], last_seen_at: datetime) -> tuple[ViewerPoint, ...]:
    """How many there were from each moment on. Of many changes the highest in each part is kept."""
    steps: list[tuple[datetime, int]] = []
    for play in plays:
        start, stop = play["started_at"], play["stopped_at"] or play["last_seen_at"]
        if start is None or (stop is not None and stop <= start):
            continue
        steps.append((start, 1))
        if not play["is_open"] and stop is not None:
            steps.append((stop, -1))
    steps.sort()  # at the same moment leaving comes first, as in the table
    points: list[ViewerPoint] = []
    viewers = 0
    for at, step in steps:
        viewers += step
        if points and points[-1].at == at:
            points[-1] = ViewerPoint(at=at, viewers=viewers)
        else:
            points.append(ViewerPoint(at=at, viewers=viewers))
    if points and points[-1].at < last_seen_at:
        points.append(ViewerPoint(at=last_seen_at, viewers=viewers))
    return tuple(points) if len(points) <= MAX_POINTS else _thinned(points)


def _thinned(points: Sequence[ViewerPoint]) -> tuple[ViewerPoint, ...]:
    parts = MAX_POINTS - 1
    start, span = points[0].at, points[-1].at - points[0].at
    highest: dict[int, int] = {}
    left_with: dict[int, int] = {}
    for point in points:
        part = min(parts - 1, int((point.at - start) / span * parts))
        highest[part] = max(highest.get(part, 0), point.viewers)
        left_with[part] = point.viewers
    kept: list[ViewerPoint] = []
    viewers = 0
    for part in range(parts):
        # Who was there when a part began counts in it too.
        kept.append(ViewerPoint(at=start + part * span / parts, viewers=max(viewers, highest.get(part, 0))))
        viewers = left_with.get(part, viewers)
    return (*kept, points[-1])


def build_refusals(
    sessions: Sequence[Row], between: tuple[datetime, datetime] | None, slack: timedelta = timedelta(seconds=10)
) -> Refusals | None:
    """Those of a broadcast's time (and shortly around: whoever comes too early tries again), or all."""
    rows = [
        row
        for row in sessions
        if row["kind"] in ("refused", "publish_refused")
        and row["started_at"] is not None
        and (between is None or between[0] - slack <= row["started_at"] <= between[1] + slack)
    ]
    if not rows:
        return None
    reasons = Counter(row["reason"] or "unknown" for row in rows)
    return Refusals(
        plays=sum(row["kind"] == "refused" for row in rows),
        publishes=sum(row["kind"] == "publish_refused" for row in rows),
        by_reason=dict(reasons.most_common(MAX_REASONS)),
        first_at=min(row["started_at"] for row in rows),
        last_at=max(row["started_at"] for row in rows),
    )
