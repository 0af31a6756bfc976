"""Cadence: when the next message is due, by the steps of each kind's timestamps."""

from __future__ import annotations

import pytest

from headrace.protocol.messages import AUDIO, DATA, VIDEO
from headrace.stream.cadence import Cadence
from headrace.stream.log import Entry


def entry(type_id: int, timestamp_ms: int) -> Entry:
    return Entry(0, type_id, timestamp_ms, b"", 0, 0)


def due_s(cadence: Cadence, *entries: Entry, now_s: float) -> float | None:
    due = cadence.observe(entries, now_s)
    return None if due is None else due.at_s


def test_nothing_is_due_by_the_first_message_of_a_kind() -> None:
    assert Cadence().observe([entry(VIDEO, 500)], 7.0) is None


def test_the_next_picture_is_due_after_the_step_of_the_last() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 500)], 7.0)
    assert due_s(cadence, entry(VIDEO, 540), now_s=7.05) == pytest.approx(7.09)


def test_of_two_kinds_the_one_that_comes_first_is_told() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 0), entry(AUDIO, 0)], 1.0)
    cadence.observe([entry(VIDEO, 33)], 1.033)
    assert due_s(cadence, entry(AUDIO, 50), now_s=1.05) == pytest.approx(1.066)
    assert due_s(cadence, entry(VIDEO, 66), now_s=1.066) == pytest.approx(1.099)
    assert due_s(cadence, entry(VIDEO, 99), now_s=1.099) == pytest.approx(1.1)


def test_what_was_due_and_has_not_come_is_not_waited_for() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 0), entry(AUDIO, 0)], 1.0)
    cadence.observe([entry(VIDEO, 40), entry(AUDIO, 20)], 1.04)
    assert due_s(cadence, entry(VIDEO, 80), now_s=1.08) == pytest.approx(1.12)


@pytest.mark.parametrize("second_ms", [500, 499, 0, 751, 60_000])
def test_no_step_a_step_back_and_a_jump_tell_nothing(second_ms: int) -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 500)], 1.0)
    assert cadence.observe([entry(VIDEO, second_ms)], 1.04) is None


def test_timestamps_that_wrap_around_go_on() -> None:
    cadence = Cadence()
    cadence.observe([entry(AUDIO, 0xFFFFFFFF - 9)], 1.0)
    assert due_s(cadence, entry(AUDIO, 11), now_s=1.02) == pytest.approx(1.041)


def test_steps_that_were_rounded_are_taken_for_their_mean() -> None:
    cadence = Cadence()
    for number in range(60):
        cadence.observe([entry(VIDEO, number * 1000 // 30)], number / 30)
    assert due_s(cadence, entry(VIDEO, 2000), now_s=2.0) == pytest.approx(2 + 1 / 30, abs=0.0003)


def test_another_pace_is_taken_at_once() -> None:
    cadence = Cadence()
    for timestamp_ms in (0, 33, 66, 100):
        cadence.observe([entry(VIDEO, timestamp_ms)], timestamp_ms / 1000)
    assert due_s(cadence, entry(VIDEO, 140), now_s=0.14) == pytest.approx(0.18)


def test_what_is_due_is_told_with_the_last_of_its_kind() -> None:
    cadence = Cadence()
    cadence.observe([entry(VIDEO, 0), entry(AUDIO, 0)], 1.0)
    sound = entry(AUDIO, 20)
    cadence.observe([sound, entry(VIDEO, 20)], 1.02)
    due = cadence.observe([entry(VIDEO, 60)], 1.03)
    assert due is not None
    assert due.like is sound


def test_data_has_no_pace() -> None:
    cadence = Cadence()
    for timestamp_ms in (0, 40, 80):
        assert cadence.observe([entry(DATA, timestamp_ms)], timestamp_ms / 1000) is None
