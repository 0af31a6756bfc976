"""VVC: facts from the VvcDecoderConfigurationRecord, and the picture size from its SPS.

Follows ISO/IEC 14496-15 11.2.4.2 (record), ITU-T H.266 7.3.1.2 and 7.3.2.4 (NAL header, SPS), 7.3.3
(profile, tier, level), A.3 and A.4. The timing sits behind the whole SPS: the record's average serves.
A record shorter than its own fields is a PeerError; an SPS that cannot be read leaves its fields None.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader, unescape
from headrace.protocol.codecs.nal_arrays import nal_units_of_type
from headrace.protocol.codecs.parameters import (
    CHROMA_FORMATS,
    VideoParameters,
    is_plausible_size,
    plausible_rate,
)

_SPS_NAL_TYPE = 15
_SINGLE_NAL_TYPES = frozenset({12, 13})  # operating point information, decoding capability information
_CONSTRAINT_FLAG_BITS = 71  # 7.3.3.2, from gci_intra_only to gci_no_virtual_boundaries

_PROFILES = {
    1: "Main 10",
    2: "Main 12",
    10: "Main 12 Intra",
    17: "Multilayer Main 10",
    33: "Main 10 4:4:4",
    34: "Main 12 4:4:4",
    35: "Main 16 4:4:4",
    42: "Main 12 4:4:4 Intra",
    43: "Main 16 4:4:4 Intra",
    49: "Multilayer Main 10 4:4:4",
    65: "Main 10 Still Picture",
    66: "Main 12 Still Picture",
    97: "Main 10 4:4:4 Still Picture",
    98: "Main 12 4:4:4 Still Picture",
    99: "Main 16 4:4:4 Still Picture",
}


def describe_vvc(record: bytes) -> VideoParameters:
    facts = coded_size = VideoParameters("vvc")
    position = 1
    if record[0] & 1:  # ptl_present_flag
        facts, position = _read_profile_record(record)
        coded_size, position = _read_picture_fields(record, position)
    for nal_unit in nal_units_of_type(record, position, _SPS_NAL_TYPE, type_bits=5, single_types=_SINGLE_NAL_TYPES):
        try:
            return facts.completed_by(read_sps(nal_unit)).completed_by(coded_size)
        except PeerError:
            continue
    return facts.completed_by(coded_size)


def _read_profile_record(record: bytes) -> tuple[VideoParameters, int]:
    bits = BitReader(record)
    bits.skip(8 + 9)
    sub_layers = bits.read(3)
    bits.skip(2)
    chroma = CHROMA_FORMATS[bits.read(2)]
    bit_depth = 8 + bits.read(3)
    bits.skip(5 + 2)
    constraint_bytes = bits.read(6)
    profile_idc, is_high_tier, level_idc = bits.read(7), bits.flag(), bits.read(8)
    bits.skip(8 * constraint_bytes)
    _skip_sub_layers(bits, sub_layers - 1)
    facts = VideoParameters(
        "vvc",
        profile=_profile_name(profile_idc),
        level=_level_name(level_idc, is_high_tier=is_high_tier),
        bit_depth=bit_depth,
        chroma=chroma,
    )
    return facts, len(record) - bits.bits_left // 8


def _read_picture_fields(record: bytes, position: int) -> tuple[VideoParameters, int]:
    fields = record[position : position + 6]
    if len(fields) < 6:
        raise PeerError(f"vvcC ends at byte {len(record)}, expected picture size up to {position + 6}")
    width, height, rate = (int.from_bytes(fields[at : at + 2], "big") for at in (0, 2, 4))
    facts = VideoParameters("vvc", width=width or None, height=height or None, frame_rate=plausible_rate(rate, 256))
    return facts, position + 6


def _profile_name(profile_idc: int) -> str:
    return _PROFILES.get(profile_idc) or f"profile {profile_idc}"


def _level_name(level_idc: int, *, is_high_tier: bool) -> str:
    # A.4.1: 16 times the major number plus 3 times the minor.
    name = f"{level_idc >> 4}.{(level_idc & 15) // 3}"
    return f"{name} High tier" if is_high_tier else name


def read_sps(nal_unit: bytes) -> VideoParameters:
    """Largest picture size of one SPS NAL unit, its two header bytes included."""
    bits = BitReader(unescape(nal_unit))
    bits.skip(16 + 8)
    sub_layers_minus_1 = bits.read(3)
    chroma_format = bits.read(2)
    bits.skip(2)
    profile = level = None
    if bits.flag():
        profile, level = _read_profile_tier_level(bits, sub_layers_minus_1)
    bits.skip(1)
    if bits.flag():
        bits.skip(1)
    width = bits.ue()
    height = bits.ue()
    if bits.flag():
        left, right, top, bottom = (bits.ue(0xFFFF) for _ in range(4))
        width -= (left + right) * (2 if chroma_format in (1, 2) else 1)
        height -= (top + bottom) * (2 if chroma_format == 1 else 1)
    if not is_plausible_size(width, height):
        raise PeerError(f"SPS of {width}x{height} pixels")
    return VideoParameters("vvc", profile, level, width, height, chroma=CHROMA_FORMATS[chroma_format])


def _read_profile_tier_level(bits: BitReader, sub_layers_minus_1: int) -> tuple[str, str]:
    profile_idc, is_high_tier, level_idc = bits.read(7), bits.flag(), bits.read(8)
    bits.skip(2)
    if bits.flag():
        bits.skip(_CONSTRAINT_FLAG_BITS)
        bits.skip(bits.read(8))
    bits.align()
    _skip_sub_layers(bits, sub_layers_minus_1)
    return _profile_name(profile_idc), _level_name(level_idc, is_high_tier=is_high_tier)


def _skip_sub_layers(bits: BitReader, sub_layers_minus_1: int) -> None:
    present = [bits.flag() for _ in range(sub_layers_minus_1)]
    bits.align()
    bits.skip(8 * sum(present))
    bits.skip(32 * bits.read(8))  # general_sub_profile_idc
