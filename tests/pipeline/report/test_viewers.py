from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.report.facts import MAX_POINTS
from headrace.pipeline.report.viewers import build_audience, viewer_curve
from tests.pipeline.report.lakes import at, audience, play


def test_the_curve_steps_where_viewers_come_and_go() -> None:
    curve = viewer_curve([play(0, 10), play(5, 20), play(10, 15)], at(60))
    steps = [((point.at - at(0)).total_seconds(), point.viewers) for point in curve]
    assert steps == [(0, 1), (5, 2), (10, 2), (15, 1), (20, 0), (60, 0)]


def test_who_is_still_there_does_not_leave_at_the_end() -> None:
    curve = viewer_curve([play(0, None), play(5, 20)], at(60))
    assert curve[-1].viewers == 1


def test_a_play_of_no_length_changes_nothing() -> None:
    assert viewer_curve([play(5, 5)], at(60)) == ()


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=1500))
def test_a_curve_of_any_length_keeps_its_peak_and_never_falls_below_none(plays: list[tuple[int, int]]) -> None:
    rows = [play(start, start + length) for start, length in plays]
    exact = [sum(start <= moment < start + length for start, length in plays) for moment, _ in plays]
    curve = viewer_curve(rows, at(10_000))
    assert len(curve) <= MAX_POINTS
    assert min(point.viewers for point in curve) >= 0
    assert max(point.viewers for point in curve) == max(exact)
    assert [point.at for point in curve] == sorted(point.at for point in curve)


def test_a_thinned_curve_comes_down_again_after_a_peak() -> None:
    plays = [play(n, n + 0.5) for n in range(2000)] + [play(100, 101)] * 50
    curve = viewer_curve(plays, at(2000))
    assert len(curve) == MAX_POINTS
    high = [point for point in curve if point.viewers > 10]
    assert 1 <= len(high) <= 2


def test_startup_is_told_by_its_median_and_its_slowest_too() -> None:
    plays = [play(0, 9, first_keyframe_ms=ms, dropped={"lag": 2}) for ms in (1, 3, 50)] + [
        play(0, 9, first_keyframe_ms=None)
    ]
    found = build_audience([audience(startup_ms=18)], plays, at(60))
    assert found is not None
    assert (found.startup_ms, found.startup_median_ms, found.startup_max_ms) == (18, 3, 50)
    assert found.dropped_by_reason == {"lag": 6}
