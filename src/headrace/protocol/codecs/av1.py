"""AV1: facts from the AV1CodecConfigurationRecord and the sequence header OBU.

Follows AV1-ISOBMFF 2.3 (record), AV1 5.3 to 5.5 (OBUs, sequence header), A.2 and A.3, and, for
MPEG2TSSequenceStart, the descriptor of "Carriage of AV1 in MPEG-2 TS" 2.1, which holds the same fields.
A record shorter than four bytes is a PeerError; a missing sequence header leaves its fields None.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import MAX_PARAMETER_SET_BYTES, BitReader
from headrace.protocol.codecs.parameters import VideoParameters, is_plausible_size, plausible_rate

_PROFILES = ("Main", "High", "Professional")
_DESCRIPTOR_TAG = 0x80  # av1C starts with 0x81: marker bit and version 1
_SEQUENCE_HEADER_OBU = 1
_MAX_OBUS = 16  # ours: a temporal unit starts with delimiter and sequence header
_MAX_LEVEL_INDEX = 31  # A.3: "maximum parameters", no level at all


def describe_av1(record: bytes) -> VideoParameters:
    if record[:1] == bytes([_DESCRIPTOR_TAG]):
        record = record[2:]
    if len(record) < 4:
        raise PeerError(f"av1C of {len(record)} bytes, expected at least 4")
    if record[0] != 0x81:
        raise PeerError(f"av1C starts with 0x{record[0]:02x}, expected 0x81 (marker and version 1)")
    profile, level_index, flags = record[1] >> 5, record[1] & 0x1F, record[2]
    facts = VideoParameters(
        "av1",
        profile=_PROFILES[profile] if profile < len(_PROFILES) else f"profile {profile}",
        level=_level_name(level_index, is_high_tier=bool(flags & 0x80)),
        bit_depth=(12 if flags & 0x20 else 10) if flags & 0x40 else 8,
        chroma=_chroma(flags),
    )
    return facts.completed_by(describe_av1_frame(record[4:]))


def describe_av1_frame(obus: bytes) -> VideoParameters:
    """Size and frame rate from the sequence header among these OBUs; nothing known if there is none."""
    try:
        header = _find_sequence_header(obus)
        return VideoParameters("av1") if header is None else _read_sequence_header(header)
    except PeerError:
        return VideoParameters("av1")


def _level_name(index: int, *, is_high_tier: bool) -> str:
    if index == _MAX_LEVEL_INDEX:
        return "maximum"
    name = f"{2 + (index >> 2)}.{index & 3}"
    return f"{name} High tier" if is_high_tier else name


def _chroma(flags: int) -> str:
    if flags & 0x10:
        return "4:0:0"
    # chroma_subsampling_x and _y
    return {0b11: "4:2:0", 0b10: "4:2:2"}.get(flags >> 2 & 3, "4:4:4")


def _find_sequence_header(obus: bytes) -> bytes | None:
    position = 0
    for _ in range(_MAX_OBUS):
        if position >= len(obus):
            return None
        header = obus[position]
        position += 2 if header & 0x04 else 1  # obu_extension_flag
        size = len(obus) - position
        if header & 0x02:
            size, position = _read_leb128(obus, position)
        if header >> 3 & 0x0F == _SEQUENCE_HEADER_OBU:
            return obus[position : position + min(size, MAX_PARAMETER_SET_BYTES)]
        position += size
    return None


def _read_leb128(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(8):  # 4.10.5: eight bytes at most
        if position >= len(data):
            raise PeerError(f"OBU size ends at byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            return value, position
    raise PeerError("OBU size of more than 8 bytes")


def _read_sequence_header(data: bytes) -> VideoParameters:
    bits = BitReader(data)
    bits.skip(4)  # seq_profile, still_picture
    frame_rate = None
    if bits.flag():  # reduced_still_picture_header
        bits.skip(5)
    else:
        has_timing = bits.flag()
        delay_bits = 0
        if has_timing:
            frame_rate = _read_timing(bits)
            if bits.flag():
                delay_bits = bits.read(5) + 1
                bits.skip(42)
        _skip_operating_points(bits, delay_bits)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    width, height = bits.read(width_bits) + 1, bits.read(height_bits) + 1
    if not is_plausible_size(width, height):
        raise PeerError(f"sequence header of {width}x{height} pixels")
    return VideoParameters("av1", width=width, height=height, frame_rate=frame_rate)


def _read_timing(bits: BitReader) -> float | None:
    ticks, time_scale = bits.read(32), bits.read(32)
    # 5.5.3: only equal intervals say how many ticks a picture lasts. uvlc is written like ue(v).
    return plausible_rate(time_scale, ticks * (bits.ue() + 1)) if bits.flag() else None


def _skip_operating_points(bits: BitReader, delay_bits: int) -> None:
    has_display_delay = bits.flag()
    for _ in range(bits.read(5) + 1):
        bits.skip(12)
        if bits.read(5) > 7:
            bits.skip(1)  # seq_tier
        if delay_bits and bits.flag():
            bits.skip(2 * delay_bits + 1)
        if has_display_delay and bits.flag():
            bits.skip(4)
