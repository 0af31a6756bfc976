"""VP8 and VP9: facts from the VPCodecConfigurationRecord, and the size from a keyframe.

Follows "VP Codec ISO Media File Format Binding" (record), RFC 6386 9.1 (VP8 frame header) and the VP9
bitstream specification 6.2 (uncompressed header). The record does not hold the size; every keyframe does.
Anything that is not a record, or not a keyframe, is a PeerError.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader
from headrace.protocol.codecs.parameters import VideoParameters, is_plausible_size

# FFmpeg's FLV muxer keeps the version and flags of the vpcC box before the record; others do not.
_BOX_PREFIX = b"\x01\x00\x00\x00"
_CHROMA = ("4:2:0", "4:2:0", "4:2:2", "4:4:4", "4:4:0")
_VP8_START_CODE = b"\x9d\x01\x2a"  # RFC 6386 9.1
_VP9_SYNC_CODE = 0x498342  # VP9 6.2 frame_sync_code
_VP9_RGB = 7  # VP9 7.2.2 color_space


def describe_vpx(codec: str, record: bytes) -> VideoParameters:
    # A record cannot start like the prefix: its third byte would say a bit depth of 0.
    if record.startswith(_BOX_PREFIX):
        record = record[len(_BOX_PREFIX) :]
    if len(record) < 3:
        raise PeerError(f"vpcC of {len(record)} bytes, expected at least 3")
    profile, level, packed = record[0], record[1], record[2]
    bit_depth, chroma = packed >> 4, packed >> 1 & 7
    if bit_depth not in (8, 10, 12):
        raise PeerError(f"vpcC bit depth {bit_depth}, expected 8, 10 or 12")
    return VideoParameters(
        codec,
        profile=f"Profile {profile}",
        level=f"{level // 10}.{level % 10}" if level else None,
        bit_depth=bit_depth,
        chroma=_CHROMA[chroma] if chroma < len(_CHROMA) else None,
    )


def describe_vp8_frame(frame: bytes) -> VideoParameters:
    if len(frame) < 10:
        raise PeerError(f"VP8 keyframe of {len(frame)} bytes, expected at least 10")
    if frame[0] & 1 or frame[3:6] != _VP8_START_CODE:
        raise PeerError("VP8 frame is no keyframe, or lacks the start code 9d012a")
    # The top two bits of each side are a hint for upscaling.
    width = int.from_bytes(frame[6:8], "little") & 0x3FFF
    height = int.from_bytes(frame[8:10], "little") & 0x3FFF
    if not is_plausible_size(width, height):
        raise PeerError(f"VP8 keyframe of {width}x{height} pixels")
    profile = f"Profile {frame[0] >> 1 & 7}"
    return VideoParameters("vp8", profile, width=width, height=height, bit_depth=8, chroma="4:2:0")


def describe_vp9_frame(frame: bytes) -> VideoParameters:
    """The first frame counts: in a superframe the hidden ones come first, and a keyframe leads."""
    bits = BitReader(frame[:32])
    if bits.read(2) != 2:
        raise PeerError("VP9 frame marker missing")
    profile = bits.read(1) | bits.read(1) << 1
    if profile == 3:
        bits.skip(1)
    shows_existing, is_inter = bits.flag(), bits.flag()
    if shows_existing or is_inter:
        raise PeerError("VP9 frame is no keyframe")
    bits.skip(2)
    sync_code = bits.read(24)
    if sync_code != _VP9_SYNC_CODE:
        raise PeerError(f"VP9 sync code 0x{sync_code:06x}, expected 0x{_VP9_SYNC_CODE:06x}")
    bit_depth = (12 if bits.flag() else 10) if profile >= 2 else 8
    chroma = _read_vp9_chroma(bits, profile)
    width, height = bits.read(16) + 1, bits.read(16) + 1
    return VideoParameters(
        "vp9",
        profile=f"Profile {profile}",
        width=width,
        height=height,
        bit_depth=bit_depth,
        chroma=chroma,
    )


def _read_vp9_chroma(bits: BitReader, profile: int) -> str:
    has_subsampling = bool(profile & 1)
    if bits.read(3) == _VP9_RGB:
        if has_subsampling:
            bits.skip(1)
        return "4:4:4"
    bits.skip(1)
    if not has_subsampling:
        return "4:2:0"
    subsampling = bits.read(2)
    bits.skip(1)
    return {0b11: "4:2:0", 0b10: "4:2:2", 0b01: "4:4:0"}.get(subsampling, "4:4:4")
