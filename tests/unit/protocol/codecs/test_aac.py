"""AudioSpecificConfig: those of FFmpeg's encoder, and bits by hand from ISO/IEC 14496-3 1.6.2.1."""

from __future__ import annotations

import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import AudioParameters, describe_audio
from headrace.protocol.media import parse_audio
from tests.unit.protocol.codecs.clips import AudioSource, bits, make_clip


@pytest.mark.parametrize(
    ("rate_hz", "layout"),
    [
        (44100, "stereo"),
        (48000, "stereo"),
        (48000, "mono"),
        (22050, "stereo"),
        (8000, "mono"),
        (96000, "stereo"),
        (48000, "4.0"),
        (48000, "5.1"),
        # These have no channelConfiguration: the encoder writes a program_config_element.
        (48000, "2.1"),
        (44100, "5.1(side)"),
        (48000, "6.1"),
    ],
)
def test_facts_are_those_that_ffmpeg_reads_from_the_same_config(rate_hz: int, layout: str) -> None:
    source = AudioSource("aac", rate_hz, layout)
    # FFmpeg 8.1 reads back its own FLV of more than two channels as 44100 Hz; its Matroska it reads right.
    truth = make_clip(source, container="matroska").streams[0]
    config = parse_audio(make_clip(source).audio_payloads[0]).tracks[0].body
    assert config == truth.extradata
    assert describe_audio("aac", config) == AudioParameters("aac", truth.profile, truth.sample_rate_hz, truth.channels)


SYNC_SBR, SYNC_PS = f"{0x2B7:011b} 00101 ", f"{0x548:011b} "

BY_HAND = [
    ("lc", "00010 0011 0010 000", "LC", 48000, 2),
    ("lc 7.1", "00010 0011 0111 000", "LC", 48000, 8),
    ("main", "00001 0100 0001 000", "Main", 44100, 1),
    ("reserved channels", "00010 0011 1000 000", "LC", 48000, None),
    ("escaped rate", f"00010 1111 {44056:024b} 0010 000", "LC", 44056, 2),
    ("explicit sbr", "00101 0110 0010 0011 00010 000", "HE-AAC", 48000, 2),
    ("explicit ps", "11101 0110 0001 0011 00010 000", "HE-AACv2", 48000, 2),
    ("explicit sbr, escaped", f"00101 0110 0010 1111 {47999:024b} 00010 000", "HE-AAC", 47999, 2),
    ("behind: sbr", "00010 0111 0010 000" + SYNC_SBR + "1 0100", "HE-AAC", 44100, 2),
    ("behind: sbr and ps", "00010 0111 0001 000" + SYNC_SBR + "1 0100" + SYNC_PS + "1", "HE-AACv2", 44100, 2),
    ("behind: sbr, no ps", "00010 0111 0001 000" + SYNC_SBR + "1 0100" + SYNC_PS + "0", "HE-AAC", 44100, 1),
    ("behind: no sbr", "00010 0011 0010 000" + SYNC_SBR + "0", "LC", 48000, 2),
    ("behind: cut off", "00010 0011 0010 000" + SYNC_SBR + "1 1111 0000", "LC", 48000, 2),
    ("core coder delay", "00010 0111 0010 01" + "0" * 14 + "0" + SYNC_SBR + "1 0100", "HE-AAC", 44100, 2),
    ("scalable, with layer and extension", "00110 0111 0010 001 000 0" + SYNC_SBR + "1 0100", "Scalable", 44100, 2),
    ("low delay", "10111 0011 0010 000", "LD", 48000, 2),
    ("enhanced low delay", "11111 000111 0011 0001 0", "ELD", 48000, 1),
    ("usac", "11111 001010 0011 0010", "xHE-AAC", 48000, 2),
    ("bsac under sbr", "00101 0110 0010 0011 10110 0010 0000", "ER BSAC", 48000, 2),
    # 22.2 of ISO/IEC 23001-8
    ("22.2", "00010 0011 1101 000", "LC", 48000, 24),
    # Program config: 2 front elements of which the second is a pair, one pair behind, one low frequency.
    (
        "program config",
        "00010 0011 0000 000  0000 01 0011 0010 0000 0001 01 000 0000 0 0 0  0 0000 1 0000  1 0001  0000  00000000",
        "LC",
        48000,
        6,
    ),
    # The same with every optional field: mixdowns, an associated data and a coupling element, a comment of one
    # byte; SBR behind it is found only if all of them were skipped right.
    (
        "program config in full",
        "00010 0111 0000 000  0000 01 0011 0010 0000 0001 01 001 0001 1 0001 1 0001 1 001"
        "  0 0000 1 0000  1 0001  0000  0000  00000  0000000 00000001 10101010" + SYNC_SBR + "1 0100",
        "HE-AAC",
        44100,
        6,
    ),
    ("program config cut off", "00010 0011 0000 000 0000 01", "LC", 48000, None),
]


@pytest.mark.parametrize(
    ("_name", "literal", "profile", "rate_hz", "channels"), BY_HAND, ids=[case[0] for case in BY_HAND]
)
def test_a_config_written_by_hand(_name: str, literal: str, profile: str, rate_hz: int, channels: int | None) -> None:
    assert describe_audio("aac", bits(literal)) == AudioParameters("aac", profile, rate_hz, channels)


# 1.6.3.4 and 1.6.3.5, whole
RATES_HZ = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350]
CHANNELS = [None, 1, 2, 3, 4, 5, 6, 8, None, None, None, 7, 8, 24, 8, None]


def test_every_rate_and_channel_configuration_of_the_specification() -> None:
    for index, rate_hz in enumerate(RATES_HZ):
        assert describe_audio("aac", bits(f"00010 {index:04b} 0010 000")).sample_rate_hz == rate_hz
    for index, channels in enumerate(CHANNELS):
        assert describe_audio("aac", bits(f"00010 0011 {index:04b} 000")).channels == channels


@pytest.mark.parametrize(
    "literal",
    ["00010 001", "00010 1101 0010 000", f"00010 1111 {0:024b} 0010", "00101 0110 0010 1110 00010", "11111 000"],
)
def test_a_config_without_a_rate_is_the_peers_error(literal: str) -> None:
    with pytest.raises(PeerError):
        describe_audio("aac", bits(literal))


def test_facts_print_as_one_line() -> None:
    assert describe_audio("aac", bytes.fromhex("1190")).describe() == "aac LC 48000 Hz 2 ch"
