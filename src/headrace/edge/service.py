"""All pulls of a server: one per stream however many ask, none for what was just not there, and an end to each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.edge.origin import Origin, Upstream
from headrace.edge.pull import ANSWER_S, RETRY, Pull, PullState
from headrace.logs import get_logger
from headrace.relay.failure import ErrorClass, RelayError, Retry, RetryPolicy
from headrace.server.server import Server
from headrace.stream.registry import Stream, not_found

_TICK_S = 1.0
_CLOSE_S = 1.0
# Caps on what strangers can make us ask for, by naming streams that do not exist.
MAX_PULLS = 2000
MAX_OPENING = 100
# A stream that is not there is not asked for again in this time: players that try again and again are told by us.
MISSING_S = 1.0
# An origin that cannot be reached is not asked for new streams for a while, longer with each failure in a row.
REST = RetryPolicy(initial_s=1.0, max_s=8.0)
_UNREACHABLE = (
    ErrorClass.DNS,
    ErrorClass.REFUSED,
    ErrorClass.TLS,
    ErrorClass.HANDSHAKE,
    ErrorClass.TIMEOUT,
)


@dataclass(slots=True)
class PullCounters:
    """Totals since the start."""

    started: int = 0  # pulls begun, whatever became of them
    connected: int = 0  # pulls that brought a stream
    reconnects: int = 0  # connections after the first of each pull
    refused: Counter[str] = field(default_factory=Counter)  # plays not looked for, by reason
    failures: Counter[str] = field(default_factory=Counter)  # of connections, by class
    messages_in: int = 0
    bytes_in: int = 0  # payload bytes


@dataclass(slots=True)
class _Health:
    """What we know of one origin."""

    failures: int = 0
    rests_until_s: float = 0.0


class EdgeService:
    """The `Source` of a server with origins."""

    def __init__(
        self,
        server: Server,
        origins: Sequence[Origin],
        *,
        linger_s: float,
        answer_s: float = ANSWER_S,
        retry: RetryPolicy = RETRY,
        max_opening: int = MAX_OPENING,
        conn_prefix: str = "",
    ) -> None:
        self.counters = PullCounters()
        self._server = server
        self._origins = origins
        self._conn_prefix = conn_prefix
        self._count = 0
        self._linger_s = linger_s
        self._answer_s = answer_s
        self._retry = retry
        self._max_opening = max_opening
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__)
        self._pulls: dict[str, Pull] = {}
        self._missing: dict[str, float] = {}  # streams that were not there, and until when that holds
        self._health = {origin: _Health() for origin in origins}
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    # The server's side ----------------------------------------------------------------------------------------

    def find(self, app: str, name: str, via: tuple[str, ...]) -> asyncio.Future[Stream]:
        key = f"{app}/{name}"
        pull = self._pulls.get(key)
        if pull is None:
            self._check(key, name)
            self._count += 1
            pull = Pull(
                self._server,
                self,
                f"{self._conn_prefix}p{self._count}",
                app,
                name,
                via,
                answer_s=self._answer_s,
                retry=self._retry,
            )
            self._pulls[key] = pull
        return pull.wait()

    def _check(self, key: str, name: str) -> None:
        """StreamError for what need not be looked for, or must not."""
        if not name or self._is_missing(key):
            raise self._refuse(name, "missing")
        opening = sum(pull.state is PullState.CONNECTING for pull in self._pulls.values())
        if opening >= self._max_opening or len(self._pulls) >= MAX_PULLS:
            raise self._refuse(name, "too_many")
        if not self._awake():
            raise self._refuse(name, "unreachable", "no origin can be reached")

    def _is_missing(self, key: str) -> bool:
        return self._missing.get(key, 0.0) > self._loop.time()

    def _awake(self) -> list[Origin]:
        """The origins that may be asked for something new."""
        now_s = self._loop.time()
        return [origin for origin in self._origins if self._health[origin].rests_until_s <= now_s]

    def pending(self, app: str, name: str) -> asyncio.Future[Stream] | None:
        pull = self._pulls.get(f"{app}/{name}")
        return pull.wait() if pull is not None and not pull.is_internal else None

    def make_way(self, app: str, name: str) -> None:
        pull = self._pulls.get(f"{app}/{name}")
        if pull is not None and pull.stream is not None and not pull.is_wanted:
            pull.stop("published here")

    def published(self, stream: Stream) -> None:
        pull = self._pulls.get(stream.key)
        if pull is not None:
            pull.found_here(stream)

    def describe(self, stream: Stream) -> dict[str, Any]:
        pull = self._pulls.get(stream.key)
        return pull.describe() if pull is not None else {}

    # The pulls' side ------------------------------------------------------------------------------------------

    async def upstreams(self, pull: Pull) -> Sequence[Upstream]:
        if pull.stream is not None:
            return self._origins  # lost: also those that rested when it began
        self.counters.started += 1
        return self._awake()

    def counters_of(self, upstream: Upstream) -> PullCounters:
        return self.counters

    def pull_failed(self, upstream: Upstream, error: RelayError) -> None:
        self.counters.failures[error.error_class.value] += 1
        if error.error_class not in _UNREACHABLE or not isinstance(upstream, Origin):
            return  # it is there, and said no, or something happened to one connection
        health = self._health[upstream]
        if health.rests_until_s <= self._loop.time():  # else it is known, from another pull of the same moment
            health.failures += 1
            health.rests_until_s = self._loop.time() + REST.delay_s(health.failures, Retry.BACKOFF, 0.0)

    def pull_connected(self, upstream: Upstream, *, is_first: bool) -> None:
        if isinstance(upstream, Origin):
            self._health[upstream] = _Health()
        if is_first:
            self.counters.connected += 1
        else:
            self.counters.reconnects += 1

    def pull_over(self, pull: Pull) -> None:
        if self._pulls.get(pull.key) is pull:
            del self._pulls[pull.key]
        if pull.stream is None and pull.error is not None and pull.error.error_class is ErrorClass.REJECTED:
            self._missing[pull.key] = self._loop.time() + MISSING_S

    # Life -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The counters as plain numbers."""
        counters = self.counters
        pulls = [pull for pull in self._pulls.values() if not pull.is_internal]
        states = Counter(pull.state for pull in pulls)
        return {
            "active": len(pulls),
            "by_state": {state.value: states[state] for state in PullState if state is not PullState.OVER},
            "waiting_players": sum(pull.waiting for pull in self._pulls.values()),
            "started": counters.started,
            "connected": counters.connected,
            "reconnects": counters.reconnects,
            "refused": dict(counters.refused),
            "failures": dict(counters.failures),
            "messages_in": counters.messages_in,
            "bytes_in": counters.bytes_in,
        }

    async def close(self) -> None:
        """Say goodbye to every origin."""
        self._timer.cancel()
        pulls = list(self._pulls.values())
        for pull in pulls:
            pull.stop("server shutdown")
        await asyncio.gather(*(pull.wait_over(_CLOSE_S) for pull in pulls))

    def _tick(self) -> None:
        # First of all: a mistake in one round must not end the watch over everybody.
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        now_s = self._loop.time()
        for pull in list(self._pulls.values()):
            pull.tick(now_s, self._linger_s)
        self._missing = {key: until_s for key, until_s in self._missing.items() if until_s > now_s}

    def _refuse(self, name: str, reason: str, why: str = "") -> Exception:
        self.counters.refused[reason] += 1
        self._log.debug("Pull refused", stream=name, reason=reason)
        return not_found(name, why)


NO_PULLS: dict[str, Any] = {
    "active": 0,
    "by_state": {},
    "waiting_players": 0,
    "started": 0,
    "connected": 0,
    "reconnects": 0,
    "refused": {},
    "failures": {},
    "messages_in": 0,
    "bytes_in": 0,
}
