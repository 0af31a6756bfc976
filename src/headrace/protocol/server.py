"""The server's side of the command flow (RTMP 1.0, section 7.2): connect, createStream, publish, play and the rest.

The caller decides what is granted; this decides what is legal, and says it in the bytes real clients expect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

from headrace.errors import PeerError, UsageError
from headrace.protocol import messages
from headrace.protocol.amf0 import UNDEFINED
from headrace.protocol.chunks import MAX_MESSAGE_BYTES, RawMessage
from headrace.protocol.commands import Command, encode_command, on_status, split_query, status
from headrace.protocol.connection import DEFAULT_WINDOW_BYTES, Connection
from headrace.protocol.events import (
    CommandIgnored,
    ConnectRequested,
    Event,
    HandshakeCompleted,
    PauseChanged,
    PlayRequested,
    PlayStopped,
    PublishRequested,
    ReceiveChanged,
    SeekAnswered,
    StreamCreated,
    Unpublished,
)
from headrace.protocol.handshake import ServerHandshake
from headrace.protocol.messages import BandwidthLimit, Message, MessageType, UserControl

# Real clients create one message stream, Flash applications a few.
MAX_MESSAGE_STREAMS = 16

# Enhanced RTMP v2, "Enhancing NetConnection connect Command": 4 = can forward; capsEx: reconnect 1, multitrack 2,
# ModEx 4, nanosecond offset 8.
_CAN_FORWARD_ALL = {"*": 4}
_CAPS_EX = 1 | 2 | 4 | 8


class NetStreamState(Enum):
    IDLE = "idle"
    PUBLISH_REQUESTED = "publish requested"
    PUBLISHING = "publishing"
    PLAY_REQUESTED = "play requested"
    PLAYING = "playing"


# What a message stream may be asked, and where the request leads. Everything else is out of order.
_TRANSITIONS = {
    (NetStreamState.IDLE, "publish"): NetStreamState.PUBLISH_REQUESTED,
    (NetStreamState.IDLE, "play"): NetStreamState.PLAY_REQUESTED,
    (NetStreamState.PLAYING, "play"): NetStreamState.PLAY_REQUESTED,
    (NetStreamState.PLAY_REQUESTED, "play"): NetStreamState.PLAY_REQUESTED,  # the answer may take a while
    (NetStreamState.PUBLISH_REQUESTED, "accept_publish"): NetStreamState.PUBLISHING,
    (NetStreamState.PUBLISH_REQUESTED, "reject_publish"): NetStreamState.IDLE,
    (NetStreamState.PLAY_REQUESTED, "accept_play"): NetStreamState.PLAYING,
    (NetStreamState.PLAY_REQUESTED, "reject_play"): NetStreamState.IDLE,
}


class ServerConnection(Connection):
    """One client, seen from the server."""

    def __init__(
        self,
        *,
        nonce: bytes,
        epoch_ms: int,
        chunk_size: int = 60_000,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
    ) -> None:
        handshake = ServerHandshake(nonce=nonce, epoch_ms=epoch_ms)
        super().__init__(handshake)
        self._server_handshake = handshake
        self._chunk_size = chunk_size
        self._window_bytes = window_bytes
        self._connect: Command | None = None
        self._connected = False
        self._states: dict[int, NetStreamState] = {}
        self._names: dict[int, str] = {}

    # Bytes in -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> Iterator[Event | Message]:
        """Events, in order. Raises PeerError; the connection is then of no more use."""
        if self._handshake is not None:
            self._out.append(self._handshake.receive(data))
            if not self._handshake.is_done:
                return
            data = self._handshake.rest
            self._handshake = None
            yield HandshakeCompleted(is_digest=self._server_handshake.is_digest)
        yield from self._events(self._messages(data))

    def receive_after(self, raw: RawMessage) -> Iterator[Event | Message]:
        """The events of what `read_media` stopped at, and of what followed it in the same bytes."""
        yield from self._events(self._sort((Message(*raw),)))
        yield from self._events(self._messages(b""))

    def _events(self, found: Iterator[Message]) -> Iterator[Event | Message]:
        for message in found:
            if message.type_id in (MessageType.COMMAND, MessageType.COMMAND_AMF3):
                yield from self._on_command(self._decode(message))
            else:
                yield message

    def _on_command(self, command: Command) -> Iterator[Event]:
        if command.name == "connect":
            yield self._on_connect(command)
        elif not self._connected:
            raise PeerError(f"command {command.name[:40]!r} before connect was accepted")
        elif handler := _COMMANDS.get(command.name):
            yield from handler(self, command)
        else:
            yield CommandIgnored(command.name)

    def _on_connect(self, command: Command) -> ConnectRequested:
        if self._connect is not None:
            raise PeerError("connect came twice on one connection")
        self._connect = command
        properties: Mapping[str, Any] = command.object if isinstance(command.object, dict) else {}

        def text(*keys: str) -> str:
            return next((value for key in keys if isinstance(value := properties.get(key), str)), "")

        app, query = split_query(text("app"))
        return ConnectRequested(
            app=app.strip("/"),
            query=query,
            tc_url=text("tcUrl", "tcurl"),
            flash_version=text("flashVer", "flashver"),
            properties=properties,
        )

    def _on_create_stream(self, command: Command) -> Iterator[Event]:
        if len(self._states) >= MAX_MESSAGE_STREAMS:
            raise PeerError(f"createStream number {len(self._states) + 1}, expected at most {MAX_MESSAGE_STREAMS}")
        # Ids count from 1, so that the first, which every real client uses, shares its bytes with all readers.
        message_stream_id = next(number for number in range(1, 100) if number not in self._states)
        self._states[message_stream_id] = NetStreamState.IDLE
        self._result(command, None, float(message_stream_id))
        yield StreamCreated(message_stream_id)

    def _on_publish(self, command: Command) -> Iterator[Event]:
        message_stream_id = self._move(command.message_stream_id, "publish")
        name, query = split_query(command.text(0))
        self._names[message_stream_id] = name
        yield PublishRequested(message_stream_id, name, query, command.text(1) or "live")

    def _on_play(self, command: Command) -> Iterator[Event]:
        message_stream_id = command.message_stream_id
        was_playing = self._states.get(message_stream_id) in (NetStreamState.PLAYING, NetStreamState.PLAY_REQUESTED)
        self._move(message_stream_id, "play")
        if was_playing:
            yield PlayStopped(message_stream_id)
        name, query = split_query(command.text(0))
        self._names[message_stream_id] = name
        yield PlayRequested(message_stream_id, name, query, command.number(1, -2.0))

    def _on_close_stream(self, command: Command) -> Iterator[Event]:
        yield from self._close_stream(command.message_stream_id)

    def _on_delete_stream(self, command: Command) -> Iterator[Event]:
        # The id is an argument here; librtmp sends it on message stream 0, some on the stream itself without one.
        message_stream_id = int(command.number(0, command.message_stream_id))
        yield from self._close_stream(message_stream_id)
        self._states.pop(message_stream_id, None)

    def _on_fc_publish(self, command: Command) -> Iterator[Event]:
        self._result(command, None, UNDEFINED)
        self._send_command(
            encode_command("onFCPublish", 0, None, status("status", "NetStream.Publish.Start", "FCPublish accepted"))
        )
        return iter(())

    def _on_fc_unpublish(self, command: Command) -> Iterator[Event]:
        self._result(command, None, UNDEFINED)
        name, _ = split_query(command.text(0))
        for message_stream_id, state in list(self._states.items()):
            if state is NetStreamState.PUBLISHING and self._names.get(message_stream_id) == name:
                yield from self._close_stream(message_stream_id)

    def _on_fc_subscribe(self, command: Command) -> Iterator[Event]:
        self._result(command, None, UNDEFINED)
        info = status("status", "NetStream.Play.Start", "FCSubscribe accepted")
        self._send_command(encode_command("onFCSubscribe", 0, None, info))
        return iter(())

    def _on_get_stream_length(self, command: Command) -> Iterator[Event]:
        self._result(command, None, 0.0)  # a live stream has no length
        return iter(())

    def _on_acknowledged(self, command: Command) -> Iterator[Event]:
        self._result(command, None, UNDEFINED)
        return iter(())

    def _on_ignored(self, command: Command) -> Iterator[Event]:
        yield CommandIgnored(command.name)

    def _on_pause(self, command: Command) -> Iterator[Event]:
        message_stream_id = command.message_stream_id
        if self._states.get(message_stream_id) is NetStreamState.PLAYING:
            is_paused = command.flag(0, True)
            word = "Pause" if is_paused else "Unpause"
            self.send_status(message_stream_id, f"NetStream.{word}.Notify", f"{word} at the live edge.")
            yield PauseChanged(message_stream_id, is_paused)

    def _on_seek(self, command: Command) -> Iterator[Event]:
        message_stream_id = command.message_stream_id
        if self._states.get(message_stream_id) is NetStreamState.PLAYING:
            # An error status makes FFmpeg quit; a notice and the live position is what ffplay survives.
            self.send_status(message_stream_id, "NetStream.Seek.Notify", "A live stream stays at its live edge.")
            yield SeekAnswered(message_stream_id, command.number(0, 0.0))

    def _on_receive_audio(self, command: Command) -> Iterator[Event]:
        if self._states.get(command.message_stream_id) is NetStreamState.PLAYING:
            yield ReceiveChanged(command.message_stream_id, audio=command.flag(0, True))

    def _on_receive_video(self, command: Command) -> Iterator[Event]:
        if self._states.get(command.message_stream_id) is NetStreamState.PLAYING:
            yield ReceiveChanged(command.message_stream_id, video=command.flag(0, True))

    def _close_stream(self, message_stream_id: int) -> Iterator[Event]:
        state = self._states.get(message_stream_id)
        if state is None or state is NetStreamState.IDLE:
            return
        self._states[message_stream_id] = NetStreamState.IDLE
        if state is NetStreamState.PUBLISHING:
            self.media_ids.discard(message_stream_id)
            self.send_status(message_stream_id, "NetStream.Unpublish.Success", "The stream was unpublished.")
            yield Unpublished(message_stream_id)
        elif state is NetStreamState.PUBLISH_REQUESTED:
            yield Unpublished(message_stream_id)
        else:
            yield PlayStopped(message_stream_id)

    # Answers --------------------------------------------------------------------------------------------------

    def accept_connect(self) -> None:
        """The burst real clients wait for after connect: window, bandwidth, chunk size, then the result."""
        command = self._pending_connect()
        self._connected = True
        self._send_control(messages.window_acknowledgement_size(self._window_bytes))
        self._send_control(messages.set_peer_bandwidth(self._window_bytes, BandwidthLimit.DYNAMIC))
        self._set_out_chunk_size(self._chunk_size)
        encoding = command.object.get("objectEncoding", 0.0) if isinstance(command.object, dict) else 0.0
        if not isinstance(encoding, int | float) or not math.isfinite(encoding):
            encoding = 0.0
        info = status(
            "status",
            "NetConnection.Connect.Success",
            "Connection succeeded.",
            objectEncoding=float(encoding),
            capsEx=float(_CAPS_EX),
            videoFourCcInfoMap=_CAN_FORWARD_ALL,
            audioFourCcInfoMap=_CAN_FORWARD_ALL,
        )
        self._result(command, {"fmsVer": "FMS/3,0,1,123", "capabilities": 31.0}, info)

    def reject_connect(self, description: str) -> None:
        command = self._pending_connect()
        info = status("error", "NetConnection.Connect.Rejected", description)
        self._send_command(encode_command("_error", command.transaction_id, None, info))

    def accept_publish(self, message_stream_id: int) -> None:
        self._move(message_stream_id, "accept_publish")
        self.media_ids.add(message_stream_id)
        self._reader.max_message_bytes = MAX_MESSAGE_BYTES
        self._send_control(messages.user_control(UserControl.STREAM_BEGIN, message_stream_id))
        name = self._names[message_stream_id]
        self.send_status(message_stream_id, "NetStream.Publish.Start", f"{name} is now published.")

    def reject_publish(self, message_stream_id: int, code: str, description: str) -> None:
        self._move(message_stream_id, "reject_publish")
        self._send_command(on_status(message_stream_id, "error", code, description))

    def accept_play(self, message_stream_id: int, more: Mapping[str, Any] | None = None) -> None:
        """Everything up to the media: Stream Begin, Reset, Start, the last with `more` for those who understand it."""
        self._move(message_stream_id, "accept_play")
        name = self._names[message_stream_id]
        self._send_control(messages.user_control(UserControl.STREAM_BEGIN, message_stream_id))
        self.send_status(message_stream_id, "NetStream.Play.Reset", f"Playing and resetting {name}.")
        self.send_status(message_stream_id, "NetStream.Play.Start", f"Started playing {name}.", more)

    def reject_play(self, message_stream_id: int, code: str, description: str) -> None:
        self._move(message_stream_id, "reject_play")
        self._send_command(on_status(message_stream_id, "error", code, description))

    def end_play(self, message_stream_id: int) -> None:
        """The stream is over: FFmpeg and librtmp quit on what this sends, so it comes after the grace period only."""
        if self._states.get(message_stream_id) is not NetStreamState.PLAYING:
            return
        self._states[message_stream_id] = NetStreamState.IDLE
        name = self._names[message_stream_id]
        self._send_control(messages.user_control(UserControl.STREAM_EOF, message_stream_id))
        self.send_status(message_stream_id, "NetStream.Play.UnpublishNotify", f"{name} is now unpublished.")

    def send_status(
        self, message_stream_id: int, code: str, description: str, more: Mapping[str, Any] | None = None
    ) -> None:
        self._send_command(on_status(message_stream_id, "status", code, description, more))

    # Bookkeeping ----------------------------------------------------------------------------------------------

    def _pending_connect(self) -> Command:
        if self._connect is None or self._connected:
            raise UsageError("no connect command waits for an answer")
        return self._connect

    def _move(self, message_stream_id: int, request: str) -> int:
        state = self._states.get(message_stream_id)
        if state is None:
            raise PeerError(f"{request} on message stream {message_stream_id}, which was not created")
        target = _TRANSITIONS.get((state, request))
        if target is None:
            raise PeerError(f"{request} on message stream {message_stream_id} while it is {state.value}")
        self._states[message_stream_id] = target
        return message_stream_id

    def _result(self, command: Command, *values: Any) -> None:
        # Transaction 0 asks for no answer; the id is echoed exactly (section 7.2.1.1).
        if command.transaction_id:
            self._send_command(encode_command("_result", command.transaction_id, *values))


_COMMANDS: dict[str, Callable[[ServerConnection, Command], Iterator[Event]]] = {
    "createStream": ServerConnection._on_create_stream,
    "publish": ServerConnection._on_publish,
    "play": ServerConnection._on_play,
    "play2": ServerConnection._on_ignored,
    "deleteStream": ServerConnection._on_delete_stream,
    "closeStream": ServerConnection._on_close_stream,
    "releaseStream": ServerConnection._on_acknowledged,
    "FCPublish": ServerConnection._on_fc_publish,
    "FCUnpublish": ServerConnection._on_fc_unpublish,
    "FCSubscribe": ServerConnection._on_fc_subscribe,
    "getStreamLength": ServerConnection._on_get_stream_length,
    "pause": ServerConnection._on_pause,
    "pauseRaw": ServerConnection._on_pause,
    "seek": ServerConnection._on_seek,
    "receiveAudio": ServerConnection._on_receive_audio,
    "receiveVideo": ServerConnection._on_receive_video,
    "_checkbw": ServerConnection._on_acknowledged,
    "checkBandwidth": ServerConnection._on_acknowledged,
}
