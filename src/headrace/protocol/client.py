"""The client's side of the command flow: connect, createStream, then publish or play one stream.

What a destination, a pulled stream or a test needs of a client. The server's refusals come as events with the code it
gave; bytes that break the protocol raise PeerError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headrace.errors import PeerError, UsageError
from headrace.protocol.chunks import MAX_MESSAGE_BYTES
from headrace.protocol.commands import Command, encode_command
from headrace.protocol.connection import DEFAULT_WINDOW_BYTES, Connection
from headrace.protocol.handshake import ClientHandshake
from headrace.protocol.messages import Message, MessageType, window_acknowledgement_size

CHUNK_SIZE = 60_000  # of what we send: most frames are one chunk


class Role(Enum):
    PUBLISH = "publish"
    PLAY = "play"


class ClientState(Enum):
    """How far the flow has come; each step waits for the server's answer to the one before."""

    HANDSHAKE = "handshake"
    CONNECT = "connect"
    CREATE_STREAM = "createStream"
    START = "start"  # publish or play was sent
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class ClientHandshakeCompleted:
    pass


@dataclass(frozen=True, slots=True)
class Connected:
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Started:
    """Publishing was granted, or playing begins; `info` is all that the server said with it."""

    message_stream_id: int
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """The server said no; `during` is the step it answered."""

    during: ClientState
    code: str
    description: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The stream that was played is over."""

    code: str


@dataclass(frozen=True, slots=True)
class StatusReceived:
    level: str
    code: str
    description: str


@dataclass(frozen=True, slots=True)
class ReconnectRequested:
    """Enhanced RTMP v2: go elsewhere (or come back), in the client's own time."""

    tc_url: str
    description: str


ClientEvent = ClientHandshakeCompleted | Connected | Started | Refused | Ended | StatusReceived | ReconnectRequested

_CONNECT_TRANSACTION = 1.0
_CREATE_TRANSACTION = 4.0
_START_CODES = {Role.PUBLISH: "NetStream.Publish.Start", Role.PLAY: "NetStream.Play.Start"}
_END_CODES = ("NetStream.Play.UnpublishNotify", "NetStream.Play.Stop", "NetStream.Play.Complete")


