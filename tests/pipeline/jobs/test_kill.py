from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from headrace.pipeline.resolutions import WINDOWS_S
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import event_keys, read, some_stream, write_events

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

DEADLINE_S = 600.0  # against hanging: with six other jobs on two cores the last run alone took more than four minutes
_LOOK_S = 0.01
# Each JVM lives for some seconds: code of the quick compiler is there sooner.
_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}

Moment = Callable[[Path], set[str]]  # names of what a job has begun and not finished


def _batches(lake: Path, what: str, step: str) -> set[int]:
    """The numbers of the batches that a query planned (offsets) or finished (commits)."""
    paths = (lake / "_checkpoints").glob(f"{what}-*/{step}/[0-9]*")
    return {int(path.name) for path in paths if path.name.isdigit()}


def _parts(lake: Path, what: str) -> set[int]:
    return {int(path.name[-9:]) for path in (lake / "bronze" / what).glob("stream-*")}


def reading(what: str) -> Moment:
    """A batch is planned, and its part is not there: it is being read, or written elsewhere."""

    def moment(lake: Path) -> set[str]:
        planned = _batches(lake, what, "offsets") - _batches(lake, what, "commits")
        return {str(number) for number in planned - _parts(lake, what)}

    return moment


def writing(lake: Path) -> set[str]:
    return {str(path) for path in (lake / "_tmp").glob("*/_temporary")}


def renamed(what: str) -> Moment:
    """The part is there, and Spark does not know yet: the batch will be done again."""

    def moment(lake: Path) -> set[str]:
        return {str(number) for number in _parts(lake, what) - _batches(lake, what, "commits")}

    return moment


def building(table: str, note: str) -> Moment:
    """A stream's new rows are in this table, and the lake's note does not say so yet."""

    def moment(lake: Path) -> set[str]:
        built = lake / note
        built_ns = built.stat().st_mtime_ns if built.exists() else 0
        found = [(path.name, path.stat().st_mtime_ns) for path in lake.glob(f"*/{table}/*-*.parquet")]
        return {f"{name} {mtime_ns}" for name, mtime_ns in found if mtime_ns > built_ns}

    return moment


# Ten kills. Sessions are the first that is built of events, the catalogue is among the last of recordings.
KILLS: list[Moment] = [
    writing,
    reading("tags"),
    renamed("events"),
    renamed("tags"),
    building("sessions", "_told.json"),
    reading("events"),
    renamed("tags"),
    writing,
    renamed("events"),
    building("recordings", "_built.json"),
]


class Source:
    """A server's files: a stream's events at every `add_stream`, and a recording that grows, never by whole tags."""

    def __init__(self, root: Path, shares: int) -> None:
        self.data_dir, self.record_dir = root / "data", root / "recordings"
        self.record_dir.mkdir()
        self.recording = self.record_dir / "live_show_20270115_080000.flv"
        self.tags = recording(frames=1000)
        self.streams = 0
        self._content = HEADER + b"".join(self.tags)
        self._shares = shares
        self._written = 0

    def add_stream(self) -> None:
        self.streams += 1
        events = some_stream("n1", f"n1.b.{self.streams}", 1000 * self.streams, start_ms=10_000 * self.streams)
        # The first one is who is recorded. Of the others no file is there.
        name = self.recording if self.streams == 1 else f"/gone/live_show{self.streams}_20270115_080000.flv"
        for one in events:
            if one["type"] == "recording_opened":
                one["path"] = str(name)
        write_events(self.data_dir, f"a{self.streams}", events[:7])
        write_events(self.data_dir, f"b{self.streams}", events[6:])  # one event twice
        self._write_up_to(self._share_end() - len(self._content) // self._shares // 2)

    def grow(self) -> None:
        """By so little that it takes longer than a JVM to start."""
        self._write_up_to(min(self._written + 2, self._share_end()))

    def finish(self) -> None:
        self._write_up_to(len(self._content))

    def tag_keys(self) -> list[tuple[str, int, int]]:
        keys, offset = [], len(HEADER)
        for one in self.tags:
            timestamp_ms = int.from_bytes(one[4:7], "big")
            keys.append((str(self.recording), offset, timestamp_ms))
            offset += len(one)
        return keys

    def _share_end(self) -> int:
        return len(self._content) * self.streams // self._shares

    def _write_up_to(self, stop: int) -> None:
        with self.recording.open("ab") as file:
            file.write(self._content[self._written : stop])
        self._written = max(self._written, stop)


def start(source: Source, lake: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headrace", "pipeline", "run", "--master", "local[2]", "--lake", str(lake)]
    command += ["--data-dir", str(source.data_dir), "--record-dir", str(source.record_dir), *words]
    # A session of its own, so that the JVM can be ended with it.
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **_JAVA})


