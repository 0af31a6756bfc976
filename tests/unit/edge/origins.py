"""An edge in this process, and origins that say what their scripts say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from headrace.edge.origin import parse_origins
from headrace.edge.service import EdgeService
from headrace.relay.failure import RetryPolicy
from headrace.server.server import Server
from headrace.stream.registry import Stream
from headrace.telemetry.events import Event
from tests.helpers.far_end import FarEnd, Script, Visit
from tests.helpers.media_bytes import AUDIO, VIDEO, Sent, frames, preamble
from tests.helpers.origin import Viewer
from tests.helpers.waiting import eventually_async
from tests.unit.protocol.wire import message, status

_CHUNK_STREAMS = {AUDIO: 4, VIDEO: 6}

QUICK = RetryPolicy(initial_s=0.01, max_s=0.02, jitter=0.0)

# What an origin sends to a new player, and what follows.
OPENING = [*preamble(), *frames(3)]
LATER = list(frames(3, start_ms=120, first_number=3))


class Edge:
    """The server with its pulls."""

    def __init__(self, *far_ends: FarEnd | str, grace_s: float = 5.0, linger_s: float = 60.0, **options: Any) -> None:
        self.events: list[Event] = []
        self._viewers: list[Viewer] = []
        self.offered: list[Stream] = []
        self.server = Server(grace_s=grace_s, emit=self.events.append, on_stream=self.offered.append)
        urls = [far if isinstance(far, str) else f"rtmp://127.0.0.1:{far.port}" for far in far_ends]
        self.pulls = EdgeService(
            self.server, parse_origins(urls), linger_s=linger_s, **{"retry": QUICK, "answer_s": 5.0, **options}
        )
        self.server.source = self.pulls

    async def __aenter__(self) -> Edge:
        self.port = int(self.server.listen("127.0.0.1", 0)[0].rpartition(":")[2])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for viewer in self._viewers:
            await viewer.close()
        await asyncio.gather(self.server.close(), self.pulls.close())

    async def watch(self, via: str | None = None) -> Viewer:
        """A player over a real connection, which is closed at the end; with `via` it is another server."""
        more = {"headraceVia": via} if via is not None else None
        self._viewers.append(await Viewer.of_port(self.port, connect_more=more))
        return self._viewers[-1]

    def ask(self, name: str = "cam", via: tuple[str, ...] = ()) -> asyncio.Future[Stream]:
        found = self.server.find("live", name, via)
        assert isinstance(found, asyncio.Future)
        return found

    async def until_payloads(self, stream: Stream, sent: Iterable[Sent]) -> None:
        """Once the stream's log has all of these."""
        expected = [one.payload for one in sent]

        def is_there() -> bool:
            log = stream.log
            return [entry.payload for entry in log.entries(log.head, log.tail)] == expected

        await eventually_async(is_there, f"{len(expected)} messages in the log")


def say_media(visit: Visit, sent: Iterable[Sent], stream: int = 1) -> None:
    for one in sent:
        visit.say(
            message(
                one.type_id, one.payload, on=_CHUNK_STREAMS.get(one.type_id, 5), stream=stream, time=one.timestamp_ms
            )
        )


async def grant_play(visit: Visit) -> None:
    """Everything up to the media."""
    await visit.create_stream()
    await visit.expect("play")
    visit.say(status(1, "status", "NetStream.Play.Reset", "reset"), status(1, "status", "NetStream.Play.Start", "go"))


def serves(*sent: Sent) -> Script:
    """An origin that has the stream."""

    async def script(visit: Visit) -> None:
        await grant_play(visit)
        say_media(visit, sent)

    return script


def lacks(code: str = "NetStream.Play.StreamNotFound") -> Script:
    async def script(visit: Visit) -> None:
        await visit.create_stream()
        await visit.expect("play")
        visit.say(status(1, "error", code, "not here"))

    return script


def dead_address() -> str:
    """Where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"rtmp://127.0.0.1:{sock.getsockname()[1]}"
