"""Rounds over the sockets of publishers: all that have something to be read are read in one go, into one buffer.

Few publishers are read as their bytes come. Many would wake the process for every message of each of them, and waking
up with cold caches is most of what a message then costs: from there on rounds are made by the clock, the less often the
more there is to do, so that a round finds more to read, and more of a stream to be sent at once. One whose readers are
so many that they wait for what is to be joined rests until then, for the same reason.

Owns one epoll set: of those that are read by the clock, and of those that rest now and then. The others are watched by
the loop itself, since a set within its own set takes 10 to 14 us longer to tell of a message.
"""

from __future__ import annotations

import asyncio
import math
import os
import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import Protocol

# As much as a publisher of 50 Mbit/s sends in 40 ms. Of one that has sent more, so many times as much is read.
_BUFFER_BYTES = 256 << 10
_MOST_READS = 16
# Rounds are made by the clock where so many publishers send, and no longer where there are fewer than the second.
_PACED_FROM = 10
_FREE_BELOW = 6
# One with sound sends so many messages a second, and each is a read where they are read as they come.
_MESSAGES_PER_S = 75
# Time between rounds by the root of the number of publishers: 17 ms for 10, 39 ms for 50. Few wait less than many.
_PACE_S = 0.0055
# The rate is looked at after so many reads, or so long.
_JUDGED_READS = 100
_JUDGED_S = 0.5
# One that rested is given back to the loop after so many reads without a rest: to take it from the loop and to give it
# back takes ten calls to the kernel, and one with hundreds of readers rests twenty times a second.
_AWAKE_READS = 20
# How long before a message is due it is prepared for (decision 14): that takes 0.2 ms, and what it brings into the
# caches does not stay there. Timers are exact to a millisecond, so it may be so much earlier.
_PREPARED_S = 0.0007
# Where there are more publishers the messages of one prepare for those of another.
_MOST_PREPARED = 3


