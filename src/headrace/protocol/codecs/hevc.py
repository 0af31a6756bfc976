"""HEVC: facts from the HEVCDecoderConfigurationRecord, and the picture size from its SPS.

Follows ISO/IEC 14496-15 8.3.3.1 (record), ITU-T H.265 7.3.1.2 and 7.3.2.2 (NAL header, SPS), 7.3.3
(profile, tier, level), E.2.1 (VUI) and A.3, A.4. The sets behind the size are in `hevc_timing`.
A record shorter than its fixed part is a PeerError; an SPS that cannot be read leaves its fields None.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader, unescape
from headrace.protocol.codecs.hevc_timing import read_frame_rate
from headrace.protocol.codecs.nal_arrays import nal_units_of_type
from headrace.protocol.codecs.parameters import (
    CHROMA_FORMATS,
    VideoParameters,
    is_plausible_size,
    plausible_rate,
)

_RECORD_BYTES = 23  # up to and including numOfArrays
_SPS_NAL_TYPE = 33
_RANGE_EXTENSIONS = 4

_PROFILES = {
    1: "Main",
    2: "Main 10",
    3: "Main Still Picture",
    4: "Range Extensions",
    5: "High Throughput",
    6: "Multiview Main",
    7: "Scalable Main",
    8: "3D Main",
    9: "Screen-Extended",
    10: "Scalable Range Extensions",
    11: "High Throughput Screen-Extended",
}

# Table A.2: max_12bit, max_10bit, max_8bit, max_422chroma, max_420chroma, max_monochrome flags.
_RANGE_EXTENSION_PROFILES = {
    0b111111: "Monochrome",
    0b110111: "Monochrome 10",
    0b100111: "Monochrome 12",
    0b000111: "Monochrome 16",
    0b100110: "Main 12",
    0b110100: "Main 4:2:2 10",
    0b100100: "Main 4:2:2 12",
    0b111000: "Main 4:4:4",
    0b110000: "Main 4:4:4 10",
    0b100000: "Main 4:4:4 12",
    0b000000: "Main 4:4:4 16",
}


def describe_hevc(record: bytes) -> VideoParameters:
    if len(record) < _RECORD_BYTES:
        raise PeerError(f"hvcC of {len(record)} bytes, expected at least {_RECORD_BYTES}")
    # Version 0 was written by encoders that followed the draft; the layout is the same.
    if record[0] > 1:
        raise PeerError(f"hvcC configurationVersion {record[0]}, expected 1")
    facts = VideoParameters(
        "hevc",
        profile=_profile_name(record[1] & 0x1F, int.from_bytes(record[6:12], "big")),
        level=_level_name(record[12], is_high_tier=bool(record[1] & 0x20)),
        bit_depth=8 + (record[17] & 0x07),
        chroma=CHROMA_FORMATS[record[16] & 0x03],
    )
    average_rate = VideoParameters("hevc", frame_rate=plausible_rate(record[19] << 8 | record[20], 256))
    for nal_unit in nal_units_of_type(record, _RECORD_BYTES - 1, _SPS_NAL_TYPE, type_bits=6):
        try:
            return facts.completed_by(read_sps(nal_unit)).completed_by(average_rate)
        except PeerError:
            continue
    return facts.completed_by(average_rate)


def _profile_name(profile_idc: int, constraints: int) -> str:
    name = _PROFILES.get(profile_idc) or f"profile {profile_idc}"
    if profile_idc == _RANGE_EXTENSIONS:
        # 48 constraint bits: four source flags, the six of Table A.2, then intra_constraint_flag.
        name = _RANGE_EXTENSION_PROFILES.get(constraints >> 38 & 0x3F, name)
        return f"{name} Intra" if constraints >> 37 & 1 else name
    return name


def _level_name(level_idc: int, *, is_high_tier: bool) -> str:
    # A.4.1: general_level_idc is 30 times the level number.
    name = f"{level_idc // 30}.{level_idc % 30 // 3}"
    return f"{name} High tier" if is_high_tier else name


def read_sps(nal_unit: bytes) -> VideoParameters:
    """Size and frame rate of one SPS NAL unit of the base layer, its two header bytes included."""
    bits = BitReader(unescape(nal_unit))
    bits.skip(7)
    layer = bits.read(6)
    if layer:
        raise PeerError(f"SPS of layer {layer}, expected the base layer 0")
    bits.skip(3)
    bits.skip(4)
    sub_layers_minus_1 = bits.read(3)
    bits.skip(1)
    _skip_profile_tier_level(bits, sub_layers_minus_1)
    bits.ue(15)
    chroma_format = bits.ue(3)
    is_planar = chroma_format == 3 and bits.flag()
    width = bits.ue()
    height = bits.ue()
    if bits.flag():
        left, right, top, bottom = (bits.ue(0xFFFF) for _ in range(4))
        # 7.4.3.2.1 and Table 6-1: the window is in chroma samples.
        width -= (left + right) * (2 if chroma_format in (1, 2) and not is_planar else 1)
        height -= (top + bottom) * (2 if chroma_format == 1 and not is_planar else 1)
    if not is_plausible_size(width, height):
        raise PeerError(f"SPS of {width}x{height} pixels")
    return VideoParameters("hevc", width=width, height=height, frame_rate=read_frame_rate(bits, sub_layers_minus_1))


def _skip_profile_tier_level(bits: BitReader, sub_layers_minus_1: int) -> None:
    bits.skip(96)
    present = [(bits.flag(), bits.flag()) for _ in range(sub_layers_minus_1)]
    if sub_layers_minus_1:
        bits.skip(2 * (8 - sub_layers_minus_1))
    for has_profile, has_level in present:
        bits.skip(88 * has_profile + 8 * has_level)
