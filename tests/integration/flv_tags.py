"""FLV files read and written by hand (Adobe FLV 10.1, Annex E), apart from the package's own code: a test's oracle
must not share its mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

AUDIO, VIDEO, SCRIPT = 8, 9, 18

_FILE_HEADER = b"FLV\x01\x05\x00\x00\x00\x09\x00\x00\x00\x00"
_EX_HEADER = 0x80
_SEQUENCE_START = 0


class FlvTag(NamedTuple):
    type_id: int
    timestamp_ms: int
    payload: bytes

    @property
    def is_sequence_header(self) -> bool:
        """Of a codec, legacy (AVC, AAC) or Enhanced."""
        first = self.payload[0]
        if self.type_id == VIDEO:
            return first & 0x0F == _SEQUENCE_START if first & _EX_HEADER else self.payload[1] == 0
        if self.type_id == AUDIO:
            is_enhanced, is_aac = first >> 4 == 9, first >> 4 == 10
            return first & 0x0F == _SEQUENCE_START if is_enhanced else is_aac and self.payload[1] == 0
        return False

    @property
    def is_end_of_sequence(self) -> bool:
        """AVC's end marker, which FFmpeg's muxer writes last and its demuxer drops."""
        return self.type_id == VIDEO and not self.payload[0] & _EX_HEADER and self.payload[1] == 2

    @property
    def is_keyframe(self) -> bool:
        is_intra = self.type_id == VIDEO and self.payload[0] >> 4 & 7 == 1
        return is_intra and not self.is_sequence_header and not self.is_end_of_sequence

    @property
    def is_frame(self) -> bool:
        return self.type_id != SCRIPT and not self.is_sequence_header and not self.is_end_of_sequence

    @property
    def composition_ms(self) -> int:
        """Of a legacy AVC frame."""
        return int.from_bytes(self.payload[2:5], "big", signed=True)

    def at(self, timestamp_ms: int) -> FlvTag:
        return self._replace(timestamp_ms=timestamp_ms & 0xFFFFFFFF)

    def encode(self) -> bytes:
        size = len(self.payload).to_bytes(3, "big")
        low, high = (self.timestamp_ms & 0xFFFFFF).to_bytes(3, "big"), (self.timestamp_ms >> 24).to_bytes(1, "big")
        header = bytes((self.type_id,)) + size + low + high + b"\0\0\0"
        return header + self.payload + (len(header) + len(self.payload)).to_bytes(4, "big")


def read_tags(path: Path) -> list[FlvTag]:
    """The whole tags of a file; one that is cut at the end of the file is left off, anything else is an error."""
    data = path.read_bytes()
    assert data[:4] == _FILE_HEADER[:4], f"{path} begins with {data[:13]!r}"
    tags: list[FlvTag] = []
    position = len(_FILE_HEADER)
    while position + 11 <= len(data):
        size = int.from_bytes(data[position + 1 : position + 4], "big")
        end = position + 11 + size
        if end + 4 > len(data):
            break
        back_pointer = int.from_bytes(data[end : end + 4], "big")
        assert back_pointer == 11 + size, f"{path}: {back_pointer} after the tag at {position}, expected {11 + size}"
        timestamp_ms = int.from_bytes(data[position + 4 : position + 7], "big") | data[position + 7] << 24
        tags.append(FlvTag(data[position], timestamp_ms, data[position + 11 : end]))
        position = end + 4
    return tags


def encode_file(tags: Iterable[FlvTag]) -> bytes:
    return _FILE_HEADER + b"".join(tag.encode() for tag in tags)


def media_tags(tags: Iterable[FlvTag]) -> list[FlvTag]:
    """Audio and video, headers included: everything but script data."""
    return [tag for tag in tags if tag.type_id != SCRIPT]
