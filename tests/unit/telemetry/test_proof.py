"""The proof of delivery: whatever happens to a reader, its ranges tile the log and tell the truth of each message."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from headrace.telemetry.events import Delivery, Event
from headrace.telemetry.proof import DeliveryProof, emit_nothing

REASONS = ["lag", "evicted", "no_keyframe"]


class Told:
    """A proof, and what it has told."""

    def __init__(self, start: int = 0) -> None:
        self.events: list[Delivery] = []
        self.proof = DeliveryProof(
            self._emit, reader="destination", name="far", feed="n.1/1", stream="live/cam", stream_id="n.1", start=start
        )

    def _emit(self, event: Event) -> None:
        assert isinstance(event, Delivery)
        self.events.append(event)

    @property
    def ranges(self) -> list[tuple[int, int, str]]:
        """(start, stop, why it was skipped, or "delivered")."""
        return [(one.start, one.stop, one.reason or one.outcome) for one in self.events]


def assert_tiles(told: Told, start: int) -> int:
    """No range is empty, and each begins where the last one ended; where the last one ends."""
    ranges = told.ranges
    assert all(one < other for one, other, _ in ranges)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert not ranges or ranges[0][0] == start
    assert all((one.outcome == "delivered") is (one.reason is None) for one in told.events)
    return ranges[-1][1] if ranges else start


# --- plainly


def test_what_was_delivered_is_told_from_where_the_last_range_ended() -> None:
    told = Told(start=5)
    for position in (8, 8, 12):
        told.proof.delivered_until(position)
    assert told.ranges == [(5, 8, "delivered"), (8, 12, "delivered")]
    assert told.events[0] == Delivery(
        reader="destination",
        name="far",
        stream="live/cam",
        stream_id="n.1",
        start=5,
        stop=8,
        outcome="delivered",
        reason=None,
        feed="n.1/1",
    )


def test_skips_are_told_in_their_places_once_the_reader_is_past_them() -> None:
    told = Told()
    told.proof.skipped("lag", 3, 5)
    told.proof.skipped("no_keyframe", 7, 8)
    assert told.ranges == []
    told.proof.delivered_until(10)
    assert told.ranges == [
        (0, 3, "delivered"),
        (3, 5, "lag"),
        (5, 7, "delivered"),
        (7, 8, "no_keyframe"),
        (8, 10, "delivered"),
    ]


def test_skips_that_follow_each_other_for_one_reason_are_one_range() -> None:
    told = Told()
    for position in (3, 4, 5):
        told.proof.skipped("no_keyframe", position, position + 1)
    told.proof.skipped("lag", 6, 9)
    told.proof.skipped("lag", 10, 11)
    told.proof.delivered_until(12)
    assert [one for one in told.ranges if one[2] != "delivered"] == [
        (3, 6, "no_keyframe"),
        (6, 9, "lag"),
        (10, 11, "lag"),
    ]


def test_a_skip_that_is_only_half_passed_is_told_in_two_parts() -> None:
    told = Told()
    told.proof.skipped("lag", 2, 8)
    told.proof.delivered_until(5)
    told.proof.delivered_until(9)
    assert told.ranges == [(0, 2, "delivered"), (2, 5, "lag"), (5, 8, "lag"), (8, 9, "delivered")]


def test_a_connection_that_dies_within_a_batch_proves_only_what_was_taken() -> None:
    """The cursor had read up to 20 and skipped 12..15 on the way, but the socket took no more than 10."""
    told = Told()
    told.proof.skipped("no_keyframe", 4, 6)
    told.proof.skipped("no_keyframe", 12, 15)
    told.proof.delivered_until(10)
    told.proof.forget_after(10)
    assert told.ranges == [(0, 4, "delivered"), (4, 6, "no_keyframe"), (6, 10, "delivered")]
    # The next connection begins at 10, and finds that the log has dropped some.
    told.proof.skipped("evicted", 10, 18)
    told.proof.delivered_until(20)
    assert told.ranges[3:] == [(10, 18, "evicted"), (18, 20, "delivered")]


def test_a_connection_that_dies_within_a_skip_keeps_the_part_before() -> None:
    told = Told()
    told.proof.skipped("lag", 2, 10)
    told.proof.delivered_until(6)
    told.proof.forget_after(6)
    told.proof.delivered_until(10)
    assert told.ranges == [(0, 2, "delivered"), (2, 6, "lag"), (6, 10, "delivered")]


@pytest.mark.parametrize("reached", [0, 4, 10])
def test_the_end_accounts_for_all_that_was_not_delivered(reached: int) -> None:
    told = Told()
    told.proof.delivered_until(reached)
    told.proof.skipped("lag", 7, 9)
    told.proof.end(10, "disconnected")
    told.proof.end(10, "disconnected")
    expected = [(0, reached, "delivered"), (reached, 10, "disconnected")]
    assert told.ranges == [one for one in expected if one[0] < one[1]]


def test_a_reader_of_nothing_proves_nothing() -> None:
    told = Told()
    told.proof.delivered_until(0)
    told.proof.forget_after(0)
    told.proof.end(0, "disconnected")
    assert told.ranges == []


def test_where_telemetry_is_off_a_proof_costs_nothing_and_does_nothing() -> None:
    proof = DeliveryProof(
        emit_nothing, reader="recorder", name="recorder", feed="1/1", stream="a/b", stream_id="1", start=0
    )
    proof.delivered_until(3)
    proof.end(5, "error")


# --- any order of any calls

_POSITIONS = st.integers(0, 60)
_CALLS = st.one_of(
    st.tuples(st.just("skipped"), st.sampled_from(REASONS), _POSITIONS, st.integers(0, 20)),
    st.tuples(st.just("delivered_until"), _POSITIONS),
    st.tuples(st.just("forget_after"), _POSITIONS),
    st.tuples(st.just("end"), _POSITIONS, st.just("disconnected")),
)


@settings(max_examples=300)
@given(st.lists(_CALLS, max_size=30), st.integers(0, 30))
def test_any_calls_in_any_order_give_ranges_without_hole_or_overlap(calls: list[tuple[str, ...]], start: int) -> None:
    told = Told(start)
    for name, *arguments in calls:
        if name == "skipped":
            reason, first, length = arguments
            told.proof.skipped(reason, int(first), int(first) + int(length))
        else:
            getattr(told.proof, name)(*arguments)
        assert_tiles(told, start)
    end = assert_tiles(told, start)
    told.proof.end(100, "over")
    assert assert_tiles(told, start) == 100
    assert sum(stop - first for first, stop, _ in told.ranges) == 100 - start
    assert end <= 60 or end == start


# --- a reader as it really is


class ReaderMachine(RuleBasedStateMachine):
    """A cursor reads and skips ahead of what its connection has taken; now and then the connection dies."""

    @initialize(start=st.integers(0, 9))
    def begin(self, start: int) -> None:
        self.start = self.cursor = self.taken = start
        self.truth: dict[int, str] = {}
        self.told = Told(start)

    @rule(count=st.integers(1, 5))
    def read(self, count: int) -> None:
        self._advance(count, "delivered")

    @rule(count=st.integers(1, 5), reason=st.sampled_from(REASONS))
    def skip(self, count: int, reason: str) -> None:
        self.told.proof.skipped(reason, self.cursor, self.cursor + count)
        self._advance(count, reason)

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """The socket has taken more; the proof is told once a second."""
        self.taken = data.draw(st.integers(self.taken, self.cursor))
        self.told.proof.delivered_until(self.taken)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.take(data)
        self.told.proof.forget_after(self.taken)
        for position in range(self.taken, self.cursor):
            del self.truth[position]
        self.cursor = self.taken

    @rule(data=st.data(), more=st.integers(0, 5))
    def end(self, data: st.DataObject, more: int) -> None:
        tail = self.cursor + more
        self.die(data)
        self.told.proof.end(tail, "disconnected")
        self._advance(tail - self.cursor, "disconnected")
        self.taken = self.cursor

    @invariant()
    def every_message_was_told_of_once_and_truly(self) -> None:
        assert assert_tiles(self.told, self.start) == self.taken
        found = [reason for first, stop, reason in self.told.ranges for _ in range(first, stop)]
        assert found == [self.truth[position] for position in range(self.start, self.taken)]

    def _advance(self, count: int, outcome: str) -> None:
        for position in range(self.cursor, self.cursor + count):
            self.truth[position] = outcome
        self.cursor += count


def test_whatever_happens_to_a_reader_every_message_is_told_of_once_and_truly() -> None:
    run_state_machine_as_test(ReaderMachine, settings=settings(max_examples=80, stateful_step_count=30, deadline=None))
