"""The parent of several workers: it listens, gives every connection to one of them, knows who has what, and restarts
whoever dies. It never touches media."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from headrace.edge.origin import Origin
from headrace.logs import get_logger
from headrace.net.listener import Listener
from headrace.options import ServeOptions
from headrace.relay.config import DestinationConfig
from headrace.telemetry.identity import load_identity
from headrace.workers.directory import Directory
from headrace.workers.handover import Kind
from headrace.workers.process import WorkerProcess
from headrace.workers.start import WorkerStart
from headrace.workers.view import WorkersView

# A worker that lived for so long is restarted at once; one that dies sooner after growing delays.
STABLE_S = 10.0
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 8.0
# How often the workers are asked for their counters, so that little is lost with one that dies; and how long one may
# be silent before it is taken for stuck and ended.
POLL_S = 5.0
STUCK_S = 30.0
# All workers close at the same time, each within 5 s.
STOP_S = 5.5


class Supervisor:
    """Starts the workers, and ends them in order. The `Crew` of the HTTP side's view."""

    def __init__(
        self, options: ServeOptions, destinations: Sequence[DestinationConfig], origins: tuple[Origin, ...]
    ) -> None:
        self.view = WorkersView(self, destinations)
        self.connections_refused = 0
        self._options = options
        self._origins = origins
        self._server_id = secrets.token_hex(8)
        self._directory = Directory()
        self._workers: dict[int, WorkerProcess] = {}
        self._restarts = dict.fromkeys(range(options.workers), 0)
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__)
        self._listener: Listener | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._poller: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._handlers = {
            "find": lambda worker, message: self._directory.find(message["key"]),
            "claim": lambda worker, message: self._directory.claim(message["key"], worker.number),
            "release": lambda worker, message: self._directory.release(message["key"], worker.number),
            "dial": self._dial,
            "acquire": self._acquire,
            "let_go": self._let_go,
            "counters": lambda worker, message: self.view.told(worker.number, message["snapshot"]),
        }

    # Life -----------------------------------------------------------------------------------------------------

    async def start(self, sockets: list[socket.socket]) -> bool:
        """Start all workers and accept connections for them; False if one does not come up."""
        if self._options.telemetry:
            with suppress(OSError):  # each worker says so itself
                # Before them: each would make an identity of its own in an empty folder.
                load_identity(self._options.data_dir)
        workers = await asyncio.gather(*(self._start(number) for number in range(self._options.workers)))
        are_ready = await asyncio.gather(*(worker.wait_ready() for worker in workers))
        self._keepers = [self._loop.create_task(self._keep(worker)) for worker in workers]
        if not all(are_ready):
            return False
        self._listener = Listener(self._loop, sockets, self._accepted, self._accept_failed)
        self._poller = self._loop.create_task(self._poll())
        return True

    async def close(self) -> None:
        """Stop accepting, have every worker end, end those that do not."""
        self._stopping.set()
        if self._listener is not None:
            self._listener.close()
        if self._poller is not None:
            self._poller.cancel()
        for worker in self._workers.values():
            worker.stop()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=STOP_S)
        for worker in self._workers.values():
            self._log.error("Worker did not stop", worker=worker.number, pid=worker.pid)
            worker.kill()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=1.0)

    async def _start(self, number: int) -> WorkerProcess:
        start = WorkerStart(number, self._server_id, self._options, self.view.items, self._origins)
        worker = await WorkerProcess.start(start, self._handlers)
        self._workers[number] = worker
        self._log.info("Worker started", worker=number, pid=worker.pid)
        return worker

    async def _keep(self, worker: WorkerProcess) -> None:
        """Restart the worker of this number as often as it dies, but not faster and faster."""
        number, failures = worker.number, 0
        while True:
            status = await worker.wait()
            self._gone(worker)
            if self._stopping.is_set():
                return
            lived_s = self._loop.time() - worker.started_s
            failures = 0 if lived_s > STABLE_S else failures + 1
            delay_s = min(FIRST_DELAY_S * 2 ** (failures - 1), MAX_DELAY_S) if failures else 0.0
            fields = {"status": status, "lived_s": round(lived_s, 1), "restart_in_s": delay_s}
            self._log.error("Worker ended", worker=number, pid=worker.pid, **fields)
            again = await self._restart(number, delay_s)
            if again is None:
                return
            worker = again

    async def _restart(self, number: int, delay_s: float) -> WorkerProcess | None:
        """The next worker of this number; None if we are stopping."""
        while True:
            try:
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
                return None
            except TimeoutError:
                pass
            self._restarts[number] += 1
            try:
                worker = await self._start(number)
            except OSError as error:  # no process to be had
                self._log.error("Worker failed", worker=number, error=error.strerror)
                delay_s = MAX_DELAY_S
                continue
            if self._stopping.is_set():
                worker.stop()
            elif await worker.wait_ready():
                # What was changed while it started.
                worker.channel.tell("destinations", destinations=self.view.items)
            else:
                worker.kill()
            return worker

    def _gone(self, worker: WorkerProcess) -> None:
        if self._workers.get(worker.number) is worker:
            del self._workers[worker.number]
        self.view.worker_gone(worker.number)
        for name, following in self._directory.drop(worker.number):
            self._grant(name, following)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self.view.refresh()
            for worker in list(self._workers.values()):
                if worker.is_ready and self._loop.time() - worker.answered_s > STUCK_S:
                    self._log.error("Worker is stuck", worker=worker.number, pid=worker.pid)
                    worker.kill()

    # Connections ----------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        return self._listener.addresses if self._listener is not None else []

    def _accepted(self, sock: socket.socket, remote: str) -> None:
        """To each worker in turn; to the next where one takes nothing."""
        with sock:
            count = self._options.workers
            for _ in range(count):
                self._next = (self._next + 1) % count
                worker = self._workers.get(self._next)
                if worker is not None and worker.give(Kind.CLIENT, sock):
                    return
        self.connections_refused += 1
        self._log.warn("Connection refused", remote=remote, reason="no worker takes it")

    def _accept_failed(self, error: OSError) -> None:
        self.connections_refused += 1
        self._log.error("Accept failed", error=error.strerror)

    def _dial(self, worker: WorkerProcess, message: Mapping[str, Any]) -> bool:
        """A connection between two workers: one end to each."""
        other = self._workers.get(message["worker"])
        if other is None:
            return False
        theirs, own = socket.socketpair()
        with theirs, own:
            return other.give(Kind.INTERNAL, theirs) and worker.give(Kind.DIALLED, own, message["number"])

    # Destinations ---------------------------------------------------------------------------------------------

    def _acquire(self, worker: WorkerProcess, message: Mapping[str, Any]) -> None:
        if self._directory.acquire(message["name"], worker.number):
            self._grant(message["name"], worker.number)

    def _let_go(self, worker: WorkerProcess, message: Mapping[str, Any]) -> None:
        following = self._directory.let_go(message["name"], worker.number)
        if following is not None:
            self._grant(message["name"], following)

    def _grant(self, name: str, number: int) -> None:
        worker = self._workers.get(number)
        if worker is not None:
            worker.channel.tell("lease", name=name)

    # The view's side ------------------------------------------------------------------------------------------

    async def snapshots(self) -> Mapping[int, Mapping[str, Any]]:
        workers = [worker for worker in self._workers.values() if worker.is_ready]
        shown = await asyncio.gather(*(worker.snapshot() for worker in workers))
        # One that died meanwhile has been counted as gone.
        return {
            worker.number: one
            for worker, one in zip(workers, shown, strict=True)
            if one is not None and self._workers.get(worker.number) is worker
        }

    def change_destinations(self, items: list[dict[str, Any]]) -> None:
        for worker in self._workers.values():
            if worker.is_ready:
                worker.channel.tell("destinations", destinations=items)

    def drop_publisher(self, stream_key: str) -> bool:
        owner = self._directory.find(stream_key)
        worker = self._workers.get(owner) if owner is not None else None
        if worker is None:
            return False
        worker.channel.tell("drop", key=stream_key)
        return True

    def describe(self) -> list[dict[str, Any]]:
        now_s = self._loop.time()
        shown = []
        for number in range(self._options.workers):
            worker = self._workers.get(number)
            shown.append(
                {
                    "worker": number,
                    "pid": worker.pid if worker is not None else None,
                    "is_ready": worker is not None and worker.is_ready,
                    "age_s": round(now_s - worker.started_s, 1) if worker is not None else 0.0,
                    "restarts": self._restarts[number],
                }
            )
        return shown
