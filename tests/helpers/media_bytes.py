"""Audio, video and metadata payloads as encoders send them, written out by hand or taken from FFmpeg's own output.

The configurations are whole and real, so that what is detected in them can be compared with what FFmpeg was asked for.
Frames carry a number in their bytes: no two are alike, and a test that compares lists of payloads misses no swap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

AUDIO, VIDEO, DATA = 8, 9, 18  # RTMP 1.0 section 7.1: message type ids


class Sent(NamedTuple):
    """What a publisher sends and a player must get: type, timestamp, payload."""

    type_id: int
    timestamp_ms: int
    payload: bytes


# FFmpeg 7, libx264: 1280x720 at 30 fps, High@3.1, and 640x360 at 25 fps, Main@3.0 (FLV E.4.3.1, then avcC).
AVC_CONFIG = bytes.fromhex(
    "17000000000164001fffe1001a6764001facd9405005bb0110000003001000000303c0f183196001000668ebe3cb22c0fdf8f800"
)
AVC_CONFIG_SMALL = bytes.fromhex(
    "1700000000"  # the same header
    "014d401effe10018674d401eeca05017fcb808800000030080000019078b16cb01000568ebe3cb20"
)
AVC_END = bytes.fromhex("1702000000")
# AAC LC, 48 kHz and 44.1 kHz, stereo (FLV E.4.2.2, then AudioSpecificConfig).
AAC_CONFIG = bytes.fromhex("af001190")
AAC_CONFIG_44100 = bytes.fromhex("af001210")

# onMetaData, an ECMA array of width 1280, height 720, framerate 30 (AMF0 section 2.10).
METADATA = (
    b"\x02\x00\x0aonMetaData\x08\x00\x00\x00\x03"
    b"\x00\x05width\x00\x40\x94\x00\x00\x00\x00\x00\x00"
    b"\x00\x06height\x00\x40\x86\x80\x00\x00\x00\x00\x00"
    b"\x00\x09framerate\x00\x40\x3e\x00\x00\x00\x00\x00\x00"
    b"\x00\x00\x09"
)
METADATA_RETITLED = METADATA.replace(b"\x40\x3e", b"\x40\x39")  # framerate 25
SET_DATA_FRAME = b"\x02\x00\x0d@setDataFrame"  # what a publisher puts before it
CUE_POINT = b"\x02\x00\x0aonCuePoint\x02\x00\x02go"  # a data message that is no metadata

# Enhanced RTMP v2: 0x80 | frame type << 4 | packet type, then the FourCC.
HDR_METADATA = b"\xd4hvc1\x02\x00\x09colorInfo\x03\x00\x00\x09"
HDR_METADATA_BRIGHTER = b"\xd4hvc1\x02\x00\x09colorInfo\x03\x00\x01a\x05\x00\x00\x09"
# Written as FFmpeg writes it: vpcC with the version of its box, profile 0, level 1.1, 8 bit 4:2:0. It holds no size.
VP9_CONFIG = bytes.fromhex("907670303901000000000b820202020000")
# Uncompressed header of a VP9 keyframe (VP9 6.2): marker, profile 0, sync code, 4:2:0, 320x180.
VP9_KEYFRAME = bytes.fromhex("9176703039824983424013f00b3000000000")
# AC-3 in Enhanced RTMP: a sequence start without a body, then a sync frame (A/52 5.3): 48 kHz, 192 kbit/s, 2/0.
AC3_CONFIG = b"\x90ac-3"
AC3_FRAME = b"\x91ac-3" + bytes.fromhex("0b770000144040000000000000")


def keyframe(number: int = 0, size: int = 40) -> bytes:
    """An H.264 keyframe: composition time 0, one IDR slice with the number in it."""
    return _avc_frame(0x17, 0x65, number, size)


def inter_frame(number: int = 0, size: int = 24) -> bytes:
    return _avc_frame(0x27, 0x41, number, size)


def aac_frame(number: int = 0, size: int = 16) -> bytes:
    return b"\xaf\x01\x21" + number.to_bytes(4, "big") + b"\xa5" * (size - 7)


def _avc_frame(first: int, nal_header: int, number: int, size: int) -> bytes:
    nal = bytes((nal_header,)) + number.to_bytes(4, "big") + b"\x5a" * (size - 14)
    return bytes((first, 1, 0, 0, 0)) + len(nal).to_bytes(4, "big") + nal


def track_config(track_id: int, body: bytes = b"\x01") -> bytes:
    """Enhanced RTMP v2 Multitrack, OneTrack: the sequence start of one track."""
    return b"\x96\x00avc1" + bytes((track_id,)) + body


def track_keyframe(track_id: int, number: int = 0) -> bytes:
    return b"\x96\x01avc1" + bytes((track_id,)) + b"\x00\x00\x00" + number.to_bytes(4, "big")


def track_inter_frame(track_id: int, number: int = 0) -> bytes:
    return b"\xa6\x01avc1" + bytes((track_id,)) + b"\x00\x00\x00" + number.to_bytes(4, "big")


def preamble(timestamp_ms: int = 0) -> list[Sent]:
    """What every encoder sends first: metadata, then both sequence headers."""
    return [
        Sent(DATA, timestamp_ms, METADATA),
        Sent(VIDEO, timestamp_ms, AVC_CONFIG),
        Sent(AUDIO, timestamp_ms, AAC_CONFIG),
    ]


def repeated(timestamp_ms: int) -> list[Sent]:
    """The preamble as a joiner gets it: headers at the time of the keyframe, metadata at 0.

    At any other time FFmpeg's demuxer makes a subtitle track of metadata.
    """
    return [one._replace(timestamp_ms=0) if one.type_id == DATA else one for one in preamble(timestamp_ms)]


def frames(
    count: int,
    *,
    start_ms: int = 0,
    first_number: int = 0,
    gop: int = 10,
    step_ms: int = 40,
    has_audio: bool = True,
    has_video: bool = True,
    size: int = 60,
) -> Iterator[Sent]:
    """`count` video frames at `step_ms`, a keyframe first and every `gop` frames, each followed by one audio frame."""
    for index in range(count):
        number = first_number + index
        timestamp_ms = (start_ms + index * step_ms) & 0xFFFFFFFF
        if has_video:
            payload = inter_frame(number, size) if index % gop else keyframe(number, 2 * size)
            yield Sent(VIDEO, timestamp_ms, payload)
        if has_audio:
            yield Sent(AUDIO, timestamp_ms, aac_frame(number))
