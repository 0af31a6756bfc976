"""The pipeline beside the server: started by it, ended with it, and not missed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.harness import SERVE, ServerProcess, Stage


def companion_pid(server: ServerProcess) -> int:
    return int(server.wait_for_log("Pipeline started")["pid"])


def wait_gone(pid: int) -> None:
    end_s = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end_s, "the pipeline goes on without its server"
        time.sleep(0.05)


@pytest.fixture
def server(stage: Stage, tmp_path: Path) -> ServerProcess:
    return stage.server("-pipeline", "on", "-record-dir", tmp_path / "recordings")


def test_the_pipeline_ends_with_the_server(server: ServerProcess) -> None:
    pid = companion_pid(server)
    assert server.stop() < 5
    wait_gone(pid)
    assert not server.logged("Pipeline ended")


def test_several_workers_have_one_pipeline(stage: Stage, tmp_path: Path) -> None:
    server = stage.server("-pipeline", "on", "-record-dir", tmp_path / "recordings", "-workers", "2")
    pid = companion_pid(server)
    assert server.stop() < 5
    wait_gone(pid)
    assert len(server.logged("Pipeline started")) == 1


def test_a_pipeline_that_dies_is_one_line_and_the_server_goes_on(server: ServerProcess) -> None:
    server.expected_errors.add("Pipeline ended")
    os.kill(companion_pid(server), signal.SIGKILL)
    assert server.wait_for_log("Pipeline ended")["status"] == -signal.SIGKILL
    assert server.is_running
    assert server.stop() < 5


def test_a_second_pipeline_on_the_same_tables_says_why_it_ends(stage: Stage, server: ServerProcess) -> None:
    companion_pid(server)
    lock = stage.folder / "server-0-data" / "lake" / "_lock"
    server.wait_until("the lock", lambda: (lock.exists() and "run" in lock.read_text()) or None)
    other = stage.server("-pipeline", "on", "-data-dir", lock.parents[1], "-record-dir", stage.folder / "recordings")
    other.expected_errors.add("Pipeline ended")
    ended = other.wait_for_log("Pipeline ended")
    assert (ended["status"], "one job at a time" in ended["said"]) == (1, True)


def test_the_pipeline_does_not_outlive_a_server_that_is_killed(server: ServerProcess) -> None:
    pid = companion_pid(server)
    server.kill()
    wait_gone(pid)


def test_tables_without_events_are_refused(stage: Stage) -> None:
    process = stage.run("server", *SERVE, "-pipeline", "on", "-telemetry", "off")
    assert process.wait() == 2
    assert "-pipeline: found on with -telemetry off" in process.output
