"""The log: what it keeps, for how long, and where it lets a reader start."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import media
from headrace.stream.log import NO_POSITION, Entry, LogLimits, StreamLog, encode_entries
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AAC_CONFIG_44100,
    AUDIO,
    AVC_CONFIG,
    AVC_CONFIG_SMALL,
    AVC_END,
    CUE_POINT,
    DATA,
    HDR_METADATA,
    HDR_METADATA_BRIGHTER,
    METADATA,
    METADATA_RETITLED,
    VIDEO,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
    repeated,
    track_config,
    track_inter_frame,
    track_keyframe,
)

WRAP = 1 << 32
TRIM_BATCH = 32  # this many messages may be older than asked: they are dropped together


def make_log(sent: Iterable[Sent] = (), *, limits: LogLimits | None = None) -> StreamLog:
    log = StreamLog(limits or LogLimits())
    for message in sent:
        log.append(*message)
    return log


def kept(log: StreamLog) -> list[Entry]:
    return list(log.entries(log.head, log.tail))


def start_payloads(log: StreamLog) -> list[bytes]:
    return [entry.payload for entry in log.start_point().preface]


# --- positions and what is kept


def test_positions_count_up_and_an_entry_is_found_by_its_own() -> None:
    log = StreamLog(LogLimits())
    entries = [log.append(*sent) for sent in [*preamble(), *frames(20)]]
    assert [entry.position for entry in entries] == list(range(43))
    assert log.tail == 43
    assert all(log.entry(entry.position) is entry for entry in entries)
    assert log.total_bytes == log.kept_bytes == sum(len(entry.payload) for entry in entries)


def test_a_position_is_never_used_again_after_the_log_was_trimmed() -> None:
    log = StreamLog(LogLimits(max_messages=5))
    positions = [log.append(*sent).position for sent in frames(200)]
    assert positions == list(range(400))
    assert (log.head, log.tail) == (395, 400)
    assert [entry.position for entry in kept(log)] == [395, 396, 397, 398, 399]


@pytest.mark.parametrize(
    ("has_video", "has_audio"),
    [(True, True), (False, True), (True, False)],
    ids=["video and audio", "audio only", "video only"],
)
def test_a_stream_is_kept_for_the_time_asked_whatever_it_carries(has_video: bool, has_audio: bool) -> None:
    log = make_log(limits=LogLimits(retain_s=2.0))
    for sent in frames(2500, gop=25, has_video=has_video, has_audio=has_audio):  # 100 s
        log.append(*sent)
        too_old = [entry for entry in kept(log) if entry.media_ms < log.media_ms - 2000]
        assert len(too_old) <= TRIM_BATCH
    assert log.media_ms - log.entry(log.head).media_ms >= 2000 - 40
    assert log.kept_bytes == sum(len(entry.payload) for entry in kept(log)) < log.total_bytes


def test_a_flood_of_tiny_messages_is_held_by_the_message_cap() -> None:
    log = make_log(limits=LogLimits(max_messages=100))
    for number in range(10_000):
        log.append(AUDIO, 0, b"\xaf\x01" if number % 2 else b"")  # time stands still: only the cap can help
        assert log.tail - log.head <= 100
    assert log.tail == 10_000


def test_large_messages_are_held_by_the_byte_cap() -> None:
    log = make_log(limits=LogLimits(max_bytes=10_000))
    for number in range(300):
        log.append(VIDEO, number, keyframe(number, 999) if number % 20 == 0 else inter_frame(number, 999))
        assert log.kept_bytes <= 10_000
    assert log.tail - log.head == 10


def test_one_message_larger_than_the_cap_is_still_there_for_its_readers() -> None:
    log = make_log(limits=LogLimits(max_bytes=1000))
    log.append(VIDEO, 0, inter_frame(0, 900))
    log.append(VIDEO, 40, keyframe(1, 5000))
    assert [entry.position for entry in kept(log)] == [1]
    log.append(VIDEO, 80, inter_frame(2, 100))
    assert [entry.position for entry in kept(log)] == [2]


def test_a_log_that_had_grown_to_a_cap_shrinks_to_the_time_asked_when_its_long_group_of_pictures_is_over() -> None:
    log = make_log(frames(600, gop=1000, has_audio=False), limits=LogLimits(retain_s=2.0, max_messages=500))
    assert log.newest_keyframe is None
    assert log.tail - log.head <= 51 + TRIM_BATCH
    for sent in frames(100, start_ms=24_000, gop=10, has_audio=False):
        log.append(*sent)
    assert log.tail - log.head <= 51 + TRIM_BATCH


def test_the_newest_group_of_pictures_stays_beyond_the_time_asked() -> None:
    log = make_log([*preamble(), *frames(500, gop=1000)], limits=LogLimits(retain_s=2.0))  # 20 s, one keyframe
    assert log.newest_keyframe is not None
    assert log.newest_keyframe.position == 3
    assert log.head <= 3
    assert log.start_point().position == 3


def test_the_group_of_pictures_before_the_newest_goes_when_its_time_is_over() -> None:
    log = make_log(frames(500, gop=1000), limits=LogLimits(retain_s=2.0))
    for sent in frames(60, start_ms=20_000, first_number=500, gop=1000):
        log.append(*sent)
    assert log.newest_keyframe is not None
    assert log.newest_keyframe.position == 1000
    assert log.head > 900


@pytest.mark.parametrize("limits", [LogLimits(max_messages=50), LogLimits(max_bytes=2000)], ids=["messages", "bytes"])
def test_a_group_of_pictures_beyond_a_cap_is_no_longer_a_start_point(limits: LogLimits) -> None:
    log = make_log([*preamble(), *frames(100, gop=1000)], limits=limits)
    assert log.newest_keyframe is None
    assert log.start_point().position == log.tail
    assert start_payloads(log) == [METADATA, AVC_CONFIG, AAC_CONFIG]


def test_video_that_stopped_long_ago_pins_nothing() -> None:
    log = make_log([*preamble(), *frames(10)], limits=LogLimits(retain_s=2.0))
    for sent in frames(4000, start_ms=400, has_video=False, step_ms=20):  # 80 s of sound
        log.append(*sent)
    assert log.newest_keyframe is None
    assert log.media_ms - log.entry(log.head).media_ms < 3000


# --- the start point


def test_an_empty_log_starts_at_its_end() -> None:
    point = StreamLog(LogLimits()).start_point()
    assert (point.position, point.preface) == (0, ())


def test_a_start_is_at_the_newest_keyframe_with_metadata_first_then_sequence_headers() -> None:
    sent = [
        Sent(AUDIO, 0, AAC_CONFIG),
        Sent(VIDEO, 0, AVC_CONFIG),
        Sent(DATA, 0, METADATA),  # last on the wire, first for a joiner
        *frames(25, start_ms=5000, gop=10),
    ]
    log = make_log(sent)
    point = log.start_point()
    assert log.entry(point.position).payload == keyframe(20, 120)
    assert [entry.payload for entry in point.preface] == [METADATA, AAC_CONFIG, AVC_CONFIG]


def test_headers_repeated_for_a_joiner_take_the_timestamp_of_the_keyframe_and_metadata_takes_zero() -> None:
    log = make_log([*preamble(), *frames(5, start_ms=3_600_000)])
    preface = log.start_point().preface
    assert [Sent(entry.type_id, entry.timestamp_ms, entry.payload) for entry in preface] == repeated(3_600_000)
    assert [entry.position for entry in preface] == [NO_POSITION] * 3


def test_the_same_start_point_serves_every_joiner_until_it_moves() -> None:
    log = make_log([*preamble(), *frames(5)])
    point = log.start_point()
    log.append(VIDEO, 200, inter_frame(5))
    assert log.start_point() is point  # so that its bytes are made once
    log.append(VIDEO, 240, keyframe(6))
    assert log.start_point() is not point


def test_audio_alone_starts_at_the_newest_message_with_its_header_at_that_time() -> None:
    sent = [Sent(AUDIO, 0, AAC_CONFIG), *frames(50, has_video=False)]
    log = make_log(sent)
    point = log.start_point()
    assert point.position == log.tail
    assert [(entry.payload, entry.timestamp_ms) for entry in point.preface] == [(AAC_CONFIG, 49 * 40)]
    log.append(AUDIO, 2000, aac_frame(50))
    assert log.start_point().position == log.tail
    assert log.start_point().preface[0].timestamp_ms == 2000


def test_a_sequence_header_that_differs_clears_the_start_point_until_the_next_keyframe() -> None:
    log = make_log([*preamble(), *frames(5)])
    log.append(VIDEO, 200, AVC_CONFIG_SMALL)
    assert log.start_point().position == log.tail
    log.append(VIDEO, 240, inter_frame(6))
    assert log.start_point().position == log.tail
    entry = log.append(VIDEO, 280, keyframe(7))
    assert log.newest_keyframe is entry
    assert log.start_point().position == entry.position
    assert start_payloads(log) == [METADATA, AVC_CONFIG_SMALL, AAC_CONFIG]


def test_an_identical_sequence_header_changes_nothing() -> None:
    log = make_log([*preamble(), *frames(5)])
    point = log.start_point()
    for payload in (AVC_CONFIG, METADATA):
        log.append(VIDEO if payload is AVC_CONFIG else DATA, 200, payload)
        assert log.start_point() is point
    assert log.newest_keyframe is not None


def test_the_first_sequence_header_after_a_keyframe_does_not_clear_it() -> None:
    # A second track that joins, or a codec that needs no header: the keyframe before it is as good as it was.
    log = make_log([*preamble(), Sent(VIDEO, 0, keyframe(0)), Sent(VIDEO, 10, track_config(1))])
    assert log.newest_keyframe is not None


def test_changed_sound_and_metadata_reach_a_joiner_at_their_own_place_in_the_log() -> None:
    log = make_log([*preamble(), Sent(VIDEO, 0, keyframe(0))])
    log.append(AUDIO, 40, AAC_CONFIG_44100)
    log.append(DATA, 40, METADATA_RETITLED)
    assert log.start_point().position == 3
    assert start_payloads(log) == [METADATA, AVC_CONFIG, AAC_CONFIG]  # of the keyframe; the new ones lie behind it
    log.append(VIDEO, 80, keyframe(1))
    assert start_payloads(log) == [METADATA_RETITLED, AVC_CONFIG, AAC_CONFIG_44100]


def test_changed_hdr_metadata_is_no_sequence_header_and_keeps_the_start_point() -> None:
    log = make_log([*preamble(), Sent(VIDEO, 0, HDR_METADATA), Sent(VIDEO, 0, keyframe(0))])
    log.append(VIDEO, 40, HDR_METADATA_BRIGHTER)
    assert log.start_point().position == 4
    log.append(VIDEO, 80, keyframe(1))
    assert start_payloads(log) == [METADATA, AVC_CONFIG, AAC_CONFIG, HDR_METADATA_BRIGHTER]


def test_configurations_are_kept_per_track() -> None:
    log = make_log(preamble())
    log.append(VIDEO, 0, track_config(1, b"one"))
    log.append(VIDEO, 0, track_config(2, b"two"))
    log.append(VIDEO, 0, keyframe(0))
    log.append(VIDEO, 40, track_config(1, b"changed"))
    log.append(VIDEO, 40, keyframe(1))
    assert start_payloads(log) == [
        METADATA,
        AVC_CONFIG,
        AAC_CONFIG,
        track_config(1, b"changed"),
        track_config(2, b"two"),
    ]


def test_a_keyframe_of_a_side_track_is_no_place_to_start() -> None:
    log = make_log([*preamble(), Sent(VIDEO, 0, track_config(1))])
    main = log.append(VIDEO, 0, keyframe(0))
    side = log.append(VIDEO, 0, track_keyframe(1))
    assert log.newest_keyframe is main
    assert main.is_keyframe
    assert not side.is_keyframe
    log.append(VIDEO, 40, track_inter_frame(1))
    wrapped_main = log.append(VIDEO, 40, track_keyframe(0))
    assert log.newest_keyframe is wrapped_main


def test_a_peer_cannot_make_the_sequence_headers_grow_without_end() -> None:
    log = make_log(preamble(), limits=LogLimits(max_messages=10))
    for track_id in range(256):
        log.append(VIDEO, 0, track_config(track_id, bytes(100)))
    log.append(VIDEO, 40, keyframe(0))
    preface = log.start_point().preface
    assert len(preface) <= 64
    assert preface[0].payload == METADATA
    assert preface[-1].payload == track_config(255, bytes(100))


def test_a_peer_cannot_fill_memory_with_large_sequence_headers() -> None:
    limits = LogLimits(max_bytes=8 << 20)
    log = make_log(preamble(), limits=limits)
    for track_id in range(1, 40):
        log.append(VIDEO, 0, track_config(track_id, bytes(1 << 20)))
        log.append(DATA, 0, METADATA + bytes(track_id << 20))
    log.append(VIDEO, 40, keyframe(0))
    assert sum(len(entry.payload) for entry in log.start_point().preface) <= limits.max_bytes
    # Those that fit are still kept.
    log.append(DATA, 80, METADATA)
    log.append(VIDEO, 80, AVC_CONFIG)
    log.append(VIDEO, 80, keyframe(1))
    assert {METADATA, AVC_CONFIG} <= set(start_payloads(log))


def test_a_broken_or_empty_message_is_kept_like_any_other_and_is_no_start() -> None:
    log = make_log()
    for type_id, payload in ((VIDEO, b""), (AUDIO, b""), (DATA, b""), (VIDEO, b"\x96"), (AUDIO, b"\x95\x00")):
        entry = log.append(type_id, 0, payload)
        assert entry.payload == payload
        assert not entry.is_keyframe
        assert not entry.is_config
    assert log.newest_keyframe is None
    assert log.tail == 5


def test_flags_say_what_a_message_is() -> None:
    log = make_log()
    assert log.append(VIDEO, 0, AVC_CONFIG).is_config
    assert log.append(AUDIO, 0, AAC_CONFIG).is_config
    assert log.append(DATA, 0, METADATA).flags == media.METADATA
    assert log.append(DATA, 0, CUE_POINT).flags == 0
    assert log.append(VIDEO, 0, AVC_END).flags == media.END
    assert log.append(VIDEO, 0, keyframe()).is_keyframe
    assert log.append(AUDIO, 0, aac_frame()).flags == media.FRAME


# --- media time


def media_times(*timestamps: int) -> list[int]:
    log = StreamLog(LogLimits())
    return [log.append(AUDIO, timestamp, aac_frame()).media_ms for timestamp in timestamps]


@pytest.mark.parametrize(
    ("name", "timestamps", "expected"),
    [
        ("starts anywhere", [3_600_000, 3_600_040], [0, 40]),
        ("late audio beside video", [0, 40, 20, 80], [0, 40, 40, 80]),
        ("across 2^32", [WRAP - 40, 0, 40], [0, 40, 80]),
        ("across 2^32, out of order", [WRAP - 40, 0, WRAP - 20, 40], [0, 40, 40, 80]),
        ("a jump forwards is not media", [0, 40, 3_600_040, 3_600_080], [0, 40, 40, 80]),
        ("a jump backwards is not media", [3_600_000, 3_600_040, 0, 40], [0, 40, 40, 80]),
        ("a jump of half the range", [0, 1 << 31, (1 << 31) + 40], [0, 0, 40]),
        ("a pause of ten seconds is media", [0, 10_000], [0, 10_000]),
    ],
)
def test_media_time_counts_what_there_is_to_play(name: str, timestamps: list[int], expected: list[int]) -> None:
    assert media_times(*timestamps) == expected


@pytest.mark.parametrize("message", [Sent(DATA, 0, CUE_POINT), Sent(DATA, 0, METADATA), Sent(AUDIO, 0, AAC_CONFIG)])
def test_a_header_or_data_message_stamped_zero_in_mid_stream_does_not_set_the_clock_back(message: Sent) -> None:
    log = make_log(frames(2, start_ms=3_600_000))
    log.append(*message)
    assert log.newest_ms == 3_600_040
    log.append(VIDEO, 3_600_080, inter_frame())
    assert log.media_ms == 80


def test_a_stream_that_begins_far_from_its_headers_is_timed_by_its_frames() -> None:
    log = make_log([*preamble(), *frames(3, start_ms=3_600_000)])
    assert (log.newest_ms, log.media_ms) == (3_600_080, 80)


@given(st.lists(st.integers(0, WRAP - 1), min_size=1, max_size=60))
def test_media_time_never_runs_backwards(timestamps: list[int]) -> None:
    times = media_times(*timestamps)
    assert times == sorted(times)
    assert all(later - earlier <= 10_000 for earlier, later in pairwise(times))


# --- bytes on the wire


def wire(entry: Entry, chunk_size: int) -> bytes:
    """The bytes of one message, which are the same by either way."""
    encoded = encode_entries([entry], chunk_size)
    assert encoded == entry.encode(chunk_size, 1)
    return encoded


def test_messages_that_are_sent_together_follow_each_other() -> None:
    log = make_log()
    entries = [log.append(VIDEO, 0, keyframe(0, 300)), log.append(AUDIO, 0x01000000, b"\xaf\x01" + bytes(400))]
    assert encode_entries(entries, 128) == wire(entries[0], 128) + wire(entries[1], 128)


def test_a_message_has_an_absolute_header_on_the_chunk_stream_of_its_kind() -> None:
    # RTMP 1.0 section 5.3.1.2.1: format 0, timestamp, length, type, message stream id (little-endian).
    log = make_log()
    sound = log.append(AUDIO, 0x010203, b"\xaf\x01\x21")
    assert wire(sound, 128) == bytes.fromhex("04 010203 000003 08 01000000 af0121")
    assert wire(log.append(VIDEO, 5, b"\x27\x01"), 128) == bytes.fromhex("06 000005 000002 09 01000000 2701")
    assert wire(log.append(DATA, 5, b"\x05"), 128) == bytes.fromhex("05 000005 000001 12 01000000 05")


def test_a_message_longer_than_a_chunk_repeats_its_extended_timestamp_on_every_chunk() -> None:
    entry = make_log().append(AUDIO, 0x01000000, b"\xaf\x01\x02\x03\x04")
    assert wire(entry, 2) == bytes.fromhex("04 ffffff 000005 08 01000000 01000000 af01 c4 01000000 0203 c4 01000000 04")


def test_another_chunk_size_or_message_stream_gives_other_bytes_of_the_same_message() -> None:
    entry = make_log().append(AUDIO, 0, b"\xaf\x01\x02")
    assert wire(entry, 128) == bytes.fromhex("04 000000 000003 08 01000000 af0102")
    assert wire(entry, 2) == bytes.fromhex("04 000000 000003 08 01000000 af01 c4 02")
    assert entry.encode(128, 2) == bytes.fromhex("04 000000 000003 08 02000000 af0102")