class RoundReader(Protocol):
    """Whose socket is read."""

    @property
    def round_received(self) -> Callable[[memoryview], None]:
        """Takes what there was. It is there until this returns."""

    def round_ended(self, error: OSError | None) -> None:
        """There will be nothing more; without an error the peer said so."""


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
        self._in_set: dict[int, int] = {}  # those that the loop does not watch: how often they were read since a rest
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
        if not self._readers:
            self._loop.add_reader(self._epoll.fileno(), self._round)
        self._readers[descriptor] = (sock, reader)
        if self._timer is not None:
            self._in_set[descriptor] = 0
            self._epoll.register(descriptor, select.EPOLLIN)
        else:
            self._loop.add_reader(descriptor, self._ready, descriptor, sock, reader)

    def remove(self, sock: socket.socket) -> None:
        """Of one that was added, before its socket is closed."""
        descriptor = sock.fileno()
        del self._readers[descriptor]
        if resting := self._resting.pop(descriptor, None):
            resting.cancel()
        if self._in_set.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
        else:
            self._loop.remove_reader(descriptor)
        if not self._readers:
            self._stop_clock()
            self._loop.remove_reader(self._epoll.fileno())

    def rest(self, sock: socket.socket, until_s: float) -> float:
        """Of one that was added: nobody wants what it sends before then, by the monotonic clock.

        How long what it sends waits in any case.
        """
        if self._timer is None and (descriptor := sock.fileno()) not in self._resting:
            # A connection that breaks is told of all the same.
            if descriptor in self._in_set:
                self._epoll.modify(descriptor, 0)
            else:
                self._loop.remove_reader(descriptor)
                self._epoll.register(descriptor, 0)
            self._in_set[descriptor] = 0
            self._resting[descriptor] = self._loop.call_later(until_s - monotonic(), self._wake, descriptor)
        return self._pace_s

    def expect(self, sock: socket.socket, at_s: float, prepare: Callable[[], None]) -> bool:
        """Of one that was added: its next bytes are due then, by the monotonic clock.

        Where few are read, as their bytes come, `prepare` is called shortly before, and this is True.
        """
        wait_s = math.floor((at_s - _PREPARED_S - monotonic()) * 1000) / 1000
        if (
            wait_s <= 0
            or len(self._readers) > _MOST_PREPARED
            or self._timer is not None
            or sock.fileno() in self._in_set
        ):
            return False
        self._loop.call_later(wait_s, prepare)
        return True

    def _wake(self, descriptor: int) -> None:
        del self._resting[descriptor]
        self._epoll.modify(descriptor, select.EPOLLIN)
        self._round()

    def _give_back(self, descriptor: int) -> None:
        del self._in_set[descriptor]
        self._epoll.unregister(descriptor)
        self._loop.add_reader(descriptor, self._ready, descriptor, *self._readers[descriptor])

    def _ready(self, descriptor: int, sock: socket.socket, reader: RoundReader) -> None:
        # What is in `_read`, without its call: nearly always there is less than a buffer.
        try:
            size = sock.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            reader.round_ended(error)
        else:
            if 0 < size < _BUFFER_BYTES:
                reader.round_received(self._buffer[:size])
            elif size:
                reader.round_received(self._buffer)
                if descriptor in self._readers:
                    self._read(descriptor, sock, reader)
            else:
                reader.round_ended(None)
        # uvloop tells of a broken connection by calling this once, and never again: what it had sent was just read.
        if descriptor in self._readers and (number := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            self._read(descriptor, sock, reader, OSError(number, os.strerror(number)))
        self._reads += 1
        if self._reads >= _JUDGED_READS:
            self._judge(monotonic())

    def _round(self) -> None:
        readers = self._readers
        ready = self._epoll.poll(0)
        for descriptor, _ in ready:
            found = readers.get(descriptor)
            if found is None:
                continue  # removed on account of one before it
            self._read(descriptor, *found)
            if descriptor in self._in_set and self._timer is None and descriptor not in self._resting:
                self._in_set[descriptor] += 1
                if self._in_set[descriptor] >= _AWAKE_READS:
                    self._give_back(descriptor)
        self._reads += len(ready)

    def _read(self, descriptor: int, sock: socket.socket, reader: RoundReader, broken: OSError | None = None) -> None:
        """What is there; of a connection that is known to be broken, and why, what is left and then its end."""
        buffer = self._buffer
        for _ in range(_MOST_READS):
            try:
                size = sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                reader.round_ended(error)
                return
            if not size:
                reader.round_ended(broken)
                return
            reader.round_received(buffer[:size])
            # What is left would wait for the next round, or rest.
            if (size < len(buffer) and broken is None) or descriptor not in self._readers:
                return
        if broken is not None:
            reader.round_ended(broken)

    def _round_by_clock(self) -> None:
        self._timer = self._loop.call_later(self._pace_s, self._round_by_clock)
        self._round()
        now_s = monotonic()
        if self._reads >= _JUDGED_READS or now_s - self._judged_s > _JUDGED_S:
            self._judge(now_s)

    def _judge(self, now_s: float) -> None:
        rate_per_s = self._reads / (now_s - self._judged_s)
        self._reads, self._judged_s = 0, now_s
        publishers = rate_per_s * (self._pace_s or 1 / _MESSAGES_PER_S)  # that have something to be read in each round
        if self._timer is not None:
            if publishers < _FREE_BELOW:
                self._stop_clock()
                return
        elif publishers > _PACED_FROM and self._max_pace_s and self._readers:
            self._start_clock()
        else:
            return
        self._pace_s = min(_PACE_S * math.sqrt(publishers), self._max_pace_s)

    def _start_clock(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        for descriptor in self._readers:
            if descriptor not in self._in_set:
                self._in_set[descriptor] = 0
                self._loop.remove_reader(descriptor)
                self._epoll.register(descriptor, select.EPOLLIN)
        self._timer = self._loop.call_later(self._max_pace_s, self._round_by_clock)

    def _stop_clock(self) -> None:
        self._pace_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.add_reader(self._epoll.fileno(), self._round)
            for descriptor in self._readers:
                if descriptor not in self._resting:
                    self._give_back(descriptor)
