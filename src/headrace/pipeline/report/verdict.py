"""The verdict: how it went, in one sentence that somebody who never saw a table understands. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.pipeline.report import words
from headrace.pipeline.report.facts import Destination, Issue, Report, Status

_SMALL_GAP_MS = 2_000  # what a window at the very start or end may lack without anybody seeing it
_MOSTLY = 0.9  # a destination that was there for less than this is no small matter
_MAX_PHRASES = 3
_NAME_CHARACTERS = 60
_SEVERITY: tuple[Status, ...] = ("unknown", "good", "warning", "bad")


def judge(report: Report) -> tuple[Status, str]:
    """The status of the whole, and the sentence."""
    if report.state == "refused":
        return "unknown", _refused(report)
    ingest_status, troubles = _ingest(report)
    clauses: list[tuple[Status, str]] = [
        *_destinations(report),
        *_recordings(report),
        *_audience(report),
        *_end(report),
    ]
    sentence = "; ".join([_lead(report, ingest_status, troubles), *(clause for _, clause in clauses)])
    status = max([ingest_status, *(one for one, _ in clauses)], key=_SEVERITY.index)
    # A destination that got everything does not tell that the stream was good.
    return ("unknown" if status == "good" and ingest_status == "unknown" else status), sentence + "."


def _lead(report: Report, status: Status, troubles: Sequence[str]) -> str:
    lasted = words.duration(report.live_ms)
    so_far = " so far" if report.state == "live" else ""
    if status == "unknown":
        # A job that has only begun writes one table after the other.
        return f"Live for {lasted}{so_far}, but nothing was measured{' yet' if so_far else ''}"
    if status == "good":
        return f"Healthy so far, live for {lasted}" if so_far else f"Healthy for {lasted}"
    found = words.listed(troubles)
    if status == "warning":
        return f"Live for {lasted}{so_far}, with something to mend: {found}"
    return f"Live for {lasted}{so_far}, with trouble: {found}"


def _ingest(report: Report) -> tuple[Status, list[str]]:
    if report.ingest is None:
        return "unknown", []
    phrases = _interruptions(report)
    status: Status = "bad" if phrases else "good"
    told = [issue for issue in report.issues if issue.severity in ("error", "warning")]
    if any(issue.severity == "error" for issue in told):
        status = "bad"
    elif told and status == "good":
        status = "warning"
    has_stalled = any(incident.kind == "publisher_stall" for incident in report.incidents)
    for issue in told:
        if issue.name == "videoIngestionStarved" and has_stalled:
            continue
        phrases.append(_issue_phrase(issue))
    if report.ingest.no_data_ms > _SMALL_GAP_MS and not phrases:
        status = "bad"
        phrases.append(f"nothing came in for about {words.duration(report.ingest.no_data_ms)}")
    if len(phrases) > _MAX_PHRASES:
        left = len(phrases) - _MAX_PHRASES + 1
        phrases = [*phrases[: _MAX_PHRASES - 1], words.counted(left, "more issue")]
    return status, phrases


def _interruptions(report: Report) -> list[str]:
    found = []
    stalls = [one.duration_ms for one in report.incidents if one.kind == "publisher_stall"]
    if stalls:
        found.append(f"nothing came from the encoder {_times(stalls)}")
    # One that did not come back is the end of the broadcast, and told as that.
    losses = [one.duration_ms for one in report.incidents if one.kind == "publisher_lost" and one.has_recovered]
    if losses:
        found.append(f"the encoder was gone {_times(losses)}")
    return found


def _times(durations: Sequence[int | None]) -> str:
    total = sum(duration or 0 for duration in durations)
    if len(durations) == 1:
        return f"for {words.duration(total)}" if total else "from some moment on"
    return f"{len(durations):,} times, {words.duration(total)} in all"


def _issue_phrase(issue: Issue) -> str:
    phrase = _PHRASES.get(issue.name)
    return phrase(issue) if phrase is not None else f"{words.name(issue.name, _NAME_CHARACTERS)} was reported"


def _apart(issue: Issue) -> str:
    return f"keyframes came up to {words.seconds(issue.measured or 0)} apart"


def _kbps(issue: Issue) -> str:
    return words.bitrate((issue.measured or 0) * 1000)


_PHRASES: dict[str, Callable[[Issue], str]] = {
    "gopSizeLong": _apart,
    "gopSizeOver": _apart,
    "videoIngestionStarved": lambda issue: f"nothing came in for up to {words.seconds(issue.measured or 0)}",
    "videoIngestionFasterThanRealtime": lambda issue: "media came faster than real time",
    "noVideoStream": lambda issue: "there was no picture",
    "noAudioStream": lambda issue: "there was no sound",
    "bitrateLow": lambda issue: f"the video bitrate fell to {_kbps(issue)}",
    "bitrateHigh": lambda issue: f"the video bitrate rose to {_kbps(issue)}",
    "frameRateHigh": lambda issue: f"the frame rate was {words.rate(issue.measured)}",
    "audioSampleRate": lambda issue: f"the audio sample rate was {words.count(issue.measured)} Hz",
    "videoCodec": lambda issue: "the video codec is one that few platforms take",
    "audioCodec": lambda issue: "the audio codec is one that few platforms take",
}


def _destinations(report: Report) -> list[tuple[Status, str]]:
    destinations = report.destinations
    absent = [one for one in destinations if not one.connected_ms]
    down = [one for one in destinations if one.connected_ms and one.outages_total]
    behind = [one for one in destinations if one.connected_ms and not one.outages_total and one.missed]
    clauses: list[tuple[Status, str]] = []
    if absent:
        clauses.append(("bad", f"{_those(absent, report)} never connected"))
    if down:
        is_small = all((one.availability or 0) >= _MOSTLY for one in down)
        clauses.append(("warning" if is_small else "bad", _down(down, report)))
    if behind:
        missed = sum(one.missed or 0 for one in behind)
        clauses.append(
            ("warning", f"{_those(behind, report)} fell behind and missed {words.counted(missed, 'message')}")
        )
    if destinations and not clauses:
        clauses += _delivered(report)
    return clauses


def _down(down: Sequence[Destination], report: Report) -> str:
    missed = sum(one.missed or 0 for one in down)
    lost = f" and missed {words.counted(missed, 'message')}" if missed else " and missed nothing"
    if all(one.missed is None for one in down):
        lost = ""
    if len(down) == 1:
        return f"{_those(down, report)} was down for {words.duration(down[0].down_ms)}{lost}"
    parts = [
        f"{words.name(one.name, _NAME_CHARACTERS)} for {words.duration(one.down_ms)}" for one in down[:_MAX_PHRASES]
    ]
    if len(down) > _MAX_PHRASES:
        parts.append(f"{len(down) - _MAX_PHRASES} more")
    return f"{len(down)} of {report.destinations_total} destinations were down ({words.listed(parts)}){lost}"


def _delivered(report: Report) -> list[tuple[Status, str]]:
    proofs = [proof for one in report.destinations for proof in one.audits]
    is_proved = bool(proofs) and all(proof.is_accounted and not proof.skipped for proof in proofs)
    if not is_proved or any(one.missed is None for one in report.destinations):
        return []
    number = report.destinations_total
    who = "its destination" if number == 1 else "both destinations" if number == 2 else f"all {number} destinations"
    verb = "has" if number == 1 else "have"
    if report.state == "live":
        return [("good", f"{who} {verb} got every message so far")]
    return [("good", f"{who} got every message")]


def _those(some: Sequence[Destination], report: Report) -> str:
    """`one destination (youtube)`, `2 of 3 destinations (a and b)`."""
    names = [words.name(one.name, _NAME_CHARACTERS) for one in some[:_MAX_PHRASES]]
    if len(some) > _MAX_PHRASES:
        names.append(f"{len(some) - _MAX_PHRASES} more")
    if len(some) == 1:
        what = "its destination" if report.destinations_total == 1 else "one destination"
        return f"{what} ({names[0]})"
    return f"{len(some)} of {report.destinations_total} destinations ({words.listed(names)})"


def _recordings(report: Report) -> list[tuple[Status, str]]:
    failed = sum(one.error is not None for one in report.recordings)
    if not failed:
        return []
    return [("warning", "a recording ended early" if failed == 1 else f"{failed} recordings ended early")]


def _audience(report: Report) -> list[tuple[Status, str]]:
    clauses: list[tuple[Status, str]] = []
    left = sum(one.viewers_exited for one in report.incidents)
    if left:
        clauses.append(("warning", f"{words.counted(left, 'viewer')} left because of it"))
    audience = report.audience
    if audience is not None and audience.exits_before_video:
        plays = words.counted(audience.attempts, "play")
        clauses.append(("warning", f"{audience.exits_before_video:,} of {plays} ended before a picture came"))
    return clauses


def _end(report: Report) -> list[tuple[Status, str]]:
    if report.state == "cut_off":
        return [("bad", "the server ended without a word")]
    if report.state == "ended" and report.end_reason == "lost":
        return [("warning", "it ended because the encoder's connection was lost")]
    if report.state == "ended" and report.end_reason == "dropped":
        return [("good", "it ended because the operator dropped the publisher")]
    return []


def _refused(report: Report) -> str:
    refusals = report.refusals
    if refusals is None:
        return "Never published."
    asked = [words.counted(refusals.plays, "play")] if refusals.plays else []
    asked += [f"{words.counted(refusals.publishes, 'attempt')} to publish"] if refusals.publishes else []
    reason = words.name(next(iter(refusals.by_reason)), _NAME_CHARACTERS)
    were = "was" if refusals.plays + refusals.publishes == 1 else "were"
    return f"Never published: {words.listed(asked)} {were} refused ({reason})."
