"""Listening sockets: bind to what the user named, accept what comes, survive running out of file descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from headrace.errors import HeadraceError

# Accepted per wake-up, so that a flood of connections cannot keep the media waiting.
_ACCEPT_BATCH = 64
_BACKLOG = 1024
# Out of descriptors: nothing can be accepted until some are closed, and the socket stays readable all the while.
_EXHAUSTED_PAUSE_S = 0.5
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

# An address, or its whole family, that this machine does not have.
_ABSENT = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

AcceptHandler = Callable[[socket.socket, str], None]
ErrorHandler = Callable[[OSError], None]


class ListenError(HeadraceError):
    """The address cannot be listened on."""


def format_address(address: object) -> str:
    """`host:port` of a socket address, `[host]:port` for IPv6."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = str(address[0])
        if host.startswith("::ffff:"):  # an IPv4 client on a dual-stack socket
            host = host.removeprefix("::ffff:")
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
    return str(address) or "unix"


def bind(host: str | None, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`; None is all addresses, IPv6 and IPv4 in one where possible."""
    shown = format_address((host or "", port))
    if host in (None, "::"):
        try:
            return [_bind_one(socket.AF_INET6, ("::", port), dual_stack=True)]
        except OSError as error:
            if error.errno not in _ABSENT:
                raise ListenError(f"cannot listen on {shown}: {error.strerror or error}") from error
        host = "0.0.0.0"  # a machine without IPv6  # noqa: S104
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            if sockets and port == 0:  # the second address gets the port that the first was given
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                sockets.append(_bind_one(family, address, dual_stack=False))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error  # `localhost` is also ::1 in containers that have no IPv6
        if absent is not None and not sockets:
            raise absent
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise ListenError(f"cannot listen on {shown}: {error.strerror or error}") from error
    return sockets


def _bind_one(family: int, address: object, *, dual_stack: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual_stack else 1)
        sock.bind(address)  # type: ignore[arg-type]
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


class Listener:
    """Accepts on all the sockets until closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        on_accept: AcceptHandler,
        on_error: ErrorHandler,
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._on_accept = on_accept
        self._on_error = on_error
        for sock in sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)

    @property
    def addresses(self) -> list[str]:
        return [format_address(sock.getsockname()) for sock in self._sockets]

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets = []

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_error(error)
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(sock.fileno())
                    self._loop.call_later(_EXHAUSTED_PAUSE_S, self._resume, sock)
                return
            self._on_accept(connection, format_address(address))

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)
