"""Which message goes into which file, and that every file plays by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.protocol.messages import DATA, VIDEO
from headrace.record.writer import MAX_HELD_BYTES, MAX_HELD_MESSAGES, FileFinished, FileStarted, RecordingWriter
from headrace.stream.cursor import Cursor
from headrace.stream.log import Entry, LogLimits, StreamLog
from tests.unit.record.samples import (
    AAC_HEADER,
    AVC_HEADER,
    AVC_KEYFRAME,
    CUE_POINT,
    METADATA,
    Sent,
    assert_plays,
    audio,
    contents,
    data,
    demux,
    frame_hashes,
    logged,
    make_flv,
    video,
)

NOON_S = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
OTHER_AVC_HEADER = AVC_HEADER[:-1] + b"\x01"
OTHER_AAC_HEADER = bytes.fromhex("af 00 1310")
OTHER_METADATA = METADATA[:-3] + bytes.fromhex("0001 61 05 000009")

PREFACE = [data(0), video(0, AVC_HEADER), audio(0, AAC_HEADER)]


def _record(
    directory: Path, entries: Sequence[Entry], *, segment_s: float | None = None, batch: int = 10_000
) -> list[Path]:
    """The files, in the order in which they were begun."""
    writer = RecordingWriter(directory, "live", "cam", segment_duration_s=segment_s, wall_time=lambda: NOON_S)
    for start in range(0, len(entries), batch):
        writer.write(entries[start : start + batch])
    writer.close()
    events = writer.take_events()
    started = [event.path for event in events if isinstance(event, FileStarted)]
    finished = [event for event in events if isinstance(event, FileFinished)]
    assert [event.path for event in finished] == started
    assert [event.size_bytes for event in finished] == [path.stat().st_size for path in started]
    assert [event.tags for event in finished] == [len(contents(path)) for path in started]
    assert (writer.files, writer.tags) == (len(started), sum(event.tags for event in finished))
    assert writer.size_bytes == sum(event.size_bytes for event in finished)
    return started


def _gops(count: int, *, first_ms: int = 0, frames: int = 25) -> list[Sent]:
    """Groups of one second: a keyframe and frames every 40 ms, and sound between them."""
    messages = []
    for number in range(count * frames):
        timestamp_ms = first_ms + number * 40
        messages.append(video(timestamp_ms, AVC_KEYFRAME) if number % frames == 0 else video(timestamp_ms))
        messages.append(audio(timestamp_ms + 10))
    return messages


def test_every_message_is_a_tag_with_its_payload_and_timestamp(tmp_path: Path) -> None:
    messages = [*PREFACE, *_gops(2), data(1990, CUE_POINT), audio(1995, b""), video(2000, b"\x17\x02\0\0\0")]
    [path] = _record(tmp_path, logged(messages))
    assert path == tmp_path / "live_cam_20260301_120000.flv"
    assert contents(path) == messages


def test_metadata_goes_first_and_headers_before_the_first_frame_wherever_they_came(tmp_path: Path) -> None:
    cue, video_header, sound_header, metadata = (
        data(3, CUE_POINT), video(5, AVC_HEADER), audio(6, AAC_HEADER), data(7),
    )  # fmt: skip
    first = video(8, AVC_KEYFRAME)
    [path] = _record(tmp_path, logged([cue, video_header, sound_header, metadata, first]), batch=1)
    assert contents(path) == [metadata, video_header, sound_header, cue, first]


def test_a_header_that_comes_after_the_first_frame_is_written_where_it_came(tmp_path: Path) -> None:
    messages = [*PREFACE[:2], video(0, AVC_KEYFRAME), audio(5, AAC_HEADER), audio(6)]
    assert [contents(path) for path in _record(tmp_path, logged(messages))] == [messages]


def test_identical_headers_and_any_metadata_change_nothing(tmp_path: Path) -> None:
    again = [data(1000), video(1000, AVC_HEADER), audio(1000, AAC_HEADER), data(1001, OTHER_METADATA)]
    messages = [*PREFACE, *_gops(1), *again, *_gops(1, first_ms=1001)]
    assert [contents(path) for path in _record(tmp_path, logged(messages))] == [messages]


@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_a_header_that_differs_starts_a_new_file_with_all_that_is_in_force(tmp_path: Path, batch: int) -> None:
    before, after = [*PREFACE, *_gops(1)], _gops(1, first_ms=1000)
    first, second = _record(tmp_path, logged([*before, video(999, OTHER_AVC_HEADER), *after]), batch=batch)
    assert contents(first) == before
    assert contents(second) == [data(0), video(1000, OTHER_AVC_HEADER), audio(1000, AAC_HEADER), *after]
    assert second.name == "live_cam_20260301_120000-2.flv"  # the clock of the test stands still


def test_a_change_of_everything_at_once_gives_one_new_file(tmp_path: Path) -> None:
    change = [
        video(1000, OTHER_AVC_HEADER),
        data(1000, CUE_POINT),
        audio(1000, OTHER_AAC_HEADER),
        data(1000, OTHER_METADATA),
    ]
    after = _gops(1, first_ms=1020)
    first, second = _record(tmp_path, logged([*PREFACE, *_gops(1), *change, *after]), batch=1)
    assert contents(first) == [*PREFACE, *_gops(1)]
    preface = [data(0, OTHER_METADATA), video(1020, OTHER_AVC_HEADER), audio(1020, OTHER_AAC_HEADER)]
    assert contents(second) == [*preface, data(1000, CUE_POINT), *after]


def test_metadata_that_announces_a_change_belongs_to_the_new_file(tmp_path: Path) -> None:
    change = [data(1000, OTHER_METADATA), video(1000, OTHER_AVC_HEADER)]
    after = _gops(1, first_ms=1000)
    first, second = _record(tmp_path, logged([*PREFACE, *_gops(1), *change, *after]), batch=1)
    assert contents(first) == [*PREFACE, *_gops(1)]
    assert contents(second)[:2] == [data(0, OTHER_METADATA), video(1000, OTHER_AVC_HEADER)]


def test_metadata_after_the_last_frame_is_written(tmp_path: Path) -> None:
    messages = [*PREFACE, *_gops(1), data(1000, OTHER_METADATA), data(1000, CUE_POINT)]
    assert [contents(path) for path in _record(tmp_path, logged(messages), batch=1)] == [messages]


def test_a_change_of_codec_is_a_change_of_header(tmp_path: Path) -> None:
    hevc = bytes.fromhex("90 68766331 01")
    files = _record(tmp_path, logged([*PREFACE, *_gops(1), video(1000, hevc), video(1000, AVC_KEYFRAME), audio(1001)]))
    assert len(files) == 2
    assert contents(files[1])[1] == video(1000, hevc)


def test_a_header_that_changes_after_the_last_frame_makes_no_file(tmp_path: Path) -> None:
    [path] = _record(tmp_path, logged([*PREFACE, *_gops(1), video(1000, OTHER_AVC_HEADER)]))
    assert contents(path) == [*PREFACE, *_gops(1)]


def test_colour_metadata_may_change_within_a_file(tmp_path: Path) -> None:
    colours = [video(at_ms, bytes.fromhex("d4 68766331 02 0001 61 05") + bytes((at_ms,))) for at_ms in (0, 50)]
    messages = [*PREFACE, colours[0], video(0, AVC_KEYFRAME), colours[1], video(60)]
    assert [contents(path) for path in _record(tmp_path, logged(messages))] == [messages]


def test_headers_in_force_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    # Enhanced audio, multitrack, one track each: sequence starts of a hundred tracks, and one of 100 kB.
    tracks = [audio(0, bytes.fromhex("95 00 4f707573") + bytes((track,))) for track in range(100)]
    huge = video(0, AVC_HEADER + bytes(100_000))
    messages = [video(0, AVC_KEYFRAME), data(0, METADATA + bytes(100_000)), huge, *tracks, *_gops(2)]
    first, second = _record(tmp_path, logged(messages), segment_s=1)
    assert contents(first)[: 3 + 100] == messages[: 3 + 100]
    assert [message.payload for message in contents(second)[:65]] == [
        *(track.payload for track in tracks[36:]), AVC_KEYFRAME,
    ]  # fmt: skip


def test_a_stream_without_media_leaves_no_file(tmp_path: Path) -> None:
    assert _record(tmp_path, []) == []
    assert _record(tmp_path, logged(PREFACE)) == []
    assert list(tmp_path.iterdir()) == []


def test_a_stream_of_data_alone_is_recorded(tmp_path: Path) -> None:
    messages = [data(0), *(data(ms, CUE_POINT) for ms in range(10))]
    assert [contents(path) for path in _record(tmp_path, logged(messages))] == [messages]


def test_what_is_held_for_the_first_frame_is_bounded(tmp_path: Path) -> None:
    small = [data(ms) for ms in range(MAX_HELD_MESSAGES)]
    large = [data(ms, METADATA + bytes(MAX_HELD_BYTES // 4)) for ms in range(4)]
    for messages in (small, large):
        writer = RecordingWriter(tmp_path, "live", "cam", wall_time=lambda: NOON_S)
        writer.write(logged(messages[:-1]))
        assert writer.tags == 0
        writer.write(logged(messages[-1:]))
        assert writer.tags == len(messages)
        writer.write(logged(messages))  # now for a file that is there
        assert writer.tags == 2 * len(messages)
        writer.close()


@pytest.mark.parametrize("batch", [1, 10_000])
def test_segments_are_cut_at_the_first_keyframe_after_the_duration(tmp_path: Path, batch: int) -> None:
    media = _gops(5)
    files = _record(tmp_path, logged([*PREFACE, *media]), segment_s=1.5, batch=batch)
    assert [path.name for path in files] == [f"live_cam_20260301_120000_seg00{n}.flv" for n in (1, 2, 3)]
    heads = [contents(path)[:4] for path in files]
    assert heads == [
        [data(0), video(at_ms, AVC_HEADER), audio(at_ms, AAC_HEADER), video(at_ms, AVC_KEYFRAME)]
        for at_ms in (0, 2000, 4000)
    ]
    assert [message for path in files for message in contents(path)[3:]] == media


def test_audio_alone_is_cut_at_a_frame(tmp_path: Path) -> None:
    media = [audio(ms) for ms in range(0, 3000, 23)]
    files = _record(tmp_path, logged([audio(0, AAC_HEADER), *media]), segment_s=1)
    assert [contents(path)[1].timestamp_ms for path in files] == [0, 1012, 2024]
    assert [message for path in files for message in contents(path)[1:]] == media


def test_video_that_stops_does_not_stop_the_segments(tmp_path: Path) -> None:
    messages = [*PREFACE, *_gops(2), *(audio(ms) for ms in range(2000, 8000, 20))]
    files = _record(tmp_path, logged(messages), segment_s=2)
    # The newest picture is of 1960: 2 s without one are over at 3960, then each 2 s.
    assert [contents(path)[3].timestamp_ms for path in files] == [0, 3960, 5960, 7960]


def test_a_changed_header_goes_on_with_the_next_segment(tmp_path: Path) -> None:
    messages = [*PREFACE, *_gops(1), audio(999, OTHER_AAC_HEADER), *_gops(3, first_ms=1000)]
    files = _record(tmp_path, logged(messages), segment_s=2)
    assert [(path.name[-10:], contents(path)[3].timestamp_ms) for path in files] == [
        ("seg001.flv", 0), ("seg002.flv", 1000), ("seg003.flv", 3000),
    ]  # fmt: skip


def test_segments_of_two_recordings_with_one_name_are_told_apart(tmp_path: Path) -> None:
    writers = [
        RecordingWriter(tmp_path, "live", "cam", segment_duration_s=1, wall_time=lambda: NOON_S) for _ in range(2)
    ]
    writers[0].write(logged([video(0, AVC_KEYFRAME)]))
    writers[1].write(logged(_gops(2)))  # its second segment comes before that of the first
    writers[0].write(logged(_gops(2))[1:])
    for writer in writers:
        writer.close()
    stem = "live_cam_20260301_120000_seg"
    ours, others = ([event.path.name for event in w.take_events() if isinstance(event, FileStarted)] for w in writers)
    assert ours == [f"{stem}001.flv", f"{stem}002.flv"]
    assert others == [f"{stem}001-2.flv", f"{stem}002-2.flv"]


def test_after_a_skip_the_file_goes_on_and_repeated_headers_are_not_written_again(tmp_path: Path) -> None:
    log = StreamLog(LogLimits(retain_s=1e9, max_messages=60))
    cursor = Cursor(log)
    writer = RecordingWriter(tmp_path, "live", "cam", wall_time=lambda: NOON_S)
    for message in [*PREFACE, *_gops(1)]:
        log.append(*message)
    writer.write(cursor.take(1 << 30))
    for message in [data(1000, OTHER_METADATA), *_gops(4, first_ms=1000)]:
        log.append(*message)
    writer.write(cursor.take(1 << 30))
    writer.close()
    [path] = {event.path for event in writer.take_events()}
    found = contents(path)
    assert found[: 3 + 50] == [*PREFACE, *_gops(1)]
    assert found[3 + 50] == data(0, OTHER_METADATA)  # changed in what was skipped
    assert found[3 + 51 :] == _gops(1, first_ms=4000)


def test_a_recording_that_joins_late_begins_with_metadata_where_ffmpeg_expects_it(tmp_path: Path) -> None:
    log = StreamLog(LogLimits())
    for message in [*PREFACE, *_gops(3)]:
        log.append(*message)
    [path] = _record(tmp_path, Cursor(log).take(1 << 30))
    assert contents(path)[:3] == [data(0), video(2000, AVC_HEADER), audio(2000, AAC_HEADER)]
    assert contents(path)[3:] == _gops(1, first_ms=2000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_flv(tmp_path_factory.mktemp("source") / "source.flv", "h264 and aac", 4)


def test_a_recording_of_ffmpegs_stream_is_the_same_to_ffmpeg(source: Path, tmp_path: Path) -> None:
    [path] = _record(tmp_path, logged(contents(source)), batch=9)
    assert_plays(path)
    assert frame_hashes(path) == frame_hashes(source)
    assert contents(path) == contents(source)


def test_every_segment_plays_by_itself_and_together_they_are_the_whole(source: Path, tmp_path: Path) -> None:
    files = _record(tmp_path, logged(contents(source)), segment_s=1, batch=9)
    assert len(files) == 4
    for path in files:
        assert_plays(path)
        assert next(packet for packet in demux(path) if packet.kind == "video").dts == contents(path)[3].timestamp_ms
    assert [packet for path in files for packet in demux(path)] == demux(source)


def test_both_files_of_a_change_of_size_play(source: Path, tmp_path: Path) -> None:
    other = make_flv(tmp_path / "other.flv", "h264 and aac of another size")
    later = [Sent(m.type_id, m.timestamp_ms + 4200, m.payload) for m in contents(other)]
    first, second = _record(tmp_path / "out", logged([*contents(source), *later]))
    assert_plays(first)
    assert_plays(second)
    # FFmpeg ends with an AVC end of sequence, whose turn was before the new headers.
    assert demux(first) == demux(source)
    assert [packet.body for packet in demux(second)] == [packet.body for packet in demux(other)]


@pytest.mark.parametrize("recipe", ["h264 alone", "aac alone", "mp3 alone", "hevc and aac"])
def test_streams_of_every_kind_play_from_their_segments(recipe: str, tmp_path: Path) -> None:
    source = make_flv(tmp_path / "source.flv", recipe, 3)
    files = _record(tmp_path / "out", logged(contents(source)), segment_s=1)
    assert len(files) >= 2
    for path in files:
        assert_plays(path)
    assert [packet for path in files for packet in demux(path)] == demux(source)


a_message = st.one_of(
    st.builds(lambda ms, payload: Sent(VIDEO, ms, payload), st.integers(0, 5000),
              st.sampled_from((AVC_HEADER, OTHER_AVC_HEADER, AVC_KEYFRAME, b"", b"\x27\x01\0\0\0x"))),
    st.builds(lambda ms, payload: audio(ms, payload), st.integers(0, 5000),
              st.sampled_from((AAC_HEADER, OTHER_AAC_HEADER, b"", b"\xaf\x01x"))),
    st.builds(lambda ms, payload: Sent(DATA, ms, payload), st.integers(0, 5000),
              st.sampled_from((METADATA, OTHER_METADATA, CUE_POINT))),
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(a_message, max_size=40), st.sampled_from((None, 0.5)), st.integers(1, 40))
def test_no_frame_is_lost_or_moved_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Sent], segment_s: float | None, batch: int
) -> None:
    entries = logged(messages)
    files = _record(tmp_path_factory.mktemp("any"), entries, segment_s=segment_s, batch=batch)
    # Headers and metadata may be repeated or replaced; frames, cue points and empty messages may not.
    kept = (CUE_POINT, b"")
    found = [m for path in files for m in contents(path)]
    assert [m for m in found if m.payload[1:2] == b"\x01"] == [m for m in messages if m.payload[1:2] == b"\x01"]
    assert [m for m in found if m.payload in kept] == [m for m in messages if m.payload in kept]


# --- which messages of the log a file begins with


Positions = list[tuple[int | None, int | None]]


def _positions(directory: Path, entries: Sequence[Entry], segment_s: float | None = None) -> Positions:
    """Of each file's first message and of its first frame."""
    writer = RecordingWriter(directory, "live", "cam", segment_duration_s=segment_s, wall_time=lambda: NOON_S)
    writer.write(entries)
    writer.close()
    started = [event for event in writer.take_events() if isinstance(event, FileStarted)]
    return [(event.position, event.frame_position) for event in started]


