"""Connections on their way from the parent to a worker: descriptors over a socket pair, each with a word of 8 bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from enum import Enum

from headrace.logs import get_logger

_WORD_BYTES = 8
_MAX_NUMBER = 10**7
# Taken per wake-up, so that a flood of connections cannot keep the media waiting.
_BATCH = 64


class Kind(Enum):
    CLIENT = b"c"  # a publisher or player that connected to the server
    INTERNAL = b"i"  # another worker that wants something of this one
    DIALLED = b"o"  # the other end of such a connection, for the worker that asked


def hand_over(channel: socket.socket, kind: Kind, sock: socket.socket, number: int = 0) -> bool:
    """Give `sock` to the worker at the other end; False if it takes nothing now. The caller closes its own."""
    word = kind.value + str(number % _MAX_NUMBER).zfill(_WORD_BYTES - 1).encode("ascii")
    try:
        return socket.send_fds(channel, [word], [sock.fileno()]) == len(word)
    except OSError:  # its queue is full, or it is gone
        return False


class Receiver:
    """A worker's end: calls back with every connection."""

    def __init__(
        self,
        channel: socket.socket,
        on_connection: Callable[[Kind, int, socket.socket], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._on_connection = on_connection
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        channel.setblocking(False)
        self._loop.add_reader(channel.fileno(), self._receive)

    def close(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()

    def _receive(self) -> None:
        for _ in range(_BATCH):
            try:
                word, descriptors, _, _ = socket.recv_fds(self._channel, _WORD_BYTES, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                get_logger(__name__).error("Handover failed", error=error.strerror)
                self.close()
                return
            if not word:
                self.close()  # the parent is gone, which its channel tells too
                return
            if not descriptors:
                self._on_lost()  # this process is at its limit of descriptors, and the kernel has closed it
                continue
            self._on_connection(Kind(word[:1]), int(word[1:]), socket.socket(fileno=descriptors[0]))