def kill_at(job: subprocess.Popen[bytes], is_so: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    """Looks while the job stands still, so that it is killed then and not a little later."""
    deadline_s = time.monotonic() + DEADLINE_S
    try:
        while True:
            meanwhile()
            if is_so():
                os.killpg(job.pid, signal.SIGSTOP)
                time.sleep(_LOOK_S)
                if is_so():
                    return
                os.killpg(job.pid, signal.SIGCONT)
            assert job.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(_LOOK_S)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def test_every_row_is_there_once_after_kill_9_in_flight(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    source = Source(tmp_path, shares=len(KILLS))
    for moment in KILLS:
        source.add_stream()
        before = moment(lake)  # what the last kill has left

        def is_so(moment: Moment = moment, before: set[str] = before) -> bool:
            return bool(moment(lake) - before)

        kill_at(start(source, lake), is_so, source.grow)
    source.finish()
    last = start(source, lake, "--once")
    try:
        assert last.wait(DEADLINE_S) == 0
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
            last.wait()

    assert_events_once(lake, source)
    assert_tags_once(lake, source)
    assert_tables_once(lake, source)
    assert not list((lake / "_tmp").iterdir())


def assert_events_once(lake: Path, source: Source) -> None:
    size = len(some_stream("n", "s", 0))
    expected = [("n1", 1000 * stream + number) for stream in range(1, source.streams + 1) for number in range(size)]
    assert event_keys(lake) == expected
    assert by_duckdb(lake / "bronze" / "events", "node, seq") == expected


def assert_tags_once(lake: Path, source: Source) -> None:
    names = ["path", "byte_offset", "timestamp_ms"]
    rows = ds.dataset(lake / "bronze" / "tags", format="parquet").to_table(columns=names).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == source.tag_keys()
    assert by_duckdb(lake / "bronze" / "tags", ", ".join(names)) == source.tag_keys()


def assert_tables_once(lake: Path, source: Source) -> None:
    once: dict[str | None, int] = {f"n1.b.{number}": 1 for number in range(1, source.streams + 1)}
    for table in ("destination_health", "recordings", "relay_audit"):
        assert streams_of(lake, table) == once, table
    assert streams_of(lake, "audience") == {**once, None: 1}  # None: plays of what is not there
    assert len(read(lake, "sessions")) == 3 * source.streams
    found = by_duckdb(lake / "gold" / "recordings", "found_path, found_tags", "found_path is not null")
    assert found == [(str(source.recording), len(source.tags))]
    frames = by_duckdb(
        lake / "silver" / "stream_windows", "window_s, sum(frames)::int", "clock = 'media' group by window_s"
    )
    assert frames == [(window_s, 1000) for window_s in WINDOWS_S]


def streams_of(lake: Path, table: str) -> dict[str | None, int]:
    return Counter(row[0] for row in by_duckdb(lake / "gold" / table, "stream_id"))


def by_duckdb(directory: Path, columns: str, condition: str = "true") -> list[tuple[Any, ...]]:
    source = f"read_parquet('{directory}/**/*.parquet', union_by_name = true)"
    with duckdb.connect() as connection:
        return connection.execute(f"select {columns} from {source} where {condition} order by all").fetchall()
