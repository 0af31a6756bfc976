"""The parent with real workers: connections in turn, and what becomes of one that dies, hangs or never comes up."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.net.listener import bind
from headrace.options import ServeOptions
from headrace.workers import supervisor as supervisor_module
from headrace.workers.supervisor import Supervisor
from tests.helpers.loops import LOOP_FACTORIES, run
from tests.helpers.origin import LogCapture
from tests.helpers.waiting import eventually_async

SOURCES = Path(supervisor_module.__file__).parents[2]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogCapture]:
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    capture = LogCapture()
    yield capture
    capture.close()


def options(tmp_path: Path, **more: Any) -> ServeOptions:
    return ServeOptions(data_dir=tmp_path / "data", log_level="error", **{"workers": 2, **more})


def lines(log: LogCapture, message: str, **fields: Any) -> list[dict[str, Any]]:
    return [one for one in log.lines(message) if all(one.get(name) == value for name, value in fields.items())]


def test_connections_are_given_to_the_workers_in_turn_and_to_the_other_while_one_is_away(
    tmp_path: Path, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_S", 3600.0)  # who dies stays away
    monkeypatch.setattr(supervisor_module, "MAX_DELAY_S", 3600.0)

    async def accepted(parent: Supervisor) -> list[int]:
        shown = await parent.snapshots()
        return [one["counters"]["connections_accepted"] for _, one in sorted(shown.items())]

    async def test() -> None:
        parent = Supervisor(options(tmp_path), [], ())
        sockets = bind("127.0.0.1", 0)
        address = sockets[0].getsockname()
        assert await parent.start(sockets)
        held = [socket.create_connection(address) for _ in range(6)]
        await _until(parent, [3, 3], accepted)
        os.kill(parent.describe()[0]["pid"], signal.SIGKILL)
        await eventually_async(lambda: log.lines("Worker ended"), "the end of a worker")
        held += [socket.create_connection(address) for _ in range(4)]
        await _until(parent, [7], accepted)
        assert [one["is_ready"] for one in parent.describe()] == [False, True]
        os.kill(parent.describe()[1]["pid"], signal.SIGKILL)
        await eventually_async(lambda: len(log.lines("Worker ended")) == 2, "the end of both")
        lost = socket.create_connection(address)
        await eventually_async(lambda: parent.connections_refused == 1, "it to be refused")
        for sock in (*held, lost):
            sock.close()
        await parent.close()

    run(LOOP_FACTORIES["uvloop"], test)


async def _until(parent: Supervisor, expected: list[int], ask: Any) -> None:
    for _ in range(200):
        if await ask(parent) == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not {expected} but {await ask(parent)}")


def test_a_worker_that_hangs_is_ended_and_replaced(
    tmp_path: Path, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "POLL_S", 0.2)
    monkeypatch.setattr(supervisor_module, "STUCK_S", 1.0)

    async def test() -> None:
        parent = Supervisor(options(tmp_path, workers=1), [], ())
        assert await parent.start(bind("127.0.0.1", 0))
        pid = parent.describe()[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        await eventually_async(lambda: lines(log, "Worker is stuck", pid=pid), "it to be noticed")
        await eventually_async(
            lambda: parent.describe()[0]["is_ready"] and parent.describe()[0]["pid"] != pid, "another in its place"
        )
        assert parent.describe()[0]["restarts"] == 1
        await parent.close()

    run(LOOP_FACTORIES["uvloop"], test)


def test_workers_that_do_not_come_up_are_an_error_at_the_start_and_are_not_started_faster_and_faster(
    tmp_path: Path, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(supervisor_module, "MAX_DELAY_S", 0.2)

    async def test() -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        sockets = bind("127.0.0.1", 0)
        parent = Supervisor(options(tmp_path, workers=1), [], ())
        assert not await parent.start(sockets)
        await eventually_async(lambda: len(log.lines("Worker ended")) >= 4, "several starts")
        await parent.close()
        sockets[0].close()
        delays = [line["restart_in_s"] for line in log.lines("Worker ended")]
        assert delays[:4] == [0.05, 0.1, 0.2, 0.2]

    run(LOOP_FACTORIES["uvloop"], test)


def test_a_worker_that_does_not_stop_is_ended(tmp_path: Path, log: LogCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_S", 0.5)

    async def test() -> None:
        parent = Supervisor(options(tmp_path), [], ())
        assert await parent.start(bind("127.0.0.1", 0))
        pids = [one["pid"] for one in parent.describe()]
        os.kill(pids[1], signal.SIGSTOP)
        await parent.close()
        assert [line["worker"] for line in log.lines("Worker did not stop")] == [1]
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    run(LOOP_FACTORIES["uvloop"], test)
