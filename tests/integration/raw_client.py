"""A client that does what no well-behaved one does: any chunk size, any timestamp, any name, and no reading at all.

Commands go through the package's own client connection; media is cut into chunks here, by hand (RTMP 1.0, section
5.3.1), so that a mistake shared by our reader and our writer cannot hide. Blocking, every wait with a deadline.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterable

from headrace.protocol.client import ClientConnection, ClientEvent, Ended, Refused, Role, Started
from headrace.protocol.handshake import NONCE_BYTES
from headrace.protocol.messages import Message
from tests.integration.child import DEADLINE_S
from tests.integration.flv_tags import AUDIO, SCRIPT, VIDEO, FlvTag
from tests.integration.harness import SECRET, ServerProcess, Stage

_CHUNK_STREAM = {AUDIO: 4, VIDEO: 6, SCRIPT: 5}
_SET_DATA_FRAME = b"\x02\x00\x0d@setDataFrame"
_MEDIA = (AUDIO, VIDEO, SCRIPT)


class RawClient:
    """One connection that publishes or plays one stream."""

    def __init__(
        self,
        stage: Stage,
        server: ServerProcess,
        role: Role,
        name: str = "stream",
        *,
        app: str = "live",
        chunk_size: int = 4096,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self.tags: list[FlvTag] = []  # the media that came
        self.events: list[ClientEvent] = []
        self.is_closed = False  # by the server
        self._chunk_size = chunk_size
        self._connection = ClientConnection(
            role=role,
            app=f"{app}?auth={SECRET}",
            tc_url=f"rtmp://127.0.0.1:{server.port}/{app}?auth={SECRET}",
            name=f"{name}?token={SECRET}",
            nonce=bytes(NONCE_BYTES),
            epoch_ms=0,
            chunk_size=chunk_size,
        )
        self._socket = socket.socket()
        stage.on_close(self._socket.close)
        if receive_buffer_bytes is not None:  # before connect, or the window is already offered
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(("127.0.0.1", server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._send()

    # Events ---------------------------------------------------------------------------------------------------

    def start(self) -> RawClient:
        """Until publishing is granted, or playing begins."""
        self.receive_until(lambda: any(isinstance(event, Started) for event in self.events), "a start")
        return self

    def receive_all(self) -> list[FlvTag]:
        """All media, until the server says that the stream is over."""
        self.receive_until(lambda: self.has_ended, "end of the stream")
        return self.tags

    @property
    def refusal(self) -> Refused | None:
        return next((event for event in self.events if isinstance(event, Refused)), None)

    @property
    def has_ended(self) -> bool:
        return any(isinstance(event, Ended) for event in self.events)

    def receive_until(self, is_done: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        end_s = time.monotonic() + deadline_s
        while not is_done():
            left_s = end_s - time.monotonic()
            assert left_s > 0, f"no {what} within {deadline_s:g} s; {self._state()}"
            assert not self.is_closed, f"the server closed before {what}; {self._state()}"
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionResetError:
                data = b""
            self.is_closed = not data
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        for event in self._connection.receive_data(data):
            if not isinstance(event, Message):
                self.events.append(event)
            elif event.type_id in _MEDIA:
                self.tags.append(FlvTag(event.type_id, event.timestamp_ms, event.payload))
        self._send()

    def _state(self) -> str:
        return f"events {self.events}, {len(self.tags)} media messages"

    # Media ----------------------------------------------------------------------------------------------------

    def send_tags(self, tags: Iterable[FlvTag]) -> None:
        self._socket.settimeout(DEADLINE_S)
        self._socket.sendall(b"".join(self._chunks(tag) for tag in tags))

    def _chunks(self, tag: FlvTag) -> bytes:
        payload = _SET_DATA_FRAME + tag.payload if tag.type_id == SCRIPT else tag.payload
        size, stream = self._chunk_size, _CHUNK_STREAM[tag.type_id]
        field = min(tag.timestamp_ms, 0xFFFFFF)
        extended = tag.timestamp_ms.to_bytes(4, "big") if field == 0xFFFFFF else b""
        header = bytes((stream,)) + field.to_bytes(3, "big") + len(payload).to_bytes(3, "big") + bytes((tag.type_id,))
        header += self._connection.message_stream_id.to_bytes(4, "little") + extended
        pieces = [payload[start : start + size] for start in range(0, len(payload), size)]
        # Format 3; the extended timestamp is repeated, as FFmpeg and the specification's errata have it.
        continuation = bytes((0xC0 | stream,)) + extended
        return header + continuation.join(pieces)

    # The end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Unpublish, or stop playing; then close, as politely as TCP knows: no byte of either side is lost."""
        self._connection.finish()
        self._send()
        self._socket.shutdown(socket.SHUT_WR)
        self.receive_until(lambda: self.is_closed, "close")
        self.close()

    def close(self) -> None:
        """Without a word."""
        self._socket.close()

    def reset(self) -> None:
        """As a crashed machine's kernel, or a client that closes without having read: TCP's RST, once all has left."""
        end_s = time.monotonic() + DEADLINE_S
        while _unsent_bytes(self._socket):
            assert time.monotonic() < end_s, f"{_unsent_bytes(self._socket)} bytes were not taken"
            time.sleep(0.01)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def _send(self) -> None:
        if data := self._connection.data_to_send():
            self._socket.sendall(data)


def _unsent_bytes(sock: socket.socket) -> int:
    """Bytes that the peer's kernel has not acknowledged yet."""
    answer = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", answer)[0])
