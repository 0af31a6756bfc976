"""MP3, Opus, FLAC, AC-3 and E-AC-3: clips of FFmpeg's encoders, and headers by hand from their specifications."""

from __future__ import annotations

import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import AudioParameters, describe_audio
from headrace.protocol.media import FRAME, AudioPacketType, parse_audio
from tests.unit.protocol.codecs.clips import AudioSource, bits, make_clip

CLIPS = [
    AudioSource("libmp3lame", 44100, "stereo"),
    AudioSource("libmp3lame", 48000, "stereo"),
    AudioSource("libmp3lame", 22050, "mono"),
    AudioSource("libmp3lame", 11025, "mono"),
    AudioSource("libopus", 48000, "mono"),
    AudioSource("libopus", 24000, "stereo"),
    AudioSource("libopus", 48000, "5.1"),
    AudioSource("flac", 44100, "mono"),
    AudioSource("flac", 48000, "stereo"),
    AudioSource("flac", 96000, "5.1"),
    AudioSource("ac3", 48000, "stereo"),
    AudioSource("ac3", 32000, "mono"),
    AudioSource("ac3", 44100, "5.1"),
    AudioSource("ac3", 48000, "3.0"),
    AudioSource("ac3", 48000, "2.1"),
    AudioSource("eac3", 48000, "5.1"),
    AudioSource("eac3", 44100, "stereo"),
    AudioSource("eac3", 32000, "mono"),
]


@pytest.mark.parametrize("source", CLIPS, ids=lambda source: f"{source.encoder} {source.rate_hz} {source.layout}")
def test_facts_are_those_that_ffmpeg_reads_from_the_same_payloads(source: AudioSource) -> None:
    clip = make_clip(source)
    truth = clip.streams[0]
    packets = [parse_audio(payload) for payload in clip.audio_payloads]
    starts = [packet for packet in packets if packet.packet_type is AudioPacketType.SEQUENCE_START]
    first_frame = next(packet for packet in packets if packet.flags == FRAME)
    facts = describe_audio(first_frame.codec, starts[0].tracks[0].body if starts else None, first_frame.tracks[0].body)
    assert facts == AudioParameters(truth.codec, None, truth.sample_rate_hz, truth.channels)


# A/52 5.3.1: sync, crc, 48 kHz and size code, bsid and mode, acmod; then by acmod mix levels and lfeon.
AC3_HEAD = "0000101101110111" + "0" * 16
EAC3_HEAD = "0000101101110111 00 000 00001111111"  # E.2.2: independent, substream 0, frame size

BY_HAND = [
    ("mp3", "11111111 11111011 10010000 00000000", "mp3", 44100, 2),
    ("mp3 of mpeg 2", "11111111 11110011 10010100 11000000", "mp3", 24000, 1),
    ("mp3 of mpeg 2.5", "11111111 11100011 10011000 01000000", "mp3_8k", 8000, 2),
    ("ac3 3/2 with lfe", AC3_HEAD + "00 011110 01000 000 111 01 01 1" + "0" * 16, "ac3", 48000, 6),
    ("ac3 dual mono", AC3_HEAD + "01 011110 01000 000 000 0" + "0" * 20, "ac3", 44100, 2),
    ("ac3 2/0, stereo flag", AC3_HEAD + "10 011110 01000 000 010 01 0" + "0" * 20, "ac3", 32000, 2),
    ("ac3 2/1 at half rate", AC3_HEAD + "00 011110 01001 000 100 01 1" + "0" * 20, "ac3", 24000, 4),
    ("ac3 at quarter rate", AC3_HEAD + "00 011110 01010 000 001 0" + "0" * 20, "ac3", 12000, 1),
    ("eac3 3/2 with lfe", EAC3_HEAD + "00 11 111 1 10000" + "0" * 20, "eac3", 48000, 6),
    ("eac3 at half rate", EAC3_HEAD + "11 01 010 0 10000" + "0" * 20, "eac3", 22050, 2),
    ("ac3 syntax under ec-3", AC3_HEAD + "00 011110 01000 000 010 00 0" + "0" * 20, "eac3", 48000, 2),
]


@pytest.mark.parametrize(
    ("_name", "literal", "codec", "rate_hz", "channels"), BY_HAND, ids=[case[0] for case in BY_HAND]
)
def test_a_frame_header_written_by_hand(_name: str, literal: str, codec: str, rate_hz: int, channels: int) -> None:
    assert describe_audio(codec, None, bits(literal)) == AudioParameters(codec, None, rate_hz, channels)


