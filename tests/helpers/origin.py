"""A server with destinations in this process. Streams are appended to by the test, message by message, so that no test
has to wait for a publisher's clock."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, cast

from headrace import logs
from headrace.protocol.client import ClientConnection, Role
from headrace.protocol.handshake import NONCE_BYTES
from headrace.protocol.messages import Message
from headrace.relay.config import DestinationConfig, read_destination
from headrace.relay.feed import Feed, FeedState
from headrace.relay.service import Destination, Leases, RelayService
from headrace.server.server import Server
from headrace.server.session import Session
from headrace.stream.cadence import Due, Prepare
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from headrace.telemetry.events import Event
from tests.helpers.far_end import FarEnd
from tests.helpers.media_bytes import AUDIO, DATA, VIDEO, Sent
from tests.helpers.waiting import eventually_async

# Every destination of these tests has it, and it must be in no line, page or error.
KEY = "k3y-0c4f-77aa"
# Tries again at once: no test waits for a delay that it is not about.
QUICK = {"initial_s": 0.01, "max_s": 0.02, "jitter": 0}


def destination(far_end: FarEnd | str, *, name: str = "out", **keys: Any) -> DestinationConfig:
    """A destination with a fixed stream name, unless `stream_key` is None."""
    url = far_end if isinstance(far_end, str) else f"rtmp://127.0.0.1:{far_end.port}/live"
    return read_destination({"name": name, "url": url, "stream_key": KEY, "retry": QUICK, **keys}, None, "test")


class Publisher:
    """The source of a stream, as far as the registry knows one."""

    conn_id = "test"

    def __init__(self) -> None:
        self.last_received_s = asyncio.get_running_loop().time()

    def displace(self) -> None:
        pass

    def rest(self, until_s: float) -> float:
        return 0.0

    def expect(self, due: Due, prepare: Prepare) -> bool:
        return False


class Origin:
    """The server, its destinations, and the streams that the test publishes."""

    def __init__(
        self,
        *configs: DestinationConfig,
        limits: LogLimits | None = None,
        chunk_size: int = 60_000,
        leases: Leases | None = None,
    ) -> None:
        self.events: list[Event] = []  # what destinations tell the event log
        self._port: int | None = None
        self.server = Server(
            limits=limits, chunk_size=chunk_size, on_stream=lambda stream: self.relay.stream_started(stream)
        )
        self.relay = RelayService(
            configs,
            fanout_of=self.server.fanout,
            retain=self.server.streams.retain,
            chunk_size=chunk_size,
            emit=self.events.append,
            leases=leases,
        )

    async def __aenter__(self) -> Origin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(self.server.close(), self.relay.close())

    def listen(self) -> int:
        """The port that viewers connect to."""
        if self._port is None:
            self._port = int(self.server.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        return self._port

    def publish(self, name: str = "cam", app: str = "live") -> Stream:
        return self.server.publish(app, name, cast(Session, Publisher()))

    def unpublish(self, stream: Stream) -> None:
        assert stream.publisher is not None
        self.server.streams.unpublish(stream, stream.publisher, "unpublished")

    def out(self, name: str = "out") -> Destination:
        return self.relay.destinations[name]

    def feed(self, key: str = "live/cam", name: str = "out") -> Feed:
        return self.out(name).feeds[key]

    async def until(self, state: FeedState, key: str = "live/cam", name: str = "out") -> Feed:
        """The feed, once it is in that state."""
        await eventually_async(lambda: self._state(key, name) is state, f"{name} to be {state.value}")
        return self.feed(key, name)

    async def until_over(self, key: str = "live/cam", name: str = "out") -> None:
        """Once the feed has said goodbye and is gone."""
        await eventually_async(lambda: key not in self.out(name).feeds, f"the feed of {key} to be over")

    def _state(self, key: str, name: str) -> FeedState | None:
        feed = self.out(name).feeds.get(key)
        return feed.state if feed is not None else None


class Viewer:
    """A player on the origin, over a real connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        name: str,
        connect_more: Mapping[str, Any] | None = None,
    ) -> None:
        self.media: list[Sent] = []
        self._reader, self._writer = reader, writer
        self._protocol = ClientConnection(
            role=Role.PLAY,
            app="live",
            tc_url="rtmp://origin/live",
            name=name,
            nonce=bytes(NONCE_BYTES),
            epoch_ms=0,
            connect_more=connect_more,
        )
        self._task = asyncio.get_running_loop().create_task(self._watch())

    @classmethod
    async def of(cls, origin: Origin, name: str = "cam") -> Viewer:
        return await cls.of_port(origin.listen(), name)

    @classmethod
    async def of_port(cls, port: int, name: str = "cam", connect_more: Mapping[str, Any] | None = None) -> Viewer:
        return cls(*await asyncio.open_connection("127.0.0.1", port), name, connect_more)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def until_media(self, count: int) -> list[Sent]:
        await eventually_async(lambda: len(self.media) >= count, f"{count} messages at a viewer")
        return self.media

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.wait((self._task,))

    async def _watch(self) -> None:
        data = b""
        try:
            while True:
                for event in self._protocol.receive_data(data) if data else ():
                    if isinstance(event, Message) and event.type_id in (AUDIO, VIDEO, DATA):
                        self.media.append(Sent(event.type_id, event.timestamp_ms, event.payload))
                self._writer.write(self._protocol.data_to_send())
                data = await self._reader.read(1 << 16)
                if not data:
                    return
        except OSError:
            pass  # closed by the test


def append(stream: Stream, sent: Iterable[Sent]) -> list[Sent]:
    """Append all of it, as a publisher would; what was appended."""
    appended = list(sent)
    for one in appended:
        stream.append(*one)
    return appended


class LogCapture:
    """Everything that is logged, at any level. Make it first: a logger keeps what was configured when it was bound."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        logs.configure("debug", "json", self._stream)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    def lines(self, message: str | None = None) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in found if message is None or line["msg"] == message]

    def close(self) -> None:
        logs.configure("warn", "text")
