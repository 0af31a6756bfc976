"""RTMP messages: what the chunk layer carries, and the control messages (RTMP 1.0, sections 5.4, 6.2, 7.1.7).

Owns the message type ids and the encoding of control messages. Knows nothing of chunks or commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from headrace.errors import PeerError


class MessageType(IntEnum):
    """Message type ids, RTMP 1.0 sections 5.4 and 7.1."""

    SET_CHUNK_SIZE = 1
    ABORT = 2
    ACKNOWLEDGEMENT = 3
    USER_CONTROL = 4
    WINDOW_ACKNOWLEDGEMENT_SIZE = 5
    SET_PEER_BANDWIDTH = 6
    AUDIO = 8
    VIDEO = 9
    DATA_AMF3 = 15
    SHARED_OBJECT_AMF3 = 16
    COMMAND_AMF3 = 17
    DATA = 18
    SHARED_OBJECT = 19
    COMMAND = 20
    AGGREGATE = 22


# Plain ints for the hot path: an IntEnum comparison costs several times an int's.
AUDIO = 8
VIDEO = 9
DATA = 18
AGGREGATE = 22


class UserControl(IntEnum):
    """User control event types, RTMP 1.0 section 7.1.7."""

    STREAM_BEGIN = 0
    STREAM_EOF = 1
    STREAM_DRY = 2
    SET_BUFFER_LENGTH = 3
    STREAM_IS_RECORDED = 4
    PING_REQUEST = 6
    PING_RESPONSE = 7


class BandwidthLimit(IntEnum):
    """Limit types of Set Peer Bandwidth, RTMP 1.0 section 5.4.5."""

    HARD = 0
    SOFT = 1
    DYNAMIC = 2


class Message:
    """One whole message. A plain slotted class: one is made per media message, so its construction is hot."""

    __slots__ = ("message_stream_id", "payload", "timestamp_ms", "type_id")

    def __init__(self, type_id: int, timestamp_ms: int, message_stream_id: int, payload: bytes) -> None:
        self.type_id = type_id
        self.timestamp_ms = timestamp_ms
        self.message_stream_id = message_stream_id
        self.payload = payload

    def __repr__(self) -> str:
        return (
            f"Message(type_id={self.type_id}, timestamp_ms={self.timestamp_ms}, "
            f"message_stream_id={self.message_stream_id}, {len(self.payload)} bytes)"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, int, bytes]:
        return (self.type_id, self.timestamp_ms, self.message_stream_id, self.payload)


def control(type_id: MessageType, payload: bytes) -> Message:
    """A control message: timestamp and message stream id are 0 (section 5.4)."""
    return Message(int(type_id), 0, 0, payload)


def set_chunk_size(size_bytes: int) -> Message:
    return control(MessageType.SET_CHUNK_SIZE, size_bytes.to_bytes(4, "big"))


def acknowledgement(received_bytes: int) -> Message:
    # The counter wraps at 2^32 (a 4 Mbit/s stream gets there in 2 h 23 m).
    return control(MessageType.ACKNOWLEDGEMENT, (received_bytes & 0xFFFFFFFF).to_bytes(4, "big"))


def window_acknowledgement_size(size_bytes: int) -> Message:
    return control(MessageType.WINDOW_ACKNOWLEDGEMENT_SIZE, size_bytes.to_bytes(4, "big"))


def set_peer_bandwidth(size_bytes: int, limit: BandwidthLimit) -> Message:
    return control(MessageType.SET_PEER_BANDWIDTH, size_bytes.to_bytes(4, "big") + bytes((limit,)))


def user_control(event: UserControl, *values: int) -> Message:
    body = b"".join((value & 0xFFFFFFFF).to_bytes(4, "big") for value in values)
    return control(MessageType.USER_CONTROL, int(event).to_bytes(2, "big") + body)


def decode_u32(message: Message) -> int:
    """The single 32-bit number that types 1, 2, 3 and 5 carry; bytes after it are ignored."""
    if len(message.payload) < 4:
        raise PeerError(f"control message type {message.type_id} has {len(message.payload)} bytes, expected 4")
    return int.from_bytes(message.payload[:4], "big")


def decode_user_control(message: Message) -> tuple[int, bytes]:
    """The event type and its body. Types we do not know (26, 27, 31, 32 are seen) are the caller's to ignore."""
    if len(message.payload) < 2:
        raise PeerError(f"user control message has {len(message.payload)} bytes, expected at least 2")
    return int.from_bytes(message.payload[:2], "big"), message.payload[2:]


# A sub-message costs at least its 11-byte header and 4-byte back pointer, so the payload itself bounds the loop.
_SUB_HEADER_BYTES = 11
_BACK_POINTER_BYTES = 4


def split_aggregate(message: Message) -> Iterator[Message]:
    """The messages inside an aggregate (section 7.1.6), one at a time: a million empty ones fit into 16 MB.

    Each keeps its distance from the first, which gets the aggregate's own timestamp. A sub-message stream id is
    to be ignored in favour of the aggregate's. The last back pointer may be missing (seen from FMLE).
    """
    payload = message.payload
    end = len(payload)
    position = 0
    first_ms: int | None = None
    while position < end:
        body = position + _SUB_HEADER_BYTES
        if body > end:
            raise PeerError(f"aggregate sub-message header at {position} is cut: {end - position} bytes, expected 11")
        type_id = payload[position] & 0x1F
        size = int.from_bytes(payload[position + 1 : position + 4], "big")
        timestamp_ms = int.from_bytes(payload[position + 4 : position + 7], "big") | payload[position + 7] << 24
        if body + size > end:
            raise PeerError(f"aggregate sub-message at {position} claims {size} bytes, only {end - body} are left")
        if first_ms is None:
            first_ms = timestamp_ms
        if type_id != AGGREGATE:  # an aggregate inside an aggregate has no meaning in the specification
            rebased_ms = (message.timestamp_ms + timestamp_ms - first_ms) & 0xFFFFFFFF
            yield Message(type_id, rebased_ms, message.message_stream_id, payload[body : body + size])
        position = body + size + _BACK_POINTER_BYTES
