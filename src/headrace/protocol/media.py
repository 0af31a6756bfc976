"""The headers of RTMP audio and video payloads, legacy FLV and Enhanced RTMP v2.

Owns: which payload is a keyframe, a configuration, metadata or the end; which codec and tracks it holds.
Must not know what is inside a codec's bytes (`headrace.protocol.codecs`), nor timestamps, nor who relays.
Follows FLV 10.1 E.4.2 and E.4.3, and Enhanced RTMP v2 "Enhanced Audio" and "Enhanced Video".

`classify_video` and `classify_audio` run once for every relayed message and never raise: what they do not
understand is 0, and is relayed as it came. `parse_video` and `parse_audio` give all facts or PeerError.
Both judge by headers alone: a frame without a body is a frame, and an empty sequence start is a
configuration (FFmpeg sends those for AC-3, and for AV1 before the real one). An empty payload is legal
RTMP and has no facts: ask before parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from headrace.errors import PeerError
from headrace.protocol.codecs.names import (
    AUDIO_FOURCCS,
    VIDEO_FOURCCS,
    name_of_fourcc,
    name_of_sound_format,
    name_of_video_codec_id,
)
from headrace.protocol.media_heads import (
    AAC,
    AVC_LIKE_CODEC_IDS,
    EX_AUDIO,
    Head,
    audio_flags,
    read_audio_head,
    read_video_head,
    video_flags,
)
from headrace.protocol.media_packets import (
    COMMAND_FRAME_TYPE,
    CONFIG,
    END,
    FRAME,
    KEYFRAME,
    METADATA,
    MULTITRACK,
    SIDE_TRACK,
    AudioPacket,
    AudioPacketType,
    ConfigSlot,
    Track,
    VideoPacket,
    VideoPacketType,
)
from headrace.protocol.media_wrapping import walk_tracks

__all__ = [
    "CONFIG",
    "END",
    "FRAME",
    "KEYFRAME",
    "METADATA",
    "MULTITRACK",
    "SIDE_TRACK",
    "AudioPacket",
    "AudioPacketType",
    "ConfigSlot",
    "Track",
    "VideoPacket",
    "VideoPacketType",
    "classify_audio",
    "classify_video",
    "config_slot",
    "parse_audio",
    "parse_video",
]

_SOUND_RATES_HZ = (5512, 11025, 22050, 44100)  # FLV E.4.2.1 SoundRate
_WITH_COMPOSITION_TIME = (b"avc1", b"hvc1", b"vvc1")  # Enhanced RTMP v2 ExVideoTagBody, CodedFrames
_LOOK_CLOSER = 128  # in the tables at the end: two bytes do not decide, walk the header


def classify_video(payload: bytes) -> int:
    """The flags of a video message; 0 for what is empty, broken, unknown, or a command."""
    # Measured with timeit on CPython 3.11: 0.12 µs for AVC and unwrapped Enhanced, 4 µs for ModEx and multitrack.
    if len(payload) > 4:
        flags = _VIDEO_TABLE[payload[0]][payload[1]]
        if flags != _LOOK_CLOSER:
            return flags
    return _classify_closely(read_video_head, payload)


def classify_audio(payload: bytes) -> int:
    """The flags of an audio message; 0 for what is empty, broken or unknown."""
    if len(payload) > 4:
        flags = _AUDIO_TABLE[payload[0]][payload[1]]
        if flags != _LOOK_CLOSER:
            return flags
    return _classify_closely(read_audio_head, payload)


def parse_video(payload: bytes) -> VideoPacket:
    head = read_video_head(payload)
    frame_type = payload[0] >> 4 & 7
    packet_type = VideoPacketType(head.packet_type)
    tracks: tuple[Track, ...] = ()
    wrapping = 0
    codec = "unknown" if head.is_enhanced else name_of_video_codec_id(payload[0] & 0x0F)
    if head.is_enhanced and head.flags:
        tracks = tuple(_read_video_tracks(payload, head))
        wrapping = _wrapping_flags(head.shape, tracks[0].track_id)
        codec = tracks[0].codec
    elif not head.is_enhanced and frame_type != COMMAND_FRAME_TYPE:
        # FLV E.4.3.1: CompositionTime is there in every AVC packet, and meant in coded frames alone.
        has_time = head.position == 5 and packet_type == VideoPacketType.CODED_FRAMES
        composition_ms = int.from_bytes(payload[2:5], "big", signed=True) if has_time else 0
        tracks = (Track(0, codec, payload[head.position :], composition_ms),)
    return VideoPacket(
        codec=codec,
        flags=head.flags | wrapping,
        is_enhanced=head.is_enhanced,
        tracks=tracks,
        timestamp_offset_ns=head.timestamp_offset_ns,
        packet_type=packet_type,
        frame_type=frame_type,
    )


def parse_audio(payload: bytes) -> AudioPacket:
    head = read_audio_head(payload)
    first = payload[0]
    wrapping = 0
    if head.is_enhanced:
        tracks = tuple(
            Track(track_id, name_of_fourcc(fourcc, AUDIO_FOURCCS), payload[start:stop])
            for track_id, fourcc, start, stop in walk_tracks(payload, head.position, head.shape)
        )
        wrapping = _wrapping_flags(head.shape, tracks[0].track_id)
    else:
        tracks = (Track(0, name_of_sound_format(first >> 4), payload[head.position :]),)
    return AudioPacket(
        codec=tracks[0].codec,
        flags=head.flags | wrapping,
        is_enhanced=head.is_enhanced,
        tracks=tracks,
        timestamp_offset_ns=head.timestamp_offset_ns,
        packet_type=AudioPacketType(head.packet_type),
        sound_rate_hz=None if head.is_enhanced else _SOUND_RATES_HZ[first >> 2 & 3],
        sound_size_bits=None if head.is_enhanced else 16 if first & 2 else 8,
        sound_channels=None if head.is_enhanced else 2 if first & 1 else 1,
    )


def config_slot(kind: Literal["audio", "video"], payload: bytes) -> ConfigSlot | None:
    """The slot of a message with CONFIG or METADATA; None for any other, and for broken ones.

    A legacy and an Enhanced sequence start of the same track share a slot, so that a publisher who
    changes the codec leaves nothing behind. The tracks are the peer's choice: the caller caps the slots.
    """
    try:
        packet = parse_video(payload) if kind == "video" else parse_audio(payload)
    except PeerError:
        return None
    role: Literal["codec", "metadata", "channels"] = "codec"
    if packet.is_metadata:
        role = "metadata"
    elif not packet.is_config:
        return None
    elif packet.packet_type is AudioPacketType.MULTICHANNEL_CONFIG:
        role = "channels"
    return ConfigSlot(kind, role, tuple(track.track_id for track in packet.tracks))


def _classify_closely(read_head: Callable[[bytes], Head], payload: bytes) -> int:
    try:
        head = read_head(payload)
        if not head.is_enhanced or not head.flags:
            return head.flags
        track_id = next(walk_tracks(payload, head.position, head.shape))[0]
    except PeerError:
        return 0
    return head.flags | _wrapping_flags(head.shape, track_id)


def _wrapping_flags(shape: int | None, first_track_id: int) -> int:
    if shape is None:
        return 0
    # Encoders send track 0 unwrapped and each further one in a message of its own, so a keyframe of
    # track 1 may come before or after that of track 0: who starts there lacks the main picture.
    return MULTITRACK | SIDE_TRACK if first_track_id else MULTITRACK


def _read_video_tracks(payload: bytes, head: Head) -> Iterator[Track]:
    for track_id, fourcc, start, stop in walk_tracks(payload, head.position, head.shape):
        body, composition_ms = payload[start:stop], 0
        if head.packet_type == VideoPacketType.CODED_FRAMES and fourcc in _WITH_COMPOSITION_TIME:
            if len(body) < 3:
                raise PeerError(f"coded frame of {len(body)} bytes, expected a composition time of 3")
            composition_ms, body = int.from_bytes(body[:3], "big", signed=True), body[3:]
        yield Track(track_id, name_of_fourcc(fourcc, VIDEO_FOURCCS), body, composition_ms)


def _video_row(first: int) -> bytes:
    """The flags of a payload of five bytes or more that starts with `first`, by its second byte."""
    frame_type, low = first >> 4 & 7, first & 0x0F
    if first & 0x80:
        is_wrapped = low in (VideoPacketType.MULTITRACK, VideoPacketType.MOD_EX)
        return bytes([_LOOK_CLOSER if is_wrapped else video_flags(frame_type, low)]) * 256
    if low in AVC_LIKE_CODEC_IDS:
        return bytes(video_flags(frame_type, packet_type) for packet_type in range(3)) + bytes(253)
    return bytes([video_flags(frame_type, VideoPacketType.CODED_FRAMES)]) * 256


def _audio_row(first: int) -> bytes:
    sound_format, low = first >> 4, first & 0x0F
    if sound_format == EX_AUDIO:
        is_wrapped = low in (AudioPacketType.MULTITRACK, AudioPacketType.MOD_EX)
        return bytes([_LOOK_CLOSER if is_wrapped else audio_flags(low)]) * 256
    if sound_format == AAC:
        return bytes([CONFIG, FRAME]) + bytes(254)
    return bytes([FRAME]) * 256


_VIDEO_TABLE = tuple(_video_row(first) for first in range(256))
_AUDIO_TABLE = tuple(_audio_row(first) for first in range(256))
