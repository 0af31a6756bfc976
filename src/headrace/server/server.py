"""The RTMP server: its sessions, its streams, and the one sweep that enforces every deadline."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.errors import StreamError
from headrace.logs import get_logger
from headrace.net.fanout import Fanout
from headrace.net.link import tune
from headrace.net.listener import Listener, bind
from headrace.net.rounds import Rounds
from headrace.server.deadlines import Deadlines
from headrace.server.rehearsal import Rehearsal
from headrace.server.route import is_circle
from headrace.server.session import Session
from headrace.server.source import Claims, Source
from headrace.stream.cadence import Due, Prepare
from headrace.stream.log import LogLimits
from headrace.stream.registry import Publisher, Stream, StreamRegistry, not_found
from headrace.telemetry.events import StreamEnded
from headrace.telemetry.metrics import ServerMetrics
from headrace.telemetry.proof import Emit, emit_nothing

_SWEEP_S = 1.0
_EXPIRE_S = 0.1  # grace periods end within this of their time
# A cap on what strangers can make us hold; 1000 players and their publishers are far below it.
MAX_CONNECTIONS = 20_000
# On the way out, players that do not take their last bytes are not waited for longer than this.
_GOODBYE_S = 1.0

StreamHook = Callable[[Stream], None]


def _rest_publisher(known: weakref.ref[Stream], until_s: float) -> float:
    stream = known()
    return stream.publisher.rest(until_s) if stream is not None and stream.publisher is not None else 0.0


def _expect_of_publisher(known: weakref.ref[Stream], due: Due, prepare: Prepare) -> bool:
    stream = known()
    return stream is not None and stream.publisher is not None and stream.publisher.expect(due, prepare)


class _EndReporter:
    """Tells the event log, and whoever keeps the claims of workers, that a stream is over."""

    def __init__(self, stream: Stream, emit: Emit, claims: Claims | None) -> None:
        self._stream = stream
        self._emit = emit
        self._claims = claims

    def stream_appended(self) -> None:
        pass

    def stream_ended(self, reason: str) -> None:
        stream = self._stream
        self._emit(StreamEnded(stream=stream.key, stream_id=stream.id, reason=reason, position=stream.log.tail))
        if self._claims is not None:
            self._claims.settle(stream.key)


class Server:
    """Accepts publishers and players, and owns the registry."""

    def __init__(
        self,
        *,
        chunk_size: int = 60_000,
        grace_s: float = 5.0,
        max_lag_s: float = 5.0,
        merge_s: float = 0.0,
        limits: LogLimits | None = None,
        deadlines: Deadlines | None = None,
        metrics: ServerMetrics | None = None,
        on_stream: StreamHook | None = None,
        max_connections: int = MAX_CONNECTIONS,
        emit: Emit = emit_nothing,
        viewer_name: Callable[[str], str] = lambda remote: "",
        stream_id_prefix: str = "",
        server_id: str | None = None,
        conn_prefix: str = "",
    ) -> None:
        self.id = server_id or secrets.token_hex(8)  # how other servers know us, in a chain or a circle of them
        self.source: Source | None = None  # where to look for what nobody publishes here
        self.claims: Claims | None = None  # with several workers: who has which stream
        self._conn_prefix = conn_prefix
        self.emit = emit
        self.viewer_name = viewer_name  # how the event log calls whoever connects from an address
        self.chunk_size = chunk_size
        self.max_lag_s = max_lag_s
        self._merge_s = merge_s
        self.rounds = Rounds(asyncio.get_running_loop(), max_pace_s=merge_s) if Rounds.is_possible() else None
        self.rehearsal = Rehearsal()
        self.deadlines = deadlines or Deadlines()
        self.metrics = metrics or ServerMetrics()
        self.streams = StreamRegistry(
            limits=limits or LogLimits(retain_s=max_lag_s), grace_s=grace_s, id_prefix=stream_id_prefix
        )
        self._on_stream = on_stream
        self._max_connections = max_connections
        self.log = get_logger(__name__)
        self._loop = asyncio.get_running_loop()
        self._sessions: set[Session] = set()
        self._fanouts: weakref.WeakKeyDictionary[Stream, Fanout] = weakref.WeakKeyDictionary()
        self._listener: Listener | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._connection_count = self._internal_count = 0
        self._is_closing = False
        self._all_over = asyncio.Event()

    # Life -----------------------------------------------------------------------------------------------------

    def listen(self, host: str | None, port: int) -> list[str]:
        """Start accepting; the addresses, with the port the system picked where 0 was asked."""
        self._listener = Listener(self._loop, bind(host, port), self.accept, self._accept_failed)
        self.watch()
        return self._listener.addresses

    def watch(self) -> None:
        """Start to enforce deadlines; `listen` does."""
        self._every(_SWEEP_S, self._sweep)
        self._every(_EXPIRE_S, self._expire)

    async def close(self) -> None:
        """Stop accepting, end every stream, give players their last bytes, close."""
        self._is_closing = True
        for timer in self._timers:
            timer.cancel()
        if self._listener is not None:
            self._listener.close()
        self.streams.end_all("server shutdown")
        for session in list(self._sessions):
            session.leave("server shutdown")
        if self._sessions:
            try:
                async with asyncio.timeout(_GOODBYE_S):
                    await self._all_over.wait()
            except TimeoutError:
                pass  # they had their time
        for session in list(self._sessions):
            session.link.close("server shutdown")
        self._update_gauges()

    def _every(self, interval_s: float, act: Callable[[], None]) -> None:
        index = len(self._timers)

        def run() -> None:
            # First of all: a mistake in one round must not end the deadlines of everybody.
            self._timers[index] = self._loop.call_later(interval_s, run)
            act()

        self._timers.append(self._loop.call_later(interval_s, run))

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for session in list(self._sessions):
            session.sweep(now_s)
        self._update_gauges()

    def _expire(self) -> None:
        for stream in self.streams.expire(self._loop.time()):
            self.log.info("Stream ended", stream_key=stream.key, reason="publisher did not come back")

    # Connections ----------------------------------------------------------------------------------------------

    def accept(self, sock: socket.socket, remote: str) -> None:
        """Serve a connection that was accepted."""
        if self._is_closing or len(self._sessions) >= self._max_connections:
            self.metrics.connections_refused += 1
            self.log.warn("Connection refused", remote=remote, reason=f"{len(self._sessions)} are open")
            sock.close()
            return
        tune(sock)
        self._connection_count += 1
        self.metrics.connections_accepted += 1
        conn_id = f"{self._conn_prefix}c{self._connection_count}"
        self._sessions.add(Session(self, self._loop, sock, conn_id, remote, self._loop.time()))

    def connection_lost(self) -> None:
        """One was accepted for us, and there was no descriptor for it."""
        self._accept_failed(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))

    def accept_internal(self, sock: socket.socket) -> None:
        """Serve another worker of this server, whose own connections count, and not this one."""
        if self._is_closing:
            sock.close()
            return
        tune(sock)
        self._internal_count += 1
        conn_id = f"{self._conn_prefix}i{self._internal_count}"
        self._sessions.add(Session(self, self._loop, sock, conn_id, "worker", self._loop.time(), is_internal=True))

    def _accept_failed(self, error: OSError) -> None:
        self.metrics.connections_refused += 1
        self.log.error("Accept failed", error=error.strerror)

    def session_over(self, session: Session) -> None:
        self._sessions.discard(session)
        if self._is_closing and not self._sessions:
            self._all_over.set()

    # Streams --------------------------------------------------------------------------------------------------

    def publish(self, app: str, name: str, session: Session) -> Stream:
        """The stream that the session now publishes; StreamError if it may not."""
        try:
            if self._is_closing:
                raise StreamError("NetStream.Publish.Denied", "The server is shutting down.")
            if self.source is not None:
                self.source.make_way(app, name)
            published = self.streams.publish(app, name, session, self._loop.time())
        except StreamError:
            self.metrics.publishes_refused += 1
            raise
        self.metrics.publishes_started += 1
        stream = published.stream
        if not published.is_resumed:
            self._begin(stream)
        elif stream.is_pulled:
            self.log.info("Pulled stream is published here", conn_id=session.conn_id, stream_key=stream.key)
            stream.is_pulled, stream.path = False, ()
            self._adopt(stream)
            self._offer(stream)
        else:
            self.log.info("Publisher is back", conn_id=session.conn_id, stream_key=stream.key)
        if self.source is not None:
            self.source.published(stream)
        return stream

    def publish_copy(
        self, app: str, name: str, pull: Publisher, path: tuple[str, ...], stream_id: str | None = None
    ) -> Stream:
        """The stream that is now filled from elsewhere; StreamError if somebody publishes it here.

        With an id it is a copy of what another worker has, which tells the event log of it.
        """
        if self._is_closing:
            raise StreamError("NetStream.Publish.Denied", "The server is shutting down.")
        published = self.streams.publish(app, name, pull, self._loop.time(), stream_id=stream_id)
        stream = published.stream
        if not published.is_resumed:
            stream.is_pulled, stream.is_internal, stream.path = True, stream_id is not None, path
            self._begin(stream)
            return stream
        if stream_id is None:
            self._adopt(stream)
        elif stream.id != stream_id:
            self._tell_anew(stream, stream_id)  # the worker that had it is gone, and another has its publisher now
        if stream.path != path:
            stream.path = path
            for session in list(self._sessions):
                if session.via and session.plays(stream):
                    # It was told another way, by which it would not know a circle.
                    session.link.close("the way of the stream has changed")
        return stream

    def _begin(self, stream: Stream) -> None:
        if not stream.is_internal:
            self._tell_end(stream)  # first: the end of its plays follows from it
        self._fanouts[stream] = Fanout(
            self._loop,
            stream,
            self.metrics,
            self.chunk_size,
            merge_s=self._merge_s,
            rest=partial(_rest_publisher, weakref.ref(stream)),
            expect=partial(_expect_of_publisher, weakref.ref(stream)),
        )
        self._offer(stream)

    def _adopt(self, stream: Stream) -> None:
        """Another worker had this stream and is gone: it is ours from here on, a new one to the event log."""
        if not stream.is_internal:
            return
        stream.is_internal = False
        self._tell_anew(stream, self.streams.new_id())
        self._tell_end(stream)

    def _tell_anew(self, stream: Stream, stream_id: str) -> None:
        """The plays of a stream that goes on under another id are over, and begin."""
        for session in list(self._sessions):
            session.stop_telling(stream)
        stream.begin_anew(stream_id)
        for session in list(self._sessions):
            session.tell_anew(stream)

    def _tell_end(self, stream: Stream) -> None:
        stream.add_listener(_EndReporter(stream, self.emit, self.claims), reads=False)

    def _offer(self, stream: Stream) -> None:
        if self._on_stream is not None:
            self._on_stream(stream)

    def unpublish(self, stream: Stream, session: Session) -> None:
        self.streams.unpublish(stream, session, "unpublished")

    def publisher_lost(self, stream: Stream, session: Session, now_s: float) -> None:
        self.streams.lose(stream, session, now_s)

    def find(
        self, app: str, name: str, via: tuple[str, ...] = (), *, is_internal: bool = False
    ) -> Stream | asyncio.Future[Stream]:
        """The stream to play, or the promise of one that is looked for elsewhere; StreamError if there is none."""
        stream = self.streams.find(app, name)
        if is_internal and (stream is None or stream.is_internal):
            # It asks the one that has the stream, or is about to have it, and no other.
            pending = self.source.pending(app, name) if self.source is not None and stream is None else None
            if pending is None:
                raise not_found(name)
            return pending
        if via and is_circle(self.id, via, stream.path if stream is not None else ()):
            raise not_found(name, "the request went in a circle")
        if stream is not None:
            return stream
        if self.source is None or self._is_closing:
            raise not_found(name)
        return self.source.find(app, name, via)

    def drop_publisher(self, stream_key: str) -> bool:
        """End a stream as if its publisher had; False if nobody publishes it."""
        stream = next((stream for stream in self.streams if stream.key == stream_key), None)
        session = next((one for one in self._sessions if stream is not None and stream.publisher is one), None)
        if stream is None or session is None:
            return False
        self.log.info("Publisher dropped", conn_id=session.conn_id, stream_key=stream.key)
        self.streams.unpublish(stream, session, "dropped")
        session.close("dropped")
        return True

    def describe_streams(self) -> list[tuple[Stream, dict[str, Any]]]:
        """Every stream with the facts for a status page."""
        now_s = self._loop.time()
        by_stream = {}
        for stream in self.streams:
            facts: dict[str, Any] = {
                "key": stream.key,
                "app": stream.app,
                "name": stream.name,
                "state": stream.state.value,
                "age_s": round(now_s - stream.started_s, 1),
                "publisher": None,
                "origin": None,
                "is_copy": stream.is_internal,
                "codecs": None,
                "video_bps": None,
                "audio_bps": None,
                "frame_rate": None,
                "bytes_in": stream.log.total_bytes,
                "messages_in": stream.log.tail,
                "viewers": self.fanout(stream).viewers,
            }
            if stream.is_pulled and self.source is not None:
                facts.update(self.source.describe(stream))
            by_stream[stream] = facts
        for session in self._sessions:
            for stream, facts in by_stream.items():
                if stream.publisher is session:
                    facts.update(session.describe_publication(stream))
        return list(by_stream.items())

    def snapshot(self) -> dict[str, Any]:
        """The counters as plain numbers."""
        self._update_gauges()
        return self.metrics.snapshot()

    def fanout(self, stream: Stream) -> Fanout:
        return self._fanouts[stream]

    def _update_gauges(self) -> None:
        self.metrics.streams = sum(1 for stream in self.streams if not stream.is_internal)
        self.metrics.publishers = sum(
            1 for stream in self.streams if stream.publisher is not None and not stream.is_pulled
        )
        self.metrics.connections = sum(1 for session in self._sessions if not session.is_internal)
