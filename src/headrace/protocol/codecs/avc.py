"""H.264: facts from the AVCDecoderConfigurationRecord and the sequence parameter set inside it.

Follows ISO/IEC 14496-15 5.3.3.1 (record), ITU-T H.264 7.3.2.1.1 (SPS), E.1.1 (VUI), A.2 and A.3.
A record too short for profile and level is a PeerError. A parameter set that is missing or cannot be
read leaves its fields None: a relay forwards what it cannot describe.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader, unescape
from headrace.protocol.codecs.parameters import (
    CHROMA_FORMATS,
    VideoParameters,
    is_plausible_size,
    plausible_rate,
)

_PROFILES = {
    44: "CAVLC 4:4:4 Intra",
    66: "Baseline",
    77: "Main",
    83: "Scalable Baseline",
    86: "Scalable High",
    88: "Extended",
    100: "High",
    110: "High 10",
    118: "Multiview High",
    122: "High 4:2:2",
    128: "Stereo High",
    244: "High 4:4:4 Predictive",
}

# 7.3.2.1.1: the profiles whose SPS carries chroma format, bit depth and scaling matrices.
_PROFILES_WITH_CHROMA = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})

_SPS_NAL_TYPE = 7
_EXTENDED_SAR = 255  # Table E-1: width and height of the sample follow


def describe_avc(record: bytes) -> VideoParameters:
    if len(record) < 6:
        raise PeerError(f"avcC of {len(record)} bytes, expected at least 6")
    if record[0] != 1:
        raise PeerError(f"avcC configurationVersion {record[0]}, expected 1")
    profile_idc, constraints, level_idc = record[1], record[2], record[3]
    facts = VideoParameters(
        "h264", _profile_name(profile_idc, constraints), _level_name(profile_idc, constraints, level_idc)
    )
    for nal_unit in _sequence_parameter_sets(record):
        try:
            return facts.completed_by(read_sps(nal_unit))
        except PeerError:
            continue
    return facts


def _sequence_parameter_sets(record: bytes) -> list[bytes]:
    found: list[bytes] = []
    position = 6
    for _ in range(record[5] & 0x1F):
        size = int.from_bytes(record[position : position + 2], "big")
        nal_unit = record[position + 2 : position + 2 + size]
        if nal_unit and nal_unit[0] & 0x1F == _SPS_NAL_TYPE:
            found.append(nal_unit)
        position += 2 + size
    return found


def _profile_name(profile_idc: int, constraints: int) -> str:
    name = _PROFILES.get(profile_idc) or f"profile {profile_idc}"
    # A.2.1.1: constraint_set1_flag on Baseline; A.2.8 to A.2.10: constraint_set3_flag makes intra profiles.
    if profile_idc == 66 and constraints & 0x40:
        return "Constrained Baseline"
    if profile_idc in (110, 122, 244) and constraints & 0x10:
        return name.removesuffix(" Predictive") + " Intra"
    return name


def _level_name(profile_idc: int, constraints: int, level_idc: int) -> str:
    # A.3.1 and A.3.2: level 1b is level_idc 9, or 11 with constraint_set3_flag in the oldest profiles.
    if level_idc == 9 or (level_idc == 11 and constraints & 0x10 and profile_idc in (66, 77, 88)):
        return "1b"
    return f"{level_idc // 10}.{level_idc % 10}"


def read_sps(nal_unit: bytes) -> VideoParameters:
    """Size, bit depth, chroma and frame rate of one SPS NAL unit, its header byte included."""
    bits = BitReader(unescape(nal_unit[1:]))
    profile_idc = bits.read(8)
    bits.skip(16)  # constraint flags and level_idc: the record repeats them
    bits.ue(31)
    chroma_format, bit_depth, is_planar = 1, 8, False
    if profile_idc in _PROFILES_WITH_CHROMA:
        chroma_format = bits.ue(3)
        is_planar = chroma_format == 3 and bits.flag()
        bit_depth = 8 + bits.ue(6)
        bits.ue(6)
        bits.skip(1)
        if bits.flag():
            _skip_scaling_matrix(bits, 8 if chroma_format != 3 else 12)
    _skip_picture_order(bits)
    bits.ue()  # max_num_ref_frames
    bits.skip(1)
    width = 16 * (bits.ue(0xFFFF) + 1)
    height = 16 * (bits.ue(0xFFFF) + 1)
    is_frame_coded = bits.flag()
    if not is_frame_coded:
        height *= 2  # the unit of height is a field's macroblock
        bits.skip(1)
    bits.skip(1)
    if bits.flag():
        left, right, top, bottom = (bits.ue(0xFFFF) for _ in range(4))
        # 7.4.2.1.1, CropUnitX and CropUnitY: chroma samples, and frame lines for field coding.
        unit_x = 2 if chroma_format in (1, 2) and not is_planar else 1
        unit_y = (2 if chroma_format == 1 and not is_planar else 1) * (1 if is_frame_coded else 2)
        width -= (left + right) * unit_x
        height -= (top + bottom) * unit_y
    if not is_plausible_size(width, height):
        raise PeerError(f"SPS of {width}x{height} pixels")
    return VideoParameters(
        "h264",
        width=width,
        height=height,
        frame_rate=_frame_rate(bits),
        bit_depth=bit_depth,
        chroma=CHROMA_FORMATS[chroma_format],
    )


def _skip_picture_order(bits: BitReader) -> None:
    bits.ue(12)  # log2_max_frame_num_minus4
    order_type = bits.ue(2)
    if order_type == 0:
        bits.ue(12)
    elif order_type == 1:
        bits.skip(1)
        bits.se()
        bits.se()
        for _ in range(bits.ue(255)):
            bits.se()


def _skip_scaling_matrix(bits: BitReader, lists: int) -> None:
    for index in range(lists):
        if not bits.flag():
            continue
        last = following = 8
        # 7.3.2.1.1.1: a following scale of 0 ends the codes of a list early.
        for _ in range(16 if index < 6 else 64):
            if following:
                following = (last + bits.se()) & 0xFF
            last = following or last


def _frame_rate(bits: BitReader) -> float | None:
    """VUI timing (E.1.1); None when absent, or when the SPS breaks off behind the picture size."""
    try:
        if not bits.flag():
            return None
        if bits.flag() and bits.read(8) == _EXTENDED_SAR:
            bits.skip(32)
        if bits.flag():
            bits.skip(1)
        if bits.flag():
            bits.skip(4)
            if bits.flag():
                bits.skip(24)
        if bits.flag():
            bits.ue(5)
            bits.ue(5)
        if not bits.flag():
            return None
        units_in_tick, time_scale = bits.read(32), bits.read(32)
    except PeerError:
        return None
    # E.2.1: a tick is a field, a frame is two, also in progressive streams.
    return plausible_rate(time_scale, 2 * units_in_tick)
