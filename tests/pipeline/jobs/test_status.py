"""What a job notes while it works, and what `headrace pipeline status` makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import cli
from headrace.pipeline.jobs import status
from headrace.pipeline.jobs.board import FILE, Board, read_status
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.stores.local import LocalStore
from tests.pipeline.jobs.logs_on_disk import some_stream, write_events
from tests.pipeline.tables.rows import T0

NOW_S = T0 / 1000 + 100


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def test_a_board_says_what_was_taken_in_built_and_failed(tmp_path: Path) -> None:
    clock = Clock()
    board = Board(LocalStore(tmp_path), "run", clock)
    board.watch("events-1", "events", Path("/data"))
    board.took_in("events-1", 10, 1, 0.5)
    clock.now_s += 2
    board.took_in("events-1", 5, 0, 0.25)
    board.built("events", 2, 1.5, T0)
    board.built("events", 1, 0.5, None)
    board.failed("events: no such thing", "events-1")
    told = read_status(LocalStore(tmp_path))
    assert told is not None
    assert (told.job, told.pid, told.state, told.started_at) == ("run", os.getpid(), "running", NOW_S)
    source = told.sources["events-1"]
    assert (source.batches, source.rows, source.problems, source.failures) == (2, 15, 1, 1)
    assert (source.last_at, source.last_took_s) == (NOW_S + 2, 0.25)
    lane = told.lanes["events"]
    assert (lane.builds, lane.last_streams, lane.last_took_s, lane.newest_event_ms) == (2, 1, 0.5, T0)
    assert (told.last_error, told.last_error_at) == ("events: no such thing", NOW_S + 2)
    board.end()
    assert (ended := read_status(LocalStore(tmp_path))) is not None
    assert ended.state == "ended"


def test_a_board_is_not_written_more_than_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    board = Board(LocalStore(tmp_path), "run", clock)
    board.watch("a", "events", Path("/data"))
    before = (tmp_path / FILE).stat().st_ino
    board.took_in("a", 1, 0, 0.1)
    assert (tmp_path / FILE).stat().st_ino == before
    clock.now_s += 1
    board.took_in("a", 1, 0, 0.1)
    assert (told := read_status(LocalStore(tmp_path))) is not None
    assert told.sources["a"].rows == 2


def test_a_board_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    board = Board(LocalStore(tmp_path / "nowhere"), "run")
    board.failed("a reason")
    assert read_status(LocalStore(tmp_path / "nowhere")) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"job": "run", "sources": 1, "lanes": {}}'])
def test_a_board_of_another_shape_is_no_board(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert read_status(LocalStore(tmp_path)) is None


def lake_with_rows(tmp_path: Path) -> Path:
    with open_lake(tmp_path / "lake", "a test") as lake:
        schema = lake.arrow_schema("problems")
        row = {"source": "events", "file": "x", "found": "junk", "expected": "an event", "count": 1}
        lake.add_part("problems", "part", pa.Table.from_pylist([row], schema=schema))
    return tmp_path / "lake"


def test_status_tells_of_the_job_its_lag_and_the_tables(tmp_path: Path) -> None:
    lake_dir = lake_with_rows(tmp_path)
    clock = Clock()
    board = Board(LocalStore(lake_dir), "run", clock)
    data = tmp_path / "data"
    write_events(data, "a", some_stream("n1", "n1.b.1", 1))
    (file,) = data.glob("events/*/*/*.jsonl")
    os.utime(file, (T0 / 1000 + 7, T0 / 1000 + 7))
    board.watch("events-1", "events", data)
    board.took_in("events-1", 16, 1, 0.5)
    clock.now_s += 5
    board.built("events", 1, 1.5, T0 + 3000)
    report = status.look(lake_dir)
    assert report.is_running
    assert report.behind_s == pytest.approx(4.0)
    text = status.to_text(report, NOW_S + 65)
    assert f"run, process {os.getpid()}, running for 1m5s" in text
    assert f"events of {data}: 16 rows, 1 quarantined, 1 batches; last 1m5s ago, took 0.5 s" in text
    assert "of events: 1 builds; last 1m ago, 1 stream in 1.5 s, events up to 2027-01-15 08:00:03 UTC" in text
    assert "4s behind the newest file of events" in text
    assert "in 0, out 0, quarantined 1" in text
    problems = next(table for table in report.tables if table.table == "problems")
    assert (problems.layer, problems.rows, problems.files) == ("bronze", 1, 2)
    board.end("the disk is full")
    text = status.to_text(status.look(lake_dir), NOW_S + 65)
    assert "run failed 1m ago" in text
    assert "1m ago: the disk is full" in text


def test_a_job_that_was_killed_is_told_as_gone(tmp_path: Path) -> None:
    lake_dir = lake_with_rows(tmp_path)
    code = (
        "import pathlib; from headrace.pipeline.jobs.board import Board;"
        " from headrace.pipeline.stores.local import LocalStore;"
        f" Board(LocalStore(pathlib.Path({str(lake_dir)!r})), 'run')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    report = status.look(lake_dir)
    assert not report.is_running
    assert "is gone without a word" in status.to_text(report)


def test_the_command_gives_text_json_and_one_line_without_a_lake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake_dir = lake_with_rows(tmp_path)
    assert cli.main(["pipeline", "status", "--lake", str(lake_dir)]) == 0
    assert "none has run here yet" in capsys.readouterr().out
    assert cli.main(["pipeline", "status", "--lake", str(lake_dir), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"lake", "status", "is_running", "behind_s", "tables"} == told.keys()
    assert cli.main(["pipeline", "status", "--data-dir", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().err
    assert "there is no lake at" in said
    assert said.count("\n") == 1


def test_status_needs_no_spark(tmp_path: Path) -> None:
    lake_dir = lake_with_rows(tmp_path)
    code = (
        "import sys; from headrace import cli\n"
        f"cli.main(['pipeline', 'status', '--lake', {str(lake_dir)!r}])\n"
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
