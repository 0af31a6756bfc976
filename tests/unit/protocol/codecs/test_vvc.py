"""VVC configuration records, by hand from ISO/IEC 14496-15 11.2.4.2 and H.266 7.3.2.4: no encoder is at hand."""

from __future__ import annotations

import pytest

from headrace.errors import PeerError
from headrace.protocol.codecs import VideoParameters, describe_video_config
from tests.unit.protocol.codecs.clips import bits

# NAL header: layer 0, type 15 (SPS), temporal id plus one. Ids 0 and 0.
NAL_HEAD = "0 0 000000 01111 001  0000 0000 "
# 1920 x 1088 with a window of 4 chroma lines at the bottom, then a flag of what follows.
SIZE = "0000000000 11110000001 0000000000 10001000001  1 1 1 1 00101  0"
# Main 10, main tier, level 5.1 (16 * 5 + 3), frame only, single layer, no constraint flags, aligned.
PROFILE = "0000001 0 01010011 1 0 0 00000 "


def sps(sub_layers_minus_1: str, has_profile: str, profile: str) -> bytes:
    # 4:2:0, CTU of 128; then no gradual refresh, no resampling.
    return bits(NAL_HEAD + f"{sub_layers_minus_1} 01 10 {has_profile} {profile} 0 0 {SIZE}")


SPS_FORMS = {
    "plain": sps("000", "1", PROFILE + "00000000"),
    "without profile": sps("000", "0", ""),
    # Three sub-layers, a level for the upper of the two lower ones; one sub-profile.
    "sub-layers and sub-profile": sps("010", "1", PROFILE + "10 000000 01000000 00000001" + "1" * 32),
    # 71 constraint flags, 6 additional bits, aligned: 18 + 1 + 71 + 8 + 6 is 104 bits, and no padding.
    "constraint flags": sps("000", "1", "0000001 0 01010011 1 0 1" + "0" * 71 + "00000110 000000" + "00000000"),
    # Resampling allowed: one more flag before the size.
    "resampling": bits(NAL_HEAD + "000 01 10 1" + PROFILE + "00000000 0 1 1" + SIZE),
}

# 4-byte lengths and profile present; output layer set 0, one sub-layer, constant rate unknown, 4:2:0; 10 bits;
# one constraint byte, Main 10, main tier, level 5.1, no sub-profile; 1920 x 1088 coded; 50 frames a second.
RECORD_HEAD = bits(
    "11111 11 1  000000000 001 00 01  010 11111  00 000001 0000001 0 01010011 10000000  00000000"
) + bytes.fromhex("0780 0440 3200")


def arrays(*units: tuple[int, bytes]) -> bytes:
    """One NAL unit for each array; types 12 and 13 have no count."""
    body = b"".join(
        bytes([0x80 | kind]) + (b"" if kind in (12, 13) else b"\x00\x01") + len(unit).to_bytes(2, "big") + unit
        for kind, unit in units
    )
    return bytes([len(units)]) + body


@pytest.mark.parametrize("unit", SPS_FORMS.values(), ids=SPS_FORMS.keys())
def test_size_is_the_window_of_the_sps_and_the_rest_is_the_records(unit: bytes) -> None:
    facts = describe_video_config("vvc", RECORD_HEAD + arrays((13, b"\x00\x69\x00"), (14, b"\x00\x71"), (15, unit)))
    assert facts == VideoParameters("vvc", "Main 10", "5.1", 1920, 1080, 50.0, 10, "4:2:0")
    assert facts.describe() == "vvc Main 10@5.1 1920x1080 50 fps 10 bit"


@pytest.mark.parametrize(
    ("chroma_format", "chroma", "size"),
    [("01", "4:2:0", (1914, 1078)), ("10", "4:2:2", (1914, 1083)), ("11", "4:4:4", (1917, 1083))],
)
def test_the_window_is_counted_in_chroma_samples(chroma_format: str, chroma: str, size: tuple[int, int]) -> None:
    window = SIZE.replace("1 1 1 1 00101  0", "1 010 011 1 00110  0")  # 1 left, 2 right, 0 top, 5 at the bottom
    unit = bits(NAL_HEAD + f"000 {chroma_format} 10 0  0 0 {window}")
    facts = describe_video_config("vvc", b"\xfe" + arrays((15, unit)))
    assert (facts.chroma, (facts.width, facts.height)) == (chroma, size)


def test_a_record_without_profile_takes_all_from_the_sps() -> None:
    facts = describe_video_config("vvc", b"\xfe" + arrays((15, SPS_FORMS["plain"])))
    assert facts == VideoParameters("vvc", "Main 10", "5.1", 1920, 1080, chroma="4:2:0")


def test_a_record_without_a_readable_sps_keeps_the_coded_size() -> None:
    for rest in (b"", arrays(), arrays((15, b"\x00\x79")), arrays((16, b"\x00")), b"\x01\x8f\x00"):
        facts = describe_video_config("vvc", RECORD_HEAD + rest)
        assert facts == VideoParameters("vvc", "Main 10", "5.1", 1920, 1088, 50.0, 10, "4:2:0")


def test_sub_layers_and_tier_of_the_record_are_read() -> None:
    head = bits(
        "11111 11 1  000000000 011 00 11  100 11111  00 000010 0100001 1 01000000 10000000 00000000"
        "  01 000000 00110000  00000001" + "1" * 32
    ) + bytes.fromhex("0000 0000 0000")
    assert describe_video_config("vvc", head) == VideoParameters(
        "vvc", "Main 10 4:4:4", "4.0 High tier", bit_depth=12, chroma="4:4:4"
    )


@pytest.mark.parametrize("size", range(1, len(RECORD_HEAD)))
def test_a_record_that_breaks_off_is_the_peers_error(size: int) -> None:
    with pytest.raises(PeerError):
        describe_video_config("vvc", RECORD_HEAD[:size])
