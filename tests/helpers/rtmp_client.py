"""A blocking RTMP client over a real socket: publishes given messages, collects what it plays.

For tests against a server in another thread or process. Built on the package's own `ClientConnection`, so it proves
that both halves agree and nothing about real clients: those are FFmpeg's to prove. Nothing is read between calls, so a
client that is left alone is a stalled one. Every wait has a deadline, and a failed one says what had come instead.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from headrace.protocol import messages
from headrace.protocol.client import (
    ClientConnection,
    ClientEvent,
    ClientState,
    Ended,
    Refused,
    Role,
    Started,
    StatusReceived,
)
from headrace.protocol.commands import encode_command
from headrace.protocol.messages import Message, MessageType, UserControl
from tests.helpers.media_bytes import Sent
from tests.helpers.waiting import DEADLINE_S

# As librtmp and FFmpeg choose them; any would do.
_CHUNK_STREAMS = {messages.AUDIO: 4, messages.DATA: 5, messages.VIDEO: 6}


class RefusedError(AssertionError):
    """The server said no; `code` is the NetStream or NetConnection code it gave."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(f"{refusal.code}: {refusal.description}")
        self.code = refusal.code


class _Connection(ClientConnection):
    """Notes the control messages, which a client otherwise deals with in silence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.controls: list[Message] = []
        self.answers_pings = True

    def _handle_control(self, message: Message) -> None:
        self.controls.append(message)
        is_ping = message.type_id == MessageType.USER_CONTROL and message.payload[:2] == b"\x00\x06"
        if self.answers_pings or not is_ping:
            super()._handle_control(message)

    def send_command(self, message: Message) -> None:
        self._send_command(message)


class RtmpClient:
    """One connection. `publish` and `play` give one that has been granted its wish."""

    def __init__(
        self,
        port: int,
        role: Role,
        *,
        app: str = "live",
        name: str = "a",
        host: str = "127.0.0.1",
        chunk_size: int = 4096,
        digest: bool = False,
        receive_buffer_bytes: int | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._deadline_s = deadline_s
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer_bytes is not None:
            # Before connecting: the window that is offered at first stands for good.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(deadline_s)
        try:
            self.socket.connect((host, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local = self.socket.getsockname()
        self.protocol = _Connection(
            role=role,
            app=app,
            tc_url=f"rtmp://{host}:{port}/{app}",
            name=name,
            nonce=bytes(1528),
            epoch_ms=0,
            chunk_size=chunk_size,
            digest=digest,
        )
        self.messages: list[Message] = []
        self.events: list[ClientEvent] = []
        self.is_closed = False  # by the server, or by ourselves

    @classmethod
    def publish(cls, port: int, name: str = "a", **options: Any) -> RtmpClient:
        """A client whose publish was granted; raises RefusedError if it was not."""
        return cls(port, Role.PUBLISH, name=name, **options).start()

    @classmethod
    def play(cls, port: int, name: str = "a", **options: Any) -> RtmpClient:
        """A client that plays; raises RefusedError if there is no such stream."""
        return cls(port, Role.PLAY, name=name, **options).start()

    def __enter__(self) -> RtmpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What has come --------------------------------------------------------------------------------------------

    @property
    def received(self) -> list[Sent]:
        """The media so far."""
        return [Sent(one.type_id, one.timestamp_ms, one.payload) for one in self.messages]

    @property
    def payloads(self) -> list[bytes]:
        return [one.payload for one in self.messages]

    @property
    def statuses(self) -> list[str]:
        """The codes of every onStatus that is not an answer to the first publish or play."""
        return [event.code for event in self.events if isinstance(event, StatusReceived | Ended | Refused)]

    @property
    def user_controls(self) -> list[tuple[int, int]]:
        """(event type, its number) of every user control message."""
        return [
            (int.from_bytes(one.payload[:2], "big"), int.from_bytes(one.payload[2:6], "big"))
            for one in self.protocol.controls
            if one.type_id == MessageType.USER_CONTROL
        ]

    # Acting ---------------------------------------------------------------------------------------------------

    def start(self) -> RtmpClient:
        """Go through handshake, connect, createStream and publish or play."""
        try:
            self.wait_for(lambda: self._find(Started, Refused), "publish or play to be answered")
        except BaseException:
            self.close()
            raise
        refusal = next((event for event in self.events if isinstance(event, Refused)), None)
        if refusal is not None:
            self.close()
            raise RefusedError(refusal)
        return self

    def shake_hands(self) -> None:
        """The handshake and connect, no more: what comes after is left undone."""
        self.wait_for(lambda: self.protocol.state is not ClientState.HANDSHAKE, "the handshake")
        self._flush()

    def send(self, sent: Iterable[Sent]) -> list[Sent]:
        """Publish these messages; they are with the kernel when this returns."""
        published = list(sent)
        for one in published:
            message = Message(one.type_id, one.timestamp_ms, self.protocol.message_stream_id, one.payload)
            self.protocol.send_message(message, _CHUNK_STREAMS[one.type_id])
        self._flush()
        return published

    def command(
        self, name: str, *values: Any, transaction_id: float = 0.0, message_stream_id: int | None = None
    ) -> None:
        """Send any command; on the stream that is played or published unless another is named."""
        if message_stream_id is None:
            message_stream_id = self.protocol.message_stream_id
        self.protocol.send_command(
            encode_command(name, transaction_id, None, *values, message_stream_id=message_stream_id)
        )
        self._flush()

    def send_raw(self, data: bytes) -> None:
        self.socket.settimeout(self._deadline_s)
        self.socket.sendall(data)

    def finish(self) -> None:
        """Say goodbye as encoders do: FCUnpublish and deleteStream."""
        self.protocol.finish()
        self._flush()

    def close(self) -> None:
        """Leave without a word."""
        self.is_closed = True
        self.socket.close()

    def reset(self) -> None:
        """Leave as a machine does that crashed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    # Waiting --------------------------------------------------------------------------------------------------

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Read until the condition is true."""
        give_up_s = time.monotonic() + self._deadline_s
        self._flush()
        while not condition():
            left_s = give_up_s - time.monotonic()
            if left_s <= 0 or self.is_closed:
                reason = "the server closed" if self.is_closed else f"nothing more within {self._deadline_s:g} s"
                raise AssertionError(
                    f"waited for {what}, {reason}; got {len(self.messages)} messages, events {self.events}, "
                    f"user controls {self.user_controls}"
                )
            self._receive(left_s)

    def collect(self, count: int) -> list[Sent]:
        """The first `count` messages of the stream, waited for."""
        self.wait_for(lambda: len(self.messages) >= count, f"{count} messages")
        return self.received[:count]

    def collect_until(self, payload: bytes) -> list[Sent]:
        """Everything up to the message with this payload, waited for."""
        self.wait_for(lambda: payload in self.payloads, f"the message {payload[:20]!r}...")
        return self.received[: self.payloads.index(payload) + 1]

    def wait_status(self, code: str) -> None:
        self.wait_for(lambda: code in self.statuses, code)

    def wait_user_control(self, event: UserControl) -> int:
        """The number that the first such message carries."""
        self.wait_for(lambda: event in dict(self.user_controls), event.name)
        return dict(self.user_controls)[event]

    def wait_closed(self) -> None:
        """Read until the server closes the connection."""
        give_up_s = time.monotonic() + self._deadline_s
        self._flush()
        while not self.is_closed:
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                raise AssertionError(f"still connected after {self._deadline_s:g} s, events {self.events}")
            self._receive(left_s)

    def read_available(self) -> None:
        """Take what has arrived, without waiting."""
        while not self.is_closed and select.select([self.socket], [], [], 0)[0]:
            self._receive(0.1)

    # The socket -----------------------------------------------------------------------------------------------

    def _find(self, *kinds: type) -> bool:
        return any(isinstance(event, kinds) for event in self.events)

    def _receive(self, timeout_s: float) -> None:
        self.socket.settimeout(max(timeout_s, 0.001))
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.close()
            return
        for event in self.protocol.receive_data(data):
            if isinstance(event, Message):
                self.messages.append(event)
            else:
                self.events.append(event)
        self._flush()

    def _flush(self) -> None:
        data = self.protocol.data_to_send()
        if data and not self.is_closed:
            self.socket.settimeout(self._deadline_s)
            try:
                self.socket.sendall(data)
            except ConnectionError:
                self.close()