def test_a_file_is_told_with_the_positions_of_its_first_message_and_frame(tmp_path: Path) -> None:
    sent = [*PREFACE, *_gops(3)]
    assert _positions(tmp_path, logged(sent)) == [(0, 3)]
    assert _positions(tmp_path, logged(sent), segment_s=1.0) == [(0, 3), (3 + 50, 3 + 50), (3 + 100, 3 + 100)]


def test_a_file_that_begins_with_new_headers_begins_at_the_first_of_them(tmp_path: Path) -> None:
    change = [data(1000, OTHER_METADATA), video(1000, OTHER_AVC_HEADER)]
    sent = [*PREFACE, *_gops(1), *change, *_gops(1, first_ms=1000)]
    assert _positions(tmp_path, logged(sent)) == [(0, 3), (53, 55)]


def test_what_is_repeated_for_a_late_joiner_has_no_position(tmp_path: Path) -> None:
    log = StreamLog(LogLimits())
    for message in [*PREFACE, *_gops(2)]:
        log.append(*message)
    assert _positions(tmp_path, Cursor(log).take(1 << 30)) == [(53, 53)]


def test_a_file_of_nothing_that_the_log_has_is_told_without_a_position(tmp_path: Path) -> None:
    repeated = [entry.at(0, 0) for entry in logged([audio(n, CUE_POINT) for n in range(MAX_HELD_MESSAGES)])]
    assert _positions(tmp_path, repeated) == [(None, None)]
