"""Rounds over the sockets of publishers: all that have something to be read are read in one go, into one buffer.

Owns one epoll set, which the loop sees as a single file. Few publishers are read as their bytes come. Many would wake
the process for every message of each of them, and waking up with cold caches is most of what a message then costs: from
there on rounds are made by the clock, the less often the more there is to do, so that a round finds more to read, and
more of a stream to be sent at once. 50 publishers with a reader each cost 1.6 times what they cost nginx without, 0.94
times with rounds every 10 ms, 0.7 times with rounds every 20 ms. One whose readers are so many that they wait for what
is to be joined rests until then, for the same reason.
"""

from __future__ import annotations

import asyncio
import select
import socket
from time import monotonic
from typing import Protocol

# As much as a publisher of 50 Mbit/s sends in 40 ms.
_BUFFER_BYTES = 256 << 10
# Rounds are made by the clock from so many reads a second on, which are ten publishers with sound, and no longer when
# there are fewer than the second. Paced reads take several messages each, hence the distance.
_PACED_ABOVE_PER_S = 800
_FREE_BELOW_PER_S = 250
# Time between rounds for each read a second: 10 ms at 800, and the ceiling of 20 ms from 1700 on.
_PACE_S_PER_RATE = 12e-6
# The rate is looked at after so many reads, or so long.
_JUDGED_READS = 100
_JUDGED_S = 0.5


class RoundReader(Protocol):
    """Whose socket is read."""

    def round_received(self, data: memoryview) -> None:
        """What there was, until this returns; nothing at the end of the stream."""

    def round_failed(self, error: OSError) -> None: ...


class Rounds:
    """The publishers of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, max_pace_s: float) -> None:
        self._loop = loop
        self._max_pace_s = max_pace_s  # 0: never by the clock
        self._epoll = select.epoll()
        self._readers: dict[int, tuple[socket.socket, RoundReader]] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._timer: asyncio.TimerHandle | None = None  # while rounds are made by the clock
        self._pace_s = 0.0
        self._reads = 0
        self._judged_s = 0.0
        self._resting: dict[int, asyncio.TimerHandle] = {}

    @staticmethod
    def is_possible() -> bool:
        """Linux has epoll sets, others have not."""
        return hasattr(select, "epoll")

    @property
    def pace_s(self) -> float:
        """The time between rounds; 0 while bytes are read as they come."""
        return self._pace_s

    def add(self, sock: socket.socket, reader: RoundReader) -> None:
        descriptor = sock.fileno()
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = (sock, reader)
        if len(self._readers) == 1:
            self._loop.add_reader(self._epoll.fileno(), self._round)

    def remove(self, sock: socket.socket) -> None:
        """Of one that was added, before its socket is closed."""
        descriptor = sock.fileno()
        del self._readers[descriptor]
        if resting := self._resting.pop(descriptor, None):
            resting.cancel()
        self._epoll.unregister(descriptor)
        if not self._readers:
            self._stop_clock()
            self._loop.remove_reader(self._epoll.fileno())

    def rest(self, sock: socket.socket, until_s: float) -> None:
        """Of one that was added: nobody wants what it sends before then, by the monotonic clock."""
        if self._timer is None and (descriptor := sock.fileno()) not in self._resting:
            # A connection that breaks is told of all the same.
            self._epoll.modify(descriptor, 0)
            self._resting[descriptor] = self._loop.call_later(until_s - monotonic(), self._wake, descriptor)

    def _wake(self, descriptor: int) -> None:
        del self._resting[descriptor]
        self._epoll.modify(descriptor, select.EPOLLIN)
        self._round()

    def _round(self) -> None:
        buffer = self._buffer
        readers = self._readers
        ready = self._epoll.poll(0)
        for descriptor, _ in ready:
            found = readers.get(descriptor)
            if found is None:
                continue  # removed on account of one before it
            sock, reader = found
            try:
                size = sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                reader.round_failed(error)
                continue
            reader.round_received(buffer[:size])
        self._reads += len(ready)
        if self._reads >= _JUDGED_READS:
            self._judge(monotonic())

    def _round_by_clock(self) -> None:
        self._timer = self._loop.call_later(self._pace_s, self._round_by_clock)
        self._round()
        if (now_s := monotonic()) - self._judged_s > _JUDGED_S:
            self._judge(now_s)

    def _judge(self, now_s: float) -> None:
        rate_per_s = self._reads / (now_s - self._judged_s)
        self._reads, self._judged_s = 0, now_s
        if self._timer is not None:
            self._pace_s = min(rate_per_s * _PACE_S_PER_RATE, self._max_pace_s)
            if rate_per_s < _FREE_BELOW_PER_S:
                self._stop_clock()
                self._loop.add_reader(self._epoll.fileno(), self._round)
        elif rate_per_s > _PACED_ABOVE_PER_S and self._max_pace_s and self._readers:
            self._loop.remove_reader(self._epoll.fileno())
            self._pace_s = min(rate_per_s * _PACE_S_PER_RATE, self._max_pace_s)
            self._timer = self._loop.call_later(self._pace_s, self._round_by_clock)

    def _stop_clock(self) -> None:
        self._pace_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
