"""The chunk stream (RTMP 1.0, section 5.3): bytes to messages and back.

Owns chunk headers, interleaving, Set Chunk Size and Abort. Knows nothing of what a message means beyond those two.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from headrace.errors import PeerError, UsageError
from headrace.protocol import messages
from headrace.protocol.messages import Message, MessageType

DEFAULT_CHUNK_SIZE = 128  # section 5.4.1: both directions start here on every connection
MAX_CHUNK_SIZE = 0x7FFFFFFF  # section 5.4.1: 31 bits; the top bit is to be zero and is ignored when it is not
MAX_MESSAGE_BYTES = 0xFFFFFF  # section 5.3.1.2.1: the length field has 24 bits
EXTENDED = 0xFFFFFF  # section 5.3.1.3: this value announces a 32-bit timestamp field

# FFmpeg uses five chunk streams, OBS four. The cap bounds what a peer can make us keep state for.
MAX_CHUNK_STREAMS = 64
# Half-received messages of one connection, all chunk streams together: one of the largest size and some small ones.
MAX_PARTIAL_BYTES = MAX_MESSAGE_BYTES + (1 << 20)

_HEADER_BYTES = (11, 7, 3, 0)  # message header by format, section 5.3.1.2
_SET_CHUNK_SIZE = int(MessageType.SET_CHUNK_SIZE)
_ABORT = int(MessageType.ABORT)
# Below this many continuation headers, cutting chunk by chunk is as fast as the strided cut.
_STRIDE_MIN = 4
# And no more than this many at once. A peer that ends each run with an interleaved chunk makes the attempt fail at
# every chunk: unbounded, 64 KB of one-byte chunks cost 0.4 s of processor time.
_STRIDE_MAX = 1024
_MEDIA = frozenset((messages.AUDIO, messages.VIDEO, messages.DATA))
_HEAD = Struct(">II")  # basic header of one byte, timestamp, length, type: the first eight bytes of formats 0 and 1
_CONTINUED = tuple(bytes((0xC0 | chunk_stream_id,)) for chunk_stream_id in range(64))  # type 3 basic headers

Buffer = bytes | memoryview
RawMessage = tuple[int, int, int, bytes]  # type id, timestamp in ms, message stream id, payload


class _ChunkStream:
    """What a chunk stream remembers from one header to the next (section 5.3.1.2)."""

    __slots__ = (
        "body",
        "delta",
        "extended",
        "id",
        "length",
        "message_stream_id",
        "missing",
        "timestamp",
        "type_id",
    )

    def __init__(self, chunk_stream_id: int) -> None:
        self.id = chunk_stream_id
        self.timestamp = 0
        self.delta = 0
        self.length = 0
        self.type_id = 0
        self.message_stream_id = 0
        self.extended = False
        # Not a list of pieces: with two-byte chunks that took 22 times the bytes the peer had sent.
        self.body = bytearray()
        self.missing = 0  # bytes the message in progress still needs; 0 when none is in progress


class ChunkReader:
    """Bytes to messages, in any split. Set Chunk Size and Abort are obeyed here and not returned."""

    def __init__(self, *, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.chunk_size = DEFAULT_CHUNK_SIZE
        self.max_message_bytes = max_message_bytes
        self._streams: dict[int, _ChunkStream] = {}
        self._unread = b""  # an incomplete chunk header, at most 18 bytes, or what follows a message that is not media
        self._unread_at = 0
        self._current: _ChunkStream | None = None  # the chunk whose payload is being read
        self._chunk_left = 0
        self._partial_bytes = 0

    def receive(self, data: Buffer) -> Iterator[Message]:
        """Every message that these bytes complete. Raises PeerError; the reader is then of no more use.

        One at a time, so that messages before a fault are not lost with it, and a limit that is raised on account of
        a command holds for the next, in any split of the bytes. Iterate to the end before the next call.
        """
        batch: list[RawMessage] = []
        is_all = False
        fault: PeerError | None = None
        while not is_all and fault is None:
            try:
                is_all = self.read(data, batch)
            except PeerError as error:
                fault = error
            data = b""
            for raw in batch:
                yield Message(*raw)
            batch.clear()
        if fault is not None:
            raise fault

    def read(self, data: Buffer, batch: list[RawMessage]) -> bool:
        """Add what these bytes complete to `batch`, up to and with the first message that is not media.

        True if everything was read. False after a message that is not media: deal with it, then go on by `read(b"")`.
        Before PeerError is raised the messages before the fault are in the batch. Nothing of `data` is referred to
        afterwards: it may be a view of a buffer that is used again.

        Plain tuples, filled in one call. From here to a reader's socket a message took 20 us of Python, without calls
        to the kernel, when it was an object that went through three generators; 17.5 us this way, 14 with what the log
        and the fan-out were spared since (an interpreter that was built without optimisation).
        """
        position = 0
        if self._unread:
            position = self._unread_at
            if len(data):
                data = self._unread[position:] + bytes(data)
                position = 0
            else:
                data = self._unread
            self._unread, self._unread_at = b"", 0
        end = len(data)
        streams = self._streams
        last_head = end - 12
        while True:
            stream = self._current
            if stream is None:
                if position <= last_head:
                    # What nearly every message is: a header of format 0 or 1, then all its chunks within this buffer.
                    head, tail = _HEAD.unpack_from(data, position)
                    stream = streams.get(head >> 24 & 0x3F)
                    if (
                        stream is not None
                        and head < 0x80000000
                        and head & 0xFFFFFF != EXTENDED
                        and not stream.missing
                        and (length := tail >> 8) <= self.max_message_bytes
                    ):
                        is_absolute = head < 0x40000000
                        body = position + 12 if is_absolute else position + 8
                        size = self.chunk_size
                        stop = body + length
                        if length > size:
                            stop += (length - 1) // size
                            payload = self._parted_payload(data, body, stop, length, stream.id) if stop <= end else None
                        else:
                            payload = bytes(data[body:stop]) if stop <= end else None
                        if payload is not None:
                            position = stop
                            type_id = stream.type_id = tail & 0xFF
                            stream.length = length
                            stream.delta = field = head & 0xFFFFFF
                            stream.extended = False
                            if is_absolute:
                                stream.message_stream_id = int.from_bytes(data[body - 4 : body], "little")
                                stream.timestamp = field
                            else:
                                stream.timestamp = (stream.timestamp + field) & 0xFFFFFFFF
                            if type_id in _MEDIA:
                                batch.append((type_id, stream.timestamp, stream.message_stream_id, payload))
                                continue
                            if type_id <= _ABORT:
                                self._obey(type_id, payload)
                                continue
                            batch.append((type_id, stream.timestamp, stream.message_stream_id, payload))
                            self._unread, self._unread_at = bytes(data), position
                            return False
                opened = self._open_chunk(data, position, end)
                if opened is None:
                    self._unread = bytes(data[position:])
                    return True
                stream, position = opened
            elif position == end:
                return True

            left = self._chunk_left
            if left == stream.length and left <= end - position:
                payload = bytes(data[position : position + left])
                position += left
                stream.missing = 0
            else:
                position = self._gather(stream, data, position, end)
                if stream.missing:
                    continue
                payload = bytes(stream.body)
                stream.body.clear()
                self._partial_bytes -= stream.length
            self._current = None
            self._chunk_left = 0
            type_id = stream.type_id
            if type_id <= _ABORT:
                self._obey(type_id, payload)
                continue
            batch.append((type_id, stream.timestamp, stream.message_stream_id, payload))
            if type_id not in _MEDIA:
                self._unread, self._unread_at = bytes(data), position
                return False

    def _parted_payload(self, data: Buffer, body: int, stop: int, length: int, chunk_stream_id: int) -> bytes | None:
        """The payload from `body` to `stop`, if it is parted by nothing but one-byte type 3 headers."""
        size = self.chunk_size
        count = (length - 1) // size
        if count > _STRIDE_MAX:
            return None
        if bytes(data[body + size : stop : size + 1]) != _CONTINUED[chunk_stream_id] * count:
            return None
        if count == 1:
            return b"".join((data[body : body + size], data[body + size + 1 : stop]))
        run = bytearray(data[body:stop])
        del run[size :: size + 1]
        return bytes(run)

    def _gather(self, stream: _ChunkStream, data: Buffer, position: int, end: int) -> int:
        """Take what is there of the current chunk, and of the plain continuations that follow it."""
        size = self.chunk_size
        left = self._chunk_left
        missing_before = stream.missing
        if left == size and stream.missing > size and not stream.extended and stream.id < 64:
            # A run of full chunks parted by nothing but one-byte type 3 headers is cut in one go: a publisher with
            # 128-byte chunks costs 1.5 times one with 4096-byte chunks this way, and 6 times chunk by chunk.
            stride = size + 1
            count = min((stream.missing - 1) // size, (end - position) // stride, _STRIDE_MAX)
            if count >= _STRIDE_MIN:
                stop = position + count * stride
                if bytes(data[position + size : stop : stride]) == _CONTINUED[stream.id] * count:
                    run = bytearray(data[position:stop])
                    del run[size::stride]
                    stream.body += run
                    stream.missing -= count * size
                    position = stop
                    left = min(size, stream.missing)
        take = min(left, end - position)
        if take:
            stream.body += data[position : position + take]
            stream.missing -= take
            position += take
        left -= take
        self._chunk_left = left
        if not left:
            self._current = None
        self._partial_bytes += missing_before - stream.missing
        if self._partial_bytes > MAX_PARTIAL_BYTES:
            raise PeerError(f"{self._partial_bytes} bytes of unfinished messages, expected at most {MAX_PARTIAL_BYTES}")
        return position

    def _open_chunk(self, data: Buffer, position: int, end: int) -> tuple[_ChunkStream, int] | None:
        """Read one chunk header (section 5.3.1); None while it is incomplete."""
        if position == end:
            return None
        first = data[position]
        chunk_format = first >> 6
        chunk_stream_id = first & 0x3F
        at = position + 1
        if chunk_stream_id < 2:  # two- and three-byte basic headers, section 5.3.1.1; the third byte counts 256
            if chunk_stream_id == 0:
                if at + 1 > end:
                    return None
                chunk_stream_id = 64 + data[at]
                at += 1
            else:
                if at + 2 > end:
                    return None
                chunk_stream_id = 64 + data[at] + (data[at + 1] << 8)
                at += 2
        stream = self._streams.get(chunk_stream_id)
        if stream is None:
            if chunk_format >= 2:
                raise PeerError(
                    f"chunk of format {chunk_format} on chunk stream {chunk_stream_id}, which has no earlier header"
                )
            if at + _HEADER_BYTES[chunk_format] > end:
                return None
            if len(self._streams) >= MAX_CHUNK_STREAMS:
                raise PeerError(f"chunk stream {chunk_stream_id} is one too many, expected at most {MAX_CHUNK_STREAMS}")
            # Format 1 on a fresh chunk stream is off the specification but librtmp sends it; the stream id is then 0.
            stream = self._streams[chunk_stream_id] = _ChunkStream(chunk_stream_id)
        if chunk_format == 3:
            return self._continue_chunk(stream, data, at, end)

        body = at + _HEADER_BYTES[chunk_format]
        if body > end:
            return None
        field = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
        extended = field == EXTENDED
        if extended:
            if body + 4 > end:
                return None
            field = int.from_bytes(data[body : body + 4], "big")
        if stream.missing:
            # A new header in the middle of a message: the old message can never be completed.
            raise PeerError(
                f"chunk stream {chunk_stream_id}: new message header while {stream.missing} bytes "
                f"of the last message are missing"
            )
        if chunk_format < 2:
            length = data[at + 3] << 16 | data[at + 4] << 8 | data[at + 5]
            if length > self.max_message_bytes:
                raise PeerError(f"message of {length} bytes, expected at most {self.max_message_bytes}")
            stream.length = length
            stream.type_id = data[at + 6]
        elif stream.length > self.max_message_bytes:
            raise PeerError(f"message of {stream.length} bytes, expected at most {self.max_message_bytes}")
        if chunk_format == 0:
            stream.message_stream_id = int.from_bytes(data[at + 7 : at + 11], "little")
            stream.timestamp = field
        else:
            stream.timestamp = (stream.timestamp + field) & 0xFFFFFFFF
        # After format 0 the timestamp itself is what a format 3 message adds (section 5.3.1.2.4); FFmpeg relies on it.
        stream.delta = field
        stream.extended = extended
        if extended:
            body += 4
        self._begin(stream)
        return stream, body

    def _continue_chunk(self, stream: _ChunkStream, data: Buffer, at: int, end: int) -> tuple[_ChunkStream, int] | None:
        if stream.extended:
            # FFmpeg repeats the extended timestamp on type 3 chunks; rtmpdump and older OBS do not. Take the four
            # bytes only if they are that number, and wait for more only while they may still become it.
            repeated = bytes(data[at : at + 4])
            expected = stream.delta.to_bytes(4, "big")
            absolute = stream.timestamp.to_bytes(4, "big")
            if len(repeated) < 4 and (expected.startswith(repeated) or absolute.startswith(repeated)):
                return None
            if repeated in (expected, absolute):
                at += 4
        if stream.missing:
            self._current = stream
            self._chunk_left = min(self.chunk_size, stream.missing)
            return stream, at
        if stream.length > self.max_message_bytes:
            raise PeerError(f"message of {stream.length} bytes, expected at most {self.max_message_bytes}")
        stream.timestamp = (stream.timestamp + stream.delta) & 0xFFFFFFFF
        self._begin(stream)
        return stream, at

    def _begin(self, stream: _ChunkStream) -> None:
        stream.missing = stream.length
        self._current = stream
        self._chunk_left = min(self.chunk_size, stream.length)

    def _obey(self, type_id: int, payload: bytes) -> None:
        if type_id == _SET_CHUNK_SIZE:
            if len(payload) < 4:
                raise PeerError(f"Set Chunk Size has {len(payload)} bytes, expected 4")
            size = int.from_bytes(payload[:4], "big") & MAX_CHUNK_SIZE
            if size == 0:
                raise PeerError(f"chunk size 0, expected 1..{MAX_CHUNK_SIZE}")
            self.chunk_size = size
        elif type_id == _ABORT:
            if len(payload) < 4:
                raise PeerError(f"Abort has {len(payload)} bytes, expected 4")
            stream = self._streams.get(int.from_bytes(payload[:4], "big"))
            if stream is not None and stream.missing:
                self._partial_bytes -= stream.length - stream.missing
                stream.body.clear()
                stream.missing = 0
        # Type 0 is reserved: nothing to obey, and it reaches nobody.


def _basic_header(chunk_format: int, chunk_stream_id: int) -> bytes:
    if 2 <= chunk_stream_id < 64:
        return bytes((chunk_format << 6 | chunk_stream_id,))
    if 64 <= chunk_stream_id < 320:
        return bytes((chunk_format << 6, chunk_stream_id - 64))
    if 320 <= chunk_stream_id < 65600:
        return bytes((chunk_format << 6 | 1, (chunk_stream_id - 64) & 0xFF, (chunk_stream_id - 64) >> 8))
    raise UsageError(f"chunk stream id {chunk_stream_id}, expected 2..65599")


def encode_message(
    type_id: int,
    timestamp_ms: int,
    message_stream_id: int,
    payload: bytes,
    *,
    chunk_stream_id: int,
    chunk_size: int,
) -> bytes:
    """One message as chunks with an absolute timestamp: it needs no state, so the same bytes serve every reader."""
    size = len(payload)
    if size > MAX_MESSAGE_BYTES:
        raise UsageError(f"message of {size} bytes, expected at most {MAX_MESSAGE_BYTES}")
    timestamp_ms &= 0xFFFFFFFF
    if timestamp_ms < EXTENDED:
        field, extension = timestamp_ms, b""
    else:
        field, extension = EXTENDED, timestamp_ms.to_bytes(4, "big")
    header = (
        _basic_header(0, chunk_stream_id)
        + (field << 32 | size << 8 | type_id).to_bytes(7, "big")
        + message_stream_id.to_bytes(4, "little")
        + extension
    )
    if size <= chunk_size:
        return header + payload
    return header + _join_chunks(payload, chunk_size, _basic_header(3, chunk_stream_id) + extension)


def _join_chunks(payload: bytes, chunk_size: int, separator: bytes) -> bytes:
    # ffplay loses its framing unless the extended timestamp stands on every continuation: it is in the separator.
    return separator.join(payload[at : at + chunk_size] for at in range(0, len(payload), chunk_size))


class ChunkWriter:
    """Messages to chunks with the shortest legal header for each (formats 0 to 3), as encoders write them."""

    def __init__(self) -> None:
        self.chunk_size = DEFAULT_CHUNK_SIZE
        self._last: dict[int, tuple[int, int, int, int, int]] = {}

    def encode(self, message: Message, chunk_stream_id: int) -> bytes:
        """The chunks of one message; a Set Chunk Size takes effect after itself."""
        timestamp = message.timestamp_ms & 0xFFFFFFFF
        size = len(message.payload)
        if size > MAX_MESSAGE_BYTES:
            raise UsageError(f"message of {size} bytes, expected at most {MAX_MESSAGE_BYTES}")
        last = self._last.get(chunk_stream_id)
        chunk_format, field = 0, timestamp
        if last is not None:
            last_timestamp, last_delta, last_size, last_type, last_stream = last
            delta = timestamp - last_timestamp
            if last_stream == message.message_stream_id and delta >= 0:
                field = delta
                if last_size != size or last_type != message.type_id:
                    chunk_format = 1
                else:
                    chunk_format = 3 if delta == last_delta else 2
        extension = field.to_bytes(4, "big") if field >= EXTENDED else b""
        head = (min(field, EXTENDED) << 32 | size << 8 | message.type_id).to_bytes(7, "big")
        head += message.message_stream_id.to_bytes(4, "little")
        header = _basic_header(chunk_format, chunk_stream_id) + head[: _HEADER_BYTES[chunk_format]] + extension
        separator = _basic_header(3, chunk_stream_id) + extension
        body = _join_chunks(message.payload, self.chunk_size, separator)
        self._last[chunk_stream_id] = (timestamp, field, size, message.type_id, message.message_stream_id)
        if message.type_id == _SET_CHUNK_SIZE:
            self.chunk_size = int.from_bytes(message.payload[:4], "big") & MAX_CHUNK_SIZE
        return header + body
