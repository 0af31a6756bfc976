"""One connection's socket: non-blocking, registered with the loop, with a bounded queue for what it does not take.

Owns the socket and its two readiness callbacks. What the bytes mean is the handler's. An asyncio transport in this
place was measured 20 to 75 % dearer per sent message.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from headrace.net.rounds import Rounds

RECEIVE_BYTES = 1 << 16
# Replies to a peer that asks and never reads: past this it is closed. Media waits in the log, not here.
MAX_REPLY_BYTES = 1 << 20
# Bytes the kernel may hold unsent for a reader. What it holds is late and cannot be skipped any more; the part in
# flight is not limited by this, so that long fat paths keep their throughput.
_NOT_SENT_LOW_WATER_BYTES = 256 << 10
# What a broken connection may still hold: Linux gives a socket 6 MB at most. A peer that goes on sending ends here.
_MAX_DRAIN_READS = (8 << 20) // RECEIVE_BYTES
# How long a peer may take to end its side after we have ended ours.
LINGER_S = 2.0
# The kernel gives a connection up when its peer has acknowledged nothing for this long: half-open sockets end here.
_PEER_TIMEOUT_MS = 30_000


_QUICK_ACKNOWLEDGEMENT: int | None = getattr(socket, "TCP_QUICKACK", None)


class LinkHandler(Protocol):
    """Who the link works for."""

    def data_received(self, data: bytes) -> None: ...

    def link_drained(self) -> None:
        """Everything queued is with the kernel: there is room again."""

    def link_lost(self, reason: str) -> None:
        """The connection is over. Called exactly once, never from within `write` or `offer`."""


def tune(sock: socket.socket) -> None:
    """Options every media connection gets. One that the platform lacks is done without."""
    sock.setblocking(False)
    for level, option, value in (
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", _PEER_TIMEOUT_MS),
        (socket.IPPROTO_TCP, "TCP_NOTSENT_LOWAT", _NOT_SENT_LOW_WATER_BYTES),
    ):
        number = getattr(socket, option, None)
        if number is not None:
            try:
                sock.setsockopt(level, number, value)
            except OSError:
                pass  # an AF_UNIX socket in a test, or an older kernel


class Link:
    """A plain TCP connection."""

    __slots__ = (
        "_broken",
        "_closing",
        "_handler",
        "_is_forgotten",
        "_linger_timer",
        "_loop",
        "_queue",
        "_queued_bytes",
        "_reply_bytes",
        "_rounds",
        "_sock",
        "_writing",
        "blocked_since_s",
        "is_blocked",
        "is_closed",
        "round_received",
        "send_now",
        "sent_bytes",
        "unsent_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, handler: LinkHandler) -> None:
        self._loop = loop
        self._sock = sock
        self._handler = handler
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._reply_bytes = 0  # written since the link blocked; a batch of media in the queue is not counted
        self._writing = False
        self._closing: str | None = None
        self._broken: str | None = None  # the error of a send: nothing more is sent, what came before is still read
        self._linger_timer: asyncio.TimerHandle | None = None
        self._rounds: Rounds | None = None
        self.round_received: Callable[[memoryview], None]  # what is read in rounds goes here
        self._is_forgotten = False  # by the rounds: it is no longer read
        self.is_blocked = False  # something is queued: offers are not taken until link_drained
        self.blocked_since_s = 0.0  # when the queue last made progress
        self.is_closed = False
        self.sent_bytes = 0
        self.unsent_bytes = 0  # what had been taken from the caller and was lost with the connection
        self.send_now: Callable[[Any], int] = sock.send  # bound once for the fan-out loop
        loop.add_reader(sock.fileno(), self._on_readable)

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def write(self, data: bytes) -> None:
        """Send, or queue behind what is queued."""
        if self.is_closed or self._closing is not None or self._broken is not None or not data:
            return
        if self.is_blocked:
            self._reply_bytes += len(data)
            if self._reply_bytes > MAX_REPLY_BYTES:
                self._fail(f"{self._reply_bytes} bytes of replies unread, expected at most {MAX_REPLY_BYTES}")
                return
            self._enqueue(memoryview(data))
            return
        self.offer(data)

    def offer(self, data: bytes) -> None:
        """Send now what the socket takes and keep the rest. Only while not blocked."""
        try:
            sent = self.send_now(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.unsent_bytes = len(data)
            self._fail(_describe(error))
            return
        self.keep_rest(data, sent)

    def keep_rest(self, data: bytes, sent: int) -> None:
        """Account for a send the fan-out did itself."""
        self.sent_bytes += sent
        if sent != len(data):
            self._enqueue(memoryview(data)[sent:])

    def fail(self, error: OSError) -> None:
        self._fail(_describe(error))

    def acknowledge_now(self) -> None:
        """Have the kernel acknowledge what was received at once. Clients with Nagle's algorithm on (FFmpeg's default)
        wait for that between two small packets: it saves 40 ms in each step of a connection's start."""
        if _QUICK_ACKNOWLEDGEMENT is not None and not self.is_closed:
            try:
                self._sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACKNOWLEDGEMENT, 1)
            except OSError:
                pass  # not TCP, or already gone: the next read will tell

    def read_in_rounds(self, rounds: Rounds, receive: Callable[[memoryview], None]) -> None:
        """From here on the peer sends media all the time: it is read together with the others that do.

        What comes is handed to `receive`, also after `close`, and is there until that returns.
        """
        if self._rounds is None and not self.is_closed and self._broken is None:
            self._loop.remove_reader(self._sock.fileno())
            self._rounds = rounds
            self.round_received = receive
            rounds.add(self._sock, self)

    def rest(self, until_s: float) -> float:
        """Nobody wants what the peer sends before then: where it is read in rounds, it waits.

        How long it waits in any case.
        """
        if self._rounds is None or self._is_forgotten:
            return 0.0
        return self._rounds.rest(self._sock, until_s)

    def expect(self, at_s: float, prepare: Callable[[], None]) -> bool:
        """The peer's next message is due then: where it is read at once, `prepare` is called shortly before.

        Whether it will be.
        """
        if self._rounds is None or self._is_forgotten:
            return False
        return self._rounds.expect(self._sock, at_s, prepare)

    def round_ended(self, error: OSError | None) -> None:
        self._lose(_describe(error) if error is not None else self._closing or "closed by peer")

    def close(self, reason: str, *, flush: bool = False) -> None:
        """Close now, or with `flush` once the peer has what is queued (the sweep's deadlines still hold).

        From then on nothing is sent, and what the peer sends is not listened to.
        """
        if self.is_closed:
            return
        if not flush:
            self._lose(reason)
        elif self._closing is None:
            self._closing = reason
            if not self.is_blocked:
                self._linger(reason)

    def _linger(self, reason: str) -> None:
        """End our side and wait a moment for the peer to end its own.

        Closing a socket that holds unread bytes makes the kernel reset the connection, and the peer loses what it had
        not read yet: the end of a stream, or the reason of a refusal.
        """
        self.is_blocked = True
        self.blocked_since_s = time.monotonic()  # or the sweep would take it for stalled since it began
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._lose(reason)
            return
        self._linger_timer = self._loop.call_later(LINGER_S, self._lose, reason)

    def _enqueue(self, view: memoryview) -> None:
        self._queue.append(view)
        self._queued_bytes += len(view)
        if not self.is_blocked:
            self.is_blocked = True
            self.blocked_since_s = time.monotonic()
        if not self._writing and not self.is_closed:
            self._writing = True
            self._loop.add_writer(self._sock.fileno(), self._on_writable)

    def _on_readable(self) -> None:
        try:
            data = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(_describe(error))
            return
        if not data:
            self._lose(self._closing or "closed by peer")
        elif self._closing is None:
            self._handler.data_received(data)
            # uvloop tells of a socket's error by calling this once, and never calls again: a peer that resets right
            # after its last bytes (FFmpeg, with an acknowledgement unread) would be waited for until the next ping.
            if not self.is_closed and (number := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
                self._drain(_describe(OSError(number, os.strerror(number))))

    def _drain(self, reason: str) -> None:
        """The connection broke; what had come before is still there to be read."""
        self._broken = reason
        self.is_blocked = True
        for _ in range(_MAX_DRAIN_READS):
            if self._closing is not None or self.is_closed:
                break
            try:
                data = self._receive()
            except OSError:
                break
            if not data:
                break
            self._handler.data_received(data)
        self._lose(reason)

    def _receive(self) -> bytes:
        return self._sock.recv(RECEIVE_BYTES)

    def _on_writable(self) -> None:
        queue = self._queue
        while queue:
            view = queue[0]
            try:
                sent = self.send_now(view)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(_describe(error))
                return
            self.sent_bytes += sent
            self._queued_bytes -= sent
            self.blocked_since_s = time.monotonic()
            if sent < len(view):
                queue[0] = view[sent:]
                return
            queue.popleft()
        self._reply_bytes = 0
        self.is_blocked = False
        if self._closing is not None:
            self._linger(self._closing)
            return
        self._handler.link_drained()
        if not self.is_blocked and not self.is_closed:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _fail(self, reason: str) -> None:
        # From within a caller's send: it is told at the next turn of the loop, not in the middle of its own work.
        if self._closing is None and self._broken is None and not self.is_closed:
            self._broken = reason
            self.is_blocked = True  # nothing more is offered
            # The socket has told its error and would only report an end of file now, which is not the reason.
            self._forget_readiness()
            self._loop.call_soon(self._drain, reason)

    def _forget_readiness(self) -> None:
        if self._rounds is None:
            self._loop.remove_reader(self._sock.fileno())
        elif not self._is_forgotten:
            self._is_forgotten = True
            self._rounds.remove(self._sock)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _lose(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.is_blocked = True
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._forget_readiness()
        self.unsent_bytes += self._queued_bytes
        self._queue.clear()
        self._queued_bytes = 0
        self._sock.close()
        self._handler.link_lost(reason)


def _describe(error: OSError) -> str:
    if error.errno == errno.EPIPE:
        return "closed by peer"  # noticed by writing to it, not by reading
    return (error.strerror or type(error).__name__).lower()
