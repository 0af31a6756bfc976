"""FLV files (Adobe FLV 10.1, Annex E): bytes to tags and back.

Owns the file header, the tag header and the chain of previous-tag sizes. A tag carries the payload of an RTMP
message unchanged, so what a payload means is `media`'s business; files on disk are `headrace.record`'s.

What the reader insists on, and what it lets pass:
- A previous-tag size that is not the tag's is an error. FFmpeg only warns, but it is the one proof that the
  framing is right: without it a flipped bit in a length turns the rest of the file into invented tags. A tag
  is given out when that proof has been read, so a file cut anywhere yields its whole tags only.
- Tag types other than audio, video and script data, and encrypted tags, are errors: no muxer writes them, and
  to skip them would make any garbage with a plausible length look like an empty file.
- The version, the file header's flags, PreviousTagSize0 and the stream id are not judged: muxers get them
  wrong and nothing depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from headrace.errors import PeerError, UsageError
from headrace.protocol.messages import AUDIO, DATA, VIDEO

MAX_PAYLOAD_BYTES = 0xFFFFFF  # E.4.1: DataSize has 24 bits

_SIGNATURE = b"FLV"  # E.2
_FILE_HEADER_BYTES = 9  # E.2: DataOffset of version 1
_SIZE_BYTES = 4  # E.3: PreviousTagSize
_TAG_HEADER = Struct(">II3x")  # E.4.1: type and size, timestamp, stream id (always 0)
_TAG_HEADER_BYTES = _TAG_HEADER.size  # 11
_HAS_AUDIO, _HAS_VIDEO = 4, 1  # E.2: TypeFlags
_FILTER = 0x20  # E.4.1: the payload is encrypted
_TYPE_MASK = 0x1F
_TAG_TYPES = frozenset((AUDIO, VIDEO, DATA))  # E.4.1: 8, 9 and 18, the same numbers as RTMP's
# A longer DataOffset leaves room for fields of a later version, which nobody ever defined: bounds the skip.
_MAX_DATA_OFFSET = 1024


class Tag(NamedTuple):
    """One tag. `offset` is where its header begins in the file."""

    type_id: int
    timestamp_ms: int
    payload: bytes
    offset: int

    @property
    def end(self) -> int:
        """Where the next tag begins."""
        return self.offset + _TAG_HEADER_BYTES + len(self.payload) + _SIZE_BYTES


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What a file says it holds. Recorders that cannot know yet claim both."""

    has_audio: bool
    has_video: bool


def encode_file_header(*, has_audio: bool = True, has_video: bool = True) -> bytes:
    """The file header and PreviousTagSize0: everything that stands before the first tag."""
    flags = (_HAS_AUDIO if has_audio else 0) | (_HAS_VIDEO if has_video else 0)
    return _SIGNATURE + bytes((1, flags)) + _FILE_HEADER_BYTES.to_bytes(4, "big") + bytes(_SIZE_BYTES)


def encode_tag(type_id: int, timestamp_ms: int, payload: bytes) -> bytes:
    """A tag and the size that follows it. The timestamp is RTMP's: modulo 2^32."""
    size = len(payload)
    if type_id not in _TAG_TYPES:
        raise UsageError(f"FLV tag type {type_id}, expected 8, 9 or 18")
    if size > MAX_PAYLOAD_BYTES:
        raise UsageError(f"FLV tag of {size} bytes, expected at most {MAX_PAYLOAD_BYTES}")
    # E.4.1: the upper 8 of the timestamp's 32 bits come after the lower 24.
    header = _TAG_HEADER.pack(type_id << 24 | size, (timestamp_ms & 0xFFFFFF) << 8 | timestamp_ms >> 24 & 0xFF)
    return b"".join((header, payload, (_TAG_HEADER_BYTES + size).to_bytes(_SIZE_BYTES, "big")))


