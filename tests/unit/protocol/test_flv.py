"""FLV against bytes written out by hand from FLV 10.1, Annex E, and against real FFmpeg in both directions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol.flv import FileHeader, FlvReader, Tag, encode_file_header, encode_tag
from tests.unit.record.samples import (
    RECIPES,
    Packet,
    assert_plays,
    demux,
    frame_hashes,
    make_flv,
    read_tags,
)

HEADER = bytes.fromhex("464c56 01 05 00000009 00000000")

TAGS: list[tuple[str, tuple[int, int, bytes], str]] = [
    ("audio", (8, 0, b"\xaf\x01\x21"), "08 000003 000000 00 000000 af0121 0000000e"),
    ("video", (9, 0x010203, b"\x27"), "09 000001 010203 00 000000 27 0000000c"),
    ("script data", (18, 40, b"\x05"), "12 000001 000028 00 000000 05 0000000c"),
    ("no payload", (8, 1, b""), "08 000000 000001 00 000000 0000000b"),
    ("largest 24-bit timestamp", (9, 0xFFFFFF, b"\x27"), "09 000001 ffffff 00 000000 27 0000000c"),
    ("timestamp beyond 24 bits", (9, 0x1000000, b"\x27"), "09 000001 000000 01 000000 27 0000000c"),
    ("largest timestamp", (9, 0xFFFFFFFF, b"\x27"), "09 000001 ffffff ff 000000 27 0000000c"),
]

MALFORMED: list[tuple[str, str, str]] = [
    ("another signature", "464c57 01 05 00000009 00000000", "signature b'FLW', expected b'FLV'"),
    ("an MP4 file", "00000018 66747970", "signature b'\\x00\\x00\\x00'"),
    ("a data offset inside the header", "464c56 01 05 00000008 00000000", "data offset 8, expected 9..1024"),
    ("a data offset beyond reason", "464c56 01 05 7fffffff 00000000", "data offset 2147483647"),
    ("tag type 0", HEADER.hex() + "00", "tag type 0x00 at 13, expected 8, 9 or 18"),
    ("a command tag", HEADER.hex() + "14 000000 000000 00 000000 0000000b", "tag type 0x14 at 13"),
    ("an encrypted tag", HEADER.hex() + "29 000000 000000 00 000000 0000000b", "not encrypted"),
    (
        "a size that leaves out the tag header",
        HEADER.hex() + "08 000001 000000 00 000000 af 00000001",
        "previous-tag size 1 at 25, expected 12",
    ),
]

any_tag = st.tuples(st.sampled_from((8, 9, 18)), st.integers(0, 0xFFFFFFFF), st.binary(max_size=40))
any_cuts = st.lists(st.integers(0, 400), max_size=12)


def _encode(tags: list[tuple[int, int, bytes]]) -> bytes:
    return encode_file_header() + b"".join(encode_tag(*tag) for tag in tags)


def _receive_split(data: bytes, cuts: list[int]) -> tuple[list[Tag], str]:
    """The tags, and how it ended: the fault, or the number of bytes left over."""
    reader = FlvReader()
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    tags: list[Tag] = []
    try:
        for start, stop in pairwise(edges):
            tags += reader.receive(data[start:stop])
        return tags, f"{reader.finish()} left"
    except PeerError as error:
        return tags, str(error)


@pytest.mark.parametrize(
    ("has_audio", "has_video", "flags"), [(True, True, "05"), (True, False, "04"), (False, True, "01")]
)
def test_the_file_header_says_what_is_inside_and_is_followed_by_a_size_of_zero(
    has_audio: bool, has_video: bool, flags: str
) -> None:
    expected = bytes.fromhex(f"464c56 01 {flags} 00000009 00000000")
    assert encode_file_header(has_audio=has_audio, has_video=has_video) == expected
    reader = FlvReader()
    assert reader.receive(expected) == []
    assert reader.header == FileHeader(has_audio, has_video)


@pytest.mark.parametrize(("tag", "wire"), [case[1:] for case in TAGS], ids=[case[0] for case in TAGS])
def test_a_tag_is_written_and_read_as_in_the_specification(tag: tuple[int, int, bytes], wire: str) -> None:
    assert encode_tag(*tag) == bytes.fromhex(wire)
    assert FlvReader().receive(HEADER + bytes.fromhex(wire)) == [Tag(*tag, offset=13)]


def test_tags_know_where_they_stand_in_the_file() -> None:
    data = HEADER + b"".join(bytes.fromhex(case[2]) for case in TAGS[:3])
    reader = FlvReader()
    tags = reader.receive(data)
    assert [(tag.offset, tag.end) for tag in tags] == [(13, 31), (31, 47), (47, 63)]
    assert reader.offset == 63 == len(data)


def test_a_reader_goes_on_at_the_offset_where_another_stopped() -> None:
    data = HEADER + b"".join(bytes.fromhex(case[2]) for case in TAGS)
    first = FlvReader()
    before = first.receive(data[:50])
    after = FlvReader(offset=first.offset).receive(data[first.offset :])
    assert before + after == FlvReader().receive(data)


def test_a_tag_is_given_out_only_when_the_size_after_it_has_been_read() -> None:
    tag = bytes.fromhex(TAGS[0][2])
    reader = FlvReader()
    assert reader.receive(HEADER + tag[:-1]) == []
    assert reader.finish() == len(tag) - 1
    assert reader.receive(tag[-1:]) == [Tag(8, 0, b"\xaf\x01\x21", 13)]
    assert reader.finish() == 0


def test_a_longer_file_header_is_skipped() -> None:
    data = bytes.fromhex("464c56 01 05 0000000c aabbcc 00000000") + bytes.fromhex(TAGS[1][2])
    assert [tag.offset for tag in FlvReader().receive(data)] == [16]


def test_what_muxers_get_wrong_without_harm_is_not_judged() -> None:
    # Version 2, no flags, a first size of 9, a stream id of 1.
    data = bytes.fromhex("464c56 02 00 00000009 00000009 08 000001 000000 00 000001 af 0000000c")
    assert FlvReader().receive(data) == [Tag(8, 0, b"\xaf", 13)]


@pytest.mark.parametrize(("wire", "message"), [case[1:] for case in MALFORMED], ids=[c[0] for c in MALFORMED])
def test_malformed_bytes_are_the_peers_error_in_any_split(wire: str, message: str) -> None:
    data = bytes.fromhex(wire)
    with pytest.raises(PeerError) as caught:
        FlvReader().receive(data)
    assert message in str(caught.value)
    tags, end = _receive_split(data, list(range(len(data))))
    assert tags == []
    assert "left" not in end


def test_tags_before_the_damage_are_returned_and_the_fault_is_raised_by_the_next_call() -> None:
    good = bytes.fromhex(TAGS[0][2])
    reader = FlvReader()
    assert len(reader.receive(HEADER + good + good + b"\x00garbage")) == 2
    with pytest.raises(PeerError, match="tag type 0x00 at 49"):
        reader.receive(good)
    with pytest.raises(PeerError, match="tag type 0x00 at 49"):
        reader.finish()
    assert reader.offset == 49


def test_a_tag_above_the_cap_is_refused_before_its_payload_is_gathered() -> None:
    reader = FlvReader(max_payload_bytes=100)
    assert reader.receive(HEADER + encode_tag(8, 0, bytes(100))) != []
    with pytest.raises(PeerError, match="tag of 101 bytes at 128, expected at most 100"):
        reader.receive(encode_tag(8, 0, bytes(101))[:4])


def test_a_tag_that_cannot_be_written_is_our_own_mistake() -> None:
    with pytest.raises(UsageError, match="tag type 20, expected 8, 9 or 18"):
        encode_tag(20, 0, b"")
    with pytest.raises(UsageError, match="16777216 bytes, expected at most 16777215"):
        encode_tag(9, 0, bytes(0x1000000))


def test_the_largest_tag_passes_in_small_pieces() -> None:
    data = HEADER + encode_tag(9, 7, bytes(0xFFFFFF))
    reader = FlvReader()
    tags: list[Tag] = []
    for start in range(0, len(data), 4096):
        tags += reader.receive(data[start : start + 4096])
    assert [(len(tag.payload), tag.timestamp_ms) for tag in tags] == [(0xFFFFFF, 7)]


@given(st.lists(any_tag, max_size=6), any_cuts)
def test_tags_come_back_as_they_were_written_in_any_split(
    written: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    tags, end = _receive_split(_encode(written), cuts)
    assert [(tag.type_id, tag.timestamp_ms, tag.payload) for tag in tags] == written
    assert end == "0 left"


@given(st.lists(any_tag, min_size=1, max_size=4), st.integers(13, 10_000), st.integers(1, 255), any_cuts)
def test_damage_gives_the_same_tags_and_the_same_end_in_any_split(
    written: list[tuple[int, int, bytes]], place: int, change: int, cuts: list[int]
) -> None:
    data = bytearray(_encode(written))
    data[13 + place % (len(data) - 13)] ^= change
    assert _receive_split(bytes(data), cuts) == _receive_split(bytes(data), [])


@given(st.binary(max_size=300), st.booleans(), any_cuts)
def test_any_bytes_give_tags_or_the_peers_error(garbage: bytes, is_headed: bool, cuts: list[int]) -> None:
    _receive_split(HEADER + garbage if is_headed else garbage, cuts)


@pytest.fixture(scope="module", params=sorted(RECIPES))
def ffmpeg_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_flv(tmp_path_factory.mktemp("flv") / "made.flv", request.param)


def _packet(tag: Tag) -> Packet | None:
    """What a demuxer should make of a tag of FFmpeg's; None where there is no media in it."""
    payload = tag.payload
    if tag.type_id == 8:
        is_aac = payload[0] >> 4 == 10
        if is_aac and payload[1] == 0:
            return None
        return Packet("audio", tag.timestamp_ms, tag.timestamp_ms, payload[2 if is_aac else 1 :])
    if tag.type_id == 9 and payload[0] & 0x80:  # Enhanced: packet type, FourCC, then a composition time or not
        if payload[0] & 15 not in (1, 3):
            return None
        composed = payload[0] & 15 == 1
        shift_ms = int.from_bytes(payload[5:8], "big", signed=True) if composed else 0
        return Packet("video", tag.timestamp_ms, tag.timestamp_ms + shift_ms, payload[8 if composed else 5 :])
    if tag.type_id == 9 and payload[1] == 1:
        shift_ms = int.from_bytes(payload[2:5], "big", signed=True)
        return Packet("video", tag.timestamp_ms, tag.timestamp_ms + shift_ms, payload[5:])
    return None


