"""The wrappings of Enhanced RTMP v2: ModEx headers before a packet type, tracks behind it.

Owns: the walk from the first byte of an Enhanced payload to its FourCCs and bodies, in bounded steps.
Must not know what a packet type or a FourCC means.
Follows Enhanced RTMP v2 ExAudioTagHeader and ExVideoTagHeader, which share all of this.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import PeerError

_MOD_EX = 7  # AudioPacketType.ModEx and VideoPacketType.ModEx
_ONE_TRACK, _MANY_CODECS = 0, 2  # AvMultitrackType
_TIMESTAMP_OFFSET_NANO = 0  # AudioPacketModExType and VideoPacketModExType
_MAX_OFFSET_NS = 999_999  # ibid.: less than the millisecond of RTMP's own timestamp
_MAX_MOD_EX = 16  # ours: one type is defined, a chain longer than all sixteen is an attack
_MAX_TRACKS = 256  # track ids are one byte


def require(payload: bytes, size: int, what: str) -> None:
    if len(payload) < size:
        raise PeerError(f"payload of {len(payload)} bytes, expected {what} up to byte {size}")


def unwrap_mod_ex(payload: bytes) -> tuple[int, int, int]:
    """(packet type, where the rest begins, nanoseconds to add to the message's timestamp)."""
    packet_type, position, offset_ns = payload[0] & 0x0F, 1, 0
    for _ in range(_MAX_MOD_EX):
        if packet_type != _MOD_EX:
            return packet_type, position, offset_ns
        require(payload, position + 1, "a ModEx size")
        size = payload[position] + 1
        position += 1
        if size == 256:
            require(payload, position + 2, "a long ModEx size")
            size = int.from_bytes(payload[position : position + 2], "big") + 1
            position += 2
        require(payload, position + size + 1, "ModEx data and the next packet type")
        mod_ex_type, packet_type = divmod(payload[position + size], 16)
        if mod_ex_type == _TIMESTAMP_OFFSET_NANO:
            offset_ns = int.from_bytes(payload[position : position + 3], "big")
            if size < 3 or offset_ns > _MAX_OFFSET_NS:
                raise PeerError(f"{size} bytes of timestamp offset {offset_ns} ns, expected 3, 0..999999 ns")
        position += size + 1
    raise PeerError(f"more than {_MAX_MOD_EX} ModEx headers in a message")


def unwrap_multitrack(payload: bytes, position: int, multitrack: int) -> tuple[int, int]:
    require(payload, position + 1, "a multitrack type")
    shape, packet_type = divmod(payload[position], 16)
    if shape > _MANY_CODECS:
        raise PeerError(f"multitrack type {shape}, expected 0..2")
    if packet_type in (multitrack, _MOD_EX):
        raise PeerError(f"packet type {packet_type} inside a multitrack message")
    return packet_type, shape


def walk_tracks(payload: bytes, position: int, shape: int | None) -> Iterator[tuple[int, bytes, int, int]]:
    """(track id, FourCC, start, stop) of each track; the first is always there."""
    fourcc = b""
    if shape != _MANY_CODECS:
        require(payload, position + 4, "a FourCC")
        fourcc = payload[position : position + 4]
        position += 4
    if shape is None:
        yield 0, fourcc, position, len(payload)
        return
    for _ in range(_MAX_TRACKS):
        if shape == _MANY_CODECS:
            require(payload, position + 4, "the FourCC of a track")
            fourcc = payload[position : position + 4]
            position += 4
        require(payload, position + 1, "a track id")
        track_id = payload[position]
        start, stop = position + 1, len(payload)
        if shape != _ONE_TRACK:
            require(payload, start + 3, "the size of a track")
            stop = start + 3 + int.from_bytes(payload[start : start + 3], "big")
            start += 3
            require(payload, stop, "the whole of a track")
        yield track_id, fourcc, start, stop
        position = stop
        if position == len(payload):
            return
    raise PeerError(f"more than {_MAX_TRACKS} tracks in a message")
