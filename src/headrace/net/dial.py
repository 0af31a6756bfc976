"""Opening a connection to a named host: every address tried, TLS verified, each step with its deadline."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.net.link import Link, LinkHandler, tune

_Address = tuple[int, int, int, str, Any]  # family, kind, protocol, canonical name, address

# An address that does not answer must leave time for the next one.
_ADDRESS_TIMEOUT_S = 5.0


async def dial(host: str, port: int, *, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    """A connected socket, or the OSError of the last address tried. TimeoutError is an OSError too."""
    async with asyncio.timeout(timeout_s):
        sock = await _dial_any(host, port, timeout_s)
        if tls is None:
            return sock
        try:
            return await _start_tls(sock, tls, host)
        except BaseException:
            sock.close()
            raise


async def _dial_any(host: str, port: int, timeout_s: float) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = list(dict.fromkeys(await _look_up(host, port)))
    last: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in found:
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            tune(sock)
            async with asyncio.timeout(min(_ADDRESS_TIMEOUT_S, timeout_s / len(found))):
                await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            last = error
            if sock is not None:
                sock.close()
        except BaseException:
            if sock is not None:
                sock.close()
            raise
    raise last


async def _look_up(host: str, port: int) -> Sequence[_Address]:
    """Every address of a name, by a thread of its own.

    The loop's own lookups share four threads, and closing the loop waits for them: with a resolver that does not
    answer, one destination would keep the others from connecting, and the process from ending.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[_Address]] = loop.create_future()

    def tell(found: Sequence[_Address], error: Exception | None) -> None:
        if answer.done():
            return  # called off
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def look_up() -> None:
        found: Sequence[_Address] = []
        error: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError:  # an empty label, or one of more than 63 characters
            error = socket.gaierror(socket.EAI_NONAME, "Not a host name")
        except OSError as failure:
            error = failure
        try:
            loop.call_soon_threadsafe(tell, found, error)
        except RuntimeError:
            pass  # the loop was closed meanwhile: nobody wants to know

    try:
        threading.Thread(target=look_up, name=f"look up {host}", daemon=True).start()
    except RuntimeError as failure:  # no more threads to be had
        raise OSError(errno.EAGAIN, str(failure)) from None
    return await answer


async def _start_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    loop = asyncio.get_running_loop()
    secure = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                secure.do_handshake()
                return secure
            except ssl.SSLWantReadError:
                await _ready(loop.add_reader, loop.remove_reader, secure)
            except ssl.SSLWantWriteError:
                await _ready(loop.add_writer, loop.remove_writer, secure)
    except BaseException:
        secure.close()
        raise


async def _ready(add: Callable[..., Any], remove: Callable[..., Any], sock: socket.socket) -> None:
    ready = asyncio.Event()
    add(sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        remove(sock.fileno())


def link_for(loop: asyncio.AbstractEventLoop, sock: socket.socket, handler: LinkHandler) -> Link:
    return TlsLink(loop, sock, handler) if isinstance(sock, ssl.SSLSocket) else Link(loop, sock, handler)


class TlsLink(Link):
    """The same over TLS: dearer per byte, and nobody but its own connection pays for it."""

    __slots__ = ("_secure",)

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, handler: LinkHandler) -> None:
        super().__init__(loop, sock, handler)
        self._secure = sock
        self.send_now = self._send_secure

    def _send_secure(self, data: Any, flags: int = 0) -> int:
        # A record that was begun has to be finished with the same bytes: the queue offers them again, unchanged.
        try:
            return self._secure.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def _receive(self) -> bytes:
        try:
            return self._secure.recv(1 << 16)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except ssl.SSLEOFError:
            return b""

    def _on_readable(self) -> None:
        super()._on_readable()
        # What lies decrypted in the TLS layer makes no socket readable: it has to be asked for.
        while not self.is_closed and self._secure.pending():
            super()._on_readable()
