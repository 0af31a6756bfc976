"""Runs the HTTP application on the server's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.net.listener import bind, format_address

_KEEP_ALIVE_S = 15
_HEAD_S = 15.0  # for the request line and the headers
_MAX_REQUESTS = 100  # at a time; a status page needs a few
_CLOSE_S = 1


class _EmbeddedServer(uvicorn.Server):
    """uvicorn inside a process that has signal handlers of its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(H11Protocol):
    """uvicorn's, with a deadline for the head of a request: it waits for that for ever, and as many silent connections
    as requests are allowed at a time would keep everybody else out."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_response_complete(self) -> None:
        self._expect_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(_HEAD_S, self._give_up)

    def _give_up(self) -> None:
        cycle: Any = self.cycle  # None before the first request, whatever its annotation says
        if cycle is None or cycle.response_complete:
            self.transport.abort()


class HttpServer:
    """Listens from `start` to `close`."""

    def __init__(self, app: Any) -> None:
        self._server = _EmbeddedServer(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # Not from the environment: with FORWARDED_ALLOW_IPS=*, common in containers, whoever says so would be
                # on this machine. A proxy here is believed when it says that a request comes from elsewhere.
                forwarded_allow_ips=["127.0.0.1", "::1", "::ffff:127.0.0.1"],
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_CLOSE_S,
                limit_concurrency=_MAX_REQUESTS,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self, host: str | None, port: int) -> list[str]:
        """Bind and serve; no host means loopback. ListenError if the address cannot be had."""
        sockets = bind(host or "localhost", port)
        addresses = [format_address(sock.getsockname()) for sock in sockets]
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=sockets))
        return addresses

    async def close(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_CLOSE_S + 1)
