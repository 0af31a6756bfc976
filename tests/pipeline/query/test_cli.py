"""`headrace query` as it is typed: formats, statuses, and the one line for every mistake."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace import cli
from headrace.pipeline.query.lake import find_tables
from headrace.pipeline.query.types import spark_type

SOURCE = Path(cli.__file__).parents[1]
ENDLESS = "select count(*) from range(1000000000000) a, range(1000000) b where hash(a.range, b.range) = 3"


def command(night: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "query", "--lake", str(night), *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


def run(night: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(night, *words),
        input=text,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


# --- answers


def test_json_is_typed(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select * from destination_health where destination = 'YouTube'"
    assert cli.main(["query", sql, "--lake", str(night), "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["first_seen_at"] == "2027-01-14T20:00:00.000Z"
    assert row["availability"] == pytest.approx(559 / 588)
    assert (row["attempts"], row["dropped"], row["mtbf_ms"]) == (3, {"evicted": 1900, "lag": 120}, None)


def test_lists_of_structs_stay_what_they_are(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select issues, started_at from stream_health where status = 'bad'"
    assert cli.main(["query", sql, "--lake", str(night), "--format", "json"]) == 0
    issue = {
        "name": "videoIngestionStarved",
        "severity": "error",
        "measured": 7000.0,
        "threshold": 2000.0,
        "unit": "ms",
    }
    assert json.loads(capsys.readouterr().out) == {"issues": [issue], "started_at": "2027-01-14T20:05:00.000Z"}


def test_what_is_piped_is_csv(night: Path) -> None:
    done = run(night, "select name, skipped_by_reason from relay_audit where skipped > 0 order by name")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["name", "skipped_by_reason"],
        ["Archive", '{"not_connected": 42000}'],
        ["YouTube", '{"evicted": 1900, "lag": 120}'],
    ]


def test_on_a_terminal_it_is_a_table_as_wide_as_that(night: Path) -> None:
    ours, theirs = pty.openpty()
    words = command(night, "select path, error from recordings order by path")
    with subprocess.Popen(words, env={**environment(), "COLUMNS": "40", "TERM": "xterm"}, stdout=theirs) as started:
        assert started.wait(60) == 0
    os.close(theirs)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", os.read(ours, 65536).decode()).splitlines()
    os.close(ours)
    assert lines[0].split() == ["path", "error"]
    assert lines[-1] == "(2 rows)"
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("way", ["-", "--file"])
def test_sql_may_come_from_standard_input_or_from_a_file(night: Path, tmp_path: Path, way: str) -> None:
    sql = "-- the show's name, and an é\nselect distinct stream, 'é' from incidents;\n"
    (tmp_path / "q.sql").write_text(sql, "utf-8")
    words = ["-"] if way == "-" else ["--file", str(tmp_path / "q.sql")]
    done = run(night, *words, "--format", "csv", text=sql if way == "-" else "")
    assert done.stdout.splitlines()[1] == "live/show,é"


def test_sql_may_begin_with_a_comment(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["query", "-- all of them\nselect 1 as one", "--lake", str(night), "--format", "csv"]) == 0
    assert capsys.readouterr().out == "one\r\n1\r\n"


def test_without_sql_the_tables_are_listed_with_their_columns(night: Path) -> None:
    done = run(night)
    tables = find_tables(night, made_by="").values()
    expected = [[t.layer, t.name, column, spark_type(kind)] for t in tables for column, kind in t.columns.items()]
    assert list(csv.reader(io.StringIO(done.stdout))) == [["layer", "table", "column", "type"], *expected]


def test_the_lake_is_that_of_the_data_directory_unless_named(tmp_path: Path, night: Path) -> None:
    (tmp_path / "lake").symlink_to(night)
    done = run(night, "select count(*) as n from audience")
    words = [sys.executable, "-m", "headrace", "query", "select count(*) as n from audience", "--data-dir", "."]
    other = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert other.stdout == done.stdout == "n\n3\n"


# --- what it costs


def test_duckdb_answers_without_pyspark_pyarrow_or_a_jvm(night: Path) -> None:
    code = (
        "import sys; from headrace.cli import main;"
        f"main(['query', 'select 1 as one', '--lake', {str(night)!r}, '--format', 'csv']);"
        "heavy = ('pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j', 'rich');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "one\n1\n[]\n"


# --- mistakes


def test_no_lake_is_one_line_that_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["query", "select 1", "--data-dir", str(tmp_path / "my data")]) == 1
    place = tmp_path / "my data"
    expected = f"there is no lake at {place}/lake: headrace pipeline batch --data-dir '{place}' makes one"
    assert capsys.readouterr().err == f"headrace query: {expected}\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["select", "1"], "found 2 words of SQL, expected them in quotes, as one"),
        (["select 1", "--file", "x.sql"], "found SQL and --file, expected one of them"),
        (["--file", "/nowhere/x.sql"], "--file: /nowhere/x.sql: No such file or directory"),
        (["--format", "xml", "select 1"], "argument --format: invalid choice: 'xml'"),
        (["--conf", "spark.x=y", "select 1"], "found --conf, expected --master with it"),
        (["--tables"], "unrecognized arguments: --tables"),
        (["--form", "csv", "select 1"], "unrecognized arguments: --form"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["query", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"headrace query: {complaint}")
    assert err.count("\n") == 1


def test_a_file_that_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "q.sql").write_bytes(b"select '\xff'")
    assert cli.main(["query", "--file", str(tmp_path / "q.sql")]) == 2
    assert "found bytes that are no UTF-8 text" in capsys.readouterr().err


@pytest.mark.parametrize("sql", ["selec 1", "select nothing from audience", "select * from nothing", "drop view x", ""])
def test_sql_without_an_answer_is_one_line_and_status_1(
    night: Path, sql: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["query", sql, "--lake", str(night)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headrace query: ")
    assert err.count("\n") == 1


def test_without_duckdb_there_is_one_sentence(
    night: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["query", "select 1", "--lake", str(night)]) == 1
    assert capsys.readouterr().err == "headrace query: a query needs duckdb, rich; install headrace[pipeline]\n"


def test_help_names_the_formats_and_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["query", "--help"]) == 0
    out = capsys.readouterr().out
    assert "table (default on a terminal), csv (default elsewhere" in out
    assert "--master" in out


# --- how it ends


@pytest.mark.parametrize("format_name", ["csv", "json", "table"])
def test_a_reader_that_has_enough_ends_it_quietly(night: Path, format_name: str) -> None:
    words = command(night, "select * from range(1000000000)", "--format", format_name)
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        assert started.stdout.readline()
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(60) == 0


@pytest.mark.parametrize("sql", [ENDLESS, "select * from range(100000000) order by hash(range)"])
def test_ctrl_c_ends_it_quietly_and_leaves_nothing(night: Path, tmp_path: Path, sql: str) -> None:
    settings = {**environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command(night, sql), env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        _wait_for_work(started, tmp_path)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    assert (started.returncode, out, err) == (130, b"", b"")
    assert not list(tmp_path.iterdir())


def _wait_for_work(started: subprocess.Popen[bytes], folder: Path) -> None:
    """Its temporary folder is the first thing that a query makes; it computes when it has used a second of the CPU."""
    ticks = os.sysconf("SC_CLK_TCK")
    while started.poll() is None:
        used = Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()[11]
        if list(folder.iterdir()) and int(used) > ticks:
            return
        time.sleep(0.02)  # a look, not a wait: the deadline is the test's own
    raise AssertionError("ended by itself")


def test_an_answer_that_cannot_be_written_is_told(night: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(night, "select * from audience"),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == b"headrace query: the answer cannot be written: No space left on device\n"
