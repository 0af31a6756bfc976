from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from headrace.pipeline.report.charts import time_ticks
from headrace.pipeline.report.svg import INKS, fit_for_page

DRAWING = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="720pt" height="170pt"
 viewBox="0 0 720 170"><metadata><rdf/></metadata><defs><style>*{stroke: red}</style></defs>
<g id="figure_1"><defs><path id="m1" d="M 0 0.123456 L 3.999999 -2.5"/></defs>
<g clip-path="url(#p9)"><use xlink:href="#m1" style="fill: none; stroke: #010103; stroke-width: 1.5"/></g>
<text style="font: 13px 'DejaVu Sans'; text-anchor: middle; fill: #010101">a &lt; b</text></g>
<defs><clipPath id="p9"><rect x="1" y="2" width="3.14159" height="4"/></clipPath></defs></svg>"""


def test_a_drawing_loses_what_would_touch_the_page_and_keeps_what_is_drawn() -> None:
    fitted = fit_for_page(DRAWING, "k", 'a "title" & more')
    root = ElementTree.fromstring(fitted)
    assert root.attrib == {
        "viewBox": "0 0 720 170",
        "role": "img",
        "class": "chart",
        "aria-label": 'a "title" & more',
    }
    assert "metadata" not in fitted
    assert "<style" not in fitted
    assert "figure_1" not in fitted
    assert 'id="k-m1" d="M 0 0.1 L 4 -2.5"' in fitted
    assert 'href="#k-m1" style="fill:none;stroke:var(--line);stroke-width:1.5"' in fitted
    assert 'clip-path="url(#k-p9)"' in fitted
    assert '<text style="text-anchor:middle;fill:var(--ink)">a &lt; b</text>' in fitted


def test_every_ink_is_another_colour() -> None:
    assert len(set(INKS.values())) == len(INKS)


@pytest.mark.parametrize(
    ("span_s", "labels"),
    [
        (40, ["08:00:10", "08:00:20", "08:00:30", "08:00:40"]),
        (3600, ["08:15", "08:30", "08:45", "09:00"]),
        (86_400, ["12:00", "18:00", "00:00", "06:00"]),
        (10 * 86_400, ["11-18 00:00", "11-21 00:00", "11-24 00:00"]),
    ],
)
def test_times_on_the_axis_are_round_and_few(span_s: float, labels: list[str]) -> None:
    ticks, found = time_ticks(datetime(2026, 11, 16, 8, 0, 5, tzinfo=UTC), span_s)
    assert found == labels
    assert all(0 <= tick <= span_s for tick in ticks)