class ClientConnection(Connection):
    """One stream on one server, seen from the client."""

    def __init__(
        self,
        *,
        role: Role,
        app: str,
        tc_url: str,
        name: str,
        nonce: bytes,
        epoch_ms: int,
        chunk_size: int = CHUNK_SIZE,
        digest: bool = False,
        flash_version: str = "FMLE/3.0 (compatible; Headrace)",
        connect_more: Mapping[str, Any] | None = None,
    ) -> None:
        handshake = ClientHandshake(nonce=nonce, epoch_ms=epoch_ms, digest=digest)
        super().__init__(handshake)
        self._role = role
        self._app = app
        self._tc_url = tc_url
        self._name = name
        self._chunk_size = chunk_size
        self._flash_version = flash_version
        self._connect_more = connect_more or {}  # for servers that know what it means; others pass over it
        self.state = ClientState.HANDSHAKE
        self.message_stream_id = 0
        self._out.append(handshake.start())

    def receive_data(self, data: bytes) -> Iterator[ClientEvent | Message]:
        if self._handshake is not None:
            self._out.append(self._handshake.receive(data))
            if not self._handshake.is_done:
                return
            data = self._handshake.rest
            self._handshake = None
            self._send_connect()
            yield ClientHandshakeCompleted()
        for message in self._messages(data):
            if message.type_id in (MessageType.COMMAND, MessageType.COMMAND_AMF3):
                command = self._decode(message)
                if handler := _ANSWERS.get(command.name):
                    yield from handler(self, command)
            else:
                yield message

    def send_message(self, message: Message, chunk_stream_id: int) -> None:
        """Queue one media message; for senders that do not have the bytes already."""
        self._send(message, chunk_stream_id)

    def finish(self) -> None:
        """Say goodbye: the server ends the stream at once instead of waiting for us to come back."""
        if self.state not in (ClientState.START, ClientState.RUNNING):
            return
        if self._role is Role.PUBLISH:
            self._send_command(encode_command("FCUnpublish", 6, None, self._name))
        self._send_command(encode_command("deleteStream", 7, None, float(self.message_stream_id)))
        self.state = ClientState.OVER

    def _send_connect(self) -> None:
        self.state = ClientState.CONNECT
        self._set_out_chunk_size(self._chunk_size)
        properties: dict[str, Any] = {
            "app": self._app,
            "type": "nonprivate",
            "flashVer": self._flash_version,
            "tcUrl": self._tc_url,
            "capsEx": 1.0,  # we come back when asked to
        }
        if self._role is Role.PLAY:
            properties |= {"fpad": False, "capabilities": 15.0, "audioCodecs": 4071.0, "videoCodecs": 252.0}
        self._send_command(encode_command("connect", _CONNECT_TRANSACTION, {**properties, **self._connect_more}))

    def _on_result(self, command: Command) -> Iterator[ClientEvent]:
        if self.state is ClientState.CONNECT and command.transaction_id == _CONNECT_TRANSACTION:
            self._send_control(window_acknowledgement_size(DEFAULT_WINDOW_BYTES))
            if self._role is Role.PUBLISH:
                self._send_command(encode_command("releaseStream", 2, None, self._name))
                self._send_command(encode_command("FCPublish", 3, None, self._name))
            self._send_command(encode_command("createStream", _CREATE_TRANSACTION, None))
            self.state = ClientState.CREATE_STREAM
            info = command.argument(0)
            yield Connected(info if isinstance(info, dict) else {})
        elif self.state is ClientState.CREATE_STREAM and command.transaction_id == _CREATE_TRANSACTION:
            number = command.number(0, -1.0)
            if not 1 <= number <= 0xFFFFFFFF:
                raise PeerError(f"createStream answered with {command.argument(0)!r}, expected a stream id")
            self.message_stream_id = int(number)
            self._send_start()

    def _send_start(self) -> None:
        self.state = ClientState.START
        if self._role is Role.PUBLISH:
            values: tuple[Any, ...] = (None, self._name, "live")
        else:
            # FFmpeg as a server (`-listen 1`) sends its media on message stream 0, and players take it.
            self.media_ids |= {0, self.message_stream_id}
            self._reader.max_message_bytes = MAX_MESSAGE_BYTES
            values = (None, self._name, -2000.0)
        self._send_command(encode_command(self._role.value, 5, *values, message_stream_id=self.message_stream_id))

    def _on_error(self, command: Command) -> Iterator[ClientEvent]:
        # releaseStream and FCPublish are courtesies that some servers do not know.
        if command.transaction_id in (_CONNECT_TRANSACTION, _CREATE_TRANSACTION, 5.0):
            level, code, description = _status_of(command)
            yield self._refuse(code or "NetConnection.Call.Failed", description or level)

    def _on_status(self, command: Command) -> Iterator[ClientEvent]:
        level, code, description = _status_of(command)
        if code == "NetConnection.Connect.ReconnectRequest":
            tc_url = _info_of(command).get("tcUrl")
            yield ReconnectRequested(tc_url if isinstance(tc_url, str) else "", description)
        elif level == "error":
            yield self._refuse(code, description)
        elif code == _START_CODES[self._role] and self.state is ClientState.START:
            self.state = ClientState.RUNNING
            yield Started(self.message_stream_id, _info_of(command))
        elif code in _END_CODES:
            self.state = ClientState.OVER
            yield Ended(code)
        else:
            yield StatusReceived(level, code, description)

    def _on_close(self, command: Command) -> Iterator[ClientEvent]:
        yield self._refuse("close", "the server sent a close command")

    def _refuse(self, code: str, description: str) -> Refused:
        during, self.state = self.state, ClientState.OVER
        return Refused(during, code, description)

    def set_out_chunk_size(self, size_bytes: int) -> None:
        if self.state is ClientState.HANDSHAKE:
            raise UsageError("the chunk size cannot change during the handshake")
        self._set_out_chunk_size(size_bytes)


def _info_of(command: Command) -> Mapping[str, Any]:
    """The information object; some servers put it in the command object's place."""
    return next((value for value in (command.argument(0), command.object) if isinstance(value, dict)), {})


def _status_of(command: Command) -> tuple[str, str, str]:
    info = _info_of(command)
    level, code, description = (str(info.get(key) or "") for key in ("level", "code", "description"))
    return level, code, description


_ANSWERS: dict[str, Callable[[ClientConnection, Command], Iterator[ClientEvent]]] = {
    "_result": ClientConnection._on_result,
    "_error": ClientConnection._on_error,
    "onStatus": ClientConnection._on_status,
    "close": ClientConnection._on_close,
}
