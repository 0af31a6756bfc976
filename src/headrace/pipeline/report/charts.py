"""The charts of a page, drawn by matplotlib without a display. What is drawn comes from `facts` alone.

matplotlib is loaded here and nowhere else, and this module only for HTML: it takes a second.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.pipeline.report import words
from headrace.pipeline.report.facts import Incident, Report
from headrace.pipeline.report.ingest import scale_top
from headrace.pipeline.report.svg import INKS, fit_for_page


@contextmanager
def _quiet_import() -> Iterator[None]:
    """No word about folders that cannot be written, no backend of somebody's notebook, and no search for fonts.

    The page has fonts of its own, so those that come with matplotlib are enough to measure by. Looking at all of a
    machine's takes seconds wherever the list cannot be kept in a home, and a list without them must not be left there.
    """
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="headrace-report-") as folder:
        own = {"MPLCONFIGDIR": folder, "MPL_IGNORE_SYSTEM_FONTS": "1", "MPLBACKEND": "svg"}
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


with _quiet_import():
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

_WIDTH, _HEIGHT, _ROW_HEIGHT = 720, 170, 30  # in the page's units; it scales them to its width
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 24, 34  # room for labels at the larger size that a phone gets
_TICKS = 5
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_KEYFRAME_LIMIT_S = 4  # what platforms complain above
_LABEL_GAP = 0.03  # numbers of incidents that are nearer than this share of the width would cover each other
_NAME_CHARACTERS = 22
_STATE_INKS = {"connected": "good", "waiting": "bad", "error": "bad", "connecting": "warning", "disconnected": "idle"}


def bitrate_chart(report: Report) -> str | None:
    if report.ingest is None:
        return None
    points, window_s = report.ingest.points, report.ingest.window_s
    peak = max((point.total_bps or 0 for point in points), default=0)
    unit, name = (1_000_000, "Mbit/s") if peak >= 1_000_000 else (1000, "kbit/s")
    with _chart(report, "bitrate", f"Bitrate over time, in {name}") as (axes, done):
        moments = _middles(report, [point.started_at for point in points], window_s)
        totals = _with_gaps(moments, [_scaled(point.total_bps, unit) for point in points], window_s)
        audio = _with_gaps(moments, [_scaled(point.audio_bps, unit) for point in points], window_s)
        axes.fill_between(*totals, color=INKS["line"], alpha=0.12, linewidth=0)
        axes.plot(*totals, color=INKS["line"], linewidth=1.6)
        axes.plot(*audio, color=INKS["second"], linewidth=1.2)
        axes.set_ylim(0, scale_top([point.total_bps for point in points]) / unit * 1.12 or 1)
    return done[0]


def frame_rate_chart(report: Report) -> str | None:
    if report.ingest is None or not any(point.frame_rate for point in report.ingest.points):
        return None
    points, window_s = report.ingest.points, report.ingest.window_s
    declared = report.source.declared_frame_rate
    with _chart(report, "frames", "Frames a second over time") as (axes, done):
        moments = _middles(report, [point.started_at for point in points], window_s)
        axes.plot(
            *_with_gaps(moments, [point.frame_rate for point in points], window_s), color=INKS["line"], linewidth=1.6
        )
        highest = scale_top([point.frame_rate for point in points])
        if declared and declared < 1000:
            axes.axhline(declared, color=INKS["ink"], linewidth=1, linestyle=(0, (4, 4)), alpha=0.6)
            highest = max(highest, declared)
        axes.set_ylim(0, highest * 1.15)
    return done[0]


def keyframe_chart(report: Report) -> str | None:
    if report.ingest is None or not any(point.interval_max_ms for point in report.ingest.keyframe_points):
        return None
    points, window_s = report.ingest.keyframe_points, report.ingest.keyframe_window_s
    with _chart(report, "keyframes", "Longest time between keyframes, in seconds") as (axes, done):
        moments = _middles(report, [point.started_at for point in points], window_s)
        values = [_scaled(point.interval_max_ms, 1000) for point in points]
        axes.plot(
            *_with_gaps(moments, values, window_s),
            color=INKS["line"],
            linewidth=1.6,
            marker="o" if len(points) <= 60 else "",
            markersize=3,
        )
        axes.axhline(_KEYFRAME_LIMIT_S, color=INKS["bad"], linewidth=1, linestyle=(0, (4, 4)))
        axes.set_ylim(0, max(_KEYFRAME_LIMIT_S * 1.3, max(value or 0 for value in values) * 1.15))
    return done[0]


def destination_chart(report: Report) -> str | None:
    rows = report.destinations
    if not any(one.states for one in rows):
        return None
    height = _TOP + _BOTTOM + _ROW_HEIGHT * 2 * len(rows)
    with _chart(report, "destinations", "When each destination was connected", height) as (axes, done):
        for place, one in enumerate(rows):
            y = 2 * (len(rows) - 1 - place)
            for ink in dict.fromkeys(_STATE_INKS.values()):
                own = [span for span in one.states if _STATE_INKS.get(span.state, "idle") == ink]
                bars = [(_since(report, span.started_at), _seconds(span.ended_at - span.started_at)) for span in own]
                # Also by height, for whoever does not see the colours apart, and on paper.
                low, high = (0.1, 0.8) if ink == "good" else (0.3, 0.4)
                axes.broken_barh(bars, (y + low, high), facecolors=INKS[ink], linewidth=0)
            # A name is no formula, whatever dollar signs it has.
            label = words.name(one.name, _NAME_CHARACTERS)
            axes.text(0, y + 1.12, label, color=INKS["ink"], va="bottom", ha="left", parse_math=False)
        axes.set_ylim(0, 2 * len(rows))
        axes.set_yticks([])
    return done[0]


def audience_chart(report: Report) -> str | None:
    if report.audience is None or not report.audience.curve:
        return None
    curve = report.audience.curve
    with _chart(report, "audience", "Viewers at the same time") as (axes, done):
        moments = [_since(report, point.at) for point in curve]
        viewers = [point.viewers for point in curve]
        axes.fill_between(moments, viewers, step="post", color=INKS["line"], alpha=0.12, linewidth=0)
        axes.step(moments, viewers, where="post", color=INKS["line"], linewidth=1.6)
        axes.set_ylim(0, max(*viewers, 1) * 1.15)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    return done[0]


# What all have in common ------------------------------------------------------------------------------------------


@contextmanager
def _chart(report: Report, key: str, title: str, height: int = _HEIGHT) -> Iterator[tuple[Axes, list[str]]]:
    """Axes to draw on, from the broadcast's start to its end; afterwards the list holds the drawing."""
    done: list[str] = []
    # From matplotlib's own defaults, whatever the user's files say, and the same bytes for the same data. A warning
    # would be about a script that its font lacks; the page has fonts of its own.
    with mpl.rc_context(), warnings.catch_warnings(action="ignore"):
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": key, "font.size": 13, "path.simplify": True})
        figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
        canvas = FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        inner = (_WIDTH - _LEFT - _RIGHT) / _WIDTH, (height - _TOP - _BOTTOM) / height
        axes = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / height, *inner))
        axes.patch.set_alpha(0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, colors=INKS["ink"], pad=6)
        axes.grid(axis="y", color=INKS["faint"], linewidth=1)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        span_s = max(report.duration_ms / 1000, 1.0)
        yield axes, done
        _mark_incidents(axes, report, span_s)
        ticks, labels = time_ticks(report.started_at, span_s)
        axes.set_xticks(ticks, labels)
        axes.set_xlim(0, span_s)
        written = io.StringIO()
        canvas.print_svg(written)  # type: ignore[no-untyped-call]
    done.append(fit_for_page(written.getvalue(), key, title))


