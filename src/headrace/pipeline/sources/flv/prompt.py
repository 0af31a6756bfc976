"""A worker that answers Spark at once.

What a task begins with comes from the JVM in two small pieces, and TCP keeps the second back until the first is
acknowledged (RFC 896), which this side puts off for 40 ms in the hope of something to send along (RFC 1122, 4.2.3.2).
With nothing to send, every task would begin with those 40 ms. The same the other way round: the last of a task's rows
were kept back until the JVM's side had acknowledged those before, and half of all queries took 30 to 40 ms more.

Unix sockets, which Spark has too, do not wait, but Spark 4.3 then prints a traceback for every worker that was idle for
a minute.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Any

_OWN_FILES = "/proc/self/fd"


class Prompt:
    """Objects of this kind are in a task's first piece: to read one is to have that piece."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        hurry()


def hurry() -> None:
    """Have this process's connections acknowledge what has come, and keep nothing back.

    Where there is no such thing, all goes on as it would.
    """
    if not hasattr(socket, "TCP_QUICKACK") or not os.path.isdir(_OWN_FILES):
        return
    for name in os.listdir(_OWN_FILES):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # no TCP, or closed meanwhile
            continue