def test_every_channel_mode_of_ac3_and_eac3() -> None:
    # Table 5.8 acmod: 1+1, 1/0, 2/0, 3/0, 2/1, 3/1, 2/2, 3/2; two bits of mix level for each of a centre next to
    # others and of surround, two bits of stereo mode for 2/0; then the low frequency channel.
    modes = [(2, 0), (1, 0), (2, 2), (3, 2), (3, 2), (4, 4), (4, 2), (5, 4)]
    for acmod, (channels, extra_bits) in enumerate(modes):
        ac3 = AC3_HEAD + f"00 011110 01000 000 {acmod:03b}" + "0" * extra_bits + "1" + "0" * 16
        eac3 = EAC3_HEAD + f"00 11 {acmod:03b} 1 10000" + "0" * 20
        assert describe_audio("ac3", None, bits(ac3)).channels == channels + 1
        assert describe_audio("eac3", None, bits(eac3)).channels == channels + 1


# RFC 7845 5.1: version 1, channels, pre-skip 312, 44100 Hz of input, no gain, mapping family 0.
OPUS_HEAD = b"OpusHead\x01\x02\x38\x01" + (44100).to_bytes(4, "little") + b"\x00\x00\x00"


def test_opus_runs_at_48_khz_whatever_its_header_says_of_the_input() -> None:
    assert describe_audio("opus", OPUS_HEAD) == AudioParameters("opus", None, 48000, 2)


def test_opus_without_a_header_tells_mono_from_stereo_by_the_first_packet() -> None:
    assert describe_audio("opus", b"", b"\xf8\xff").channels == 1
    assert describe_audio("opus", None, b"\xfc\xff").channels == 2
    assert describe_audio("opus", b"", b"") == AudioParameters("opus", None, 48000, None)


# RFC 9639 8.2: blocks of 4096, frame sizes unknown, 48000 Hz, 2 channels, 16 bits, unknown length, no checksum.
STREAMINFO = bytes.fromhex("10001000000000000000") + bits(f"{48000:020b} 001 01111") + bytes(4 + 16 + 0)


@pytest.mark.parametrize(
    "prefix",
    [b"", b"\x80\x00\x00\x22", b"fLaC\x80\x00\x00\x22", b"fLaC\x00\x00\x00\x22", b"fLaC"],
    ids=["bare, as FFmpeg writes it", "with block header", "as specified", "as specified, not last", "signature"],
)
def test_flac_streaminfo_is_read_in_every_wrapping(prefix: bytes) -> None:
    assert len(STREAMINFO) == 34
    assert describe_audio("flac", prefix + STREAMINFO) == AudioParameters("flac", None, 48000, 2)


@pytest.mark.parametrize(
    ("codec", "config", "frame"),
    [
        ("mp3", None, b"\xff\xfb\x90"),
        ("mp3", None, b"\xff\x1b\x90\x00"),
        ("mp3", None, b"\xff\xeb\x90\x00"),
        ("mp3", None, b"\xff\xfb\x9c\x00"),
        ("ac3", None, b"\x0b"),
        ("ac3", None, b"\x0b\x77\x00\x00\x00\x40\x00"),
        ("ac3", None, b"\x77\x0b" + bytes(8)),
        ("ac3", None, b"\x0b\x77\x00\x00\xc0\x40\x00\x00"),
        ("ac3", None, b"\x0b\x77\x00\x00\x00\xf8\x00\x00"),
        ("eac3", None, b"\x0b\x77\x00\x00\xff\x80\x00\x00"),
        ("opus", OPUS_HEAD[:18], None),
        ("opus", b"opusHead" + OPUS_HEAD[8:], None),
        ("opus", OPUS_HEAD[:8] + b"\x10" + OPUS_HEAD[9:], None),
        ("opus", OPUS_HEAD[:9] + b"\x00" + OPUS_HEAD[10:], None),
        ("flac", STREAMINFO[:33], None),
        ("flac", b"fLaC", None),
        ("flac", bytes(34), None),
    ],
)
def test_what_is_not_the_codecs_header_is_the_peers_error(
    codec: str, config: bytes | None, frame: bytes | None
) -> None:
    with pytest.raises(PeerError):
        describe_audio(codec, config, frame)
