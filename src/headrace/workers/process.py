"""One worker as its parent sees it: a process, a channel to talk to it, a way to give it connections."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from headrace.workers.channel import Channel, ChannelError
from headrace.workers.handover import Kind, hand_over
from headrace.workers.start import WorkerStart

# Importing takes some tenths of a second; a machine may be busy.
READY_S = 30.0

Handler = Callable[["WorkerProcess", Mapping[str, Any]], Any]


class WorkerProcess:
    """From its start to its end; another one takes its number then."""

    def __init__(self, number: int, process: Process, channel: Channel, handover: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.pid = process.pid
        self.started_s = loop.time()
        self.answered_s = loop.time()  # when it last showed that it lives
        self.is_ready = False
        self.channel = channel
        self._process = process
        self._handover = handover
        self._ready = asyncio.Event()
        self._listening = loop.create_task(channel.run())

    @classmethod
    async def start(cls, start: WorkerStart, handlers: Mapping[str, Handler]) -> WorkerProcess:
        """A process that has been told what to do. OSError if there is none to be had."""
        ours, theirs = socket.socketpair()
        our_handover, their_handover = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headrace.worker",
                str(theirs.fileno()),
                str(their_handover.fileno()),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(), their_handover.fileno()),
                # Ctrl-C in the terminal is for the parent, which then tells the workers.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            our_handover.close()
            raise
        finally:
            theirs.close()
            their_handover.close()
        ours.setblocking(False)
        our_handover.setblocking(False)
        told = pickle.dumps(start)
        with suppress(OSError):  # it is gone already, as the wait for it will tell
            await asyncio.get_running_loop().sock_sendall(ours, len(told).to_bytes(8, "big") + told)
        bound: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
        worker = cls(start.worker, process, await Channel.over(ours, bound), our_handover)
        bound["ready"] = worker._became_ready
        for what, handler in handlers.items():
            bound[what] = _bind(handler, worker)
        return worker

    def _became_ready(self, message: Mapping[str, Any]) -> None:
        self.is_ready = True
        self._ready.set()

    async def wait_ready(self) -> bool:
        """False if it ended, or did not come up in time."""
        waits = [asyncio.create_task(self._ready.wait()), asyncio.create_task(self._process.wait())]
        await asyncio.wait(waits, timeout=READY_S, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        return self.is_ready

    async def wait(self) -> int:
        """Its exit status, once it has ended and all it said has been heard."""
        status = await self._process.wait()
        self.is_ready = False
        await asyncio.wait((self._listening,), timeout=1.0)
        self.channel.close()
        self._handover.close()
        return status

    def give(self, kind: Kind, sock: socket.socket, number: int = 0) -> bool:
        return self.is_ready and hand_over(self._handover, kind, sock, number)

    async def snapshot(self) -> Mapping[str, Any] | None:
        """What it shows now; None if it does not answer in time."""
        try:
            shown: Mapping[str, Any] = await self.channel.ask("snapshot")
        except ChannelError:
            return None
        self.answered_s = asyncio.get_running_loop().time()
        return shown

    def stop(self) -> None:
        self.is_ready = False
        self.channel.tell("stop")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _bind(handler: Handler, worker: WorkerProcess) -> Callable[[Mapping[str, Any]], Any]:
    return lambda message: handler(worker, message)
