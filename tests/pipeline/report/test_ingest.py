from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.pipeline.report.facts import MAX_POINTS
from headrace.pipeline.report.ingest import build_ingest, scale_top, window_for
from headrace.pipeline.tables import stream_health
from tests.pipeline.report.lakes import START, at, health_window, window

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("duration_ms", "window_s"),
    [(0, 1), (600_000, 1), (600_001, 10), (4 * HOUR_MS, 10), (4 * HOUR_MS + 1, 60), (24 * HOUR_MS, 60)],
)
def test_the_window_grows_with_the_length(duration_ms: int, window_s: int) -> None:
    assert window_for(duration_ms) == window_s


def test_a_week_is_merged_to_as_many_points_as_a_chart_has() -> None:
    rows = [window(60 * n, 60, total_bps=1000 * (n % 2)) for n in range(7 * 1440)]
    ingest = build_ingest(60, rows, rows, [], [], START, START + timedelta(days=7))
    assert ingest is not None
    assert MAX_POINTS / 2 < len(ingest.points) <= MAX_POINTS
    assert ingest.window_s == 60 * 8
    assert ingest.total_bps_mean == 500
    assert {point.total_bps for point in ingest.points} == {500}
    assert ingest.total_bps_max == 1000


def test_windows_count_by_what_they_cover() -> None:
    rows = [window(0, 10, total_bps=1000, covered_ms=10_000), window(10, 10, total_bps=4000, covered_ms=2000)]
    ingest = build_ingest(10, rows, rows, [], [], START, at(12))
    assert ingest is not None
    assert ingest.total_bps_mean == (10 * 1000 + 2 * 4000) / 12


def test_without_recordings_keyframes_are_told_by_samples() -> None:
    rows = [window(n, 10, keyframes=2, keyframe_interval_max_ms=5000) for n in (0, 10)]
    ingest = build_ingest(10, rows, rows, [], [], START, at(20))
    assert ingest is not None
    assert (ingest.keyframe_interval_mean_ms, ingest.keyframe_interval_max_ms) == (5000, 5000)
    assert ingest.keyframe_interval_from == "samples"


def test_sound_alone_has_no_keyframes_and_no_interval() -> None:
    rows = [window(0, 10, frames=0, frame_rate=0.0, keyframes=0, keyframe_interval_max_ms=None)]
    ingest = build_ingest(10, rows, rows, [], [], START, at(10))
    assert ingest is not None
    assert (ingest.keyframe_interval_mean_ms, ingest.keyframe_interval_from) == (None, None)


def test_time_by_status_is_no_longer_than_the_broadcast() -> None:
    rows = [health_window(0, "good"), health_window(10, "bad"), health_window(20, "noData")]
    ingest = build_ingest(1, [window(4, 1)], [], rows, [], at(4), at(21.5))
    assert ingest is not None
    assert (ingest.good_ms, ingest.bad_ms, ingest.no_data_ms) == (6000, 10_000, 1500)


def test_a_burst_does_not_press_the_rest_to_the_floor() -> None:
    assert scale_top([100.0] * 99 + [2000.0]) == pytest.approx(160)
    assert scale_top([100.0] * 99 + [200.0]) == 200
    assert scale_top([None, 5.0]) == 5
    assert scale_top([None]) == scale_top([]) == 0


def test_what_is_said_of_announced_bitrates_is_what_is_measured() -> None:
    """The advice says "half" and "one and a half times"."""
    assert stream_health.OFF_BY == 0.5
