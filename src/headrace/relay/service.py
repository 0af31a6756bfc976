"""All destinations of a server: which stream goes where, and what changes while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from headrace.errors import ConfigError
from headrace.logs import get_logger
from headrace.net.fanout import Fanout
from headrace.relay.config import DestinationConfig, check_unique
from headrace.relay.feed import MAX_LAG_S, Feed, FeedState, FeedTotals
from headrace.relay.target import Target
from headrace.stream.registry import Stream, StreamState
from headrace.telemetry.proof import Emit, emit_nothing

_TICK_S = 1.0

# The status of a destination with several streams is the one that most needs a person's eye.
_WORST_FIRST = (
    FeedState.ERROR,
    FeedState.WAITING,
    FeedState.CONNECTING,
    FeedState.DISCONNECTED,
    FeedState.CONNECTED,
)

FanoutOf = Callable[[Stream], Fanout]


class Leases(Protocol):
    """With several workers: a destination with a fixed stream name serves one stream at a time, whoever has it."""

    def acquire(self, name: str, granted: Callable[[], None]) -> None:
        """Call back once the destination of this name is ours; maybe at once, maybe never."""

    def release(self, name: str, granted: Callable[[], None]) -> None:
        """It is no longer needed, or waited for, by whoever was to be called back so."""


class Destination:
    """One configured destination and the feeds it has now."""

    def __init__(
        self,
        config: DestinationConfig,
        fanout_of: FanoutOf,
        chunk_size: int,
        after: asyncio.Task[None] | None = None,
        emit: Emit = emit_nothing,
        leases: Leases | None = None,
    ) -> None:
        self.config = config
        self._emit = emit
        self._leases = leases if config.target.name is not None else None
        self._is_leased = self._is_lease_asked = False
        self._after = after  # an earlier user of the same key that still says goodbye
        self.feeds: dict[str, Feed] = {}
        self._fanout_of = fanout_of
        self._chunk_size = chunk_size
        self._queue: list[Stream] = []  # streams that match while a fixed name is taken by another
        self._past = FeedTotals()
        self._leaving: list[dict[str, Feed]] = []  # feeds of what this one replaced, while they say goodbye
        self._last: dict[str, Any] | None = None  # the last words of the feed that ended last

    def offer(self, stream: Stream) -> None:
        """A stream is there: feed it, or have it wait, if it is ours at all."""
        if self.config.enabled and self.config.matches(stream.key) and stream not in self._queue:
            self._queue.append(stream)
            self._start_waiting()

    def stream_ended(self, stream: Stream) -> None:
        if stream in self._queue:
            self._queue.remove(stream)
            self._start_waiting()
        feed = self.feeds.get(stream.key)
        if feed is not None and feed.stream is stream:
            feed.stop()
            if feed.state is FeedState.ERROR:
                self._forget(feed)  # given up before; it stayed to be seen

    async def stop(self) -> None:
        self._queue.clear()
        feeds = list(self.feeds.values())
        for feed in feeds:
            feed.stop()
            if feed.state is FeedState.ERROR:
                self._forget(feed)
        self._start_waiting()
        await asyncio.gather(*(feed.wait_over() for feed in feeds))

    def inherit(self, old: Destination) -> None:
        """Take over the totals of the destination this one replaces, with what its feeds still add to them."""
        self._past = old._past
        self._leaving = [feeds for feeds in (*old._leaving, old.feeds) if feeds]

    def _may_start(self) -> bool:
        """False if the destination is another worker's, or not yet known to be ours."""
        if self._leases is None:
            return True
        is_needed = bool(self._queue or self.feeds)
        if is_needed and not self._is_lease_asked:
            self._is_lease_asked = True
            self._leases.acquire(self.config.name, self._lease_granted)
        elif not is_needed and self._is_lease_asked:
            self._is_leased = self._is_lease_asked = False
            self._leases.release(self.config.name, self._lease_granted)
        return self._is_leased

    def _lease_granted(self) -> None:
        if self._is_lease_asked and not self._is_leased:
            self._is_leased = True
            self._start_waiting()

    def _start_waiting(self) -> None:
        if not self._may_start():
            return
        for stream in list(self._queue):
            is_taken = self.config.target.name is not None and bool(self.feeds)
            # The last feed of the same name may still be saying goodbye.
            if is_taken or stream.key in self.feeds:
                continue
            self._queue.remove(stream)
            self.feeds[stream.key] = Feed(
                self.config,
                stream,
                self._fanout_of(stream),
                chunk_size=self._chunk_size,
                after=self._after,
                on_over=self._feed_over,
                emit=self._emit,
            )

    def _feed_over(self, feed: Feed) -> None:
        if feed.state is not FeedState.ERROR or feed.stream.state is StreamState.ENDED:
            self._forget(feed)

    def _forget(self, feed: Feed) -> None:
        if self.feeds.get(feed.stream.key) is feed:
            del self.feeds[feed.stream.key]
            self._last = feed.snapshot()
            self._past.add(feed.totals)
        self._start_waiting()

    @property
    def totals(self) -> FeedTotals:
        totals = FeedTotals()
        totals.add(self._past)
        for feeds in (*self._leaving, self.feeds):
            for feed in feeds.values():
                totals.add(feed.totals)
        return totals

    @property
    def state(self) -> FeedState:
        states = {feed.state for feed in self.feeds.values()}
        return next((state for state in _WORST_FIRST if state in states), FeedState.DISCONNECTED)

    def snapshot(self) -> dict[str, Any]:
        """The destination for `/health`: the feeds summed up, and each by itself."""
        feeds = [feed.snapshot() for feed in self.feeds.values()]
        shown = next((feed for feed in feeds if feed["status"] == self.state.value), self._last)
        totals = self.totals
        waiting = [{"stream": stream.key, "reason": self._why_waiting(stream)} for stream in self._queue]
        return {
            "name": self.config.name,
            "url": self.config.target.shown,
            "enabled": self.config.enabled,
            "status": self.state.value,
            "flowing": bool(feeds) and all(feed["flowing"] for feed in feeds),
            "slow_side": next((feed["slow_side"] for feed in feeds if feed["slow_side"]), None),
            "retry_in_s": min((feed["retry_in_s"] for feed in feeds if feed["retry_in_s"] is not None), default=None),
            "last_error": shown["last_error"] if shown else None,
            "last_error_class": shown["last_error_class"] if shown else None,
            "messages_sent": totals.messages_sent,
            "messages_dropped": sum(totals.dropped.values()),
            "dropped_by_reason": dict(totals.dropped),
            "bytes_sent": totals.bytes_sent,
            "connected_duration": max((feed["connected_duration"] for feed in feeds), default=0.0),
            "connected_total_s": round(totals.connected_s, 1),
            "reconnect_count": totals.reconnects,
            "failures": totals.failures,
            "queue_age_s": max((feed["queue_age_s"] for feed in feeds), default=0.0),
            "match": self.config.match,
            "metadata": dict(self.config.metadata),
            "streams": {feed["stream"]: feed for feed in feeds},
            "waiting": waiting,
        }

    def _why_waiting(self, stream: Stream) -> str:
        if stream.key in self.feeds:
            return "the connection of its last publication is still closing"
        return f"the destination serves {next(iter(self.feeds), 'another stream')}"


