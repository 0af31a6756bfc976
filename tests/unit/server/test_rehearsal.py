"""Rehearsal: a copy of a message goes the way of one, whatever it is like."""

from __future__ import annotations

from itertools import product

from headrace.server.rehearsal import Rehearsal
from headrace.stream.log import Entry, StreamLog
from tests.helpers.media_bytes import AUDIO, VIDEO, aac_frame, inter_frame, keyframe


def log_of(rehearsal: Rehearsal) -> StreamLog:
    return rehearsal._publication.stream.log


def test_a_message_of_any_publisher_arrives_whole_whatever_it_is_like() -> None:
    rehearsal = Rehearsal()  # one for all: what one leaves behind the next must not find
    payloads = [
        (AUDIO, aac_frame()),
        (AUDIO, b""),
        (AUDIO, b"\x95Opus" + bytes(50)),
        (VIDEO, inter_frame(size=5000)),
        (VIDEO, keyframe(size=64 << 10)),
        (VIDEO, b"\x27"),
        (VIDEO, b"\xa1hvc1" + bytes(200)),
        (VIDEO, b"\xa6\x01hvc1\x01" + bytes(200)),
    ]
    timestamps_ms = [0, 40, 0x7FFFFF, 0xFFFFFE, 0xFFFFFF, 0xFFFFFFFF]
    log = log_of(rehearsal)
    for (type_id, payload), timestamp_ms, chunk_size in product(payloads, timestamps_ms, [1, 128, 4096, 0x7FFFFFFF]):
        rehearsal.go(Entry(7, type_id, timestamp_ms, payload, 0, 0), chunk_size, 1.0)
        arrived = log.entry(log.tail - 1)
        assert (arrived.type_id, arrived.payload) == (type_id, payload)
    assert log.tail == len(payloads) * len(timestamps_ms) * 4


def test_what_is_kept_of_the_copies_is_bounded() -> None:
    rehearsal = Rehearsal()
    for number, payload in enumerate([keyframe(size=60_000), *[inter_frame(size=60_000)] * 300]):
        rehearsal.go(Entry(number, VIDEO, number * 33, payload, 0, 0), 4096, number * 0.033)
    log = log_of(rehearsal)
    assert log.tail == 301
    assert sum(len(entry.payload) for entry in log.entries(log.head, log.tail)) <= 1 << 20
