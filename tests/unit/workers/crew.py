"""Two workers in this process, with real channels to a parent that only keeps the book and joins sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from headrace.edge.origin import parse_origins
from headrace.protocol.client import ClientConnection, ClientEvent, Ended, Refused, Role, Started
from headrace.protocol.handshake import NONCE_BYTES
from headrace.protocol.messages import Message
from headrace.server.server import Server
from headrace.stream.registry import Stream
from headrace.telemetry.events import Event
from headrace.workers.channel import Channel
from headrace.workers.claims import Fellows, Paths, WorkerClaims, WorkerPulls
from headrace.workers.directory import Directory
from tests.helpers.media_bytes import AUDIO, DATA, VIDEO, Sent
from tests.helpers.waiting import eventually_async

_CHUNK_STREAMS = {AUDIO: 4, DATA: 5, VIDEO: 6}


class Worker:
    """One of them."""

    def __init__(self, number: int, channel: Channel, grace_s: float, origins: Iterable[str]) -> None:
        self.number = number
        self.channel = channel
        self.events: list[Event] = []
        self.offered: list[Stream] = []
        self.paths = Paths(channel)
        fellows = Fellows(worker=number, server_id="5e", channel=channel, paths=self.paths)
        self.server = Server(
            grace_s=grace_s,
            emit=self.events.append,
            on_stream=self.offered.append,
            server_id="5e",
            conn_prefix=fellows.conn_prefix,
            stream_id_prefix=f"node.{number}.",
        )
        self.claims = WorkerClaims(self.server, fellows)
        self.pulls = WorkerPulls(self.server, self.claims, parse_origins(origins), linger_s=60.0)
        self.server.claims = self.claims
        self.server.source = self.pulls
        self.port = int(self.server.listen("127.0.0.1", 0)[0].rpartition(":")[2])

    def stream(self, name: str = "cam") -> Stream | None:
        return self.server.streams.find("live", name)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Crew:
    """The parent and its workers."""

    def __init__(self, *origins: str, grace_s: float = 60.0) -> None:
        self.book = Directory()
        self.workers: list[Worker] = []
        self.told: list[str] = []  # what the parent was asked and told
        self._origins = origins
        self._grace_s = grace_s
        self._channels: list[Channel] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []

    async def __aenter__(self) -> Crew:
        for number in range(2):
            ours, theirs = socket.socketpair()
            parent = await Channel.over(ours, self._handlers(number))
            orders: dict[str, Any] = {}
            channel = await Channel.over(theirs, orders)
            worker = Worker(number, channel, self._grace_s, self._origins)
            orders["lease"] = worker.claims.lease_granted
            self.workers.append(worker)
            self._channels.append(parent)
            self._tasks += [asyncio.create_task(one.run()) for one in (parent, channel)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        for worker in self.workers:
            await asyncio.gather(worker.server.close(), worker.pulls.close())
            worker.channel.close()
        for channel in self._channels:
            channel.close()
        await asyncio.wait(self._tasks)

    async def publish(self, worker: int, name: str = "cam") -> Client:
        """A publisher that was given to this worker and has had its answer."""
        return await self._connect(worker, Role.PUBLISH, name)

    async def play(self, worker: int, name: str = "cam") -> Client:
        return await self._connect(worker, Role.PLAY, name)

    async def lose(self, worker: int) -> None:
        """The worker dies: its connections with it, and the parent forgets it."""
        for session in list(self.workers[worker].server._sessions):
            session.link.close("killed")
        self.workers[worker].server.streams.end_all("killed")
        for name, following in self.book.drop(worker):
            self._channels[following].tell("lease", name=name)
        await asyncio.sleep(0)

    async def until_owner(self, owner: int | None, key: str = "live/cam") -> None:
        await eventually_async(lambda: self.book.find(key) == owner, f"{key} to be had by {owner}")

    def cut(self, worker: int) -> None:
        """The parent is gone."""
        self._channels[worker].close()

    async def _connect(self, worker: int, role: Role, name: str) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.workers[worker].port), role, name)
        self._clients.append(client)
        await eventually_async(lambda: client.answer is not None or client.is_over, "an answer")
        return client

    def _handlers(self, number: int) -> dict[str, Any]:
        def acquire(message: Mapping[str, Any]) -> None:
            if self.book.acquire(message["name"], number):
                self._channels[number].tell("lease", name=message["name"])

        def let_go(message: Mapping[str, Any]) -> None:
            following = self.book.let_go(message["name"], number)
            if following is not None:
                self._channels[following].tell("lease", name=message["name"])

        def dial(message: Mapping[str, Any]) -> bool:
            theirs, own = socket.socketpair()
            self.workers[message["worker"]].server.accept_internal(theirs)
            self.workers[number].paths.arrived(message["number"], own)
            return True

        handlers = {
            "find": lambda message: self.book.find(message["key"]),
            "claim": lambda message: self.book.claim(message["key"], number),
            "release": lambda message: self.book.release(message["key"], number),
            "dial": dial,
            "acquire": acquire,
            "let_go": let_go,
        }

        def noting(what: str) -> Any:
            def handle(message: Mapping[str, Any]) -> Any:
                self.told.append(what)
                return handlers[what](message)

            return handle

        return {what: noting(what) for what in handlers}


class Client:
    """A publisher or player over a real connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, role: Role, name: str) -> None:
        self.media: list[Sent] = []
        self.events: list[ClientEvent] = []
        self.is_over = False
        self._reader, self._writer = reader, writer
        self._protocol = ClientConnection(
            role=role, app="live", tc_url="rtmp://test/live", name=name, nonce=bytes(NONCE_BYTES), epoch_ms=0
        )
        self._task = asyncio.create_task(self._run())

    @property
    def answer(self) -> ClientEvent | None:
        return next((event for event in self.events if isinstance(event, Started | Refused)), None)

    @property
    def has_ended(self) -> bool:
        return any(isinstance(event, Ended) for event in self.events)

    def send(self, sent: Iterable[Sent]) -> list[Sent]:
        published = list(sent)
        for one in published:
            message = Message(one.type_id, one.timestamp_ms, self._protocol.message_stream_id, one.payload)
            self._protocol.send_message(message, _CHUNK_STREAMS[one.type_id])
        self._writer.write(self._protocol.data_to_send())
        return published

    def finish(self) -> None:
        self._protocol.finish()
        self._writer.write(self._protocol.data_to_send())

    async def until_payloads(self, sent: Iterable[Sent]) -> None:
        expected = [one.payload for one in sent]
        await eventually_async(lambda: [one.payload for one in self.media] == expected, f"{len(expected)} messages")

    async def close(self) -> None:
        """Without a word."""
        self._writer.transport.abort()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        data = b""
        try:
            while True:
                for event in self._protocol.receive_data(data) if data else ():
                    if isinstance(event, Message):
                        self.media.append(Sent(event.type_id, event.timestamp_ms, event.payload))
                    else:
                        self.events.append(event)
                self._writer.write(self._protocol.data_to_send())
                data = await self._reader.read(1 << 16)
                if not data:
                    return
        except OSError:
            pass  # closed by the test
        finally:
            self.is_over = True
            self._writer.close()
