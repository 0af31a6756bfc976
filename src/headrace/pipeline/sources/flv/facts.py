"""What the first bytes of payloads say, for many tags at a time: codec, (key)frame, configuration, composition time.

Owns no rule of its own: every answer is the one of `protocol.media`, which is asked itself where a payload is not one
of the plain shapes (ModEx, multitrack, commands, unknown FourCCs). Plain are legacy FLV (10.1, E.4.2 and E.4.3) and
Enhanced RTMP v2 headers without wrapping: nearly every tag there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import PeerError
from headrace.pipeline.sources.flv.chain import TAG_HEADER_BYTES, TYPE_MASK
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
Any1D = npt.NDArray[Any]

_HEAD_BYTES = TAG_HEADER_BYTES + 8  # the tag's header, and the payload's up to an Enhanced composition time
_NO_CODEC = -1
_AAC, _EX_AUDIO, _COMMAND = 10, 9, 5
_WITH_COMPOSITION = np.frombuffer(b"avc1hvc1vvc1", ">u4").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Facts:
    """One entry per tag. `codec` is an index into `names`, below 0 where a payload does not tell."""

    kind: Numbers  # the tag's type
    timestamp_ms: Numbers
    size_bytes: Numbers
    codec: Numbers
    names: list[str]
    is_keyframe: Flags
    is_config: Flags
    is_frame: Flags
    composition_ms: Numbers
    has_composition: Flags


def read_facts(tags: Tags) -> Facts:
    size = tags.ends - tags.starts - (TAG_HEADER_BYTES + 4)
    # The last tag may be shorter than the columns; what is behind a payload is never looked at.
    places = np.minimum(tags.starts[:, None] + np.arange(_HEAD_BYTES), len(tags.data) - 1)
    head = tags.data[places].astype(np.int64)
    kind = head[:, 0] & TYPE_MASK
    facts = Facts(
        kind=kind,
        timestamp_ms=head[:, 7] << 24 | head[:, 4] << 16 | head[:, 5] << 8 | head[:, 6],
        size_bytes=size,
        codec=np.full(len(size), _NO_CODEC),
        names=list(_NAMES),
        is_keyframe=np.zeros(len(size), bool),
        is_config=np.zeros(len(size), bool),
        is_frame=np.zeros(len(size), bool),
        composition_ms=np.zeros(len(size), np.int64),
        has_composition=np.zeros(len(size), bool),
    )
    payload = head[:, TAG_HEADER_BYTES:]
    is_video, is_audio = (kind == VIDEO) & (size > 0), (kind == AUDIO) & (size > 0)
    is_plain = _read_video(facts, payload, is_video) | _read_audio(facts, payload, is_audio)
    for row in np.flatnonzero((is_video | is_audio) & ~is_plain).tolist():
        start, stop = int(tags.starts[row]) + TAG_HEADER_BYTES, int(tags.ends[row]) - 4
        _read_closely(facts, row, bytes(tags.data[start:stop]))
    return facts


def _read_video(facts: Facts, payload: Any1D, is_video: Flags) -> Flags:
    """Fills in the plain ones among the video tags, and says which those are."""
    size, first, packet = facts.size_bytes, payload[:, 0], payload[:, 1]
    frame_type, low = first >> 4 & 7, first & 0x0F
    is_enhanced, is_command = first >= 0x80, frame_type == _COMMAND
    fourcc, composition = _fourcc(payload), _signed_24(payload, 2)

    is_legacy = is_video & ~is_enhanced & ~is_command
    is_avc = is_legacy & ((low == 7) | (low == 12))
    is_whole_avc = is_avc & (((packet <= 1) & (size >= 5)) | ((packet == 2) & (size >= 2)))
    is_other = is_legacy & ~is_avc
    ex_codec = _VIDEO_CODECS.lookup(fourcc)
    has_time = (low == 1) & np.isin(fourcc, _WITH_COMPOSITION)
    is_ex = is_video & is_enhanced & ~is_command & (low <= 5) & (ex_codec != _NO_CODEC)
    is_ex &= size >= np.where(has_time, 8, 5)
    is_plain: Flags = is_whole_avc | is_other | is_ex

    facts.codec[is_plain] = np.where(is_enhanced, ex_codec, _LEGACY_VIDEO + low)[is_plain]
    is_frame = (is_whole_avc & (packet == 1)) | is_other | (is_ex & ((low == 1) | (low == 3)))
    facts.is_frame[:] |= is_frame
    facts.is_keyframe[:] |= is_frame & (frame_type == 1)
    facts.is_config[:] |= (is_whole_avc & (packet == 0)) | (is_ex & ((low == 0) | (low == 5)))
    facts.has_composition[is_plain] = True
    facts.composition_ms[:] = np.where(is_whole_avc & (packet == 1), composition, 0)
    facts.composition_ms[is_ex & has_time] = _signed_24(payload, 5)[is_ex & has_time]
    return is_plain


def _read_audio(facts: Facts, payload: Any1D, is_audio: Flags) -> Flags:
    size, first, packet = facts.size_bytes, payload[:, 0], payload[:, 1]
    sound_format, low = first >> 4, first & 0x0F
    is_aac = is_audio & (sound_format == _AAC) & (size >= 2) & (packet <= 1)
    is_other = is_audio & (sound_format != _AAC) & (sound_format != _EX_AUDIO)
    ex_codec = _AUDIO_CODECS.lookup(_fourcc(payload))
    is_ex = is_audio & (sound_format == _EX_AUDIO) & (size >= 5) & (ex_codec != _NO_CODEC)
    is_ex &= (low <= 2) | (low == 4)
    is_plain: Flags = is_aac | is_other | is_ex
    facts.codec[is_plain] = np.where(is_ex, ex_codec, _LEGACY_AUDIO + sound_format)[is_plain]
    facts.is_config[:] |= (is_aac & (packet == 0)) | (is_ex & ((low == 0) | (low == 4)))
    facts.is_frame[:] |= (is_aac & (packet == 1)) | is_other | (is_ex & (low == 1))
    return is_plain


def _read_closely(facts: Facts, row: int, payload: bytes) -> None:
    packet: media.VideoPacket | media.AudioPacket
    try:
        if facts.kind[row] == VIDEO:
            packet = media.parse_video(payload)
            facts.composition_ms[row], facts.has_composition[row] = packet.composition_ms, True
        else:
            packet = media.parse_audio(payload)
    except PeerError:
        return  # broken or of a later specification: a tag with a payload that tells nothing
    if packet.codec not in facts.names:
        facts.names.append(packet.codec)
    facts.codec[row] = facts.names.index(packet.codec)
    # As the log has it: nobody can start at a keyframe of a side track alone.
    facts.is_keyframe[row] = packet.is_keyframe and not packet.flags & media.SIDE_TRACK
    facts.is_config[row] = packet.is_config
    facts.is_frame[row] = bool(packet.flags & media.FRAME)


def _fourcc(payload: Any1D) -> Numbers:
    return payload[:, 1] << 24 | payload[:, 2] << 16 | payload[:, 3] << 8 | payload[:, 4]


def _signed_24(payload: Any1D, at: int) -> Numbers:
    value = payload[:, at] << 16 | payload[:, at + 1] << 8 | payload[:, at + 2]
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
