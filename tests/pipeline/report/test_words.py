from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.report import words


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (12, "12 ms"),
        (400, "0.4 s"),
        (6000, "6 s"),
        (6012, "6 s"),
        (9949, "9.9 s"),
        (9950, "10 s"),
        (40_000, "40 s"),
        (65_000, "1 min 5 s"),
        (120_000, "2 min"),
        (59 * 60_000 + 59_600, "1 h 00 min"),
        (3_720_000, "1 h 02 min"),
        (86_400_000, "1 d 0 h"),
        (-1100, "-1.1 s"),
    ],
)
def test_durations_have_two_units_at_most(duration_ms: int | None, text: str) -> None:
    assert words.duration(duration_ms) == text


def test_a_hundred_per_cent_is_only_said_of_all() -> None:
    assert words.share(1.0) == "100 %"
    assert words.share(0.999999) == "99.99 %"
    assert words.share(0.5) == "50 %"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "unknown"),
        (1, "1 byte"),
        (1500, "1.5 kB"),
        (12_018_418, "12.0 MB"),
        (999_600, "1.0 MB"),
        (5e12, "5.0 TB"),
    ],
)
def test_sizes_are_decimal(number: int | None, text: str) -> None:
    assert words.size(number) == text


@given(st.text(max_size=500))
def test_a_name_is_one_line_without_anything_that_moves_a_cursor(text: str) -> None:
    shown = words.name(text)
    assert shown.isprintable()


def test_a_time_of_another_day_says_which() -> None:
    start = datetime(2026, 11, 16, 23, 59, tzinfo=UTC)
    assert words.clock(start, start) == "23:59:00"
    assert words.clock(start + timedelta(minutes=2), start) == "11-17 00:01:00"
