"""A pull: one stream on its way from an origin to the log here, supervised.

Asks the origins in their order, appends what comes, and tries again by policy when that breaks off. Who waits for the
stream, and when nobody wants it any more, is looked at here too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from headrace.edge.origin import Upstream
from headrace.edge.session import PullSession, open_session
from headrace.errors import StreamError
from headrace.logs import get_logger
from headrace.protocol import messages
from headrace.protocol.messages import Message
from headrace.relay.failure import ErrorClass, RelayError, Retry, RetryPolicy
from headrace.server.publication import IngestCounters, Publication
from headrace.server.reporter import SessionReporter
from headrace.server.server import Server
from headrace.stream.cadence import Due, Prepare
from headrace.stream.log import is_metadata
from headrace.stream.registry import Stream, not_found
from headrace.telemetry.proof import emit_nothing

# How long players wait for the first message, whatever the number of origins. Less than the 30 s after which a
# connection that neither plays nor publishes is closed, and than the patience of players.
ANSWER_S = 10.0
# Within a grace period of seconds there is no time for long delays; a loss of every stream at once is spread by chance.
RETRY = RetryPolicy(initial_s=0.25, max_s=2.0)
_SETTLED_S = 5.0  # connected this long, failures are counted anew


class PullState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"  # lost; for the next attempt, within the grace period
    OVER = "over"


class PullKeeper(Protocol):
    """Who owns the pulls."""

    async def upstreams(self, pull: Pull) -> Sequence[Upstream]:
        """Whom to ask now, in this order. RelayError if that cannot be told."""

    def counters_of(self, upstream: Upstream) -> IngestCounters: ...

    def pull_failed(self, upstream: Upstream, error: RelayError) -> None: ...

    def pull_connected(self, upstream: Upstream, *, is_first: bool) -> None: ...

    def pull_over(self, pull: Pull) -> None: ...


class Pull:
    """Runs until the stream ends, nobody wants it, or it cannot be had. The publisher of its stream."""

    def __init__(
        self,
        server: Server,
        keeper: PullKeeper,
        conn_id: str,
        app: str,
        name: str,
        via: tuple[str, ...],
        *,
        answer_s: float,
        retry: RetryPolicy,
    ) -> None:
        self.conn_id = conn_id
        self.key = f"{app}/{name}"
        self.state = PullState.CONNECTING
        self.stream: Stream | None = None
        self.error: RelayError | None = None  # the last
        self.app, self.name = app, name
        self._server = server
        self._keeper = keeper
        self._via = via
        self._answer_s = answer_s
        self._retry = retry
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__).bind(conn_id=conn_id, stream_key=self.key)
        self._waiters: set[asyncio.Future[Stream]] = set()
        self._session: PullSession | None = None
        self.upstream: Upstream | None = None  # the one that has the stream, had it last, or is asked
        self._publication: Publication | None = None
        self._granted = asyncio.Event()
        self._over = asyncio.Event()
        self._attempt = 0
        self._connects = 0
        self._connected_s = 0.0
        self._waited_s = 0.0  # how long the first of the newest messages had waited for the last of them
        self._idle_since_s: float | None = None
        self._task = self._loop.create_task(self._run(), name=f"pull {self.key}")

    # From outside ---------------------------------------------------------------------------------------------

    @property
    def last_received_s(self) -> float:
        return self._session.last_received_s if self._session is not None else 0.0

    def displace(self) -> None:
        """A publisher here took the stream."""
        self.stop(_REPLACED)

    def rest(self, until_s: float) -> float:
        """It is read as it comes, whoever waits. What came together had waited for each other at the origin."""
        return self._waited_s

    def expect(self, due: Due, prepare: Prepare) -> bool:
        """When a message comes here is the origin's doing more than its encoder's."""
        return False

    def wait(self) -> asyncio.Future[Stream]:
        """The stream, once it is here; StreamError if it is not to be had."""
        waiter: asyncio.Future[Stream] = self._loop.create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def found_here(self, stream: Stream) -> None:
        """Somebody publishes it here meanwhile."""
        if stream.publisher is not self:
            self._answer(stream)
            self.stop("published here")

    def give_way(self) -> None:
        """A publisher here is about to take the stream: for its readers as if the origin was lost."""
        if self.stream is not None and self.stream.publisher is self:
            self._lose("published here")

    def stop(self, reason: str) -> None:
        """At once: whoever asks in the next moment begins anew."""
        if self._over.is_set():
            return
        self._over.set()
        self.state = PullState.OVER
        self._leave(reason, "replaced" if reason == _REPLACED else "unpublished")
        if self.stream is not None:
            self.stream.remove_listener(self)
            if self.stream.publisher is self:
                self._server.streams.unpublish(self.stream, self, reason)
        self._log.info("Pull ended", reason=reason)
        self._keeper.pull_over(self)
        is_missing = self.error is None or self.error.error_class is ErrorClass.REJECTED
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(not_found(self.name, "" if is_missing else "no origin can be reached"))

    async def wait_over(self, deadline_s: float) -> None:
        await asyncio.wait((self._task,), timeout=deadline_s)
        self._task.cancel()

    @property
    def is_internal(self) -> bool:
        """It comes from another worker of this server."""
        return self.upstream is not None and self.upstream.is_internal

    @property
    def waiting(self) -> int:
        return sum(not waiter.done() for waiter in self._waiters)

    @property
    def is_wanted(self) -> bool:
        """Somebody plays it or waits for it."""
        return bool(self.waiting) or (self.stream is not None and self._server.fanout(self.stream).is_watched)

    def tick(self, now_s: float, linger_s: float) -> None:
        """Once a second: is the origin there, does anybody watch, is a line due."""
        if self._over.is_set():
            return
        if self._session is not None:
            self._session.tick(now_s)
        if self._publication is not None:
            self._publication.sweep(self._log, now_s)
        if self.state is PullState.CONNECTED and now_s - self._connected_s > _SETTLED_S:
            self._attempt = 0
        if self.is_wanted:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        if self._idle_since_s is not None and now_s - self._idle_since_s >= linger_s:
            self.stop("nobody watches")

    def describe(self) -> dict[str, Any]:
        connected_s = self._loop.time() - self._connected_s if self.state is PullState.CONNECTED else 0.0
        origin = {
            "url": self.upstream.target(self.app).shown if self.upstream is not None else None,
            "state": self.state.value,
            "connected_s": round(connected_s, 1),
            "reconnects": max(self._connects - 1, 0),
            "last_error": str(self.error) if self.error is not None else None,
            "last_error_class": self.error.error_class.value if self.error is not None else None,
        }
        facts = self._publication.describe() if self._publication is not None else {}
        return {"origin": origin, **facts}

    # The supervisor -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._over.is_set():
                try:
                    await self._follow(await self._open_any())
                except RelayError as error:
                    if not await self._should_retry(error):
                        break
        finally:
            self.stop("called off")

    async def _open_any(self) -> PullSession | None:
        """A session that has brought its first message; None if we were stopped. RelayError of the last origin, or of
        one that said no: that is more than that another one cannot be reached."""
        self.state = PullState.CONNECTING
        told: RelayError | None = None
        upstreams = await self._keeper.upstreams(self)
        for upstream in upstreams:
            if self._over.is_set():
                return None
            try:
                return await self._open(upstream, max(self._answer_s / len(upstreams), 1.0))
            except RelayError as error:
                self._note(upstream, error)
                if told is None or told.error_class is not ErrorClass.REJECTED:
                    told = error
        self.error = told or RelayError(ErrorClass.REJECTED, "nobody has it")
        raise self.error

    async def _open(self, upstream: Upstream, deadline_s: float) -> PullSession | None:
        self._log.info("Pull connecting", url=upstream.target(self.app).shown)
        self.upstream = upstream
        self._granted.clear()
        opening = self._loop.create_task(self._until_granted(upstream, deadline_s))
        stopped = self._loop.create_task(self._over.wait())
        try:
            await asyncio.wait((opening, stopped), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                return opening.result()
            if self._over.is_set() or self._granted.is_set():
                return self._session
            # One that talks to us but has no media says in its own way that nobody publishes there.
            is_there = self._session is not None and self._session.is_handshaken
            error_class = ErrorClass.REJECTED if is_there else ErrorClass.TIMEOUT
            raise RelayError(error_class, f"no stream within {deadline_s:g} s")
        finally:
            stopped.cancel()
            if not opening.done():
                opening.cancel()
                await asyncio.wait((opening,))

    async def _until_granted(self, upstream: Upstream, deadline_s: float) -> PullSession:
        via = self._via if upstream.is_internal else (*self._via, self._server.id)
        session = await open_session(
            upstream, self.app, self.name, via=via, on_media=self._receive, timeout_s=deadline_s
        )
        self._session = session
        granted = self._loop.create_task(self._granted.wait())
        try:
            await asyncio.wait((granted, session.ended), return_when=asyncio.FIRST_COMPLETED)
            if not self._granted.is_set():
                gone = RelayError(ErrorClass.REJECTED, "the stream ended before its first message")
                raise session.ended.result() or gone
            return session
        finally:
            granted.cancel()
            if not self._granted.is_set():
                self._session = None
                session.finish()

    async def _follow(self, session: PullSession | None) -> None:
        """Until the stream ends or we are stopped; RelayError if the origin is lost."""
        if session is None:
            return
        stopped = self._loop.create_task(self._over.wait())
        try:
            await asyncio.wait((session.ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if session.ended.done():
            if error := session.ended.result():
                assert self.upstream is not None
                self._note(self.upstream, error)
                raise error
            self.stop("ended at the origin")

    async def _should_retry(self, error: RelayError) -> bool:
        """After a loss: wait for the next attempt; False if there is to be none."""
        if self.stream is None:
            self.stop("not to be had")
            return False
        self._lose(str(error))
        if self._over.is_set():  # without a grace period the stream is over
            return False
        self.state = PullState.WAITING
        self._attempt += 1
        delay_s = self._retry.delay_s(self._attempt, Retry.BACKOFF, random.random())  # noqa: S311 spreads load only
        self._log.info("Pull waits", retry_in_s=round(delay_s, 2), attempt=self._attempt)
        try:
            async with asyncio.timeout(delay_s):
                await self._over.wait()
            return False
        except TimeoutError:
            return True

    def _note(self, upstream: Upstream, error: RelayError) -> None:
        self.error = error
        self._keeper.pull_failed(upstream, error)
        self._log.warn(
            "Pull failed",
            url=upstream.target(self.app).shown,
            error=str(error),
            error_class=error.error_class.value,
        )

    # The stream -----------------------------------------------------------------------------------------------

    def _receive(self, session: PullSession, read: Sequence[Message], now_s: float) -> None:
        before = 0  # messages that are not for us to bring
        while self._publication is None and before < len(read):
            if session is not self._session or self._over.is_set():
                return
            before += not self._begin(session, read[before], now_s)
        if self._publication is None or session is not self._session or self._over.is_set():
            return
        self._waited_s = _media_s(read)
        batch = [(one.type_id, one.timestamp_ms, _ANY_STREAM, one.payload) for one in read[before:]]
        self._publication.receive(batch, _ANY_STREAM, now_s)

    def _begin(self, session: PullSession, message: Message, now_s: float) -> bool:
        """The first message: from here on the stream is there. False if it is not for us to bring."""
        if message.type_id == messages.DATA and not is_metadata(message.payload):
            return False
        assert self.upstream is not None
        upstream = self.upstream
        path = session.path[1:] if upstream.is_internal else session.path  # between workers we are the first in it
        if self._server.id in path:
            session.fail(RelayError(ErrorClass.REJECTED, "the stream comes from ourselves: a circle of servers"))
            return False
        stream_id = session.stream_id if upstream.is_internal else None
        try:
            stream = self._server.publish_copy(self.app, self.name, self, path, stream_id)
        except StreamError as error:
            self.stop(error.description)
            return False
        if self.stream is None:
            stream.add_listener(self, reads=False)
        self.stream = stream
        shown = upstream.target(self.app).shown
        emit = emit_nothing if upstream.is_internal else self._server.emit
        report = SessionReporter(emit, self.conn_id, "", now_s, is_accepted=False, origin=shown)
        report.publish_started(stream, resumed=stream.is_resumed, now_s=now_s)
        counters = self._keeper.counters_of(upstream)
        self._publication = Publication(counters, report, stream, now_s, is_told=not upstream.is_internal)
        self._connects += 1
        self._connected_s = now_s
        self.state = PullState.CONNECTED
        self._keeper.pull_connected(upstream, is_first=self._connects == 1)
        self._log.info("Pull connected", url=shown, hops=len(session.path))
        self._granted.set()
        self._answer(stream)
        return True

    def stream_appended(self) -> None:
        pass  # by ourselves

    def stream_ended(self, reason: str) -> None:
        self.stop(reason)

    def _answer(self, stream: Stream) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(stream)

    def _lose(self, reason: str) -> None:
        """The origin is gone without a word: readers are kept for the grace period."""
        self._leave(reason, "lost")
        if self.stream is not None:
            self._server.streams.lose(self.stream, self, self._loop.time())

    def _leave(self, reason: str, kind: str) -> None:
        if self._session is not None:
            self._session.finish()
            self._session = None
        if self._publication is not None:
            self._publication.leave(self._log, reason, kind, self._loop.time())
            self._publication = None


def _media_s(read: Sequence[Message]) -> float:
    """The media time from the first of these messages to the last; 0 where it is none, as after a clock was set."""
    times_ms = [one.timestamp_ms for one in read if one.type_id != messages.DATA]
    span_ms = (times_ms[-1] - times_ms[0]) & 0xFFFFFFFF if times_ms else 0
    return span_ms / 1000 if span_ms < _MAX_MEDIA_MS else 0.0


_MAX_MEDIA_MS = 10_000
_ANY_STREAM = 1  # an origin sends on the message stream that we play, and there is one
_REPLACED = "replaced by a publisher"
