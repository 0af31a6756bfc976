"""A feed: one stream on its way to one destination, supervised.

Connects, watches, tries again by policy, remembers where it stopped. Everything a person wants to know about it is in
`snapshot`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.net.fanout import Fanout, Player, count_frames
from headrace.relay.config import DestinationConfig
from headrace.relay.failure import ErrorClass, RelayError, Retry
from headrace.relay.session import DestinationSession, RedirectedError, open_session
from headrace.relay.target import Target, parse_target
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.log import MESSAGE_STREAM_ID
from headrace.stream.registry import Stream, StreamState
from headrace.telemetry.events import DestinationSample, DestinationState
from headrace.telemetry.proof import DeliveryProof, Emit, emit_nothing

MAX_LAG_S = 30.0  # a destination may fall this far behind before it skips to the newest keyframe
STALLED_S = 15.0  # bytes wait and the far end takes none: a new connection is the better bet
STABLE_S = 60.0  # connected this long, failures are counted anew
NOT_FLOWING_S = 5.0
REPORT_INTERVAL_S = 30.0
_FINISH_S = 3.0  # for the last bytes when a stream ends
# Redirects in a row, each within a few seconds of the last; a loop of two servers must not spin.
_MAX_REDIRECTS = 5
_SETTLED_S = 5.0


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
    frames_sent: int = 0  # of video, main track, and the keyframes among them
    keyframes_sent: int = 0
    bytes_sent: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    connects: int = 0
    reconnects: int = 0  # connects but for each feed's first
    failures: int = 0
    connected_s: float = 0.0

    def add(self, other: FeedTotals) -> None:
        self.messages_sent += other.messages_sent
        self.frames_sent += other.frames_sent
        self.keyframes_sent += other.keyframes_sent
        self.bytes_sent += other.bytes_sent
        self.dropped.update(other.dropped)
        self.connects += other.connects
        self.reconnects += other.reconnects
        self.failures += other.failures
        self.connected_s += other.connected_s


class _Taken(NamedTuple):
    """How far one connection has come."""

    position: int
    frames: int
    keyframes: int


def _wall_time(age_s: float) -> str:
    """The UTC time so long ago, for a person."""
    return datetime.fromtimestamp(time.time() - age_s, UTC).isoformat(timespec="milliseconds")


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
        emit: Emit = emit_nothing,
    ) -> None:
        self.config = config
        self.stream = stream
        self.id = stream.new_reader_id()
        self.last_error: RelayError | None = None
        self._state = FeedState.DISCONNECTED
        self._told = (self._state, config.target.shown, False)  # what the event log knows of it
        self._emit = emit
        self._proof = DeliveryProof(
            emit,
            reader="destination",
            name=config.name,
            feed=self.id,
            stream=stream.key,
            stream_id=stream.id,
            # A destination that is added in mid-stream is served from there, and not from the tail on.
            start=stream.log.start_point().position,
        )
        self._sampled = FeedTotals()
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
        self._base_position = 0
        self._seen_bytes = 0
        self._seen_messages = 0
        self._skipped_here = 0  # messages skipped on this connection
        self._skips: deque[tuple[SkipReason, int, int]] = deque()  # of the batch that is on its way
        self._connected_s = 0.0
        self._retry_s = 0.0
        self._attempt = 0
        self._redirects = 0
        self._position: int | None = None  # where the next connection goes on
        self._use_backup = False
        self._redirect: Target | None = None
        self._media_ms: int | None = None  # at that position
        self._report_s = self._sampled_s = self._loop.time()
        # Of the connections before: when media was last handed to a socket, and the longest wait for it not yet told.
        self._handed_s = self._loop.time()
        self._max_gap_s = 0.0
        self._task = self._loop.create_task(self._run(), name=f"feed {config.name} {stream.key}")

    # From outside ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> FeedState:
        return self._state

    def _enter(self, state: FeedState) -> None:
        self._state = state
        # On the way back from the backup it stays connected, but elsewhere.
        told = (state, self.target.shown, self._use_backup)
        if told == self._told:
            return
        self._told = told
        has_failed = state in (FeedState.WAITING, FeedState.ERROR) and self.last_error is not None
        self._emit(
            DestinationState(
                destination=self.config.name,
                url=told[1],
                stream=self.stream.key,
                stream_id=self.stream.id,
                state=state.value,
                attempt=self._attempt,
                error=str(self.last_error) if has_failed else None,
                error_class=self.last_error.error_class.value if has_failed and self.last_error else None,
                feed=self.id,
                is_backup=self._use_backup,
            )
        )

    @property
    def target(self) -> Target:
        if self._redirect is not None:
            return self._redirect
        if self._use_backup and self.config.backup is not None:
            return self.config.backup
        return self.config.target

    def stop(self) -> None:
        """End it: the far end is told that the stream is over."""
        if self._task.done():
            self._give_up_rest()  # given up before: the rest of the stream was not for it
        self._stop.set()

    async def wait_over(self) -> None:
        await asyncio.wait((self._task,), timeout=_FINISH_S + 2)
        self._task.cancel()

    @property
    def totals(self) -> FeedTotals:
        totals = FeedTotals()
        totals.add(self._finished_totals)
        if self._session is not None and self._player is not None:
            self._add_taken(totals, self._taken(self._session, self._player))
            totals.bytes_sent += self._session.link.sent_bytes - self._base_bytes
            totals.connected_s += self._loop.time() - self._connected_s
        return totals

    def tick(self, now_s: float) -> None:
        """Once a second: is it flowing, is it stuck, is a line due."""
        session = self._session
        if session is not None and self._player is not None:
            self._note_sent(session, self._player, now_s)
            if session.link.is_blocked and now_s - session.link.blocked_since_s > STALLED_S:
                session.fail(RelayError(ErrorClass.STALLED, f"took no bytes for {STALLED_S:g} s"))
            if now_s - self._connected_s > _SETTLED_S:
                self._redirects = 0
            if now_s - self._connected_s > STABLE_S:
                self._attempt = 0
            self._proof.delivered_until(self._taken(session, self._player).position)
        self._sample(now_s)
        if now_s - self._report_s >= REPORT_INTERVAL_S:
            self._report_s = now_s
            self._log.info("Destination report", **self._report_fields(now_s))

    def _sample(self, now_s: float) -> None:
        totals, before = self.totals, self._sampled
        player = self._player
        dropped = Counter(totals.dropped)
        dropped.subtract(before.dropped)  # may be negative: what a lost connection had skipped may still be delivered
        self._emit(
            DestinationSample(
                destination=self.config.name,
                stream=self.stream.key,
                stream_id=self.stream.id,
                interval_ms=round((now_s - self._sampled_s) * 1000),
                state=self.state.value,
                flowing=self._flow(now_s)[0],
                bytes=totals.bytes_sent - before.bytes_sent,
                messages=totals.messages_sent - before.messages_sent,
                dropped={reason: count for reason, count in dropped.items() if count},
                queue_age_ms=player.cursor.lag_ms if player is not None else 0,
                position=player.cursor.position if player is not None else self._position or 0,
                feed=self.id,
                frames=totals.frames_sent - before.frames_sent,
                keyframes=totals.keyframes_sent - before.keyframes_sent,
                media_ms=player.cursor.media_ms if player is not None else self._media_ms,
                max_gap_ms=round(self._take_max_gap_s(now_s) * 1000),
            )
        )
        self._sampled, self._sampled_s = totals, now_s

    def _take_max_gap_s(self, now_s: float) -> float:
        gap_s, self._max_gap_s = self._max_gap_s, 0.0
        return max(gap_s, self._player.take_max_gap_s(now_s) if self._player is not None else now_s - self._handed_s)

    def _note_sent(self, session: DestinationSession, player: Player, now_s: float) -> None:
        """Media went out since this was last called? Answers to pings alone are none."""
        link = session.link
        if link.sent_bytes != self._seen_bytes and (link.is_blocked or player.messages != self._seen_messages):
            self.last_send_s = now_s
            if self.time_to_first_media_s is None:
                self.time_to_first_media_s = round(now_s - self.stream.started_s, 3)
        self._seen_bytes = link.sent_bytes
        self._seen_messages = player.messages

    def snapshot(self) -> dict[str, Any]:
        """All there is to know, without secrets."""
        now_s = self._loop.time()
        if self._session is not None and self._player is not None:
            self._note_sent(self._session, self._player, now_s)
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
            "connect_time": _wall_time(now_s - self._connected_s) if self.state is FeedState.CONNECTED else None,
            "last_send_time": _wall_time(now_s - self.last_send_s) if self.last_send_s is not None else None,
            "last_send_age_s": round(now_s - self.last_send_s, 1) if self.last_send_s is not None else None,
            "queue_age_s": self._queue_age_s(),
            "time_to_first_media_s": self.time_to_first_media_s,
        }

    def _queue_age_s(self) -> float:
        return round(self._player.cursor.lag_ms / 1000, 2) if self._player is not None else 0.0

    def _flow(self, now_s: float) -> tuple[bool, str | None]:
        """Whether media is being taken, and if not, whose fault that is."""
        if self.state is not FeedState.CONNECTED or self._session is None or self._player is None:
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
        if self._player.cursor.awaits_keyframe:
            return False, f"publisher: no keyframe for {now_s - since_s:.0f} s"
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
                    opened = await self._open()
                    if opened is not None:
                        await self._relay(*opened)
                except RelayError as error:
                    if not await self._should_retry(error):
                        break
        except asyncio.CancelledError:
            pass
        finally:
            self._give_up_rest()
            if self.state is not FeedState.ERROR:
                self._enter(FeedState.DISCONNECTED)
            self._on_over(self)

    async def _open(self) -> tuple[DestinationSession, int] | None:
        """A session that may publish; None if we were sent elsewhere."""
        self._enter(FeedState.CONNECTING)
        target = self.target
        self._log.info("Destination connecting", url=target.shown)
        try:
            return await self._open_target(target)
        except RedirectedError as redirected:
            self._follow(redirected.target, redirected.reconnect_url)
            return None

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
        except asyncio.CancelledError:
            # Done at the very moment it was called off: nobody else would close that connection.
            if not opening.cancel() and not opening.cancelled() and opening.exception() is None:
                opening.result()[0].finish()
            raise
        finally:
            stopping.cancel()

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
                if self.stream.state is not StreamState.ENDED:
                    session.finish()
                # Else the fan-out sends what the log still has, and then has the session finish.
                await asyncio.wait((session.ended,), timeout=_FINISH_S)
                session.finish()
                session.link.close("finished")
        finally:
            stopping.cancel()
            if probe is not None and replacement is None:
                probe.cancel()
            self._end(session)
        if replacement is not None:
            self._use_backup = False
            self._redirect = None  # it was the backup's
            self._log.info("Destination primary is back", url=self.target.shown)
            await self._relay(*replacement)
            return
        error = session.ended.result()
        if error is not None:
            raise error
        if session.reconnect_url is not None and not self._stop.is_set():
            self._follow(session.target, session.reconnect_url)

    def _begin(self, session: DestinationSession, message_stream_id: int) -> None:
        now_s = self._loop.time()
        log = self.stream.log
        if self._position is None:
            cursor = Cursor(log, max_lag_s=MAX_LAG_S, on_skip=self._skipped)
        else:
            cursor = Cursor.resume(log, self._position, max_lag_s=MAX_LAG_S, on_skip=self._skipped)
        self._player = Player(
            cursor,
            session.link,
            message_stream_id,
            lambda reason: session.finish(),
            since_s=self._handed_s,
            is_viewer=False,
        )
        self._session = session
        self._base_bytes = self._seen_bytes = session.link.sent_bytes
        self._base_position = cursor.position
        if self._position is None:
            self._proof.skipped("not_connected", 0, cursor.position)
        self._seen_messages = self._skipped_here = 0
        self._skips.clear()
        self._connected_s = now_s
        self._enter(FeedState.CONNECTED)
        self._finished_totals.reconnects += self._finished_totals.connects > 0
        self._finished_totals.connects += 1
        session.attach(self._fanout, self._player)
        self._note_sent(session, self._player, now_s)
        self._log.info("Destination connected", url=session.target.shown, position=cursor.position)

    def _end(self, session: DestinationSession) -> None:
        session.detach()
        player = self._player
        if player is None:
            return
        totals = self._finished_totals
        taken = self._taken(session, player)
        self._position = taken.position
        self._media_ms = self.stream.log.media_ms_at(taken.position)
        self._handed_s = player.handed_s
        self._max_gap_s = max(self._max_gap_s, player.max_gap_s)
        self._proof.delivered_until(self._position)
        self._proof.forget_after(self._position)
        for reason, start, stop in self._skips:
            if start >= self._position:  # the next connection comes upon it again
                self._skipped_here -= stop - start
                totals.dropped[reason.value] -= stop - start
        self._add_taken(totals, taken)
        totals.bytes_sent += session.link.sent_bytes - self._base_bytes
        totals.connected_s += self._loop.time() - self._connected_s
        self._player = None
        self._session = None

    def _add_taken(self, totals: FeedTotals, taken: _Taken) -> None:
        totals.messages_sent += taken.position - self._base_position - self._skipped_here
        totals.frames_sent += taken.frames
        totals.keyframes_sent += taken.keyframes

    def _taken(self, session: DestinationSession, player: Player) -> _Taken:
        """Up to behind the last message that the socket took whole: from there the next connection goes on."""
        log = self.stream.log
        position, frames, keyframes = player.cursor.position, player.frames, player.keyframes
        unsent_bytes = session.link.queued_bytes + session.link.unsent_bytes
        skips = list(self._skips)
        while unsent_bytes > 0 and position > player.batch_position:
            if skips and skips[-1][2] == position:
                position = skips.pop()[1]
            elif position <= log.head:
                # So late that the log has dropped it: the cursor will count it.
                return _Taken(player.batch_position, player.batch_frames, player.batch_keyframes)
            else:
                position -= 1
                entry = log.entry(position)
                unsent_bytes -= len(entry.encode(self._chunk_size, MESSAGE_STREAM_ID))
                lost_frames, lost_keyframes = count_frames((entry,))
                frames -= lost_frames
                keyframes -= lost_keyframes
        return _Taken(position, frames, keyframes)

    async def _should_retry(self, error: RelayError) -> bool:
        """Note the failure and wait for the next attempt; False if there is to be none."""
        self.last_error = error
        self._finished_totals.failures += 1
        self._attempt += 1
        self._redirect = None
        self._redirects = 0
        policy = self.config.retry
        is_last = error.retry is Retry.NEVER or (policy.max_retries and self._attempt > policy.max_retries)
        if self.config.backup is not None and not self._use_backup:
            self._use_backup = True
            delay_s = 0.0
        else:
            self._use_backup = False
            delay_s = policy.delay_s(self._attempt, self._pace(error), random.random())  # noqa: S311 spreads load only
        log = self._log.bind(error=str(error), error_class=error.error_class.value, attempt=self._attempt)
        if is_last and not self._use_backup:
            self._enter(FeedState.ERROR)
            log.error("Destination given up")
            return False
        log.warn("Destination failed", retry_in_s=round(delay_s, 1))
        self._retry_s = self._loop.time() + delay_s
        self._enter(FeedState.WAITING)
        try:
            async with asyncio.timeout(delay_s):
                await self._stop.wait()
            return False
        except TimeoutError:
            return True

    def _pace(self, error: RelayError) -> Retry:
        # A key that was good before is busy because the far end has not noticed yet that our last connection died:
        # that takes it seconds, and waiting longer would make the outage longer.
        if error.error_class is ErrorClass.REJECTED and self._finished_totals.connects:
            return Retry.BACKOFF
        return error.retry

    async def _win_back_primary(self) -> tuple[DestinationSession, int]:
        """While the backup serves: a session on the first address, as soon as one can be had."""
        attempt = 0
        retry = self.last_error.retry if self.last_error is not None else Retry.BACKOFF
        while True:
            attempt += 1
            # Somebody may mend what only a person can: asked for now and then, not hammered.
            pace = retry if retry is Retry.BACKOFF else Retry.SLOWLY
            await asyncio.sleep(self.config.retry.delay_s(attempt, pace, random.random()))  # noqa: S311
            try:
                return await self._open_target(self.config.target)
            except RelayError as error:
                retry = error.retry
                self._log.debug("Destination primary still fails", error=str(error))

    def _follow(self, here: Target, reconnect_url: str) -> None:
        """The far end asked us to reconnect, maybe elsewhere (Enhanced RTMP v2)."""
        self._redirects += 1
        if self._redirects > _MAX_REDIRECTS:
            raise RelayError(ErrorClass.REJECTED, f"asked to reconnect {self._redirects} times in a row")
        if reconnect_url:
            name = here.name or self.stream.name
            try:
                # A tcUrl has no stream name; a server that adds ours nevertheless must not make us show it.
                there = parse_target(reconnect_url.removesuffix(f"/{name}"), name)
            except ConfigError as error:
                self._log.warn("Destination redirect ignored", reason=str(error))
                return
            if here.is_tls and not there.is_tls:
                self._log.warn("Destination redirect ignored", reason="it leads from rtmps to rtmp")
                return
            if here.redact(there.app) != there.app:
                self._log.warn("Destination redirect ignored", reason="it holds the stream key")
                return
            self._redirect = there
        self._log.info("Destination asked to reconnect", url=self.target.shown)

    def _give_up_rest(self) -> None:
        """What the log had for this destination when it was over counts as dropped, so that the sums are right."""
        self._proof.end(self.stream.log.tail, "not_connected" if self._position is None else "disconnected")
        if self._position is not None and self._position < self.stream.log.tail:
            self._finished_totals.dropped["disconnected"] += self.stream.log.tail - self._position
            self._position = self.stream.log.tail
            self._media_ms = self.stream.log.media_ms
        self._sample(self._loop.time())  # the last: the sums of the samples are the totals

    def _skipped(self, reason: SkipReason, start: int, stop: int) -> None:
        self._finished_totals.dropped[reason.value] += stop - start
        self._skipped_here += stop - start
        self._proof.skipped(reason.value, start, stop)
        while self._skips and self._player is not None and self._skips[0][2] <= self._player.batch_position:
            self._skips.popleft()
        self._skips.append((reason, start, stop))
