"""The far end of a destination, played by the test: a server over real sockets that says what its script says.

Its answers are bytes put together from the specification, so that it can say what no honest server would. What our side
sends is read by our own chunk reader, which has tests of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from headrace.protocol.chunks import ChunkReader
from headrace.protocol.commands import Command, decode_command
from headrace.protocol.messages import Message
from tests.helpers.media_bytes import AUDIO, DATA, VIDEO, Sent
from tests.helpers.waiting import eventually_async
from tests.unit.protocol.wire import BIG_CHUNKS, NULL, amf_object, command, number, status, string

Script = Callable[["Visit"], Awaitable[None]]

_COMMAND, _MEDIA = 20, (AUDIO, VIDEO, DATA)


class Visit:
    """One connection to the far end, and what came over it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.commands: list[Command] = []
        self.media: list[Sent] = []
        self.others: list[Message] = []  # control messages
        self.media_ids: set[int] = set()
        self.is_over = False
        self.received_bytes = 0
        self._chunks = ChunkReader()
        self._pending: deque[Message] = deque()

    # Hearing --------------------------------------------------------------------------------------------------

    async def next_message(self) -> Message:
        while not self._pending:
            data = await self.reader.read(1 << 16)
            if not data:
                raise EOFError
            self.received_bytes += len(data)
            self._pending.extend(self._chunks.receive(data))
        message = self._pending.popleft()
        if message.type_id == _COMMAND:
            self.commands.append(decode_command(message))
        elif message.type_id in _MEDIA:
            self.media_ids.add(message.message_stream_id)
            self.media.append(Sent(message.type_id, message.timestamp_ms, message.payload))
        else:
            self.others.append(message)
        return message

    async def expect(self, name: str) -> Command:
        """The next command of that name; whatever comes before it is kept."""
        while True:
            message = await self.next_message()
            if message.type_id == _COMMAND and self.commands[-1].name == name:
                return self.commands[-1]

    async def listen(self) -> None:
        """Take everything until the connection ends."""
        while True:
            await self.next_message()

    async def until_media(self, count: int) -> list[Sent]:
        while len(self.media) < count:
            await self.next_message()
        return self.media

    # Saying ---------------------------------------------------------------------------------------------------

    def say(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def shake_hands(self) -> None:
        """RTMP 1.0, section 5.2: S0, S1 and an echo of C1."""
        hello = await self.reader.readexactly(1537)
        self.say(b"\x03", bytes(1536), hello[1:])
        await self.reader.readexactly(1536)

    async def accept_connect(self) -> Command:
        await self.shake_hands()
        connect = await self.expect("connect")
        self.say(BIG_CHUNKS, CONNECT_RESULT)
        return connect

    async def create_stream(self, stream: int = 1) -> None:
        await self.accept_connect()
        await self.expect("createStream")
        self.say(command("_result", 4, NULL, number(stream)))

    async def grant(self, stream: int = 1) -> Command:
        """Everything up to the media; the publish command."""
        await self.create_stream(stream)
        publish = await self.expect("publish")
        self.say(status(stream, "status", "NetStream.Publish.Start", "go"))
        return publish

    def ask_to_reconnect(self, tc_url: str | None = None) -> None:
        """Enhanced RTMP v2, "Reconnect Request"."""
        self.say(reconnect_request(tc_url))

    # Leaving --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self.writer.close()

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def reset(self) -> None:
        """As the kernel of a machine that crashed and came back does."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


CONNECT_RESULT = command(
    "_result", 1, NULL, amf_object(level=string("status"), code=string("NetConnection.Connect.Success"))
)


def reconnect_request(tc_url: str | None) -> bytes:
    extra = {} if tc_url is None else {"tcUrl": string(tc_url)}
    info = amf_object(level=string("status"), code=string("NetConnection.Connect.ReconnectRequest"), **extra)
    return command("onStatus", 0, NULL, info)


class FarEnd:
    """Listens on loopback. The first connection gets the first script, and so on; the last is for all that follow."""

    def __init__(
        self,
        *scripts: Script,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        self.visits: list[Visit] = []
        self._failures: list[BaseException] = []
        self._tasks: list[asyncio.Task[None]] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes is not None:  # before listening, or the window is already offered
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.bind((host, port))
        self.port = int(self._socket.getsockname()[1])

    async def __aenter__(self) -> FarEnd:
        self._server = await asyncio.start_server(self._visited, sock=self._socket, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for visit in self.visits:
            visit.writer.transport.abort()
        for task in self._tasks:
            task.cancel()  # it may wait for something else than its connection
        await asyncio.gather(*self._tasks, return_exceptions=True)  # one may not even have begun
        if error is None and self._failures:
            raise self._failures[0]

    def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        self.visits.append(visit)
        script = self._scripts[min(len(self.visits), len(self._scripts)) - 1]
        self._tasks.append(asyncio.get_running_loop().create_task(self._play(script, visit)))

    async def _play(self, script: Script, visit: Visit) -> None:
        try:
            await script(visit)
            await visit.listen()
        except (EOFError, OSError, asyncio.CancelledError):
            pass  # our side left, the script closed, or the test is over
        except Exception as failure:
            self._failures.append(failure)
        finally:
            visit.is_over = True
            visit.writer.transport.abort()

    async def until_visits(self, count: int) -> list[Visit]:
        await eventually_async(lambda: len(self.visits) >= count, f"{count} connections to the far end")
        return self.visits

    @property
    def last(self) -> Visit:
        return self.visits[-1]

    async def until_media(self, count: int, visit: int = -1) -> list[Sent]:
        """The first messages of a visit, which may be still to come."""

        def is_there() -> bool:
            return len(self.visits) > max(visit, 0) and len(self.visits[visit].media) >= count

        await eventually_async(is_there, f"{count} messages at the far end")
        return self.visits[visit].media


# Scripts ------------------------------------------------------------------------------------------------------


async def grants(visit: Visit) -> None:
    await visit.grant()


async def swallows(visit: Visit) -> None:
    """Accepts, takes everything and never speaks."""
    while await visit.reader.read(1 << 16):
        pass
    raise EOFError


async def hangs_in_handshake(visit: Visit) -> None:
    hello = await visit.reader.readexactly(1537)
    visit.say(b"\x03", bytes(700), hello[:1])
    await swallows(visit)


async def hangs_after_handshake(visit: Visit) -> None:
    await visit.shake_hands()
    await swallows(visit)


async def hangs_after_connect(visit: Visit) -> None:
    await visit.accept_connect()
    await swallows(visit)


async def hangs_after_create_stream(visit: Visit) -> None:
    await visit.create_stream()
    await swallows(visit)


def then_closes(step: Callable[[Visit], Awaitable[Any]]) -> Script:
    async def script(visit: Visit) -> None:
        await step(visit)
        visit.close()
        raise EOFError

    return script


def refuses(code: str, description: str) -> Script:
    """Says no to publish."""

    async def script(visit: Visit) -> None:
        await visit.create_stream()
        await visit.expect("publish")
        visit.say(status(1, "error", code, description))

    return script


def refuses_connect(code: str, description: str) -> Script:
    async def script(visit: Visit) -> None:
        await visit.shake_hands()
        await visit.expect("connect")
        info = amf_object(level=string("error"), code=string(code), description=string(description))
        visit.say(BIG_CHUNKS, command("_error", 1, NULL, info))

    return script
