"""Cadence: when the next message is due, by the steps of each kind's timestamps."""

from __future__ import annotations

import pytest

from headrace.protocol.messages import AUDIO, VIDEO
from headrace.stream.cadence import Cadence
from headrace.stream.log import Entry


def entry(type_id: int, timestamp_ms: int) -> Entry:
    return Entry(0, type_id, timestamp_ms, b"", 0, 0)


def test_nothing_is_due_by_the_first_message_of_a_kind() -> None:
    assert Cadence().observe([entry(VIDEO, 500)], 7.0) is None


def test_the_next_picture_is_due_after_the_step_of_the_last() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 500)], 7.0)
    assert cadence.observe([entry(VIDEO, 540)], 7.05) == pytest.approx(7.09)


def test_of_two_kinds_the_one_that_comes_first_is_told() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 0), entry(AUDIO, 0)], 1.0)
    cadence.observe([entry(VIDEO, 33)], 1.033)
    assert cadence.observe([entry(AUDIO, 50)], 1.05) == pytest.approx(1.066)
    assert cadence.observe([entry(VIDEO, 66)], 1.066) == pytest.approx(1.099)
    assert cadence.observe([entry(VIDEO, 99)], 1.099) == pytest.approx(1.1)


def test_what_was_due_and_has_not_come_is_not_waited_for() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 0), entry(AUDIO, 0)], 1.0)
    cadence.observe([entry(VIDEO, 40), entry(AUDIO, 20)], 1.04)
    assert cadence.observe([entry(VIDEO, 80)], 1.08) == pytest.approx(1.12)


@pytest.mark.parametrize("second_ms", [500, 499, 0, 751, 60_000])
def test_no_step_a_step_back_and_a_jump_tell_nothing(second_ms: int) -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 500)], 1.0)
    assert cadence.observe([entry(VIDEO, second_ms)], 1.04) is None


def test_timestamps_that_wrap_around_go_on() -> None:
    cadence = Cadence()
    cadence.observe([entry(AUDIO, 0xFFFFFFFF - 9)], 1.0)
    assert cadence.observe([entry(AUDIO, 11)], 1.02) == pytest.approx(1.041)
