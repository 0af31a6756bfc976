"""A day without a break, with a destination that fails all along: the page stays small and is made soon."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headrace.pipeline.report.as_json import render_json
from headrace.pipeline.report.facts import MAX_INCIDENTS, MAX_POINTS, MAX_STATES
from headrace.pipeline.report.html import render_page
from headrace.pipeline.report.text import render_text
from tests.pipeline.report.lakes import (
    Row,
    Rows,
    audience,
    audit,
    destination,
    gops,
    health_window,
    incident,
    issue,
    play,
    publish,
    recording,
    report_of,
    state,
    window,
)
from tests.pipeline.report.pages import Page

DAY_S = 86_400
DAY_MS = DAY_S * 1000
PAGE_BYTES = 1_000_000
DEADLINE_S = 60.0  # against work that grows with the length; it takes about three seconds


def a_day() -> Rows:
    # Not round, so that no two points are the same and a chart has to draw every one.
    waves = [2_000_000 + (n * 7919) % 900_001 for n in range(DAY_S // 10)]
    states: list[Row] = []
    drops: list[Row] = []
    for n in range(DAY_S // 30):
        start_s = 30 * n
        states += [
            state("flapping", "connected", start_s, start_s + 20),
            state("flapping", "waiting", start_s + 20, start_s + 29, error="gone", error_class="reset"),
            state("flapping", "connecting", start_s + 29, start_s + 30),
        ]
        drops.append(incident("destination_drop", start_s + 20, start_s + 30, destination="flapping", cause="reset"))
    found = [issue("bitrateLow", "warning", 350.0, 1250.0, "kbps")]
    files = [
        recording(
            f"/rec/live_show_20261116_080000_seg{n:03d}.flv",
            keyframes=[{"media_ms": 2000 * k, "byte_offset": k} for k in range(450)],
        )
        for n in range(96)
    ]
    return {
        "sessions": [publish(0, DAY_S), *(play(n * 8, n * 8 + 3000, first_keyframe_ms=n % 500) for n in range(10_000))],
        "stream_windows": [
            *(window(10 * n, 10, total_bps=waves[n], frame_rate=waves[n] / 1e5) for n in range(DAY_S // 10)),
            *(window(60 * n, 60, total_bps=waves[n], frame_rate=waves[n] / 1e5) for n in range(DAY_S // 60)),
        ],
        "stream_health": [
            health_window(10 * n, "ok" if n % 5 else "good", found if n % 5 else []) for n in range(8640)
        ],
        "gops": gops(DAY_S // 2),
        "destination_health": [
            destination("flapping", connected_ms=DAY_MS * 2 // 3, availability=2 / 3, last_error_class="reset"),
            *(destination(f"steady {n}") for n in range(9)),
        ],
        "destination_states": [*states, *(state(f"steady {n}", "connected", 0, DAY_S) for n in range(9))],
        "relay_audit": [audit("flapping", 3_000_000, {"no_keyframe": 40_000}), audit("recorder", 3_040_000)],
        "incidents": [*drops, incident("publisher_stall", DAY_S - 100, DAY_S - 90)],
        "audience": [audience(attempts=10_000, plays=10_000, peak_viewers=375)],
        "recordings": files,
    }


@pytest.fixture(scope="module")
def rows() -> Rows:
    return a_day()


def test_the_page_of_a_day_stays_below_a_megabyte_and_is_made_soon(tmp_path: Path, rows: Rows) -> None:
    report_of(tmp_path, rows)  # so that what is measured is the reading, not the writing of the lake
    started_s = time.monotonic()
    report = report_of(tmp_path, {}, "live/show")
    content = render_page(report)
    took_s = time.monotonic() - started_s
    assert report.duration_ms == DAY_MS
    assert report.ingest is not None
    assert (report.ingest.window_s, len(report.ingest.points)) == (60, 1440)
    assert (report.incidents_total, len(report.incidents)) == (2881, MAX_INCIDENTS)
    assert report.incidents[-1].kind == "publisher_stall", "what the encoder did is never left out for drops"
    assert report.destinations[0].outages_total == 2880
    assert len(report.destinations[0].states) <= MAX_STATES
    assert report.audience is not None
    assert len(report.audience.curve) <= MAX_POINTS
    assert len(content.encode()) < PAGE_BYTES
    assert took_s < DEADLINE_S
    assert "Of 2,881 the 100 that matter most" in Page(content).text
    assert len(render_json(report).encode()) < PAGE_BYTES
    assert len(render_text(report)) < 30_000
