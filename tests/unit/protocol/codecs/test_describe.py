"""The table of readers: unknown codecs, missing bytes, caps, and whatever bytes a peer may send."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError
from headrace.protocol.codecs import (
    MAX_CONFIG_BYTES,
    AudioParameters,
    VideoParameters,
    describe_audio,
    describe_video_config,
    describe_video_frame,
)
from headrace.protocol.media import parse_audio, parse_video
from tests.unit.protocol.codecs.clips import AudioSource, VideoSource, make_clip
from tests.unit.protocol.codecs.test_vvc import RECORD_HEAD, SPS_FORMS, arrays

VIDEO_CODECS = ("h264", "hevc", "vvc", "av1", "vp8", "vp9")
AUDIO_CODECS = ("aac", "opus", "flac", "mp3", "mp3_8k", "ac3", "eac3", "speex")


@cache
def video_configs() -> list[tuple[str, bytes]]:
    sources = (
        VideoSource("libx264", pixels="yuv422p10le", options=(("x264-params", "cqm=jvt"),)),
        VideoSource("libx265", options=(("preset", "ultrafast"), ("x265-params", "log-level=none"))),
        VideoSource("libsvtav1", options=(("preset", "12"),)),
        VideoSource("libvpx-vp9", options=(("deadline", "realtime"),)),
    )
    packets = [parse_video(make_clip(source).video_payloads[0]) for source in sources]
    return [
        ("vvc", RECORD_HEAD + arrays((15, SPS_FORMS["constraint flags"]))),
        *((packet.codec, packet.tracks[0].body[:600]) for packet in packets),
    ]


@cache
def audio_payloads() -> list[tuple[str, bytes]]:
    sources = (
        AudioSource("aac", 48000, "2.1"),
        AudioSource("libopus"),
        AudioSource("flac"),
        AudioSource("ac3"),
        AudioSource("eac3"),
        AudioSource("libmp3lame"),
    )
    packets = [parse_audio(payload) for source in sources for payload in make_clip(source).audio_payloads]
    return [(packet.codec, packet.tracks[0].body[:64]) for packet in packets]


def test_an_unknown_codec_or_missing_bytes_give_a_sheet_of_unknowns() -> None:
    assert describe_video_config("vp6", b"\x01") == VideoParameters("vp6")
    assert describe_video_frame("h264", b"\x01") == VideoParameters("h264")
    assert describe_audio("unknown(12)", b"\x01", b"\x01") == AudioParameters("unknown(12)")
    for codec in VIDEO_CODECS:
        assert describe_video_config(codec, b"") == VideoParameters(codec)
    for codec in ("aac", "flac", "mp3", "ac3", "eac3"):
        assert describe_audio(codec) == describe_audio(codec, b"", b"") == AudioParameters(codec)


def test_formats_of_flv_with_a_fixed_rate_need_no_bytes() -> None:
    assert describe_audio("speex") == AudioParameters("speex", None, 16000, 1)
    assert describe_audio("nellymoser_16k").describe() == "nellymoser_16k 16000 Hz 1 ch"
    assert describe_audio("g711a").sample_rate_hz == 8000


def test_a_huge_config_is_refused_unread() -> None:
    with pytest.raises(PeerError, match="65537 bytes, expected at most 65536"):
        describe_video_config("h264", bytes(MAX_CONFIG_BYTES + 1))
    with pytest.raises(PeerError, match="65537 bytes"):
        describe_audio("aac", bytes(MAX_CONFIG_BYTES + 1))


def test_facts_of_one_source_are_completed_by_another() -> None:
    record = VideoParameters("vp9", "Profile 0", "4.1", bit_depth=8, chroma="4:2:0")
    frame = VideoParameters("vp9", "Profile 1", width=640, height=360, bit_depth=10)
    both = record.completed_by(frame)
    assert both == VideoParameters("vp9", "Profile 0", "4.1", 640, 360, None, 8, "4:2:0")
    assert (record.is_complete, both.is_complete) == (False, True)
    start, packet = AudioParameters("opus", None, 48000), AudioParameters("opus", None, 24000, 2)
    assert start.completed_by(packet) == AudioParameters("opus", None, 48000, 2)
    assert (start.is_complete, start.completed_by(packet).is_complete) == (False, True)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (VideoParameters("h264", "High", "4.1", 1920, 1080, 30.0, 8, "4:2:0"), "h264 High@4.1 1920x1080 30 fps"),
        (
            VideoParameters("hevc", "Main 10", "5.1", 3840, 2160, 60000 / 1001, 10, "4:2:0"),
            "hevc Main 10@5.1 3840x2160 59.94 fps 10 bit",
        ),
        (VideoParameters("av1", None, "2.0", chroma="4:4:4"), "av1 2.0 4:4:4"),
        (VideoParameters("screen"), "screen"),
        (AudioParameters("aac", "HE-AACv2", 44100, 2), "aac HE-AACv2 44100 Hz 2 ch"),
        (AudioParameters("opus", None, 48000, None), "opus 48000 Hz"),
    ],
)
def test_facts_print_as_one_line(facts: VideoParameters | AudioParameters, line: str) -> None:
    assert facts.describe() == line


def attempt_video(codec: str, data: bytes) -> None:
    for describe in (describe_video_config, describe_video_frame):
        try:
            assert describe(codec, data).codec == codec
        except PeerError:
            pass


def attempt_audio(codec: str, data: bytes) -> None:
    for config, frame in ((data, None), (None, data), (data, data)):
        try:
            assert describe_audio(codec, config, frame).codec == codec
        except PeerError:
            pass


def test_every_truncation_of_a_real_config_gives_facts_or_the_peers_error() -> None:
    for codec, config in video_configs():
        for size in range(len(config)):
            attempt_video(codec, config[:size])
    for codec, payload in audio_payloads():
        for size in range(len(payload)):
            attempt_audio(codec, payload[:size])


@given(st.sampled_from(VIDEO_CODECS), st.binary(max_size=128))
def test_any_bytes_give_video_facts_or_the_peers_error(codec: str, data: bytes) -> None:
    attempt_video(codec, data)


@given(st.sampled_from(AUDIO_CODECS), st.binary(max_size=64))
def test_any_bytes_give_audio_facts_or_the_peers_error(codec: str, data: bytes) -> None:
    attempt_audio(codec, data)


@given(st.data())
def test_any_change_of_a_real_config_gives_facts_or_the_peers_error(data: st.DataObject) -> None:
    codec, original = data.draw(st.sampled_from(video_configs()))
    config = bytearray(original)
    for position in data.draw(st.lists(st.integers(0, min(len(config), 120) - 1), min_size=1, max_size=5)):
        config[position] = data.draw(st.integers(0, 255))
    attempt_video(codec, bytes(config))


@pytest.mark.parametrize("codec", VIDEO_CODECS)
@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"\x01", b"\x21\x00\x01\x00\x00"])
def test_the_largest_config_of_nonsense_is_read_in_bounded_time(codec: str, filler: bytes) -> None:
    heads = {"h264": b"\x01\x64\x00\x28\xff\xff", "hevc": b"\x01" + bytes(21) + b"\xff", "av1": b"\x81\x00\x00\x00"}
    data = (heads.get(codec, b"") + filler * MAX_CONFIG_BYTES)[:MAX_CONFIG_BYTES]
    attempt_video(codec, data)  # the deadline is the run's: 120 s, and this takes milliseconds
