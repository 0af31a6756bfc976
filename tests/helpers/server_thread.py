"""Our server on an event loop in a thread of its own, for tests that talk to it with blocking clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from headrace.server.server import Server
from headrace.server.session import Session
from headrace.telemetry.metrics import ServerMetrics
from tests.helpers.loops import LoopFactory
from tests.helpers.waiting import DEADLINE_S, eventually

ResultT = TypeVar("ResultT")


class ServerThread:
    """Runs from its creation until `close`. A callback that raised on its loop fails the test at `close`."""

    def __init__(self, *, loop_factory: LoopFactory | None = None, host: str = "127.0.0.1", **options: Any) -> None:
        self._loop_factory = loop_factory
        self._host = host
        self._options = options
        self._failures: list[dict[str, Any]] = []
        self._ready: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="server under test", daemon=True)
        self._thread.start()
        self.server, self._loop, self._stop = self._ready.result(DEADLINE_S)
        self.addresses = self.server._listener.addresses if self.server._listener else []
        self.port = self.server._listener.port if self.server._listener else 0

    def __enter__(self) -> ServerThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def metrics(self) -> ServerMetrics:
        """Counters; those of what is there now are refreshed by `snapshot`."""
        return self.server.metrics

    def snapshot(self) -> dict[str, Any]:
        return self.call(self.server.snapshot)

    def call(self, act: Callable[[], ResultT]) -> ResultT:
        """What `act` returns on the server's own thread."""
        result: Future[ResultT] = Future()

        def run() -> None:
            try:
                result.set_result(act())
            except BaseException as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(DEADLINE_S)

    def now_s(self) -> float:
        return self.call(self._loop.time)

    def session(self, conn_id: str) -> Session:
        """The session of that connection: c1 is the first that was accepted."""
        eventually(lambda: self._find(conn_id), f"the session {conn_id}")
        found = self._find(conn_id)
        assert found is not None
        return found

    def _find(self, conn_id: str) -> Session | None:
        return self.call(lambda: next((one for one in self.server._sessions if one.conn_id == conn_id), None))

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll a condition that is evaluated on the server's own thread."""
        eventually(lambda: self.call(condition), what)

    def begin_close(self) -> None:
        """Have the server close; clients can read their last bytes meanwhile."""
        try:
            self._loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            pass  # the loop is closed already, and its thread about to end

    def close(self) -> None:
        """Close the server and wait until it is."""
        if self._thread.is_alive():
            self.begin_close()
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive(), "the server did not stop"
        if self._failures:
            raise AssertionError(f"callbacks failed: {self._failures}") from self._failures[0].get("exception")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self._failures.append(context))
        stop = asyncio.Event()
        try:
            server = Server(**self._options)
            server.listen(self._host, 0)
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result((server, loop, stop))
        await stop.wait()
        await server.close()
