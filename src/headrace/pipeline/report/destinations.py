"""How each destination did: its timeline, its outages, what it missed and the proof of it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from headrace.pipeline.report import advice, words
from headrace.pipeline.report.facts import MAX_OUTAGES, MAX_REASONS, MAX_STATES, Audit, Destination, Outage, Span
from headrace.pipeline.report.tables import Row

HEALTH_COLUMNS = (
    "destination",
    "url",
    "state",
    "live_ms",
    "connected_ms",
    "availability",
    "attempts",
    "reconnects",
    "failures",
    "failed_attempts",
    "mttr_ms",
    "time_to_connect_ms",
    "last_error",
    "last_error_class",
    "bytes",
    "messages",
    "dropped",
    "max_queue_age_ms",
)
STATE_COLUMNS = ("destination", "feed", "seq", "state", "started_at", "ended_at", "error", "error_class")
_FAR = (
    "far_candidates",
    "far_node",
    "far_stream",
    "near_frames",
    "far_frames",
    "far_missing",
    "far_duplicated",
    "far_reordered",
    "far_corrupted",
    "far_unknown",
    "far_misheaded",
    "far_unexplained",
)
_COUNTS = (
    "ingested",
    "before_start",
    "delivered",
    "skipped",
    "after_end",
    "pending",
    "hole_messages",
    "overlap_messages",
)
AUDIT_COLUMNS = ("reader", "name", "feed", "is_final", "skipped_by_reason", "is_accounted", *_COUNTS, *_FAR)

_DOWN = ("connecting", "waiting", "error")
_FAILED = ("waiting", "error")
_MILLISECOND = timedelta(milliseconds=1)


def build_destinations(
    health: Sequence[Row], states: Sequence[Row], audits: Sequence[Row], last_seen_at: datetime
) -> tuple[Destination, ...]:
    proofs = build_audits(audits)
    by_name: defaultdict[str, list[Row]] = defaultdict(list)
    for row in states:
        if row["started_at"] is not None and row["ended_at"] is not None:
            by_name[row["destination"]].append(row)
    rows = sorted(health, key=lambda row: str(row["destination"]))
    return tuple(
        _destination(row, by_name[row["destination"]], _proofs_of(row["destination"], proofs), last_seen_at)
        for row in rows
    )


def build_audits(rows: Sequence[Row]) -> tuple[Audit, ...]:
    ordered = sorted(rows, key=lambda row: (str(row["reader"]), str(row["name"]), str(row["feed"])))
    compared = {row["name"] for row in rows if row["far_candidates"] is not None}
    return tuple(_audit(row, row["name"] in compared) for row in ordered)


def _proofs_of(name: str, proofs: Sequence[Audit]) -> tuple[Audit, ...]:
    return tuple(proof for proof in proofs if proof.reader == "destination" and proof.name == name)


def _destination(row: Row, states: list[Row], proofs: tuple[Audit, ...], last_seen_at: datetime) -> Destination:
    outages = _outages(states, last_seen_at)
    missed_by_reason: Counter[str] = Counter()
    for proof in proofs:
        missed_by_reason.update(proof.skipped_by_reason)
    missed = sum(proof.skipped for proof in proofs) if proofs else None
    if not proofs and row["dropped"]:  # what its samples say, where nothing was proved
        missed_by_reason.update(row["dropped"])
        missed = missed_by_reason.total()
    has_trouble = bool(outages) or not row["connected_ms"]
    return Destination(
        name=row["destination"],
        url=row["url"] or "",
        state=row["state"] or "unknown",
        live_ms=row["live_ms"],
        connected_ms=row["connected_ms"] or 0,
        availability=row["availability"],
        attempts=row["attempts"] or 0,
        reconnects=row["reconnects"] or 0,
        failures=row["failures"] or 0,
        failed_attempts=row["failed_attempts"] or 0,
        mttr_ms=row["mttr_ms"],
        time_to_connect_ms=row["time_to_connect_ms"],
        last_error=row["last_error"],
        last_error_class=row["last_error_class"],
        bytes=row["bytes"],
        messages=row["messages"],
        max_queue_age_ms=row["max_queue_age_ms"],
        down_ms=sum(outage.duration_ms for outage in outages),
        outages_total=len(outages),
        outages=tuple(outages[:MAX_OUTAGES]),
        missed=missed,
        missed_by_reason=dict(missed_by_reason.most_common(MAX_REASONS)),
        states_total=len(states),
        states=_spans(states, last_seen_at),
        audits=proofs[:MAX_OUTAGES],
        advice=advice.destination_advice(row["last_error_class"]) if has_trouble else None,
    )


def _outages(states: Sequence[Row], last_seen_at: datetime) -> list[Outage]:
    """Times without a connection that hold a failure; of each feed by itself, in order of time."""
    by_feed: defaultdict[str, list[Row]] = defaultdict(list)
    for row in states:
        by_feed[row["feed"] or ""].append(row)
    found: list[Outage] = []
    for rows in by_feed.values():
        rows.sort(key=lambda row: (row["started_at"], row["seq"] or 0))
        run: list[Row] = []
        was_connected = False
        for row in rows:
            if row["state"] in _DOWN:
                run.append(row)
                continue
            found += _as_outage(run, row["state"] == "connected", not was_connected, last_seen_at)
            was_connected = was_connected or row["state"] == "connected"
            run = []
        found += _as_outage(run, False, not was_connected, last_seen_at)
    return sorted(found, key=lambda outage: outage.started_at)


def _as_outage(run: Sequence[Row], has_ended: bool, is_at_start: bool, last_seen_at: datetime) -> list[Outage]:
    failed = [row for row in run if row["state"] in _FAILED]
    if not failed:
        return []
    start, stop = run[0]["started_at"], min(run[-1]["ended_at"], last_seen_at)
    if stop <= start:  # it was lost at the very end
        return []
    # The first failure is why it was lost; those behind it are why it did not come back sooner.
    return [
        Outage(
            started_at=start,
            ended_at=stop,
            duration_ms=round((stop - start) / _MILLISECOND),
            has_ended=has_ended,
            is_at_start=is_at_start,
            attempts=sum(row["state"] == "connecting" for row in run),
            error=failed[0]["error"],
            error_class=failed[0]["error_class"],
        )
    ]


def _spans(states: Sequence[Row], last_seen_at: datetime) -> tuple[Span, ...]:
    """The timeline for a chart. A wait and the short attempts inside it are one span: retries would fill a page."""
    spans: list[Span] = []
    for row in sorted(states, key=lambda row: (row["started_at"], row["seq"] or 0)):
        stop = min(row["ended_at"], last_seen_at)
        if stop <= row["started_at"]:
            continue
        before = spans[-1] if spans else None
        state = row["state"]
        if before is not None and {before.state, state} <= {"waiting", "connecting"} and before.state == "waiting":
            state = "waiting"
        if before is not None and before.state == state:
            spans[-1] = Span(state=state, started_at=before.started_at, ended_at=max(before.ended_at, stop))
        else:
            spans.append(Span(state=state, started_at=row["started_at"], ended_at=stop))
    if len(spans) > MAX_STATES:  # the longest tell the most
        spans = sorted(sorted(spans, key=_length, reverse=True)[:MAX_STATES], key=lambda span: span.started_at)
    return tuple(spans)


def _length(span: Span) -> timedelta:
    return span.ended_at - span.started_at


def _audit(row: Row, has_comparison: bool) -> Audit:
    numbers: dict[str, Any] = {name: row[name] or 0 for name in _COUNTS}
    told = sum(numbers[name] for name in _COUNTS if name not in ("ingested", "overlap_messages"))
    reasons = Counter(row["skipped_by_reason"] or {})
    return Audit(
        reader=row["reader"] or "unknown",
        name=row["name"] or "",
        feed=row["feed"] or "",
        is_final=bool(row["is_final"]),
        skipped_by_reason=dict(reasons.most_common(MAX_REASONS)),
        is_accounted=bool(row["is_accounted"]),
        adds_up=numbers["ingested"] == told - numbers["overlap_messages"],
        far_end=_far_end_words(row, has_comparison),
        **numbers,
        **{name: row[name] for name in _FAR},
    )


def _far_end_words(row: Row, has_comparison: bool) -> str:
    if row["reader"] != "destination":
        return "this node's own files"
    if row["far_candidates"] is None:
        if has_comparison:
            return "compared below, together with the last time that it was attached"
        return "not compared: no recording in this lake matches it"
    if row["far_missing"] is None:
        return f"not compared: {words.counted(row['far_candidates'], 'stream')} in this lake could be it"
    place = f"{words.name(row['far_stream'])} on {words.name(row['far_node'])}"
    return f"compared with the recording of {place}: {_comparison(row)}"


def _comparison(row: Row) -> str:
    faults = []
    if row["far_missing"]:
        unexplained = row["far_unexplained"] or 0
        known = f"{words.count(unexplained)} of them unexplained" if unexplained else "all of them explained"
        faults.append(f"{words.count(row['far_missing'])} missing ({known})")
    others = ("corrupted", "duplicated", "reordered", "unknown")
    faults += [f"{words.count(row[f'far_{name}'])} {name}" for name in others if row[f"far_{name}"]]
    if row["far_misheaded"]:
        faults.append(f"{words.count(row['far_misheaded'])} behind another sequence header")
    frames = words.counted(row["near_frames"] or 0, "frame")
    return f"of {frames} {words.listed(faults)}" if faults else f"all {frames} arrived, none changed"