class _StreamWatch:
    """Tells the service when a stream ends."""

    def __init__(self, service: RelayService, stream: Stream) -> None:
        self._service = service
        self._stream = stream

    def stream_appended(self) -> None:
        pass  # the fan-out serves the feeds

    def stream_ended(self, reason: str) -> None:
        self._service.stream_ended(self._stream)


class RelayService:
    """Routes streams to destinations; destinations come and go without touching the others."""

    def __init__(
        self,
        configs: Iterable[DestinationConfig],
        *,
        fanout_of: FanoutOf,
        retain: Callable[[float], None],
        chunk_size: int,
        emit: Emit = emit_nothing,
        leases: Leases | None = None,
    ) -> None:
        self._emit = emit
        self._leases = leases
        self._fanout_of = fanout_of
        self._retain = retain  # logs are kept longer once there is somebody who may come back late
        self._chunk_size = chunk_size
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__)
        self._streams: list[Stream] = []
        self._stopping: dict[Target, asyncio.Task[None]] = {}
        self.destinations: dict[str, Destination] = {}
        for config in configs:
            self.add(config)
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def stream_started(self, stream: Stream) -> None:
        self._streams.append(stream)
        stream.add_listener(_StreamWatch(self, stream), reads=False)
        for destination in self.destinations.values():
            destination.offer(stream)

    def stream_ended(self, stream: Stream) -> None:
        self._streams.remove(stream)
        for destination in self.destinations.values():
            destination.stream_ended(stream)

    def add(self, config: DestinationConfig) -> Destination:
        """A further destination; ConfigError if it is there already."""
        check_unique(config, (other.config for other in self.destinations.values()), "destination")
        destination = self._make(config)
        self.destinations[config.name] = destination
        for stream in self._streams:
            destination.offer(stream)
        self._log.info("Destination added", destination=config.name, url=config.target.shown, enabled=config.enabled)
        return destination

    def remove(self, name: str) -> None:
        destination = self.destinations.pop(name)
        self._stop(destination)
        self._log.info("Destination removed", destination=name)

    def replace(self, config: DestinationConfig) -> Destination:
        """The destination of that name with other settings; its totals stay."""
        old = self.destinations[config.name]
        others = (other.config for other in self.destinations.values() if other is not old)
        check_unique(config, others, "destination")
        self._stop(old)
        return self._succeed(old, config)

    def reload(self, configs: Iterable[DestinationConfig]) -> None:
        """Make it so; destinations that did not change keep their connection."""
        wanted = {config.name: config for config in configs}
        for name in [name for name in self.destinations if name not in wanted]:
            self.remove(name)
        changed = [old for name, old in self.destinations.items() if old.config != wanted[name]]
        # All are stopped before any comes anew: they may have exchanged their keys.
        for old in changed:
            self._stop(old)
        for old in changed:
            self._succeed(old, wanted[old.config.name])
        for name, config in wanted.items():
            if name not in self.destinations:
                self.add(config)

    async def close(self) -> None:
        self._timer.cancel()
        await asyncio.gather(*(destination.stop() for destination in self.destinations.values()))
        if self._stopping:
            await asyncio.wait(self._stopping.values())

    def snapshot(self) -> dict[str, Any]:
        """The body of `/health`, but for its time stamp."""
        return health_of({name: destination.snapshot() for name, destination in self.destinations.items()})

    def _succeed(self, old: Destination, config: DestinationConfig) -> Destination:
        new = self._make(config)
        new.inherit(old)
        self.destinations[config.name] = new
        for stream in self._streams:
            new.offer(stream)
        self._log.info("Destination changed", destination=config.name, enabled=config.enabled)
        return new

    def _make(self, config: DestinationConfig) -> Destination:
        self._retain(MAX_LAG_S)
        after = self._stopping.get(config.target)
        return Destination(config, self._fanout_of, self._chunk_size, after, self._emit, self._leases)

    def _stop(self, destination: Destination) -> None:
        target = destination.config.target
        earlier = self._stopping.get(target)  # switched off and on again at once: the first goodbye is still the one

        async def stop() -> None:
            await destination.stop()
            if earlier is not None:
                await asyncio.wait((earlier,))

        def over(done: asyncio.Task[None]) -> None:
            if self._stopping.get(target) is done:
                del self._stopping[target]

        task = self._loop.create_task(stop())
        self._stopping[target] = task
        task.add_done_callback(over)

    def _tick(self) -> None:
        # First of all: a mistake in one round must not end the watch over everybody.
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        now_s = self._loop.time()
        for destination in self.destinations.values():
            for feed in list(destination.feeds.values()):
                feed.tick(now_s)


def health_of(shown: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All destinations as they are shown, and what they add up to."""
    return {
        "total_destinations": len(shown),
        "connected_destinations": sum(one["status"] == "connected" for one in shown.values()),
        "failed_destinations": sum(one["status"] in ("error", "waiting") for one in shown.values()),
        "total_messages_sent": sum(one["messages_sent"] for one in shown.values()),
        "total_messages_dropped": sum(one["messages_dropped"] for one in shown.values()),
        "total_bytes_sent": sum(one["bytes_sent"] for one in shown.values()),
        "destinations": shown,
    }


def merge(flags: Iterable[DestinationConfig], file: Iterable[DestinationConfig]) -> list[DestinationConfig]:
    """The destinations of the flags and of the file; ConfigError if one is in both."""
    merged: list[DestinationConfig] = []
    for config in (*flags, *file):
        try:
            check_unique(config, merged, "destination")
        except ConfigError as error:
            raise ConfigError(f"-relay-to and -relay-config: {error}") from None
        merged.append(config)
    return merged