def time_ticks(started_at: datetime, span_s: float) -> tuple[list[float], list[str]]:
    """At round times of the day, few enough to be read on a phone."""
    step_s = next((step for step in _STEPS_S if span_s / step <= _TICKS), 0)
    if not step_s:
        days = int(span_s // (_TICKS * 86_400)) + 1
        step_s = days * 86_400
    origin_s = started_at.timestamp()
    first_s = -(-origin_s // step_s) * step_s
    ticks, labels = [], []
    pattern = "%H:%M:%S" if step_s < 60 else "%H:%M" if span_s <= 86_400 else "%m-%d %H:%M"
    tick_s = first_s
    while tick_s <= origin_s + span_s:
        ticks.append(tick_s - origin_s)
        labels.append(datetime.fromtimestamp(tick_s, UTC).strftime(pattern))
        tick_s += step_s
    return ticks, labels


def _mark_incidents(axes: Axes, report: Report, span_s: float) -> None:
    """A band for as long as each lasted, with its number above."""
    last_label = -1.0
    for incident in report.incidents:
        start = min(max(_since(report, incident.started_at), 0.0), span_s)
        stop = span_s if incident.ended_at is None else min(_since(report, incident.ended_at), span_s)
        ink = "bad" if incident.kind.startswith("publisher") else "warning"
        if incident.kind != "audience_exit":
            # What the encoder did is seen in the whole chart, what became of a destination only beside it.
            low, alpha = (0.0, 0.16) if ink == "bad" else (0.95, 0.8)
            axes.axvspan(start, max(stop, start + span_s * 0.002), low, color=INKS[ink], alpha=alpha, linewidth=0)
        else:
            axes.axvline(start, color=INKS[ink], linewidth=1, linestyle=(0, (1, 3)))
        if start / span_s - last_label >= _LABEL_GAP:
            _number(axes, incident, start, ink)
            last_label = start / span_s


def _number(axes: Axes, incident: Incident, start: float, ink: str) -> None:
    transform: Any = axes.get_xaxis_transform()
    axes.text(start, 1.03, str(incident.number), transform=transform, color=INKS[ink], ha="left", va="bottom")


def _middles(report: Report, starts: Sequence[datetime], window_s: int) -> list[float]:
    return [_since(report, start) + window_s / 2 for start in starts]


def _with_gaps(
    moments: Sequence[float], values: Sequence[float | None], window_s: int
) -> tuple[list[float], list[float]]:
    """A line breaks where there are no windows."""
    xs: list[float] = []
    ys: list[float] = []
    for moment, value in zip(moments, values, strict=True):
        if xs and moment - xs[-1] > window_s * 1.5:
            xs.append((moment + xs[-1]) / 2)
            ys.append(float("nan"))
        xs.append(moment)
        ys.append(float("nan") if value is None else float(value))
    return xs, ys


def _since(report: Report, moment: datetime) -> float:
    return _seconds(moment - report.started_at)


def _seconds(span: timedelta) -> float:
    return span.total_seconds()


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
