"""What `headrace.protocol.media` says about a payload: the flags, the packet types, the packets.

Owns: the words for RTMP audio and video messages. Knows no bytes.
Follows FLV 10.1 E.4.2 and E.4.3, and Enhanced RTMP v2 "Enhanced Audio" and "Enhanced Video".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

KEYFRAME: Final = 1  # a coded keyframe that a decoder can start at (video only)
CONFIG: Final = 2  # sequence start of a codec, or the channel map of an audio track
END: Final = 4  # end of sequence
METADATA: Final = 8  # video metadata such as HDR colour: late joiners need it with the configuration
MULTITRACK: Final = 16  # wrapped in the multitrack header, for one track or several
FRAME: Final = 32  # coded media, keyframe or not
SIDE_TRACK: Final = 64  # multitrack, and its first track is not track 0: no place to start a playback at

KEY_FRAME_TYPE: Final = 1  # FLV E.4.3.1 FrameType
COMMAND_FRAME_TYPE: Final = 5  # ibid., "video info/command frame"


class VideoPacketType(IntEnum):
    """Enhanced RTMP v2 VideoPacketType. The first three are also FLV's AVCPacketType."""

    SEQUENCE_START = 0
    CODED_FRAMES = 1
    SEQUENCE_END = 2
    CODED_FRAMES_X = 3
    METADATA = 4
    MPEG2TS_SEQUENCE_START = 5
    MULTITRACK = 6
    MOD_EX = 7


class AudioPacketType(IntEnum):
    """Enhanced RTMP v2 AudioPacketType. The first two are also FLV's AACPacketType."""

    SEQUENCE_START = 0
    CODED_FRAMES = 1
    SEQUENCE_END = 2
    MULTICHANNEL_CONFIG = 4
    MULTITRACK = 5
    MOD_EX = 7


@dataclass(frozen=True, slots=True)
class Track:
    """One track's part of a message; its body starts behind the composition time."""

    track_id: int
    codec: str
    body: bytes
    composition_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Packet:
    codec: str  # of the first track
    flags: int  # what classify_* says of the same payload
    is_enhanced: bool
    tracks: tuple[Track, ...]  # one with id 0 unless multitrack; none for a command
    timestamp_offset_ns: int

    @property
    def is_config(self) -> bool:
        return bool(self.flags & CONFIG)

    @property
    def is_keyframe(self) -> bool:
        return bool(self.flags & KEYFRAME)

    @property
    def is_end(self) -> bool:
        return bool(self.flags & END)

    @property
    def is_metadata(self) -> bool:
        return bool(self.flags & METADATA)

    @property
    def is_multitrack(self) -> bool:
        return bool(self.flags & MULTITRACK)


@dataclass(frozen=True, slots=True)
class VideoPacket(_Packet):
    packet_type: VideoPacketType
    frame_type: int

    @property
    def composition_ms(self) -> int:
        """Of the first track; presentation is this much after the message's timestamp."""
        return self.tracks[0].composition_ms if self.tracks else 0

    @property
    def is_command(self) -> bool:
        """A seek marker for players: no media, no codec."""
        return self.frame_type == COMMAND_FRAME_TYPE and self.packet_type != VideoPacketType.METADATA


@dataclass(frozen=True, slots=True)
class AudioPacket(_Packet):
    packet_type: AudioPacketType
    sound_rate_hz: int | None  # the three facts of a legacy header; AAC writes 44100, 16, 2 always
    sound_size_bits: int | None
    sound_channels: int | None


class ConfigSlot(NamedTuple):
    """What a configuration message replaces: the newest of each slot is what a late joiner needs."""

    kind: Literal["audio", "video"]
    role: Literal["codec", "metadata", "channels"]
    track_ids: tuple[int, ...]
