"""What the page and the text have in common: lines and pairs of label and value, made from `facts`. Pure."""

from __future__ import annotations

from datetime import datetime

from headrace.pipeline.report import words
from headrace.pipeline.report.facts import Audience, Audit, Destination, Ingest, Recording, Refusals, Report, Status

_STATUS_WORDS: dict[Status, str] = {
    "good": "Good",
    "warning": "Could be better",
    "bad": "Not good",
    "unknown": "Unknown",
}
_IN_STEP_MS = 100
_REASONS = {
    "unpublished": "ended by the encoder",
    "lost": "the encoder's connection was lost",
    "dropped": "dropped by the operator",
    "replaced": "replaced by another publisher",
}


def status_word(report: Report) -> str:
    return "Refused" if report.state == "refused" else _STATUS_WORDS[report.status]


def state_line(report: Report) -> str:
    """Where and when, in one line."""
    place = f"Node {words.name(report.node)}"
    if report.state == "refused":
        return f"{place}; refused {_span_words(report.started_at, report.last_seen_at)}"
    start = f"{place}, id {words.name(report.stream_id)}; {words.moment(report.started_at)}"
    if report.state == "live":
        return f"{start} UTC, still live when the tables were made ({words.clock(report.last_seen_at)} UTC)"
    same_day = report.started_at.date() == report.last_seen_at.date()
    stop = (words.clock if same_day else words.moment)(report.last_seen_at)
    if report.state == "cut_off":
        return f"{start} to {stop} UTC, when the server ended without a word"
    reason = _REASONS.get(report.end_reason or "")
    return f"{start} to {stop} UTC" + (f", {reason}" if reason else "")


def glance(report: Report) -> list[tuple[str, str]]:
    """What one wants to know first."""
    if report.state == "refused":
        refusals = report.refusals
        pairs = (
            [] if refusals is None else [("Plays refused", refusals.plays), ("Publishes refused", refusals.publishes)]
        )
        return [(label, words.count(number)) for label, number in pairs]
    found = [("Live so far" if report.state == "live" else "Live for", words.duration(report.live_ms))]
    if report.ingest is not None:
        found.append(("Mean bitrate", words.bitrate(report.ingest.total_bps_mean)))
    picture = picture_words(report)
    if picture:
        found.append(("Picture", picture))
    if report.destinations_total:
        whole = sum(not one.outages_total and bool(one.connected_ms) for one in report.destinations)
        found.append(("Destinations without outage", f"{whole} of {report.destinations_total}"))
    found.append(("Most viewers at once", words.count(report.audience.peak_viewers if report.audience else 0)))
    found.append(("Incidents", words.count(report.incidents_total)))
    return found


def picture_words(report: Report) -> str:
    source, ingest = report.source, report.ingest
    parts = []
    if source.width and source.height:
        parts.append(f"{source.width} x {source.height}")
    if ingest is not None and ingest.frame_rate_mean:
        parts.append(f"{words.rate(round(ingest.frame_rate_mean, 1))} fps")
    return ", ".join(parts)


def ingest_rows(report: Report) -> list[tuple[str, str]]:
    ingest, source = report.ingest, report.source
    if ingest is None:
        return []
    codecs = [words.name(codec) for codec in (source.video_codec, source.audio_codec) if codec]
    rows = [
        ("Codecs", " and ".join(codecs) or "unknown"),
        (
            "Bitrate",
            f"{words.bitrate(ingest.total_bps_mean)} on average, {words.bitrate(ingest.total_bps_max)} at most",
        ),
    ]
    if source.declared_video_kbps:
        rows.append(("Video bitrate announced", words.bitrate(source.declared_video_kbps * 1000)))
    if ingest.frame_rate_mean:
        announced = f"; announced {words.rate(source.declared_frame_rate)}" if source.declared_frame_rate else ""
        rows.append(("Frames a second", f"{words.rate(ingest.frame_rate_mean)} on average{announced}"))
    rows.append(("Time between keyframes", keyframe_words(ingest)))
    if ingest.av_skew_max_ms is not None:
        rows.append(("Picture against sound", _skew_words(ingest.av_skew_max_ms)))
    if ingest.drift_ms is not None:
        rows.append(("Media against the clock", _drift_words(ingest.drift_ms)))
    rows.append(("Time by status", status_times(ingest)))
    if report.publishers > 1:
        rows.append(("Times the encoder connected", words.count(report.publishers)))
    return rows


def keyframe_words(ingest: Ingest) -> str:
    if ingest.keyframe_interval_from is None or ingest.keyframe_interval_mean_ms is None:
        return "there were none"
    mean = words.seconds(ingest.keyframe_interval_mean_ms)
    most = "unknown" if ingest.keyframe_interval_max_ms is None else words.seconds(ingest.keyframe_interval_max_ms)
    how = "by the recording" if ingest.keyframe_interval_from == "recording" else "by samples, to a second"
    return f"{mean} on average, {most} at most ({how})"


def status_times(ingest: Ingest) -> str:
    named = (("good", ingest.good_ms), ("ok", ingest.ok_ms), ("bad", ingest.bad_ms), ("no data", ingest.no_data_ms))
    return ", ".join(f"{name} {words.duration(spent)}" for name, spent in named if spent) or "unknown"


