"""What the first bytes of payloads say, for many tags at a time: codec, (key)frame, configuration, composition time.

Owns no rule of its own: every answer is the one of `protocol.media`, which is asked itself where a payload is not one
of the plain shapes (ModEx, multitrack, commands, unknown FourCCs). Plain are legacy FLV (10.1, E.4.2 and E.4.3) and
Enhanced RTMP v2 headers without wrapping: nearly every tag there is.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from headrace.errors import PeerError
from headrace.pipeline.sources.flv.chain import FRAME_BYTES, SIZE_BYTES, TAG_HEADER_BYTES, TYPE_MASK
from headrace.pipeline.sources.flv.files import Bytes
from headrace.pipeline.sources.flv.gather import big_endian, bytes_at
from headrace.pipeline.sources.flv.walk import Tags
from headrace.protocol import media
from headrace.protocol.codecs.names import (
    AUDIO_FOURCCS,
    VIDEO_FOURCCS,
    name_of_sound_format,
    name_of_video_codec_id,
)
from headrace.protocol.messages import AUDIO, VIDEO

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_HEAD_BYTES = TAG_HEADER_BYTES + 8  # the tag's header, and the payload's up to an Enhanced composition time
_TIMESTAMP_AT = (7, 4, 5, 6)  # E.4.1: TimestampExtended is its upper byte
_NO_CODEC = -1
_AAC, _EX_AUDIO, _COMMAND = 10, 9, 5
_WITH_COMPOSITION = np.frombuffer(b"avc1hvc1vvc1", ">u4").astype(np.int64)


class Facts:
    """Of tags that may be of several files, an entry each. What nobody asks for is not looked at."""

    def __init__(self, runs: tuple[Tags, ...]) -> None:
        self._runs = runs
        self.size_bytes: Numbers = np.concatenate([tags.ends - tags.starts for tags in runs]) - FRAME_BYTES

    @cached_property
    def kind(self) -> Bytes:
        """The tag's type."""
        return np.bitwise_and(self._head[:, 0], np.uint8(TYPE_MASK))

    @cached_property
    def timestamp_ms(self) -> Numbers:
        return big_endian(self._head[:, _TIMESTAMP_AT])

    @cached_property
    def payloads(self) -> PayloadFacts:
        facts = PayloadFacts(len(self.size_bytes))
        has_payload = self.size_bytes > 0
        for kind, read in ((VIDEO, _read_video), (AUDIO, _read_audio)):
            rows = np.flatnonzero((self.kind == kind) & has_payload)
            is_plain = read(facts, rows, self._head[rows, TAG_HEADER_BYTES:], self.size_bytes[rows])
            for row in rows[~is_plain].tolist():
                facts.read_closely(row, kind, self._payload(row))
        return facts

    @cached_property
    def _head(self) -> Bytes:
        return np.concatenate([bytes_at(tags.data, tags.starts, _HEAD_BYTES) for tags in self._runs])

    def _payload(self, row: int) -> bytes:
        for tags in self._runs:
            if row < len(tags.starts):
                return bytes(tags.data[int(tags.starts[row]) + TAG_HEADER_BYTES : int(tags.ends[row]) - SIZE_BYTES])
            row -= len(tags.starts)
        raise IndexError(row)


class PayloadFacts:
    """`codec` is an index into `names`, below 0 where a payload does not tell."""

    def __init__(self, count: int) -> None:
        self.codec: Numbers = np.full(count, _NO_CODEC)
        self.names = list(_NAMES)
        self.is_keyframe: Flags = np.zeros(count, bool)
        self.is_config: Flags = np.zeros(count, bool)
        self.is_frame: Flags = np.zeros(count, bool)
        self.composition_ms: Numbers = np.zeros(count, np.int64)
        self.has_composition: Flags = np.zeros(count, bool)

    def read_closely(self, row: int, kind: int, payload: bytes) -> None:
        packet: media.VideoPacket | media.AudioPacket
        try:
            if kind == VIDEO:
                packet = media.parse_video(payload)
                self.composition_ms[row], self.has_composition[row] = packet.composition_ms, True
            else:
                packet = media.parse_audio(payload)
        except PeerError:
            return  # broken or of a later specification: a tag with a payload that tells nothing
        if packet.codec not in self.names:
            self.names.append(packet.codec)
        self.codec[row] = self.names.index(packet.codec)
        # As the log has it: nobody can start at a keyframe of a side track alone.
        self.is_keyframe[row] = packet.is_keyframe and not packet.flags & media.SIDE_TRACK
        self.is_config[row] = packet.is_config
        self.is_frame[row] = bool(packet.flags & media.FRAME)


def read_facts(*runs: Tags) -> Facts:
    return Facts(runs)


