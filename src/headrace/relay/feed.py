"""A feed: one stream on its way to one destination, supervised.

Connects, watches, tries again by policy, remembers where it stopped. Everything a person wants to know about it is in
`snapshot`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.net.fanout import Fanout, Player
from headrace.relay.config import DestinationConfig
from headrace.relay.failure import ErrorClass, RelayError, Retry
from headrace.relay.session import DestinationSession, open_session
from headrace.relay.target import Target, parse_target
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.registry import Stream

MAX_LAG_S = 30.0  # a destination may fall this far behind before it skips to the newest keyframe
STALLED_S = 15.0  # bytes wait and the far end takes none: a new connection is the better bet
STABLE_S = 60.0  # connected this long, failures are counted anew
NOT_FLOWING_S = 5.0
REPORT_INTERVAL_S = 30.0
_FINISH_S = 3.0  # for the last bytes when a stream ends
# Redirects in a row without a stable connection between them; a loop of two servers must not spin.
_MAX_REDIRECTS = 5


class FeedState(Enum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"  # for the next attempt
    ERROR = "error"  # given up


@dataclasses.dataclass(slots=True)
class FeedTotals:
    """Counts that survive reconnects, and are added up when a feed is over."""

    messages_sent: int = 0
    bytes_sent: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    connects: int = 0
    failures: int = 0
    connected_s: float = 0.0

    @property
    def reconnects(self) -> int:
        return max(self.connects - 1, 0)

    def add(self, other: FeedTotals) -> None:
        self.messages_sent += other.messages_sent
        self.bytes_sent += other.bytes_sent
        self.dropped.update(other.dropped)
        self.connects += other.connects
        self.failures += other.failures
        self.connected_s += other.connected_s


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


class Feed:
    """Runs until the stream ends or it is stopped."""

    def __init__(
        self,
        config: DestinationConfig,
        stream: Stream,
        fanout: Fanout,
        *,
        chunk_size: int,
        on_over: Callable[[Feed], None],
        after: asyncio.Task[None] | None = None,
    ) -> None:
        self.config = config
        self.stream = stream
        self.state = FeedState.DISCONNECTED
        self.last_error: RelayError | None = None
        self.last_send_s: float | None = None  # loop time
        self.time_to_first_media_s: float | None = None
        self._fanout = fanout
        self._chunk_size = chunk_size
        self._on_over = on_over
        self._after = after
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__).bind(destination=config.name, stream_key=stream.key)
        self._finished_totals = FeedTotals()
        self._stop = asyncio.Event()
        self._session: DestinationSession | None = None
        self._player: Player | None = None
        self._base_bytes = 0
        self._seen_bytes = 0
        self._connected_s = 0.0
        self._retry_s = 0.0
        self._attempt = 0
        self._redirects = 0
        self._position: int | None = None  # where the next connection goes on
        self._use_backup = False
        self._redirect: Target | None = None
        self._report_s = self._loop.time()
        self._task = self._loop.create_task(self._run(), name=f"feed {config.name} {stream.key}")

    # From outside ---------------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        if self._redirect is not None:
            return self._redirect
        if self._use_backup and self.config.backup is not None:
            return self.config.backup
        return self.config.target

    def stop(self) -> None:
        """End it: the far end is told that the stream is over."""
        self._stop.set()

    async def wait_over(self) -> None:
        await asyncio.wait((self._task,), timeout=_FINISH_S + 2)
        self._task.cancel()

    @property
    def totals(self) -> FeedTotals:
        totals = FeedTotals()
        totals.add(self._finished_totals)
        if self._session is not None and self._player is not None:
            totals.messages_sent += self._player.messages
            totals.bytes_sent += self._session.link.sent_bytes - self._base_bytes
            totals.connected_s += self._loop.time() - self._connected_s
        return totals

    def tick(self, now_s: float) -> None:
        """Once a second: is it flowing, is it stuck, is a line due."""
        session = self._session
        if session is not None and self._player is not None:
            sent = session.link.sent_bytes
            if sent != self._seen_bytes:
                self._seen_bytes = sent
                self.last_send_s = now_s
                self._redirects = 0
            elif session.link.is_blocked and now_s - session.link.blocked_since_s > STALLED_S:
                session.fail(RelayError(ErrorClass.STALLED, f"took no bytes for {STALLED_S:g} s"))
            if now_s - self._connected_s > STABLE_S:
                self._attempt = 0
        if now_s - self._report_s >= REPORT_INTERVAL_S:
            self._report_s = now_s
            self._log.info("Destination report", **self._report_fields(now_s))

    def snapshot(self) -> dict[str, Any]:
        """All there is to know, without secrets."""
        now_s = self._loop.time()
        totals = self.totals
        flowing, slow_side = self._flow(now_s)
        return {
            "stream": self.stream.key,
            "url": self.target.shown,
            "status": self.state.value,
            "is_backup": self._use_backup,
            "flowing": flowing,
            "slow_side": slow_side,
            "retry_in_s": round(max(self._retry_s - now_s, 0), 1) if self.state is FeedState.WAITING else None,
            "attempt": self._attempt,
            "last_error": str(self.last_error) if self.last_error else None,
            "last_error_class": self.last_error.error_class.value if self.last_error else None,
            "messages_sent": totals.messages_sent,
            "messages_dropped": sum(totals.dropped.values()),
            "dropped_by_reason": dict(totals.dropped),
            "bytes_sent": totals.bytes_sent,
            "connected_duration": round(now_s - self._connected_s, 1) if self.state is FeedState.CONNECTED else 0.0,
            "connected_total_s": round(totals.connected_s, 1),
            "reconnect_count": totals.reconnects,
            "failures": totals.failures,
            "last_send_age_s": round(now_s - self.last_send_s, 1) if self.last_send_s is not None else None,
            "queue_age_s": self._queue_age_s(),
            "time_to_first_media_s": self.time_to_first_media_s,
        }

    def _queue_age_s(self) -> float:
        return round(self._player.cursor.lag_ms / 1000, 2) if self._player is not None else 0.0

    def _flow(self, now_s: float) -> tuple[bool, str | None]:
        """Whether media is being taken, and if not, whose fault that is."""
        if self.state is not FeedState.CONNECTED or self._session is None:
            return False, None
        since_s = max(self.last_send_s or 0.0, self._connected_s)
        if now_s - since_s < NOT_FLOWING_S:
            return True, None
        if self._session.link.is_blocked:
            waited_s = now_s - self._session.link.blocked_since_s
            return False, f"destination: its connection has taken no bytes for {waited_s:.0f} s"
        publisher = self.stream.publisher
        if publisher is None:
            return False, "publisher: its connection is lost"
        return False, f"publisher: silent for {now_s - publisher.last_received_s:.0f} s"

    def _report_fields(self, now_s: float) -> Mapping[str, Any]:
        shown = self.snapshot()
        names = (
            "status",
            "flowing",
            "slow_side",
            "messages_sent",
            "bytes_sent",
            "messages_dropped",
            "queue_age_s",
            "reconnect_count",
            "last_error",
        )
        return {name: shown[name] for name in names if shown[name] is not None}

    # The supervisor -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            if self._after is not None:  # two connections with one key: the far end would refuse the second
                await asyncio.wait((self._after,), timeout=_FINISH_S + 2)
            while not self._stop.is_set():
                try:
                    session, message_stream_id = await self._open()
                    await self._relay(session, message_stream_id)
                except RelayError as error:
                    if not await self._should_retry(error):
                        break
        except asyncio.CancelledError:
            pass
        finally:
            self._give_up_rest()
            if self.state is not FeedState.ERROR:
                self.state = FeedState.DISCONNECTED
            self._on_over(self)

    async def _open(self) -> tuple[DestinationSession, int]:
        self.state = FeedState.CONNECTING
        target = self.target
        self._log.info("Destination connecting", url=target.shown)
        return await self._open_target(target)

    async def _open_target(self, target: Target) -> tuple[DestinationSession, int]:
        """Open, unless stopped meanwhile."""
        opening = self._loop.create_task(
            open_session(
                target,
                target.name or self.stream.name,
                chunk_size=self._chunk_size,
                tls=_tls_context() if target.is_tls else None,
            )
        )
        stopping = self._loop.create_task(self._stop.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise asyncio.CancelledError
            return opening.result()
        finally:
            stopping.cancel()
            if not opening.done():
                opening.cancel()

    async def _relay(self, session: DestinationSession, message_stream_id: int) -> None:
        """Feed the session until it ends. RelayError if it failed; otherwise it was stopped or sent elsewhere."""
        self._begin(session, message_stream_id)
        probe = self._loop.create_task(self._win_back_primary()) if self._use_backup else None
        stopping = self._loop.create_task(self._stop.wait())
        waits: set[asyncio.Future[Any]] = {session.ended, stopping}
        if probe is not None:
            waits.add(probe)
        replacement: tuple[DestinationSession, int] | None = None
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if probe is not None and probe.done() and not probe.cancelled():
                replacement = probe.result()
            if not session.ended.done():
                session.finish()
                await asyncio.wait((session.ended,), timeout=_FINISH_S)
                session.link.close("finished")
        finally:
            stopping.cancel()
            if probe is not None and replacement is None:
                probe.cancel()
            self._end(session)
        if replacement is not None:
            self._use_backup = False
            self._log.info("Destination primary is back", url=self.target.shown)
            await self._relay(*replacement)
            return
        error = session.ended.result()
        if error is not None:
            raise error
        if session.reconnect_url is not None and not self._stop.is_set():
            self._follow(session)

    def _begin(self, session: DestinationSession, message_stream_id: int) -> None:
        now_s = self._loop.time()
        log = self.stream.log
        if self._position is None:
            cursor = Cursor(log, max_lag_s=MAX_LAG_S, on_skip=self._skipped)
        else:
            cursor = Cursor.resume(log, self._position, max_lag_s=MAX_LAG_S, on_skip=self._skipped)
        self._player = Player(cursor, session.link, message_stream_id, lambda reason: session.finish(), is_viewer=False)
        self._session = session
        self._base_bytes = self._seen_bytes = session.link.sent_bytes
        self._connected_s = now_s
        self.state = FeedState.CONNECTED
        self._finished_totals.connects += 1
        session.attach(self._fanout, self._player)
        if self.time_to_first_media_s is None:
            self.time_to_first_media_s = round(now_s - self.stream.started_s, 3)
        self._log.info("Destination connected", url=session.target.shown, position=cursor.position)

    def _end(self, session: DestinationSession) -> None:
        session.detach()
        player = self._player
        if player is None:
            return
        totals = self._finished_totals
        # What was joined for a send that never finished did not arrive: the next connection begins there.
        unsent = session.link.unsent_bytes > 0
        self._position = player.batch_position if unsent else player.cursor.position
        totals.messages_sent += player.messages - (player.cursor.position - self._position)
        totals.bytes_sent += session.link.sent_bytes - self._base_bytes
        totals.connected_s += self._loop.time() - self._connected_s
        self._player = None
        self._session = None

    async def _should_retry(self, error: RelayError) -> bool:
        """Note the failure and wait for the next attempt; False if there is to be none."""
        self.last_error = error
        self._finished_totals.failures += 1
        self._attempt += 1
        self._redirect = None
        policy = self.config.retry
        is_last = error.retry is Retry.NEVER or (policy.max_retries and self._attempt > policy.max_retries)
        if self.config.backup is not None and not self._use_backup:
            self._use_backup = True
            delay_s = 0.0
        else:
            self._use_backup = False
            delay_s = policy.delay_s(self._attempt, error.retry, random.random())  # noqa: S311 spreads load only
        log = self._log.bind(error=str(error), error_class=error.error_class.value, attempt=self._attempt)
        if is_last and not self._use_backup:
            self.state = FeedState.ERROR
            log.error("Destination given up")
            return False
        log.warn("Destination failed", retry_in_s=round(delay_s, 1))
        self._retry_s = self._loop.time() + delay_s
        self.state = FeedState.WAITING
        try:
            async with asyncio.timeout(delay_s):
                await self._stop.wait()
            return False
        except TimeoutError:
            return True

    async def _win_back_primary(self) -> tuple[DestinationSession, int]:
        """While the backup serves: a session on the first address, as soon as one can be had."""
        attempt = 0
        while True:
            attempt += 1
            delay_s = self.config.retry.delay_s(attempt, Retry.BACKOFF, random.random())  # noqa: S311
            await asyncio.sleep(delay_s)
            try:
                return await self._open_target(self.config.target)
            except RelayError as error:
                self._log.debug("Destination primary still fails", error=str(error))

    def _follow(self, session: DestinationSession) -> None:
        """The far end asked us to reconnect, maybe elsewhere (Enhanced RTMP v2)."""
        self._redirects += 1
        if self._redirects > _MAX_REDIRECTS:
            raise RelayError(ErrorClass.REJECTED, f"asked to reconnect {self._redirects} times in a row")
        here = session.target
        if session.reconnect_url:
            try:
                there = parse_target(session.reconnect_url, here.name or self.stream.name)
            except ConfigError as error:
                self._log.warn("Destination redirect ignored", reason=str(error))
                return
            if here.is_tls and not there.is_tls:
                self._log.warn("Destination redirect ignored", reason="it leads from rtmps to rtmp")
                return
            self._redirect = there
        self._log.info("Destination asked to reconnect", url=self.target.shown)

    def _give_up_rest(self) -> None:
        """What the log had for this destination when it was over counts as dropped, so that the sums are right."""
        if self._position is not None and self._position < self.stream.log.tail:
            self._finished_totals.dropped["disconnected"] += self.stream.log.tail - self._position
            self._position = self.stream.log.tail

    def _skipped(self, reason: SkipReason, start: int, stop: int) -> None:
        self._finished_totals.dropped[reason.value] += stop - start
