"""A report as text: 80 columns at most, small charts of block characters, colours only on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import datetime

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from headrace.pipeline.report import advice, phrases, words
from headrace.pipeline.report.choosing import Broadcast
from headrace.pipeline.report.facts import Audit, Destination, Report
from headrace.pipeline.report.ingest import scale_top

WIDTH = 80
_CHART = WIDTH - 26
_KEPT_SPACE = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=[0-9]) (?=(?:ms|s|min|h|d|%|kbit/s|Mbit/s|kB|MB|GB)(?![a-z]))")
_BLOCKS = " ▁▂▃▄▅▆▇█"
_STYLES = {"good": "green", "warning": "yellow", "bad": "red", "unknown": "dim", "error": "red", "info": "dim"}
_STATE_MARKS = {"connected": "█", "connecting": "·", "waiting": "░", "error": "░", "disconnected": " "}
_SHOWN_OUTAGES = 5
_SHOWN_INCIDENTS = 20


def render_text(report: Report, *, is_terminal: bool = False) -> str:
    console = _console(is_terminal)
    _Writer(console).write(report)
    return _written(console)


def render_texts(reports: Sequence[Report], *, is_terminal: bool = False) -> str:
    """One after the other."""
    rule = "═" * WIDTH + "\n"
    return rule.join(render_text(report, is_terminal=is_terminal) for report in reports)


def render_list(broadcasts: Sequence[Broadcast], *, is_terminal: bool = False) -> str:
    """What `--list` shows: the id is what chooses one."""
    console = _console(is_terminal)
    for one in broadcasts:
        length = words.duration((one.last_seen_at - one.started_at).total_seconds() * 1000)
        state = {"live": "live", "ended": "", "cut_off": "cut off", "refused": "refused"}[one.state]
        line = Text(f"{words.moment(one.started_at)}  {length:>10}  {state:<8}")
        line.append(words.name(one.stream), style="bold")
        console.print(line, overflow="fold")
        if one.stream_id is not None:
            console.print(Text(f"    {words.name(one.stream_id)}", style="dim"), overflow="fold")
    return _written(console)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The highest of each part, from 0 to the top of the scale; a part without values is a dot."""
    if not values:
        return ""
    top = scale_top(values) or 1
    marks = []
    for place in range(width):
        start = place * len(values) // width
        part = values[start : max((place + 1) * len(values) // width, start + 1)]
        known = [value for value in part if value is not None]
        if known:
            share = min(max(known) / top, 1)
            marks.append(_BLOCKS[max(1, round(share * 8))] if share > 0 else "_")
        else:
            marks.append("·")
    return "".join(marks)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most so many cells. Numbers stay with their units, words that are too long are cut."""
    lines: list[str] = []
    line = ""
    for word in _UNIT.sub(_KEPT_SPACE, text).split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        pieces = chop_cells(word, width) or [""]
        lines += pieces[:-1]
        line = pieces[-1]
    return [one.replace(_KEPT_SPACE, " ") for one in [*lines, line]]


def _console(is_terminal: bool) -> Console:
    return Console(
        file=io.StringIO(),
        width=WIDTH,
        force_terminal=is_terminal,
        color_system="standard" if is_terminal else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )


def _written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


class _Writer:
    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, report: Report) -> None:
        self._line(words.name(report.stream), "bold")
        self._line(phrases.state_line(report), "dim")
        self._line()
        self._line(f"{phrases.status_word(report)}. {report.verdict}", _STYLES[report.status])
        if report.state == "refused":
            self._refusals(report)
            return
        self._mend(report)
        self._incidents(report)
        self._ingest(report)
        self._destinations(report)
        self._audience(report)
        self._refusals(report)
        self._recordings(report)

    def _line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        for line in wrap(text, WIDTH - indent):
            self._print(Text(" " * indent).append(line, style=style))

    def _raw(self, line: str, style: str = "") -> None:
        self._print(Text(line, style=style))

    def _print(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ignore", soft_wrap=True)

    def _heading(self, text: str) -> None:
        self._line()
        self._line(text, "bold")

    def _pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        width = max((cell_len(label) for label, _ in pairs), default=0) + 2
        for label, value in pairs:
            first, *rest = wrap(value, WIDTH - 2 - width)
            self._print(Text("  ").append(label.ljust(width), style="dim").append(first))
            for more in rest:
                self._line(more, "", 2 + width)

    def _mend(self, report: Report) -> None:
        self._heading("What to mend")
        if not report.issues:
            self._line(
                "Nothing: no measure crossed a threshold." if report.ingest else "Unknown: nothing was measured.", "", 2
            )
        for issue in report.issues:
            mark = {"error": "!", "warning": "-"}.get(issue.severity, "·")
            self._line(f"{mark} {issue.finding}", _STYLES.get(issue.severity, ""), 2)
            if issue.advice:
                self._line(issue.advice, "", 4)
        for one in report.destinations:
            if one.advice:
                self._line(
                    f"- Destination {words.name(one.name)}: {advice.error_words(one.last_error_class)}.", "yellow", 2
                )
                self._line(one.advice, "", 4)

    def _incidents(self, report: Report) -> None:
        self._heading(f"Incidents ({words.count(report.incidents_total)})")
        if not report.incidents:
            self._line("None.", "", 2)
        for one in report.incidents[:_SHOWN_INCIDENTS]:
            self._line(
                f"{one.number}. {words.clock(one.started_at, report.started_at)}  {one.what}. Cause: {one.why}.", "", 2
            )
        left = report.incidents_total - _SHOWN_INCIDENTS
        if left > 0:
            self._line(f"and {words.count(left)} more", "", 2)

    def _ingest(self, report: Report) -> None:
        self._heading("How it came in")
        ingest = report.ingest
        if ingest is None:
            self._line("No samples of the publisher are in the tables.", "", 2)
            return
        rates = [point.total_bps for point in ingest.points]
        self._chart("bitrate", rates, words.bitrate(max((one or 0 for one in rates), default=0)))
        frames = [point.frame_rate for point in ingest.points]
        if any(frames):
            self._chart("frames/s", frames, words.rate(max(one or 0 for one in frames)))
        apart = [point.interval_max_ms for point in ingest.keyframe_points]
        if any(apart):
            self._chart("keyframes", apart, words.seconds(max(one or 0 for one in apart)))
        self._scale(report.started_at, report.last_seen_at)
        self._pairs(phrases.ingest_rows(report))

    def _chart(self, label: str, values: Sequence[float | None], top: str) -> None:
        self._raw(f"  {label:<9} {sparkline(values, _CHART)} {top}")

    def _scale(self, start: datetime, stop: datetime) -> None:
        first, last = words.clock(start), words.clock(stop, start)
        self._raw(f"  {'':<9} {first}{last:>{_CHART - len(first)}}", "dim")

    def _destinations(self, report: Report) -> None:
        self._heading(f"Destinations ({report.destinations_total})")
        if not report.destinations:
            self._line("None: it was not relayed.", "", 2)
        for one in report.destinations:
            self._destination(report, one)
        for proof in report.recorders:
            self._line(f"{words.name(proof.name)}: {_proof_line(proof)}", "", 2)

    def _destination(self, report: Report, one: Destination) -> None:
        self._line(words.name(one.name), "bold", 2)
        if one.states:
            self._raw(f"    {_timeline(report, one)}")
        self._line(phrases.destination_summary(one), "", 4)
        for reason, number in one.missed_by_reason.items():
            self._line(f"{words.count(number)} missed: {advice.skip_words(reason)} ({words.name(reason)})", "", 4)
        for outage in one.outages[:_SHOWN_OUTAGES]:
            start = words.clock(outage.started_at, report.started_at)
            stop = words.clock(outage.ended_at, report.started_at) if outage.has_ended else "the end"
            lasted, why = words.duration(outage.duration_ms), advice.error_words(outage.error_class)
            self._line(f"down {start} to {stop} ({lasted}): {why}", "", 4)
        if one.outages_total > _SHOWN_OUTAGES:
            self._line(f"and {words.count(one.outages_total - _SHOWN_OUTAGES)} more outages", "", 4)
        for proof in one.audits:
            self._line(f"proof: {_proof_line(proof)}; {proof.far_end}", "", 4)

    def _audience(self, report: Report) -> None:
        self._heading("Audience")
        audience = report.audience
        if audience is None:
            self._line("Nobody played it from this node.", "", 2)
            return
        if audience.curve:
            self._chart("viewers", _viewers_by_part(report), f"{words.count(audience.peak_viewers)}")
            self._scale(report.started_at, report.last_seen_at)
        self._pairs(phrases.audience_rows(audience))

    def _refusals(self, report: Report) -> None:
        if report.refusals is None:
            return
        self._heading("Refused")
        self._line(phrases.refusal_line(report, report.refusals), "", 2)
        for reason, number in report.refusals.by_reason.items():
            self._line(f"{words.count(number)} times {words.name(reason)}", "", 2)

    def _recordings(self, report: Report) -> None:
        self._heading(f"Recordings ({words.count(report.recordings_total)})")
        if not report.recordings:
            self._line("None: it was not recorded.", "", 2)
        for one in report.recordings:
            self._line(words.name(one.file_name), "", 2)
            size = [] if one.bytes is None else [words.size(one.bytes)]
            facts = [words.duration(one.duration_ms), *size, phrases.codecs(one), phrases.recording_state(one)]
            self._line(", ".join(facts), "", 4)


def _proof_line(proof: Audit) -> str:
    parts = [
        f"{words.count(proof.delivered)} delivered",
        f"{words.count(proof.skipped)} skipped",
    ]
    if proof.before_start:
        parts.append(f"{words.count(proof.before_start)} before it was there")
    if proof.after_end:
        parts.append(f"{words.count(proof.after_end)} after it was gone")
    if proof.pending:
        parts.append(f"{words.count(proof.pending)} on their way")
    total = f"{' + '.join(parts)} = {words.count(proof.ingested)} that came in"
    answer = phrases.sums(proof)
    return total if answer.startswith("yes") else f"{total}? Adds up: {answer}"


def _timeline(report: Report, one: Destination) -> str:
    """A mark for each part of the time: the state it was in the longest."""
    width = WIDTH - 6
    span = (report.last_seen_at - report.started_at) / width
    if not span:
        return ""
    marks = []
    for place in range(width):
        start = report.started_at + place * span
        stop = start + span
        best, mark = 0.0, " "
        for state in one.states:
            shared = (min(state.ended_at, stop) - max(state.started_at, start)).total_seconds()
            if shared > best:
                best, mark = shared, _STATE_MARKS.get(state.state, " ")
        marks.append(mark)
    return "".join(marks)


def _viewers_by_part(report: Report) -> list[float | None]:
    """The most in each part of the broadcast."""
    assert report.audience is not None
    curve = report.audience.curve
    width = _CHART
    span_s = max((report.last_seen_at - report.started_at).total_seconds(), 0.001)
    parts: list[float | None] = [0.0] * width
    for place, point in enumerate(curve):
        stop = curve[place + 1].at if place + 1 < len(curve) else report.last_seen_at
        first = int((point.at - report.started_at).total_seconds() / span_s * width)
        last = int((stop - report.started_at).total_seconds() / span_s * width)
        for part in range(max(first, 0), min(max(last, first) + 1, width)):
            parts[part] = max(parts[part] or 0.0, float(point.viewers))
    return parts