def _skew_words(skew_ms: int) -> str:
    side = "ahead of" if skew_ms > 0 else "behind"
    return f"at most {words.duration(abs(skew_ms))} {side} the sound" if skew_ms else "in step"


def _drift_words(drift_ms: int) -> str:
    if abs(drift_ms) < _IN_STEP_MS:
        return "in step"
    return f"{words.duration(abs(drift_ms))} {'behind' if drift_ms > 0 else 'ahead'} at the end"


def destination_summary(one: Destination) -> str:
    """A sentence or two."""
    if not one.connected_ms:
        told = f"Never connected, in {words.counted(one.attempts, 'attempt')}."
    else:
        told = f"Connected for {words.duration(one.connected_ms)}, {words.share(one.availability)} of the time."
        if one.outages_total:
            told += f" {words.counted(one.outages_total, 'outage')}, {words.duration(one.down_ms)} in all."
    if one.missed:
        told += f" Missed {words.counted(one.missed, 'message')}."
    elif one.missed == 0 and one.connected_ms:
        told += " Missed nothing."
    if one.bytes:
        told += f" Sent {words.size(one.bytes)}."
    if one.max_queue_age_ms and one.max_queue_age_ms >= 1000:
        told += f" At most {words.duration(one.max_queue_age_ms)} behind."
    return told


def sums(proof: Audit) -> str:
    if proof.hole_messages or proof.overlap_messages:
        found = []
        if proof.hole_messages:
            found.append(f"nothing is told of {words.counted(proof.hole_messages, 'message')}")
        if proof.overlap_messages:
            found.append(f"{words.counted(proof.overlap_messages, 'message')} told twice")
        return "no: " + words.listed(found)
    if not proof.adds_up:
        return "no"
    if proof.is_final and not proof.is_accounted:
        return "no: the end is missing"
    return "yes" if proof.is_final else "yes, so far"


def audience_rows(audience: Audience) -> list[tuple[str, str]]:
    granted = words.count(audience.plays) + (
        f", {words.count(audience.open_plays)} still open" if audience.open_plays else ""
    )
    rows = [
        ("Plays with a picture", f"{granted} of {words.counted(audience.attempts, 'attempt')}"),
        ("Viewers by address", words.count(audience.unique_viewers)),
        ("Most at the same time", words.count(audience.peak_viewers)),
        ("Watch time of all", words.duration(audience.watch_ms)),
        ("Time to the first picture", startup_words(audience)),
        ("Left before a picture", words.count(audience.exits_before_video)),
        ("Plays that stood still", blocked_words(audience)),
        ("Sent to players", words.size(audience.bytes)),
    ]
    if audience.mean_viewers is not None:
        rows.insert(3, ("On average", words.rate(round(audience.mean_viewers, 1))))
    if audience.dropped_by_reason:
        skipped = [
            f"{words.count(number)} {words.name(reason)}" for reason, number in audience.dropped_by_reason.items()
        ]
        rows.append(("Messages that players skipped", ", ".join(skipped)))
    return rows


def startup_words(audience: Audience) -> str:
    if audience.startup_ms is None:
        return "unknown"
    told = f"{words.count(audience.startup_ms)} ms on average"
    if audience.startup_median_ms is not None and audience.startup_max_ms is not None:
        told += (
            f", median {words.count(audience.startup_median_ms)} ms, slowest {words.count(audience.startup_max_ms)} ms"
        )
    if audience.startup_score is not None:
        told += f" (score {words.rate(round(audience.startup_score, 1))} of 100)"
    return told


def blocked_words(audience: Audience) -> str:
    if not audience.blocked_plays:
        return "0"
    return f"{words.count(audience.blocked_plays)}, for {words.duration(audience.blocked_ms)} in all"


def refusal_line(report: Report, refusals: Refusals) -> str:
    asked = [f"{words.counted(number, one, many)}" for number, one, many in _asked(refusals) if number]
    were = "was" if refusals.plays + refusals.publishes == 1 else "were"
    when = "" if report.state == "refused" else " while it was live, or shortly before or after"
    span = _span_words(refusals.first_at, refusals.last_at)
    return f"{words.listed(asked)} of {words.name(report.stream)} {were} refused{when}: {span}."


def _span_words(first: datetime, last: datetime) -> str:
    if words.moment(first) == words.moment(last):
        return f"at {words.moment(first)} UTC"
    return f"from {words.moment(first)} to {words.moment(last)} UTC"


def _asked(refusals: Refusals) -> list[tuple[int, str, str]]:
    return [
        (refusals.plays, "play", "plays"),
        (refusals.publishes, "attempt to publish", "attempts to publish"),
    ]


def codecs(recording: Recording) -> str:
    found = [words.name(codec) for codec in (recording.video_codec, recording.audio_codec) if codec]
    return " and ".join(found) or "unknown"


def recording_state(recording: Recording) -> str:
    told = "being written" if recording.is_open else "finished"
    if recording.error is not None:
        told = f"ended early: {words.name(recording.error)}"
    return told if recording.is_in_lake else f"{told}; the file is not in the lake"
