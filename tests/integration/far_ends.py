"""Destinations that are not ours, or not well: silent, deaf, encrypted, nginx."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.helpers.sockets import free_port
from tests.integration.harness import Stage

Result = TypeVar("Result")

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
_RTMP_MODULES = (Path("/usr/lib/nginx/modules/ngx_rtmp_module.so"), Path("/usr/share/nginx/modules/ngx_rtmp_module.so"))


class MutePort:
    """Accepts connections and never says a word; takes what fits into its small buffer and no more."""

    def __init__(self, stage: Stage) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.port = int(self._listener.getsockname()[1])
        self._kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        stage.on_close(self.close)

    def _accept(self) -> None:
        try:
            while True:
                self._kept.append(self._listener.accept()[0])
        except OSError:
            pass  # closed

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._kept:
            sock.close()


class Bridge:
    """Passes bytes on to a real server, over TLS at its front if given a context; `freeze` makes it deaf."""

    def __init__(self, stage: Stage, port: int, context: ssl.SSLContext | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._target = port
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=context, limit=8192))
        self.port = int(self._server.sockets[0].getsockname()[1])
        stage.on_close(self.close)

    def freeze(self) -> None:
        """From now on, read nothing: what a stalled network looks like."""
        self._loop.call_soon_threadsafe(self._is_open.clear)

    def thaw(self) -> None:
        self._loop.call_soon_threadsafe(self._is_open.set)

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
        finally:
            for one in (writer, far_writer):
                one.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._is_open.wait()
                data = await reader.read(4096)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()
        except OSError:
            pass  # one side is gone; the other will notice

    async def _end(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=5) if others else None

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def rtmp_module() -> Path | None:
    return next((path for path in _RTMP_MODULES if path.exists()), None)


def start_nginx(stage: Stage, recordings: Path) -> int:
    """nginx with its RTMP module, recording what is published to `live`; its port."""
    port = free_port()
    folder = stage.folder / "nginx"
    folder.mkdir()
    recordings.mkdir()
    recordings.chmod(0o777)
    config = folder / "nginx.conf"
    config.write_text(
        f"load_module {rtmp_module()};\n"
        "daemon off; master_process off; pid nginx.pid; error_log error.log warn;\n"
        "events { worker_connections 64; }\n"
        f"rtmp {{ access_log off; server {{ listen 127.0.0.1:{port}; application live {{ live on;"
        f" record all; record_path {recordings}; record_suffix .flv; }} }} }}\n"
    )
    assert NGINX is not None
    child = stage.run("nginx", NGINX, "-p", folder, "-e", folder / "error.log", "-c", config)

    def listens() -> bool | None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return None
        return True

    child.wait_until("nginx to listen", listens)
    return port
