from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.jobs.logs_on_disk import event_keys, read, some_stream, write_events

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]

KILLS = 3
DEADLINE_S = 600.0  # against hanging: with six other jobs on two cores the last run alone took more than four minutes


def start(data: Path, lake: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headrace", "pipeline", "run", "--master", "local[2]"]
    command += ["--data-dir", str(data), "--record-dir", str(data / "none"), "--lake", str(lake), *words]
    # A session of its own, so that the JVM can be ended with it.
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def parts(lake: Path) -> int:
    return len(list((lake / "bronze" / "events").glob("stream-*")))


def test_every_row_is_there_once_after_kill_9_in_flight(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    streams = 0

    def add_stream() -> None:
        nonlocal streams
        streams += 1
        events = some_stream("n1", f"n1.b.{streams}", 1000 * streams, start_ms=10_000 * streams)
        write_events(data, f"a{streams}", events[:7])
        write_events(data, f"b{streams}", events[6:])  # one event twice

    for kill in range(KILLS):
        add_stream()
        job = start(data, lake)
        seen = parts(lake) if lake.exists() else 0
        if kill:
            wait_until(lambda seen=seen: parts(lake) > seen)  # type: ignore[misc]
            add_stream()
        else:
            # While a batch is being written.
            wait_until(lambda: any((lake / "_tmp").glob("*/_temporary")) or parts(lake) > 0)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    last = start(data, lake, "--once")
    try:
        assert last.wait(DEADLINE_S) == 0
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
            last.wait()

    size = len(some_stream("n", "s", 0))
    expected = [("n1", 1000 * stream + number) for stream in range(1, streams + 1) for number in range(size)]
    assert event_keys(lake) == expected
    assert len(read(lake, "destination_health")) == streams
    assert len(read(lake, "sessions")) == 3 * streams
    assert not list((lake / "_tmp").iterdir())
