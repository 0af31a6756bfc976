"""A report as one page that needs nothing else: no network, no script, no font, in light and in dark. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace import __version__
from headrace.pipeline.report import advice, charts, phrases, words
from headrace.pipeline.report.choosing import Broadcast
from headrace.pipeline.report.facts import Destination, Ingest, Report
from headrace.pipeline.report.ingest import scale_top

_TEMPLATES = Path(__file__).with_name("templates")
_OVER_TIME_ROWS = 60
_SHOWN_REFUSALS = 50
_SHOWN_INCIDENTS = 12  # so that the charts are not far down; the rest unfolds

_FILTERS = {
    "bitrate": words.bitrate,
    "clock": words.clock,
    "codecs": phrases.codecs,
    "count": words.count,
    "counted": words.counted,
    "duration": words.duration,
    "error_words": advice.error_words,
    "moment": words.moment,
    "name": words.name,
    "rate": words.rate,
    "recording_state": phrases.recording_state,
    "size": words.size,
    "skip_words": advice.skip_words,
    "sums": phrases.sums,
}


def render_page(report: Report, index_link: str | None = None) -> str:
    """The page of one broadcast. `index_link` leads back to the day's index, where there is one."""
    drawings = {
        "bitrate": charts.bitrate_chart(report),
        "frames": charts.frame_rate_chart(report),
        "keyframes": charts.keyframe_chart(report),
        "destinations": charts.destination_chart(report),
        "audience": charts.audience_chart(report),
    }
    return _render(
        "page.html",
        report=report,
        index_link=index_link,
        # Ours, and names in them are escaped by the XML writer; all else the template escapes.
        charts={name: Markup(drawing) if drawing else None for name, drawing in drawings.items()},  # noqa: S704
        captions=_captions(report),
        status_word=phrases.status_word(report),
        shown_incidents=_SHOWN_INCIDENTS,
        state_line=phrases.state_line(report),
        glance=phrases.glance(report),
        ingest_rows=phrases.ingest_rows(report),
        over_time=_over_time(report.ingest),
        destination_views=[_view(one) for one in report.destinations],
        proofs=[*(proof for one in report.destinations for proof in one.audits), *report.recorders],
        audience_rows=phrases.audience_rows(report.audience) if report.audience else [],
        refusal_line=phrases.refusal_line(report, report.refusals) if report.refusals else "",
    )


def render_index(day: str, entries: Sequence[tuple[str, Report]], refusals: Sequence[Broadcast]) -> str:
    """The page that leads to a day's pages."""
    return _render(
        "index.html",
        day=day,
        entries=[(link, report, phrases.status_word(report)) for link, report in entries],
        refusals=refusals[:_SHOWN_REFUSALS],
        more_refusals=max(len(refusals) - _SHOWN_REFUSALS, 0),
    )


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(version=__version__, **values) + "\n"


@cache
def _environment() -> Environment:
    """Made once: a day has many pages, and templates are compiled."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(_FILTERS)
    style = (_TEMPLATES / "style.css").read_text("utf-8")
    environment.globals["style"] = Markup(style)  # noqa: S704 - our own file
    return environment


def _captions(report: Report) -> dict[str, str | Markup]:
    captions: dict[str, str | Markup] = {
        "bitrate": "",
        "frames": "",
        "keyframes": "",
        "destinations": _keys("Each destination:", ("good", "connected"), ("warning", "connecting"), ("bad", "down")),
        "audience": "Viewers at the same time",
    }
    ingest = report.ingest
    if ingest is None:
        return captions
    window = f"per window of {words.duration(ingest.window_s * 1000)}"
    keyed = f"per window of {words.duration(ingest.keyframe_window_s * 1000)}"
    rates, frames = [point.total_bps for point in ingest.points], [point.frame_rate for point in ingest.points]
    unit = "Mbit/s" if max((rate or 0 for rate in rates), default=0) >= 1_000_000 else "kbit/s"
    declared = report.source.declared_frame_rate
    announced = f"; dashed: what the encoder announced ({words.rate(declared)})" if declared else ""
    bitrate = f"Bitrate in {unit}, {window}{_cut(rates, words.bitrate)}:"
    captions["bitrate"] = _keys(bitrate, ("line", "all"), ("second", "audio"))
    captions["frames"] = f"Frames a second, {window}{_cut(frames, words.rate)}{announced}"
    captions["keyframes"] = (
        f"Longest time between keyframes in seconds, {keyed}; dashed: 4 s, above which platforms complain"
    )
    return captions


def _cut(values: Sequence[float | None], spelled: Callable[[float | None], str]) -> str:
    highest = max((value for value in values if value is not None), default=0)
    return f" (cut off above; the peak is {spelled(highest)})" if scale_top(values) < highest else ""


def _keys(text: str, *inks: tuple[str, str]) -> Markup:
    """A caption with a patch of each colour in front of its name."""
    patches = [Markup('<span class="key" style="background:var(--{})"></span>{}').format(*ink) for ink in inks]
    return Markup("{} {}").format(text, Markup(" ").join(patches))


def _view(one: Destination) -> dict[str, object]:
    return {"fact": one, "summary": phrases.destination_summary(one)}


def _over_time(ingest: Ingest | None) -> list[dict[str, object]]:
    """Every n-th window of the charts, as a table for whoever cannot see them."""
    if ingest is None:
        return []
    every = -(-len(ingest.points) // _OVER_TIME_ROWS) or 1
    intervals = [(point.started_at, point.interval_max_ms) for point in ingest.keyframe_points]
    rows: list[dict[str, object]] = []
    place = 0
    for point in ingest.points[::every]:
        while place + 1 < len(intervals) and intervals[place + 1][0] <= point.started_at:
            place += 1
        interval_ms = intervals[place][1] if intervals else None
        rows.append(
            {
                "at": point.started_at,
                "total_bps": point.total_bps,
                "audio_bps": point.audio_bps,
                "frame_rate": point.frame_rate,
                "interval": "none" if interval_ms is None else words.seconds(interval_ms),
            }
        )
    return rows