class FlvReader:
    """Bytes to tags, in any split. Keeps one incomplete tag at most.

    `offset` is where the first tag that was not given out yet begins. A reader made with the offset of an
    earlier one goes on there; with 0 it expects the file header first.
    """

    def __init__(self, *, offset: int = 0, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self.header: FileHeader | None = None
        self.offset = offset
        self._max_payload_bytes = max_payload_bytes
        self._buffer = bytearray()
        self._needs_header = offset == 0
        self._fault: PeerError | None = None

    def receive(self, data: bytes) -> list[Tag]:
        """Every tag that these bytes complete.

        Raises PeerError at bytes that are not FLV. Tags before the fault are returned first and the fault is
        raised by the next call, `finish` included, so that damage costs nothing that came before it, in any
        split.
        """
        if self._fault is not None:
            raise self._fault
        self._buffer += data
        tags: list[Tag] = []
        try:
            if self._needs_header and not self._take_header():
                return tags
            self._take_tags(tags)
        except PeerError as fault:
            self._fault = fault
            self._buffer.clear()
            if not tags:
                raise
        return tags

    def finish(self) -> int:
        """At the end of the file: the number of bytes after the last whole tag. Raises a fault met before."""
        if self._fault is not None:
            raise self._fault
        return len(self._buffer)

    def _take_header(self) -> bool:
        buffer = self._buffer
        found = bytes(buffer[: len(_SIGNATURE)])
        if not _SIGNATURE.startswith(found):
            raise PeerError(f"signature {found!r}, expected {_SIGNATURE!r}")
        if len(buffer) < _FILE_HEADER_BYTES:
            return False
        data_offset = int.from_bytes(buffer[5:9], "big")
        if not _FILE_HEADER_BYTES <= data_offset <= _MAX_DATA_OFFSET:
            raise PeerError(f"FLV data offset {data_offset}, expected 9..{_MAX_DATA_OFFSET}")
        first_tag = data_offset + _SIZE_BYTES
        if len(buffer) < first_tag:
            return False
        self.header = FileHeader(bool(buffer[4] & _HAS_AUDIO), bool(buffer[4] & _HAS_VIDEO))
        self.offset = first_tag
        self._needs_header = False
        del buffer[:first_tag]
        return True

    def _take_tags(self, tags: list[Tag]) -> None:
        buffer = self._buffer
        end = len(buffer)
        position = 0
        try:
            while position < end:
                size = self._tag_size(position, end)
                if size is None or position + size + _SIZE_BYTES > end:
                    break
                next_position = position + size + _SIZE_BYTES
                claimed = int.from_bytes(buffer[position + size : next_position], "big")
                if claimed != size:
                    raise PeerError(f"previous-tag size {claimed} at {self.offset + size}, expected {size}")
                lower_ms = int.from_bytes(buffer[position + 4 : position + 7], "big")
                timestamp_ms = buffer[position + 7] << 24 | lower_ms
                payload = bytes(buffer[position + _TAG_HEADER_BYTES : position + size])
                tags.append(Tag(buffer[position] & _TYPE_MASK, timestamp_ms, payload, self.offset))
                self.offset += size + _SIZE_BYTES
                position = next_position
        finally:
            del buffer[:position]

    def _tag_size(self, position: int, end: int) -> int | None:
        """Header and payload of the tag that begins here; None when more bytes must say.

        Judged as soon as the bytes are there, so that garbage is not gathered first.
        """
        buffer = self._buffer
        first = buffer[position]
        if first & _FILTER or first & _TYPE_MASK not in _TAG_TYPES:
            raise PeerError(f"tag type 0x{first:02x} at {self.offset}, expected 8, 9 or 18, not encrypted")
        if end - position < 4:
            return None
        size = int.from_bytes(buffer[position + 1 : position + 4], "big")
        if size > self._max_payload_bytes:
            most = self._max_payload_bytes
            raise PeerError(f"tag of {size} bytes at {self.offset}, expected at most {most}")
        return _TAG_HEADER_BYTES + size
