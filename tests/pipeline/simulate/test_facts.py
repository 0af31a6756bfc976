"""What the simulation knows of the server by heart, beside what the server does: the pipeline may not ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.options import ServeOptions
from headrace.pipeline.simulate import destinations, publishers, relay, samples
from headrace.pipeline.simulate.plan import APP, make_plan
from headrace.record.names import SUFFIX, recording_stem
from headrace.relay import feed
from headrace.relay.failure import ErrorClass, Retry, RetryPolicy
from tests.pipeline.simulate.simulated import options


def test_limits_are_those_of_the_server() -> None:
    defaults = ServeOptions()
    assert defaults.publisher_grace_s * 1000 == publishers.GRACE_MS
    assert defaults.max_lag_s * 1000 == samples.MAX_LAG_MS
    assert feed.MAX_LAG_S * 1000 == destinations.RETAIN_MS
    assert feed.STALLED_S * 1000 == destinations.STALLED_MS
    assert feed.NOT_FLOWING_S * 1000 == relay.NOT_FLOWING_MS


def test_errors_are_of_the_classes_that_the_relay_has() -> None:
    assert set(destinations.ERRORS) <= {one.value for one in ErrorClass}


@pytest.mark.parametrize("attempt", [1, 2, 5, 6, 40])
@pytest.mark.parametrize("random", [0.0, 0.5, 1.0])
def test_attempts_come_as_far_apart_as_the_relays(attempt: int, random: float) -> None:
    assert destinations.delay_s(attempt, random) == RetryPolicy().delay_s(attempt, Retry.BACKOFF, random)


def test_recordings_have_the_names_that_the_recorder_gives(tmp_path: Path) -> None:
    plan = make_plan(options(tmp_path))
    for number, broadcast in enumerate(plan.channels.broadcasts):
        stem = recording_stem(APP, plan.channel_name(broadcast.channel), plan.recording_opened_ms(number) / 1000)
        assert plan.recording(number) == tmp_path / "recordings" / f"{stem}{SUFFIX}"
