"""Cursors: every message is delivered once and in order, or counted as skipped, and a skip lands on a keyframe."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.protocol import media
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.log import NO_POSITION, Entry, LogLimits, StreamLog
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AAC_CONFIG_44100,
    AUDIO,
    AVC_CONFIG,
    AVC_CONFIG_SMALL,
    AVC_END,
    CUE_POINT,
    DATA,
    METADATA,
    METADATA_RETITLED,
    VIDEO,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
    track_config,
    track_inter_frame,
    track_keyframe,
)

ALL = 1 << 30
PREFACE = [METADATA, AVC_CONFIG, AAC_CONFIG]


def make_log(sent: Iterable[Sent] = (), *, limits: LogLimits | None = None) -> StreamLog:
    log = StreamLog(limits or LogLimits(retain_s=30.0))
    extend(log, sent)
    return log


def extend(log: StreamLog, sent: Iterable[Sent]) -> None:
    for message in sent:
        log.append(*message)


def payloads(entries: Iterable[Entry]) -> list[bytes]:
    return [entry.payload for entry in entries]


def positions(entries: Iterable[Entry]) -> list[int]:
    return [entry.position for entry in entries if entry.position != NO_POSITION]


# --- reading


def test_a_joiner_gets_metadata_and_headers_then_the_log_from_the_newest_keyframe() -> None:
    log = make_log([*preamble(), *frames(15, gop=10)])
    taken = Cursor(log).take(ALL)
    assert payloads(taken[:3]) == PREFACE
    assert taken[3].payload == keyframe(10, 120)
    assert positions(taken) == list(range(23, 33))


def test_a_reader_gets_each_message_once_and_in_order() -> None:
    log = make_log(preamble())
    cursor = Cursor(log)
    taken = cursor.take(ALL)
    for sent in frames(30):
        log.append(*sent)
        taken += cursor.take(ALL)
    assert positions(taken) == list(range(3, 63))
    assert cursor.take(ALL) == []
    assert not cursor.skipped


def test_a_reader_takes_no_more_bytes_than_asked_but_at_least_one_message() -> None:
    log = make_log([*preamble(), *frames(10, size=100, has_audio=False)])
    cursor = Cursor(log)
    assert len(cursor.take(1)) == 3 + 1  # the headers, and one keyframe of 200 bytes
    assert len(cursor.take(250)) == 3  # 100 each: the third passes the mark
    assert len(cursor.take(1)) == 1
    assert len(cursor.take(ALL)) == 5


def test_a_joiner_before_the_first_keyframe_waits_for_it_but_hears_the_sound() -> None:
    log = make_log([*preamble(), Sent(VIDEO, 0, inter_frame(0))])
    cursor = Cursor(log)
    assert payloads(cursor.take(ALL)) == PREFACE
    extend(log, [Sent(VIDEO, 40, inter_frame(1)), Sent(AUDIO, 40, aac_frame(1)), Sent(VIDEO, 60, AVC_END)])
    assert payloads(cursor.take(ALL)) == [aac_frame(1)]
    assert not cursor.is_plain
    extend(log, [Sent(VIDEO, 80, keyframe(2)), Sent(VIDEO, 120, inter_frame(3))])
    assert payloads(cursor.take(ALL)) == [keyframe(2), inter_frame(3)]
    assert cursor.skipped == {SkipReason.NO_KEYFRAME: 2}
    assert cursor.is_plain


def test_a_keyframe_of_a_side_track_does_not_end_the_wait_for_a_keyframe() -> None:
    log = make_log([Sent(VIDEO, 0, AVC_CONFIG), Sent(VIDEO, 0, track_config(1))])
    cursor = Cursor(log)
    cursor.take(ALL)
    extend(log, [Sent(VIDEO, 0, track_keyframe(1)), Sent(VIDEO, 0, inter_frame(0))])
    assert cursor.take(ALL) == []
    extend(log, [Sent(VIDEO, 40, keyframe(1)), Sent(VIDEO, 40, track_inter_frame(1))])
    assert payloads(cursor.take(ALL)) == [keyframe(1), track_inter_frame(1)]


def test_a_reader_is_plain_once_its_next_bytes_are_those_of_everybody() -> None:
    log = make_log([*preamble(), *frames(5)])
    cursor = Cursor(log)
    plain = [cursor.is_plain]  # its headers come first
    cursor.take(ALL)
    plain.append(cursor.is_plain)
    for wants_audio in (False, True):
        cursor.wants_audio = wants_audio
        plain.append(cursor.is_plain)
    assert plain == [False, True, False, True]


def test_a_sequence_header_in_mid_stream_reaches_a_reader_at_its_place() -> None:
    log = make_log([*preamble(), *frames(3, has_audio=False)])
    cursor = Cursor(log)
    cursor.take(ALL)
    late = [Sent(VIDEO, 120, AVC_CONFIG_SMALL), Sent(VIDEO, 120, keyframe(3)), Sent(VIDEO, 160, inter_frame(4))]
    extend(log, late)
    assert payloads(cursor.take(ALL)) == [sent.payload for sent in late]


# --- lag


def test_lag_is_media_time_between_the_next_message_and_the_newest() -> None:
    log = make_log(frames(26, gop=100))
    cursor = Cursor(log)
    assert cursor.lag_ms == 1000
    cursor.take(1)
    cursor.take(1)  # the keyframe and its audio
    assert cursor.lag_ms == 960
    cursor.take(ALL)
    assert cursor.lag_ms == 0


def test_a_reader_too_far_behind_jumps_to_the_newest_keyframe_and_the_range_is_counted() -> None:
    told: list[tuple[SkipReason, int, int]] = []
    log = make_log([*preamble(), *frames(10, gop=10)])
    cursor = Cursor(log, max_lag_s=2.0, on_skip=lambda *skip: told.append(skip))
    cursor.take(ALL)
    stopped_at = cursor.position
    extend(log, frames(95, start_ms=400, first_number=10, gop=10))  # 3.8 s: keyframes every 0.4 s
    taken = cursor.take(ALL)
    assert payloads(taken[:4]) == [*PREFACE, keyframe(100, 120)]
    assert [entry.timestamp_ms for entry in taken[:3]] == [0, 4000, 4000]
    assert told == [(SkipReason.LAG, stopped_at, taken[3].position)]
    assert cursor.skipped == {SkipReason.LAG: taken[3].position - stopped_at}
    assert positions(taken) == list(range(taken[3].position, log.tail))


def test_a_reader_within_the_lag_allowed_loses_nothing() -> None:
    log = make_log([*preamble(), *frames(10)])
    cursor = Cursor(log, max_lag_s=2.0)
    cursor.take(ALL)
    extend(log, frames(50, start_ms=400, first_number=10))
    assert cursor.lag_ms == 1960
    assert positions(cursor.take(ALL)) == list(range(23, 123))
    assert not cursor.skipped


def test_a_group_of_pictures_longer_than_the_lag_does_not_freeze_a_joiner() -> None:
    log = make_log([*preamble(), *frames(200, gop=1000)])  # one keyframe, 8 s ago
    cursor = Cursor(log, max_lag_s=2.0)
    taken = cursor.take(1000)
    assert taken[3].payload == keyframe(0, 120)
    while more := cursor.take(1000):
        taken += more
    assert positions(taken) == list(range(3, log.tail))
    assert not cursor.skipped


def test_a_reader_behind_in_a_long_group_of_pictures_reads_on_until_there_is_a_keyframe_ahead() -> None:
    log = make_log([*preamble(), *frames(200, gop=1000)])
    cursor = Cursor(log, max_lag_s=2.0)
    cursor.take(100)
    extend(log, frames(5, start_ms=8000, first_number=200))
    assert payloads(cursor.take(ALL))[:4] == [*PREFACE, keyframe(200, 120)]


def test_audio_alone_skips_to_the_live_edge() -> None:
    log = make_log([Sent(AUDIO, 0, AAC_CONFIG)])
    cursor = Cursor(log, max_lag_s=1.0)
    cursor.take(ALL)
    extend(log, frames(100, has_video=False))
    taken = cursor.take(ALL)
    assert [(entry.payload, entry.timestamp_ms) for entry in taken] == [(AAC_CONFIG, 99 * 40)]
    assert cursor.skipped == {SkipReason.LAG: 100}
    log.append(AUDIO, 4000, aac_frame(100))
    assert payloads(cursor.take(ALL)) == [aac_frame(100)]


def test_after_a_new_sequence_header_a_slow_reader_waits_for_the_keyframe_that_fits_it() -> None:
    log = make_log([*preamble(), *frames(10)])
    cursor = Cursor(log, max_lag_s=1.0)
    cursor.take(ALL)
    extend(log, frames(50, start_ms=400, gop=10, first_number=10))
    log.append(VIDEO, 2400, AVC_CONFIG_SMALL)
    first = cursor.take(100)  # no keyframe fits the new header: reading on is all there is
    assert first[0].payload == keyframe(10, 120)
    assert not cursor.skipped
    extend(log, frames(2, start_ms=2400, first_number=60))
    assert payloads(cursor.take(ALL))[:4] == [METADATA, AVC_CONFIG_SMALL, AAC_CONFIG, keyframe(60, 120)]


def test_without_a_lag_allowed_only_eviction_makes_a_reader_skip() -> None:
    log = make_log([*preamble(), *frames(10)])
    cursor = Cursor(log)
    cursor.take(ALL)
    extend(log, frames(500, start_ms=400, gop=10, first_number=10))
    assert cursor.lag_ms == 499 * 40
    assert positions(cursor.take(ALL))[0] == 23


# --- eviction


def test_a_reader_whose_place_is_gone_goes_on_at_the_newest_keyframe() -> None:
    log = make_log([*preamble(), *frames(10)], limits=LogLimits(retain_s=2.0))
    cursor = Cursor(log)
    cursor.take(ALL)
    extend(log, frames(250, start_ms=400, gop=10, first_number=10))
    assert cursor.position < log.head
    taken = cursor.take(ALL)
    assert payloads(taken[:4]) == [*PREFACE, keyframe(250, 120)]
    assert cursor.skipped == {SkipReason.EVICTED: taken[3].position - 23}


def test_a_reader_evicted_where_no_keyframe_is_left_waits_for_the_next() -> None:
    log = make_log([*preamble(), *frames(10)], limits=LogLimits(max_messages=20))
    cursor = Cursor(log, max_lag_s=1.0)
    cursor.take(ALL)
    extend(log, (Sent(VIDEO, 400 + 40 * number, inter_frame(number)) for number in range(40)))
    assert payloads(cursor.take(ALL)) == PREFACE
    assert cursor.skipped == {SkipReason.EVICTED: 40}
    extend(log, [Sent(VIDEO, 2000, inter_frame(50)), Sent(VIDEO, 2040, keyframe(51))])
    assert payloads(cursor.take(ALL)) == [keyframe(51)]
    assert cursor.skipped == {SkipReason.EVICTED: 40, SkipReason.NO_KEYFRAME: 1}


def test_lag_of_an_evicted_reader_is_counted_from_the_oldest_message_there_is() -> None:
    log = make_log(frames(10), limits=LogLimits(max_messages=20))
    cursor = Cursor(log)
    extend(log, frames(100, start_ms=400))
    assert cursor.lag_ms == log.media_ms - log.entry(log.head).media_ms == 9 * 40


# --- wishes


def test_a_player_without_audio_gets_video_and_every_header() -> None:
    log = make_log([*preamble(), *frames(3)])
    cursor = Cursor(log)
    cursor.wants_audio = False
    log.append(AUDIO, 120, AAC_CONFIG_44100)
    assert payloads(cursor.take(ALL)) == [
        *PREFACE,
        keyframe(0, 120),
        inter_frame(1, 60),
        inter_frame(2, 60),
        AAC_CONFIG_44100,
    ]
    assert cursor.skipped == {SkipReason.PAUSED: 3}


def test_a_player_that_wants_video_again_gets_it_from_a_keyframe() -> None:
    log = make_log([*preamble(), *frames(3, has_audio=False)])
    cursor = Cursor(log)
    cursor.take(ALL)
    cursor.wants_video = False
    extend(log, [Sent(VIDEO, 120, inter_frame(3)), Sent(AUDIO, 120, aac_frame(3)), Sent(DATA, 120, CUE_POINT)])
    assert payloads(cursor.take(ALL)) == [aac_frame(3), CUE_POINT]
    cursor.wants_video = True
    assert not cursor.is_plain
    extend(log, [Sent(VIDEO, 160, inter_frame(4)), Sent(VIDEO, 200, keyframe(5)), Sent(VIDEO, 240, inter_frame(6))])
    assert payloads(cursor.take(ALL)) == [keyframe(5), inter_frame(6)]
    assert cursor.skipped == {SkipReason.PAUSED: 1, SkipReason.NO_KEYFRAME: 1}


def test_a_keyframe_that_was_not_wanted_does_not_count_as_seen() -> None:
    log = make_log([*preamble(), *frames(3, has_audio=False)])
    cursor = Cursor(log)
    cursor.take(ALL)
    cursor.wants_video = False
    log.append(VIDEO, 120, inter_frame(3))
    log.append(VIDEO, 160, keyframe(4))
    cursor.take(ALL)
    cursor.wants_video = True
    log.append(VIDEO, 200, inter_frame(5))
    assert cursor.take(ALL) == []


def test_switching_video_off_and_on_between_two_frames_loses_nothing() -> None:
    log = make_log([*preamble(), *frames(3)])
    cursor = Cursor(log)
    cursor.take(ALL)
    cursor.wants_video = False
    cursor.wants_video = True
    assert cursor.is_plain
    log.append(VIDEO, 120, inter_frame(3))
    assert payloads(cursor.take(ALL)) == [inter_frame(3)]


def test_after_a_pause_a_player_goes_on_at_the_newest_keyframe() -> None:
    log = make_log([*preamble(), *frames(10)])
    cursor = Cursor(log)
    cursor.take(ALL)
    extend(log, frames(45, start_ms=400, gop=10, first_number=10))
    cursor.skip_to_live(SkipReason.PAUSED)
    taken = cursor.take(ALL)
    assert payloads(taken[:4]) == [*PREFACE, keyframe(50, 120)]
    assert cursor.skipped == {SkipReason.PAUSED: 80}


def test_a_pause_within_one_group_of_pictures_loses_nothing() -> None:
    log = make_log([*preamble(), *frames(10, gop=100)])
    cursor = Cursor(log)
    cursor.take(ALL)
    extend(log, [Sent(VIDEO, 400, inter_frame(10)), Sent(AUDIO, 400, aac_frame(10))])
    cursor.skip_to_live(SkipReason.PAUSED)
    assert payloads(cursor.take(ALL)) == [inter_frame(10), aac_frame(10)]
    assert not cursor.skipped


# --- going on where another stopped


def test_a_resumed_reader_gets_the_headers_of_its_place_and_video_from_the_next_keyframe() -> None:
    log = make_log([*preamble(), *frames(6, gop=10), Sent(AUDIO, 240, AAC_CONFIG_44100)])
    extend(log, frames(10, start_ms=400, gop=10, first_number=10))
    cursor = Cursor.resume(log, 8)
    taken = cursor.take(ALL)
    assert payloads(taken[:3]) == PREFACE  # the sound's header changed after this place
    assert [entry.timestamp_ms for entry in taken[:3]] == [0] + [log.entry(8).timestamp_ms] * 2
    assert payloads(taken[3:8]) == [
        aac_frame(2),
        aac_frame(3),
        aac_frame(4),
        aac_frame(5),
        AAC_CONFIG_44100,
    ]
    assert taken[8].payload == keyframe(10, 120)
    assert cursor.skipped == {SkipReason.NO_KEYFRAME: 3}


def test_a_reader_resumed_at_a_place_that_is_gone_goes_on_at_the_newest_keyframe() -> None:
    log = make_log([*preamble(), *frames(300, gop=10)], limits=LogLimits(retain_s=2.0))
    cursor = Cursor.resume(log, 10)
    taken = cursor.take(ALL)
    assert payloads(taken[:4]) == [*PREFACE, keyframe(290, 120)]
    assert cursor.skipped == {SkipReason.EVICTED: taken[3].position - 10}


def test_the_headers_of_a_place_are_known_when_they_themselves_have_left_the_log() -> None:
    log = make_log([*preamble(), *frames(300, gop=1000)], limits=LogLimits(max_messages=100))
    log.append(VIDEO, 12_000, AVC_CONFIG_SMALL)
    assert payloads(log.preface_at(log.tail - 1)) == PREFACE
    assert payloads(log.preface_at(log.tail)) == [METADATA, AVC_CONFIG_SMALL, AAC_CONFIG]


def test_headers_at_a_place_do_not_grow_with_what_a_peer_sends() -> None:
    log = make_log(preamble(), limits=LogLimits(max_messages=10))
    for first in range(256):
        # ManyTracks: any set of track ids is a slot of its own.
        log.append(VIDEO, 0, b"\x96\x10avc1" + bytes((first, 0, 0, 1, 7, 255 - first, 0, 0, 1, 7)))
    assert len(log.preface_at(log.tail)) <= 64 + 10


# --- any sequence of appends and reads


class Reader:
    """A cursor, everything it was given, and a decoder that knows what it may be given next."""

    def __init__(self, log: StreamLog, max_lag_s: float | None) -> None:
        self.skips: list[tuple[SkipReason, int, int]] = []
        self.cursor = Cursor(log, max_lag_s=max_lag_s, on_skip=lambda *skip: self.skips.append(skip))
        self.max_lag_s = max_lag_s
        self.first_position = self.cursor.position
        self.taken: list[Entry] = []
        self.config: bytes | None = None  # the video header it has
        self.newest_video = -1  # position of the newest video frame it was given


class LogAndCursors(RuleBasedStateMachine):
    """Publishes and reads at random; the model is the plain list of everything ever appended."""

    @initialize(
        max_messages=st.sampled_from([8, 60, 20_000]),
        max_bytes=st.sampled_from([600, 6000, 64 << 20]),
        retain_s=st.sampled_from([0.5, 3.0]),
        start_ms=st.sampled_from([0, (1 << 32) - 500]),
    )
    def begin(self, max_messages: int, max_bytes: int, retain_s: float, start_ms: int) -> None:
        self.limits = LogLimits(retain_s=retain_s, max_bytes=max_bytes, max_messages=max_messages)
        self.log = StreamLog(self.limits)
        self.all: list[Entry] = []
        self.configs: list[bytes | None] = []  # the video header in force at each position
        self.now_ms = start_ms
        self.config: bytes | None = None
        self.readers: list[Reader] = []

    def publish(self, type_id: int, payload: bytes) -> None:
        if type_id == VIDEO and payload in (AVC_CONFIG, AVC_CONFIG_SMALL):
            self.config = payload
        entry = self.log.append(type_id, self.now_ms, payload)
        assert entry.position == len(self.all)
        self.all.append(entry)
        self.configs.append(self.config)

    @rule(ms=st.sampled_from([0, 20, 40, 700, -30, 3_600_000, -3_600_000]))
    def pass_time(self, ms: int) -> None:
        self.now_ms = (self.now_ms + ms) & 0xFFFFFFFF

    @rule(count=st.integers(1, 40), size=st.sampled_from([20, 200]), step_ms=st.sampled_from([0, 40, 200]))
    def publish_group(self, count: int, size: int, step_ms: int) -> None:
        for number in range(count):
            self.publish(VIDEO, inter_frame(len(self.all), size) if number else keyframe(len(self.all), size))
            self.publish(AUDIO, aac_frame(len(self.all)))
            self.now_ms = (self.now_ms + step_ms) & 0xFFFFFFFF

    @rule(
        message=st.sampled_from(
            [
                (VIDEO, AVC_CONFIG),
                (VIDEO, AVC_CONFIG_SMALL),
                (VIDEO, track_config(1)),
                (VIDEO, track_keyframe(1)),
                (VIDEO, inter_frame()),
                (VIDEO, AVC_END),
                (VIDEO, b""),
                (AUDIO, AAC_CONFIG),
                (AUDIO, AAC_CONFIG_44100),
                (AUDIO, b""),
                (DATA, METADATA),
                (DATA, METADATA_RETITLED),
                (DATA, CUE_POINT),
            ]
        )
    )
    def publish_one(self, message: tuple[int, bytes]) -> None:
        self.publish(*message)

    @rule(count=st.integers(1, 80))
    def publish_sound(self, count: int) -> None:
        for _ in range(count):
            self.publish(AUDIO, aac_frame(len(self.all)))
            self.now_ms = (self.now_ms + 20) & 0xFFFFFFFF

    @precondition(lambda self: len(self.readers) < 4)
    @rule(max_lag_s=st.sampled_from([None, 0.3, 2.0]))
    def join(self, max_lag_s: float | None) -> None:
        self.readers.append(Reader(self.log, max_lag_s))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), max_bytes=st.sampled_from([1, 500, ALL]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        position = reader.cursor.position
        taken = reader.cursor.take(max_bytes)
        assert reader.cursor.position > position or position == self.log.tail, "a reader with something to read stood"
        for entry in taken:
            self.decode(reader, entry)
        reader.taken += taken
        if reader.max_lag_s is not None and reader.cursor.lag_ms > reader.max_lag_s * 1000 and max_bytes == ALL:
            raise AssertionError("a reader that took everything is behind")

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), audio=st.booleans(), video=st.booleans())
    def wish(self, data: st.DataObject, audio: bool, video: bool) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        reader.cursor.wants_audio, reader.cursor.wants_video = audio, video

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def skip_to_live(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.readers)).cursor.skip_to_live(SkipReason.PAUSED)

    def decode(self, reader: Reader, entry: Entry) -> None:
        """What a decoder at the far end must be able to do with this message."""
        if entry.position == NO_POSITION:
            assert entry.flags & (media.CONFIG | media.METADATA)
        if entry.type_id != VIDEO:
            return
        if entry.payload in (AVC_CONFIG, AVC_CONFIG_SMALL):
            reader.config = entry.payload
        if not entry.flags & media.FRAME:
            return
        assert reader.config == self.configs[entry.position], "a frame without the sequence header in force"
        missed = [
            skipped
            for _, start, stop in reader.skips
            for skipped in self.all[max(start, reader.newest_video + 1) : min(stop, entry.position)]
            if skipped.type_id == VIDEO and skipped.flags & media.FRAME
        ]
        if missed:
            assert entry.is_keyframe, "frames were skipped and the next is no keyframe"
        reader.newest_video = entry.position

    @invariant()
    def log_is_within_its_caps(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        kept = list(log.entries(log.head, log.tail))
        assert [entry.position for entry in kept] == list(range(log.head, log.tail))
        assert all(entry is self.all[entry.position] for entry in kept)
        assert log.kept_bytes == sum(len(entry.payload) for entry in kept)
        assert len(kept) <= self.limits.max_messages
        assert log.kept_bytes <= self.limits.max_bytes or len(kept) == 1
        times = [entry.media_ms for entry in kept]
        assert times == sorted(times)
        if log.newest_keyframe is not None:
            assert log.head <= log.newest_keyframe.position < log.tail
        oldest_ms = log.media_ms - self.limits.retain_s * 1000
        pinned = log.newest_keyframe.position if log.newest_keyframe is not None else log.tail
        assert len([entry for entry in kept if entry.media_ms < oldest_ms and entry.position < pinned]) <= 32

    @invariant()
    def start_point_is_a_keyframe_or_the_end(self) -> None:
        if not hasattr(self, "log") or not self.all:
            return
        point = self.log.start_point()
        if point.position < self.log.tail:
            assert self.log.entry(point.position).is_keyframe
            timestamp_ms = self.log.entry(point.position).timestamp_ms
            assert all(entry.timestamp_ms == timestamp_ms for entry in point.preface if entry.type_id != DATA)
        else:
            assert point.position == self.log.tail
        is_metadata = [entry.type_id == DATA for entry in point.preface]
        assert not any(is_metadata[1:])

    @invariant()
    def every_message_is_delivered_once_or_counted(self) -> None:
        for reader in getattr(self, "readers", []):
            delivered = positions(reader.taken)
            assert delivered == sorted(set(delivered))
            ranges = [(position, position + 1) for position in delivered]
            ranges += [(start, stop) for _, start, stop in reader.skips]
            expected = reader.first_position
            for start, stop in sorted(ranges):
                assert start == expected, "a message was neither delivered nor counted, or both"
                expected = stop
            assert expected == reader.cursor.position
            assert reader.cursor.skipped.total() == sum(stop - start for _, start, stop in reader.skips)


TestLogAndCursors = LogAndCursors.TestCase
# Without the phase that explains a failure: it traces every line, which takes minutes here.
TestLogAndCursors.settings = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)


def test_the_reasons_have_the_names_that_metrics_use() -> None:
    assert {reason.value for reason in SkipReason} == {"lag", "evicted", "no_keyframe", "paused"}


@pytest.mark.parametrize("max_lag_s", [None, 1.0])
def test_a_cursor_on_an_empty_log_has_nothing_and_then_everything(max_lag_s: float | None) -> None:
    log = make_log()
    cursor = Cursor(log, max_lag_s=max_lag_s)
    assert cursor.take(ALL) == []
    assert cursor.lag_ms == 0
    extend(log, [*preamble(), *frames(3)])
    assert positions(cursor.take(ALL)) == list(range(9))