def _read_video(facts: PayloadFacts, rows: Numbers, payload: Bytes, size: Numbers) -> Flags:
    """Fills in the plain ones among the video tags, and says which those are."""
    first, packet = payload[:, 0], payload[:, 1]
    frame_type, low = first >> 4 & 7, first & 0x0F
    is_enhanced, is_command = first >= 0x80, frame_type == _COMMAND
    is_legacy = ~(is_enhanced | is_command)
    is_avc = is_legacy & ((low == 7) | (low == 12))
    is_whole_avc = is_avc & (((packet <= 1) & (size >= 5)) | ((packet == 2) & (size >= 2)))
    is_avc_frame = is_whole_avc & (packet == 1)
    is_other = is_legacy & ~is_avc
    is_plain: Flags = is_whole_avc | is_other

    is_frame = is_avc_frame | is_other
    facts.codec[rows[is_plain]] = _LEGACY_VIDEO + low[is_plain]
    facts.is_frame[rows] = is_frame
    facts.is_keyframe[rows] = is_frame & (frame_type == 1)
    facts.is_config[rows] = is_whole_avc & (packet == 0)
    facts.has_composition[rows] = is_plain
    facts.composition_ms[rows] = np.where(is_avc_frame, _signed_24(payload, 2), 0)
    enhanced = np.flatnonzero(is_enhanced & ~is_command)
    if len(enhanced):
        is_plain[enhanced] = _read_enhanced_video(facts, rows[enhanced], payload[enhanced], size[enhanced])
    return is_plain


def _read_enhanced_video(facts: PayloadFacts, rows: Numbers, payload: Bytes, size: Numbers) -> Flags:
    fourcc, packet, frame_type = big_endian(payload[:, 1:5]), payload[:, 0] & 0x0F, payload[:, 0] >> 4 & 7
    codec = _VIDEO_CODECS.lookup(fourcc)
    has_time = (packet == 1) & np.isin(fourcc, _WITH_COMPOSITION)
    is_plain: Flags = (packet <= 5) & (codec != _NO_CODEC) & (size >= np.where(has_time, 8, 5))
    is_frame = is_plain & ((packet == 1) | (packet == 3))
    facts.codec[rows] = np.where(is_plain, codec, _NO_CODEC)
    facts.is_frame[rows] = is_frame
    facts.is_keyframe[rows] = is_frame & (frame_type == 1)
    facts.is_config[rows] = is_plain & ((packet == 0) | (packet == 5))
    facts.has_composition[rows] = is_plain
    facts.composition_ms[rows] = np.where(is_plain & has_time, _signed_24(payload, 5), 0)
    return is_plain


def _read_audio(facts: PayloadFacts, rows: Numbers, payload: Bytes, size: Numbers) -> Flags:
    first, packet = payload[:, 0], payload[:, 1]
    sound_format = first >> 4
    is_aac = (sound_format == _AAC) & (size >= 2) & (packet <= 1)
    is_other = (sound_format != _AAC) & (sound_format != _EX_AUDIO)
    is_plain: Flags = is_aac | is_other
    facts.codec[rows[is_plain]] = _LEGACY_AUDIO + sound_format[is_plain]
    facts.is_config[rows] = is_aac & (packet == 0)
    facts.is_frame[rows] = (is_aac & (packet == 1)) | is_other
    enhanced = np.flatnonzero(sound_format == _EX_AUDIO)
    if len(enhanced):
        is_plain[enhanced] = _read_enhanced_audio(facts, rows[enhanced], payload[enhanced], size[enhanced])
    return is_plain


def _read_enhanced_audio(facts: PayloadFacts, rows: Numbers, payload: Bytes, size: Numbers) -> Flags:
    packet, codec = payload[:, 0] & 0x0F, _AUDIO_CODECS.lookup(big_endian(payload[:, 1:5]))
    is_plain: Flags = (size >= 5) & (codec != _NO_CODEC) & ((packet <= 2) | (packet == 4))
    facts.codec[rows] = np.where(is_plain, codec, _NO_CODEC)
    facts.is_config[rows] = is_plain & ((packet == 0) | (packet == 4))
    facts.is_frame[rows] = is_plain & (packet == 1)
    return is_plain


def _signed_24(payload: Bytes, at: int) -> Numbers:
    upper, middle, low = (payload[:, at + shift].astype(np.int64) for shift in range(3))
    value: Numbers = upper << 16 | middle << 8 | low
    return (value ^ 0x800000) - 0x800000


class _CodecTable:
    """FourCC -> index of a codec's name."""

    def __init__(self, fourccs: dict[bytes, str], names: list[str]) -> None:
        known = sorted((int.from_bytes(fourcc, "big"), names.index(name)) for fourcc, name in fourccs.items())
        self._codes, self._indexes = np.array(known, np.int64).T

    def lookup(self, fourcc: Numbers) -> Numbers:
        row = np.minimum(np.searchsorted(self._codes, fourcc), len(self._codes) - 1)
        return np.where(self._codes[row] == fourcc, self._indexes[row], _NO_CODEC)


_LEGACY_VIDEO, _LEGACY_AUDIO = 0, 16  # where the names of 16 codec ids and of 16 sound formats begin
_NAMES = [
    *(name_of_video_codec_id(number) for number in range(16)),
    *(name_of_sound_format(number) for number in range(16)),
    *VIDEO_FOURCCS.values(),
    *AUDIO_FOURCCS.values(),
]
_VIDEO_CODECS = _CodecTable(VIDEO_FOURCCS, _NAMES)
_AUDIO_CODECS = _CodecTable(AUDIO_FOURCCS, _NAMES)
