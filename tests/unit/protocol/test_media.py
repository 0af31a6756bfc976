"""Audio and video headers, their bytes by hand from FLV 10.1 and Enhanced RTMP v2.

Headers that real muxers wrote are in codecs/test_real_flv.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError
from headrace.protocol.media import (
    CONFIG,
    END,
    FRAME,
    KEYFRAME,
    METADATA,
    MULTITRACK,
    SIDE_TRACK,
    AudioPacketType,
    ConfigSlot,
    Track,
    VideoPacketType,
    classify_audio,
    classify_video,
    config_slot,
    parse_audio,
    parse_video,
)

KEY = FRAME | KEYFRAME

# A ModEx header of 3 bytes of data, 999999 ns = 0x0F423F, followed by the real packet type.
NANOS = b"\x02\x0f\x42\x3f"
# The same data in the long form: size byte 255, then 16 bits of size minus one.
LONG_NANOS = b"\xff\x00\x02\x0f\x42\x3f"

# (name, payload, flags, codec, tracks)
VIDEO = [
    ("avc sequence header", b"\x17\x00\x00\x00\x00\x01\x64", CONFIG, "h264", [Track(0, "h264", b"\x01\x64")]),
    ("avc keyframe", b"\x17\x01\x00\x00\x50\xaa", KEY, "h264", [Track(0, "h264", b"\xaa", 80)]),
    ("avc inter frame", b"\x27\x01\x00\x00\x00\xbb", FRAME, "h264", [Track(0, "h264", b"\xbb")]),
    ("avc negative time", b"\x27\x01\xff\xff\xd8\xbb", FRAME, "h264", [Track(0, "h264", b"\xbb", -40)]),
    ("avc long time, no body", b"\x27\x01\x01\x00\x00", FRAME, "h264", [Track(0, "h264", b"", 65536)]),
    ("avc end of sequence", b"\x17\x02\x00\x00\x00", END, "h264", [Track(0, "h264", b"")]),
    ("avc end without time", b"\x17\x02", END, "h264", [Track(0, "h264", b"")]),
    ("avc header as inter", b"\x27\x00\x00\x00\x00\x01", CONFIG, "h264", [Track(0, "h264", b"\x01")]),
    ("avc disposable frame", b"\x37\x01\x00\x00\x00\xbb", FRAME, "h264", [Track(0, "h264", b"\xbb")]),
    ("avc generated keyframe", b"\x47\x01\x00\x00\x00\xbb", FRAME, "h264", [Track(0, "h264", b"\xbb")]),
    ("avc command", b"\x57\x00\x00\x00\x00\x01", 0, "h264", []),
    ("avc command alone", b"\x57", 0, "h264", []),
    ("hevc codec id 12", b"\x1c\x00\x00\x00\x00\x01", CONFIG, "hevc", [Track(0, "hevc", b"\x01")]),
    ("hevc codec id 12 key", b"\x1c\x01\x00\x00\x28\xcc", KEY, "hevc", [Track(0, "hevc", b"\xcc", 40)]),
    (
        "sorenson keyframe",
        b"\x12\x00\x00\x84",
        KEY,
        "sorenson_h263",
        [Track(0, "sorenson_h263", b"\x00\x00\x84")],
    ),
    ("sorenson header alone", b"\x22", FRAME, "sorenson_h263", [Track(0, "sorenson_h263", b"")]),
    ("screen", b"\x13\x01\x02\x03\x04\x05", KEY, "screen", [Track(0, "screen", b"\x01\x02\x03\x04\x05")]),
    ("vp6", b"\x14\x00\x78", KEY, "vp6", [Track(0, "vp6", b"\x00\x78")]),
    ("vp6 alpha", b"\x25\x00\x78", FRAME, "vp6a", [Track(0, "vp6a", b"\x00\x78")]),
    ("screen 2", b"\x26\x00", FRAME, "screen2", [Track(0, "screen2", b"\x00")]),
    ("unknown codec id", b"\x1d\x00", KEY, "unknown(13)", [Track(0, "unknown(13)", b"\x00")]),
    ("ex sequence start", b"\x90hvc1\x01\x02", CONFIG, "hevc", [Track(0, "hevc", b"\x01\x02")]),
    ("ex keyframe", b"\x91hvc1\x00\x00\x50\xaa", KEY, "hevc", [Track(0, "hevc", b"\xaa", 80)]),
    ("ex negative time", b"\xa1avc1\xff\xff\xff\xaa", FRAME, "h264", [Track(0, "h264", b"\xaa", -1)]),
    ("ex time without body", b"\x91hvc1\x00\x00\x07", KEY, "hevc", [Track(0, "hevc", b"", 7)]),
    ("ex vvc with time", b"\xa1vvc1\x00\x00\x01\xaa", FRAME, "vvc", [Track(0, "vvc", b"\xaa", 1)]),
    ("ex av1 without time", b"\x91av01\x12\x00\x0a", KEY, "av1", [Track(0, "av1", b"\x12\x00\x0a")]),
    ("ex vp8", b"\x91vp08\x10", KEY, "vp8", [Track(0, "vp8", b"\x10")]),
    ("ex vp9 inter", b"\xa1vp09\x86", FRAME, "vp9", [Track(0, "vp9", b"\x86")]),
    ("ex frame without time", b"\x93hvc1\xaa", KEY, "hevc", [Track(0, "hevc", b"\xaa")]),
    ("ex inter without time", b"\xa3hvc1\xaa", FRAME, "hevc", [Track(0, "hevc", b"\xaa")]),
    ("ex sequence end", b"\x92hvc1", END, "hevc", [Track(0, "hevc", b"")]),
    ("ex metadata", b"\xd4hvc1\x02", METADATA, "hevc", [Track(0, "hevc", b"\x02")]),
    ("ex metadata of key type", b"\x94hvc1\x02", METADATA, "hevc", [Track(0, "hevc", b"\x02")]),
    ("ex mpeg2ts start", b"\x95av01\x80\x04", CONFIG, "av1", [Track(0, "av1", b"\x80\x04")]),
    ("ex command", b"\xd1\x01", 0, "unknown", []),
    ("ex command and more", b"\xd0\x00hvc1", 0, "unknown", []),
    ("ex unknown fourcc", b"\x91abcd\x01", KEY, "abcd", [Track(0, "abcd", b"\x01")]),
    (
        "ex unprintable fourcc",
        b"\x91ab\x00\n\x01",
        KEY,
        "unknown(0x6162000a)",
        [Track(0, "unknown(0x6162000a)", b"\x01")],
    ),
    ("modex keyframe", b"\x97" + NANOS + b"\x01av01\x0a", KEY, "av1", [Track(0, "av1", b"\x0a")]),
    ("modex long size", b"\xa7" + LONG_NANOS + b"\x03hvc1\x0a", FRAME, "hevc", [Track(0, "hevc", b"\x0a")]),
    ("modex of an unknown type", b"\x97\x00\xee\x10hvc1\x0a", CONFIG, "hevc", [Track(0, "hevc", b"\x0a")]),
    (
        "modex twice",
        b"\x97\x00\xee\x17" + NANOS + b"\x03hvc1\x0a",
        KEY,
        "hevc",
        [Track(0, "hevc", b"\x0a")],
    ),
    ("modex command", b"\xd7" + NANOS + b"\x01\x00", 0, "unknown", []),
    (
        "modex around multitrack",
        b"\x97" + NANOS + b"\x06\x03hvc1\x02\x0a",
        KEY | MULTITRACK | SIDE_TRACK,
        "hevc",
        [Track(2, "hevc", b"\x0a")],
    ),
    (
        "one track, the main one",
        b"\x96\x00avc1\x00\x01\x64",
        CONFIG | MULTITRACK,
        "h264",
        [Track(0, "h264", b"\x01\x64")],
    ),
    (
        "one track without a body",
        b"\x96\x02avc1\x01",
        END | MULTITRACK | SIDE_TRACK,
        "h264",
        [Track(1, "h264", b"")],
    ),
    (
        "one side track",
        b"\x96\x01avc1\x03\x00\x00\x28\xaa",
        KEY | MULTITRACK | SIDE_TRACK,
        "h264",
        [Track(3, "h264", b"\xaa", 40)],
    ),
    (
        "many tracks, one codec",
        b"\xa6\x11hvc1\x00\x00\x00\x04\x00\x00\x28\xaa\x01\x00\x00\x05\xff\xff\xd8\xbb\xcc",
        FRAME | MULTITRACK,
        "hevc",
        [Track(0, "hevc", b"\xaa", 40), Track(1, "hevc", b"\xbb\xcc", -40)],
    ),
    (
        "many tracks, many codecs",
        b"\x96\x20avc1\x00\x00\x00\x01\x64av01\x01\x00\x00\x02\x81\x05",
        CONFIG | MULTITRACK,
        "h264",
        [Track(0, "h264", b"\x64"), Track(1, "av1", b"\x81\x05")],
    ),
    (
        "metadata of a side track",
        b"\xd6\x04hvc1\x01\x02",
        METADATA | MULTITRACK | SIDE_TRACK,
        "hevc",
        [Track(1, "hevc", b"\x02")],
    ),
]

AUDIO = [
    ("aac config", b"\xaf\x00\x11\x90", CONFIG, "aac", [Track(0, "aac", b"\x11\x90")]),
    ("aac frame", b"\xaf\x01\x21\x10\x04\x60", FRAME, "aac", [Track(0, "aac", b"\x21\x10\x04\x60")]),
    ("mp3", b"\x2f\xff\xfb", FRAME, "mp3", [Track(0, "mp3", b"\xff\xfb")]),
    ("pcm", b"\x0e\x00", FRAME, "pcm", [Track(0, "pcm", b"\x00")]),
    ("adpcm", b"\x1a\x80", FRAME, "adpcm", [Track(0, "adpcm", b"\x80")]),
    ("pcm little endian", b"\x3e\x00", FRAME, "pcm_le", [Track(0, "pcm_le", b"\x00")]),
    ("nellymoser 16 kHz", b"\x42\x40", FRAME, "nellymoser_16k", [Track(0, "nellymoser_16k", b"\x40")]),
    ("nellymoser 8 kHz", b"\x52\x40", FRAME, "nellymoser_8k", [Track(0, "nellymoser_8k", b"\x40")]),
    ("nellymoser", b"\x6a\x40", FRAME, "nellymoser", [Track(0, "nellymoser", b"\x40")]),
    ("a-law", b"\x72\xd5", FRAME, "g711a", [Track(0, "g711a", b"\xd5")]),
    ("mu-law", b"\x82\xd5", FRAME, "g711u", [Track(0, "g711u", b"\xd5")]),
    ("speex", b"\xb6\x36", FRAME, "speex", [Track(0, "speex", b"\x36")]),
    ("mp3 8 kHz", b"\xe2\xff", FRAME, "mp3_8k", [Track(0, "mp3_8k", b"\xff")]),
    ("device", b"\xf0\x00", FRAME, "device", [Track(0, "device", b"\x00")]),
    ("reserved sound format", b"\xc0\x00", FRAME, "unknown(12)", [Track(0, "unknown(12)", b"\x00")]),
    ("mp3 header alone", b"\x2f", FRAME, "mp3", [Track(0, "mp3", b"")]),
    ("ex opus start", b"\x90OpusOpusHead", CONFIG, "opus", [Track(0, "opus", b"OpusHead")]),
    ("ex empty start", b"\x90ac-3", CONFIG, "ac3", [Track(0, "ac3", b"")]),
    ("ex frame", b"\x91ec-3\x0b\x77", FRAME, "eac3", [Track(0, "eac3", b"\x0b\x77")]),
    ("ex end", b"\x92fLaC", END, "flac", [Track(0, "flac", b"")]),
    ("ex channels", b"\x94mp4a\x01\x06", CONFIG, "aac", [Track(0, "aac", b"\x01\x06")]),
    ("ex mp3", b"\x91.mp3\xff", FRAME, "mp3", [Track(0, "mp3", b"\xff")]),
    ("ex unknown fourcc", b"\x91dtsx\xff", FRAME, "dtsx", [Track(0, "dtsx", b"\xff")]),
    ("modex frame", b"\x97" + NANOS + b"\x01Opus\xfc", FRAME, "opus", [Track(0, "opus", b"\xfc")]),
    (
        "one side track",
        b"\x95\x00Opus\x01\x4f",
        CONFIG | MULTITRACK | SIDE_TRACK,
        "opus",
        [Track(1, "opus", b"\x4f")],
    ),
    (
        "many tracks, one codec",
        b"\x95\x11mp4a\x00\x00\x00\x01\x21\x02\x00\x00\x00",
        FRAME | MULTITRACK,
        "aac",
        [Track(0, "aac", b"\x21"), Track(2, "aac", b"")],
    ),
    (
        "many tracks, many codecs",
        b"\x95\x24Opus\x01\x00\x00\x02\x01\x02fLaC\x02\x00\x00\x01\x09",
        CONFIG | MULTITRACK | SIDE_TRACK,
        "opus",
        [Track(1, "opus", b"\x01\x02"), Track(2, "flac", b"\x09")],
    ),
]

BROKEN_VIDEO = [
    ("nothing", b""),
    ("avc without packet type", b"\x17"),
    ("avc without time", b"\x17\x01\x00\x00"),
    ("avc config without time", b"\x17\x00\x00\x00"),
    ("avc packet type 3", b"\x17\x03\x00\x00\x00\x00"),
    ("half a fourcc", b"\x91hv"),
    ("packet type 8", b"\x98hvc1\x00"),
    ("command without its byte", b"\xd1"),
    ("multitrack without type", b"\x96"),
    ("multitrack type 3", b"\x96\x31hvc1\x00\x00\x00\x00"),
    ("multitrack in multitrack", b"\x96\x06hvc1\x00\x00"),
    ("modex in multitrack", b"\x96\x07hvc1\x00\x00"),
    ("multitrack packet type 9", b"\x96\x09hvc1\x00\x00"),
    ("multitrack without tracks", b"\x96\x10hvc1"),
    ("track without size", b"\x96\x10hvc1\x00\x00\x00"),
    ("track cut short", b"\x96\x10hvc1\x00\x00\x00\x02\xaa"),
    ("many codecs without fourcc", b"\x96\x20hv"),
    ("modex without size", b"\x97"),
    ("modex without long size", b"\x97\xff\x00"),
    ("modex cut short", b"\x97\x02\x00\x00"),
    ("modex without packet type", b"\x97\x02\x00\x00\x00"),
    ("modex offset of 2 bytes", b"\x97\x01\x00\x00\x01av01\x00"),
    ("modex offset of a millisecond", b"\x97\x02\x0f\x42\x40\x01av01\x00"),
    ("modex without an end", b"\x97" + b"\x00\x00\x17" * 17 + b"\x01av01"),
]

BROKEN_AUDIO = [
    ("nothing", b""),
    ("aac without packet type", b"\xaf"),
    ("aac packet type 2", b"\xaf\x02\x00\x00\x00"),
    ("packet type 3", b"\x93Opus\x00"),
    ("packet type 6", b"\x96Opus\x00"),
    ("half a fourcc", b"\x91Op"),
    ("multitrack in multitrack", b"\x95\x05Opus\x00\x00"),
    ("track cut short", b"\x95\x11Opus\x00\x00\x01\x00"),
]


def case_names(cases: list[tuple[str, bytes]] | list[tuple[str, bytes, int, str, list[Track]]]) -> list[str]:
    return [case[0] for case in cases]


@pytest.mark.parametrize(("_name", "payload", "flags", "codec", "tracks"), VIDEO, ids=case_names(VIDEO))
def test_video_header_gives_its_flags_codec_and_tracks(
    _name: str, payload: bytes, flags: int, codec: str, tracks: list[Track]
) -> None:
    packet = parse_video(payload)
    assert classify_video(payload) == flags
    assert (packet.flags, packet.codec, list(packet.tracks)) == (flags, codec, tracks)
    assert packet.is_enhanced == (payload[0] >= 0x80)
    assert packet.composition_ms == (tracks[0].composition_ms if tracks else 0)
    assert packet.is_command == (not tracks)
    assert packet.is_keyframe == bool(flags & KEYFRAME)
    assert packet.is_config == bool(flags & CONFIG)
    assert packet.is_end == bool(flags & END)
    assert packet.is_metadata == bool(flags & METADATA)
    assert packet.is_multitrack == bool(flags & MULTITRACK)


@pytest.mark.parametrize(("_name", "payload", "flags", "codec", "tracks"), AUDIO, ids=case_names(AUDIO))
def test_audio_header_gives_its_flags_codec_and_tracks(
    _name: str, payload: bytes, flags: int, codec: str, tracks: list[Track]
) -> None:
    packet = parse_audio(payload)
    assert classify_audio(payload) == flags
    assert (packet.flags, packet.codec, list(packet.tracks)) == (flags, codec, tracks)
    assert packet.is_enhanced == (payload[0] >> 4 == 9)


@pytest.mark.parametrize(("_name", "payload"), BROKEN_VIDEO, ids=case_names(BROKEN_VIDEO))
def test_broken_video_header_is_the_peers_error_and_has_no_flags(_name: str, payload: bytes) -> None:
    with pytest.raises(PeerError):
        parse_video(payload)
    assert classify_video(payload) == 0
    assert config_slot("video", payload) is None


@pytest.mark.parametrize(("_name", "payload"), BROKEN_AUDIO, ids=case_names(BROKEN_AUDIO))
def test_broken_audio_header_is_the_peers_error_and_has_no_flags(_name: str, payload: bytes) -> None:
    with pytest.raises(PeerError):
        parse_audio(payload)
    assert classify_audio(payload) == 0
    assert config_slot("audio", payload) is None


def test_a_second_track_cut_short_is_the_peers_error() -> None:
    with pytest.raises(PeerError, match="the whole of a track"):
        parse_audio(b"\x95\x11Opus\x00\x00\x00\x01\xfc\x01\x00\x00\x05\xfc")


def test_a_coded_frame_without_room_for_its_composition_time_is_the_peers_error() -> None:
    with pytest.raises(PeerError, match="2 bytes, expected a composition time"):
        parse_video(b"\x91hvc1\x00\x00")


def test_more_tracks_than_track_ids_are_the_peers_error() -> None:
    track = b"\x00\x00\x00\x00"
    assert len(parse_audio(b"\x95\x11Opus" + track * 256).tracks) == 256
    with pytest.raises(PeerError, match="more than 256 tracks"):
        parse_audio(b"\x95\x11Opus" + track * 257)


def test_modex_offset_is_reported_in_nanoseconds() -> None:
    assert parse_video(b"\x97" + NANOS + b"\x01av01").timestamp_offset_ns == 999_999
    assert parse_video(b"\x97" + LONG_NANOS + b"\x01av01").timestamp_offset_ns == 999_999
    assert parse_audio(b"\x97\x02\x00\x00\x05\x01Opus").timestamp_offset_ns == 5
    for payload in (b"\x91Opus", b"\xaf\x01\x21", b"\x2f\xff"):
        assert parse_audio(payload).timestamp_offset_ns == 0
    for payload in (b"\x91av01", b"\x27\x01\x00\x00\x00", b"\xd1\x00"):
        assert parse_video(payload).timestamp_offset_ns == 0


def test_modex_data_of_256_bytes_takes_the_long_size() -> None:
    assert parse_video(b"\x97\xff\x00\xff" + bytes(256) + b"\x11av01\x0a").tracks[0].body == b"\x0a"


def test_packet_types_tell_apart_what_the_flags_do_not() -> None:
    assert parse_video(b"\x95av01").packet_type is VideoPacketType.MPEG2TS_SEQUENCE_START
    assert parse_video(b"\x17\x00\x00\x00\x00").packet_type is VideoPacketType.SEQUENCE_START
    assert parse_audio(b"\x94Opus").packet_type is AudioPacketType.MULTICHANNEL_CONFIG
    assert parse_audio(b"\xaf\x00\x11").packet_type is AudioPacketType.SEQUENCE_START


@pytest.mark.parametrize(
    ("first", "rate_hz", "size_bits", "channels"),
    [(0x20, 5512, 8, 1), (0x25, 11025, 8, 2), (0x2A, 22050, 16, 1), (0xAF, 44100, 16, 2)],
)
def test_legacy_audio_header_tells_rate_size_and_channels(
    first: int, rate_hz: int, size_bits: int, channels: int
) -> None:
    packet = parse_audio(bytes([first, 1]))
    assert (packet.sound_rate_hz, packet.sound_size_bits, packet.sound_channels) == (
        rate_hz,
        size_bits,
        channels,
    )


def test_enhanced_audio_header_tells_no_rate_size_and_channels() -> None:
    packet = parse_audio(b"\x91Opus\xfc")
    assert (packet.sound_rate_hz, packet.sound_size_bits, packet.sound_channels) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "payload", "slot"),
    [
        ("video", b"\x17\x00\x00\x00\x00\x01", ConfigSlot("video", "codec", (0,))),
        ("video", b"\x90hvc1\x01", ConfigSlot("video", "codec", (0,))),
        ("video", b"\x95av01\x80", ConfigSlot("video", "codec", (0,))),
        ("video", b"\x96\x00avc1\x00\x01", ConfigSlot("video", "codec", (0,))),
        ("video", b"\x96\x00avc1\x02\x01", ConfigSlot("video", "codec", (2,))),
        ("video", b"\x96\x10hvc1\x00\x00\x00\x00\x01\x00\x00\x00", ConfigSlot("video", "codec", (0, 1))),
        ("video", b"\xd4hvc1\x02", ConfigSlot("video", "metadata", (0,))),
        ("audio", b"\xaf\x00\x11\x90", ConfigSlot("audio", "codec", (0,))),
        ("audio", b"\x90Opus", ConfigSlot("audio", "codec", (0,))),
        ("audio", b"\x94Opus\x01\x02", ConfigSlot("audio", "channels", (0,))),
        ("audio", b"\x95\x04mp4a\x01\x01\x01", ConfigSlot("audio", "channels", (1,))),
        ("video", b"\x17\x01\x00\x00\x00\x01", None),
        ("video", b"\x17\x02\x00\x00\x00", None),
        ("audio", b"\xaf\x01\x21", None),
        ("audio", b"\x92Opus", None),
    ],
)
def test_a_configuration_has_the_slot_of_what_it_replaces(kind: str, payload: bytes, slot: ConfigSlot) -> None:
    assert config_slot("video" if kind == "video" else "audio", payload) == slot


# Random bytes almost never spell a wrapped header: half of the payloads start like one.
headers = st.sampled_from([case[1] for case in (*VIDEO, *AUDIO, *BROKEN_VIDEO, *BROKEN_AUDIO)])
payloads = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda header, cut, rest: header[:cut] + rest, headers, st.integers(0, 16), st.binary(max_size=16)),
)


@given(payloads)
def test_any_bytes_are_a_video_packet_with_the_same_flags_or_the_peers_error(payload: bytes) -> None:
    flags = classify_video(payload)
    try:
        packet = parse_video(payload)
    except PeerError:
        return
    assert packet.flags == flags
    assert (config_slot("video", payload) is None) == (not flags & (CONFIG | METADATA))


@given(payloads)
def test_any_bytes_are_an_audio_packet_with_the_same_flags_or_the_peers_error(payload: bytes) -> None:
    flags = classify_audio(payload)
    try:
        packet = parse_audio(payload)
    except PeerError:
        return
    assert packet.flags == flags
    assert (config_slot("audio", payload) is None) == (not flags & (CONFIG | METADATA))


def test_every_first_byte_is_classified_as_it_is_parsed() -> None:
    for start in range(256 * 16):
        payload = bytes([start >> 4, start & 15]) + b"vc1\x00\x00\x00\x00\x00"
        for parse, classify in ((parse_video, classify_video), (parse_audio, classify_audio)):
            try:
                expected = parse(payload).flags
            except PeerError:
                continue
            assert classify(payload) == expected, payload.hex()