def test_a_file_of_ffmpegs_gives_the_packets_that_ffmpeg_itself_finds(ffmpeg_file: Path) -> None:
    packets = [packet for packet in map(_packet, read_tags(ffmpeg_file)) if packet is not None]
    assert len(packets) > 25
    assert packets == demux(ffmpeg_file)


def test_a_file_of_ffmpegs_written_again_is_the_same_bytes(ffmpeg_file: Path) -> None:
    original = ffmpeg_file.read_bytes()
    reader = FlvReader()
    tags = reader.receive(original)
    assert reader.header is not None
    header = encode_file_header(has_audio=reader.header.has_audio, has_video=reader.header.has_video)
    assert header + b"".join(encode_tag(*tag[:3]) for tag in tags) == original


def test_a_header_that_claims_both_kinds_harms_no_reader(ffmpeg_file: Path, tmp_path: Path) -> None:
    ours = tmp_path / "both.flv"
    ours.write_bytes(_encode([tag[:3] for tag in read_tags(ffmpeg_file)]))
    assert_plays(ours)
    assert frame_hashes(ours) == frame_hashes(ffmpeg_file)
    assert demux(ours) == demux(ffmpeg_file)


def test_timestamps_across_24_bits_are_what_ffmpeg_reads(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = read_tags(make_flv(tmp_path_factory.mktemp("flv") / "source.flv", "h264 and aac"))
    shift_ms = 0xFFFFFF - 1000
    path = tmp_path / "late.flv"
    # The first is onMetaData, which stays at 0.
    later = [Tag(tag.type_id, tag.timestamp_ms + shift_ms, tag.payload, 0) for tag in source[1:]]
    path.write_bytes(_encode([tag[:3] for tag in (source[0], *later)]))
    assert demux(path) == [packet for packet in map(_packet, later) if packet is not None]
