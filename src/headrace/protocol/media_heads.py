"""The fixed part of an audio or video payload: everything before FourCC, tracks and codec bytes.

Owns: what frame type and packet type together mean, and where the rest of the payload begins.
Follows FLV 10.1 E.4.2.1 and E.4.3.1, and Enhanced RTMP v2 ExAudioTagHeader and ExVideoTagHeader.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.errors import PeerError
from headrace.protocol.media_packets import (
    COMMAND_FRAME_TYPE,
    CONFIG,
    END,
    FRAME,
    KEY_FRAME_TYPE,
    KEYFRAME,
    METADATA,
    AudioPacketType,
    VideoPacketType,
)
from headrace.protocol.media_wrapping import require, unwrap_mod_ex, unwrap_multitrack

AVC_LIKE_CODEC_IDS = (7, 12)  # FLV E.4.3.1 CodecID of AVC, and the unofficial one of HEVC
AAC = 10  # FLV E.4.2.1 SoundFormat
EX_AUDIO = 9  # Enhanced RTMP v2 SoundFormat.ExHeader
_VIDEO_PACKET_TYPES = frozenset(range(6))  # what can follow the wrappings
_AUDIO_PACKET_TYPES = frozenset({0, 1, 2, 4})


class Head(NamedTuple):
    """A header read up to where tracks begin."""

    flags: int  # without those of the multitrack wrapping
    packet_type: int
    position: int
    shape: int | None  # AvMultitrackType, None if not wrapped
    timestamp_offset_ns: int
    is_enhanced: bool


def read_video_head(payload: bytes) -> Head:
    require(payload, 1, "a video header")
    first = payload[0]
    frame_type = first >> 4 & 7
    if first & 0x80:
        packet_type, position, offset_ns = unwrap_mod_ex(payload)
        shape = None
        if packet_type == VideoPacketType.MULTITRACK:
            packet_type, shape = unwrap_multitrack(payload, position, VideoPacketType.MULTITRACK)
        if frame_type == COMMAND_FRAME_TYPE and packet_type != VideoPacketType.METADATA:
            require(payload, position + 1, "a video command")
            return Head(0, VideoPacketType.CODED_FRAMES, position + 1, None, offset_ns, True)
        if packet_type not in _VIDEO_PACKET_TYPES:
            raise PeerError(f"video packet type {packet_type}, expected 0..7")
        position += shape is not None
        return Head(video_flags(frame_type, packet_type), packet_type, position, shape, offset_ns, True)
    packet_type, position = VideoPacketType.CODED_FRAMES, 1
    if first & 0x0F in AVC_LIKE_CODEC_IDS and frame_type != COMMAND_FRAME_TYPE:
        require(payload, 2, "an AVC packet type")
        packet_type, position = payload[1], 5
        if packet_type > VideoPacketType.SEQUENCE_END:
            raise PeerError(f"AVC packet type {packet_type}, expected 0..2")
        # An end of sequence means the same without its useless composition time.
        if packet_type != VideoPacketType.SEQUENCE_END:
            require(payload, position, "an AVC packet header")
    return Head(video_flags(frame_type, packet_type), packet_type, position, None, 0, False)


def read_audio_head(payload: bytes) -> Head:
    require(payload, 1, "an audio header")
    sound_format = payload[0] >> 4
    packet_type, position = int(AudioPacketType.CODED_FRAMES), 1
    if sound_format == EX_AUDIO:
        packet_type, position, offset_ns = unwrap_mod_ex(payload)
        shape = None
        if packet_type == AudioPacketType.MULTITRACK:
            packet_type, shape = unwrap_multitrack(payload, position, AudioPacketType.MULTITRACK)
            position += 1
        if packet_type not in _AUDIO_PACKET_TYPES:
            raise PeerError(f"audio packet type {packet_type}, expected 0, 1, 2, 4, 5 or 7")
        return Head(audio_flags(packet_type), packet_type, position, shape, offset_ns, True)
    if sound_format == AAC:
        require(payload, 2, "an AAC packet type")
        packet_type, position = payload[1], 2
        if packet_type > AudioPacketType.CODED_FRAMES:
            raise PeerError(f"AAC packet type {packet_type}, expected 0 or 1")
    return Head(audio_flags(packet_type), packet_type, position, None, 0, False)


def video_flags(frame_type: int, packet_type: int) -> int:
    if packet_type == VideoPacketType.METADATA:
        return METADATA  # "frameType is ignored": FFmpeg writes 5 there
    if frame_type == COMMAND_FRAME_TYPE:
        return 0
    if packet_type in (VideoPacketType.SEQUENCE_START, VideoPacketType.MPEG2TS_SEQUENCE_START):
        return CONFIG
    if packet_type == VideoPacketType.SEQUENCE_END:
        return END
    if packet_type in (VideoPacketType.CODED_FRAMES, VideoPacketType.CODED_FRAMES_X):
        return FRAME | KEYFRAME if frame_type == KEY_FRAME_TYPE else FRAME
    return 0


def audio_flags(packet_type: int) -> int:
    if packet_type in (AudioPacketType.SEQUENCE_START, AudioPacketType.MULTICHANNEL_CONFIG):
        return CONFIG
    if packet_type == AudioPacketType.SEQUENCE_END:
        return END
    return FRAME if packet_type == AudioPacketType.CODED_FRAMES else 0
