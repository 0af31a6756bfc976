"""What both ends of an RTMP connection share: handshake, chunks, control messages, acknowledgements.

Bytes in by `receive_data`, events out of it; bytes to send by `data_to_send`. Events are made one at a time while the
caller iterates, so that its answer to one (accepting a connect, say) is in force before the next is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from headrace.protocol import messages
from headrace.protocol.chunks import Buffer, ChunkReader, RawMessage, encode_message
from headrace.protocol.commands import Command, decode_command
from headrace.protocol.messages import Message, MessageType, UserControl

CONTROL_CHUNK_STREAM = 2  # section 5.4: control messages go on chunk stream 2, message stream 0
COMMAND_CHUNK_STREAM = 3
STATUS_CHUNK_STREAM = 5
DEFAULT_WINDOW_BYTES = 2_500_000

# Before publishing is granted a peer has only commands to send; this bounds what it can make us hold.
MAX_COMMAND_BYTES = 256 * 1024


class Handshake(Protocol):
    """One side's handshake."""

    is_done: bool
    rest: bytes

    def receive(self, data: bytes) -> bytes: ...


class Connection:
    """The common half; `ServerConnection` and `ClientConnection` add the commands of their side."""

    def __init__(self, handshake: Handshake) -> None:
        self._handshake: Handshake | None = handshake
        self._reader = ChunkReader(max_message_bytes=MAX_COMMAND_BYTES)
        # For a peer that sends hardly anything but media: `ChunkReader.read`, whose False is for `receive_after`. Not
        # before the handshake is done. Say `media_was_read` afterwards: its readers need not wait for that.
        self.read_media: Callable[[Buffer, list[RawMessage]], bool] = self._reader.read
        self._out: list[bytes] = []
        self._out_chunk_size = 128
        self._received_bytes = 0
        self._acknowledged_bytes = 0
        # None until the peer names it, and until then it is owed no acknowledgement. FFmpeg names none when it
        # publishes, and one that it has not read when it closes makes its kernel drop the end of the stream.
        self._peer_window_bytes: int | None = None
        self.media_ids: set[int] = set()  # message streams the peer may send media on
        self.ignored_media_messages = 0  # media on a stream that is not being published

    @property
    def in_chunk_size(self) -> int:
        return self._reader.chunk_size

    @property
    def received_bytes(self) -> int:
        return self._received_bytes

    def data_to_send(self) -> bytes:
        """Everything queued since the last call."""
        if not self._out:
            return b""
        out = b"".join(self._out)
        self._out.clear()
        return out

    def send_ping(self, timestamp_ms: int) -> None:
        self._send_control(messages.user_control(UserControl.PING_REQUEST, timestamp_ms))

    def media_was_read(self, size_bytes: int) -> None:
        """So much, by `read_media`."""
        self._received_bytes += size_bytes
        if self._peer_window_bytes is not None:
            self._acknowledge()

    def _messages(self, data: Buffer) -> Iterator[Message]:
        """Messages for the subclass: commands and media. Everything below them is dealt with here."""
        self._received_bytes += len(data)
        self._acknowledge()
        return self._sort(self._reader.receive(data))

    def _sort(self, found: Iterable[Message]) -> Iterator[Message]:
        media_ids = self.media_ids
        for message in found:
            type_id = message.type_id
            if type_id == messages.VIDEO or type_id == messages.AUDIO or type_id == messages.DATA:
                if message.message_stream_id in media_ids:
                    yield message
                else:
                    self.ignored_media_messages += 1
            elif type_id == MessageType.COMMAND or type_id == MessageType.COMMAND_AMF3:
                yield message
            elif type_id == messages.AGGREGATE:
                for part in messages.split_aggregate(message):
                    if part.type_id not in (messages.VIDEO, messages.AUDIO, messages.DATA):
                        continue
                    if part.message_stream_id in media_ids:
                        yield part
                    else:
                        self.ignored_media_messages += 1
            elif type_id == MessageType.DATA_AMF3:
                # One byte, then AMF0 all the same: passed on as the plain data message every reader knows.
                if message.message_stream_id in media_ids:
                    yield Message(messages.DATA, message.timestamp_ms, message.message_stream_id, message.payload[1:])
                else:
                    self.ignored_media_messages += 1
            else:
                self._handle_control(message)

    def _handle_control(self, message: Message) -> None:
        type_id = message.type_id
        if type_id == MessageType.USER_CONTROL:
            event, body = messages.decode_user_control(message)
            if event == UserControl.PING_REQUEST:
                self._send_control(
                    messages.control(
                        MessageType.USER_CONTROL, int(UserControl.PING_RESPONSE).to_bytes(2, "big") + body[:4]
                    )
                )
        elif type_id == MessageType.WINDOW_ACKNOWLEDGEMENT_SIZE:
            # 0 would mean an acknowledgement per byte; what is not usable leaves the window as it was.
            self._peer_window_bytes = messages.decode_u32(message) or self._peer_window_bytes
        # An Acknowledgement or Set Peer Bandwidth is never waited for; shared objects and types that nobody
        # defined are of no use to a relay: passed over.

    def _acknowledge(self) -> None:
        """Once for each window of the peer's, if it named one."""
        window_bytes = self._peer_window_bytes
        if window_bytes is not None and self._received_bytes - self._acknowledged_bytes >= window_bytes:
            self._acknowledged_bytes = self._received_bytes
            self._send_control(messages.acknowledgement(self._received_bytes))

    def _send(self, message: Message, chunk_stream_id: int) -> None:
        self._out.append(
            encode_message(
                message.type_id,
                message.timestamp_ms,
                message.message_stream_id,
                message.payload,
                chunk_stream_id=chunk_stream_id,
                chunk_size=self._out_chunk_size,
            )
        )

    def _send_control(self, message: Message) -> None:
        self._send(message, CONTROL_CHUNK_STREAM)

    def _send_command(self, message: Message) -> None:
        self._send(message, STATUS_CHUNK_STREAM if message.message_stream_id else COMMAND_CHUNK_STREAM)

    def _set_out_chunk_size(self, size_bytes: int) -> None:
        self._send_control(messages.set_chunk_size(size_bytes))
        self._out_chunk_size = size_bytes

    @staticmethod
    def _decode(message: Message) -> Command:
        return decode_command(message)
