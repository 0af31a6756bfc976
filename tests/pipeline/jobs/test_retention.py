from __future__ import annotations

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.retention import DEFAULT_TIERS, Retention, parse_span_ms, parse_tiers
from headrace.pipeline.resolutions import WINDOWS_S

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def test_what_is_kept_by_default() -> None:
    kept = Retention()
    assert kept.tiers_ms == {1: 3 * HOUR_MS, 10: 3 * HOUR_MS, 60: 15 * DAY_MS, 300: 63 * DAY_MS, 3600: 455 * DAY_MS}
    assert kept.tiers_ms.keys() == set(WINDOWS_S)
    assert (kept.bronze_ms, kept.longest_ms) == (15 * DAY_MS, 455 * DAY_MS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "keep="),
        ("1s=3h", "also 10s"),
        (f"{DEFAULT_TIERS},2s=3h", "2s=3h"),
        (f"{DEFAULT_TIERS},1s=4h", "1s=4h"),
        ("1s", "keep=1s"),
        ("1s=x", "keep=x"),
        ("1s=3h,10s=3h,1m=15d,5m=63d,1h=-1d", "keep=-1d"),
    ],
)
def test_tiers_that_are_not_each_length_once_are_refused(text: str, found: str) -> None:
    with pytest.raises(PipelineError) as refused:
        parse_tiers(text)
    assert found in str(refused.value)


@pytest.mark.parametrize(("text", "span_ms"), [("90s", 90_000), ("5m", 300_000), ("3h", 3 * HOUR_MS), ("1d", DAY_MS)])
def test_spans(text: str, span_ms: int) -> None:
    assert parse_span_ms("keep-bronze", text) == span_ms
