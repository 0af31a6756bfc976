from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.query import on_duckdb
from headrace.pipeline.query.lake import find_tables
from headrace.pipeline.query.values import as_json
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.query.night import SHOW, write_lake, write_rows
from tests.pipeline.query.test_sql import REFUSED


def ask(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    with on_duckdb.run(find_tables(lake, made_by=""), sql) as result:
        return [tuple(row) for row in result.rows]


def complaint(lake: Path, sql: str) -> str:
    with pytest.raises(PipelineError) as caught:
        ask(lake, sql)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def digest(lake: Path) -> str:
    """Of every name and every byte."""
    whole = hashlib.sha256()
    for path in sorted(lake.rglob("*")):
        whole.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return whole.hexdigest()


# --- answers


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_the_rows_and_types_that_other_readers_see(night: Path, table: str) -> None:
    expected = pq.read_table(night / TABLES[table].layer / table)
    with on_duckdb.run(find_tables(night, made_by=""), f"select * from {table}") as result:
        found = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    rows = [{**row, **_as_dicts(row, "dropped", "skipped_by_reason")} for row in expected.to_pylist()]
    assert sorted(map(as_json, found)) == sorted(map(as_json, rows))


def _as_dicts(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """pyarrow hands maps out as pairs."""
    return {name: dict(row[name]) for name in names if row.get(name) is not None}


def test_columns_that_older_files_lack_are_null(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake")
    old = lake / "bronze" / "events" / "older" / "few.parquet"
    old.parent.mkdir()
    pq.write_table(pa.table({"seq": pa.array([9], pa.int64()), "stream": ["live/old"], "of_old": [1]}), old)
    rows = ask(lake, "select stream, boot, dropped from events where seq = 9 or seq = 1 order by seq")
    assert rows == [("live/show", "b", None), ("live/old", None, None)]
    assert "of_old" not in ask(lake, "select list(column_name) from (describe events)")[0][0]


@pytest.mark.parametrize("name", ["with 'quotes' and [b]rackets*?", 'day=2027-01-14, "x"', "日本"])
def test_a_lake_may_be_called_anything(tmp_path: Path, name: str) -> None:
    lake = write_lake(tmp_path / name / "lake")
    assert ask(lake, "select count(*), count(columns(*)) from audience")[0][0] == 3


def test_times_are_utc_whatever_the_machine_thinks(night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    sql = "select strftime(min(started_at), '%c %Z'), date_trunc('day', min(started_at))::varchar from incidents"
    assert ask(night, sql) == [("2027-01-14 20:05:03 UTC", "2027-01-14 00:00:00+00")]


# --- while a job replaces files


def show_of(lake: Lake, rows: int, streams: int = 1) -> None:
    """Streams with so many windows, each of which says how many there are."""
    of = [{**SHOW, "stream_id": f"n1.b.{number}"} for number in range(streams)]
    write_rows(lake, "stream_health", [{**one, "status": "good", "total_bps": rows} for one in of for _ in range(rows)])


def test_a_query_sees_one_state_of_every_stream_though_all_are_replaced_meanwhile(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        show_of(lake, 500, streams=120)
        tables = find_tables(tmp_path, made_by="")
        # DuckDB runs ahead by a megabyte: these are thirty.
        with on_duckdb.run(tables, "select total_bps, repeat('x', 500) from stream_health") as result:
            first = next(result.rows)
            show_of(lake, 10, streams=120)
            rest = list(result.rows)
        assert {row[0] for row in [first, *rest]} == {500}
        assert len(rest) + 1 == 120 * 500
        assert ask(tmp_path, "select count(*) from stream_health") == [(120 * 10,)]


def test_queries_beside_a_busy_job_never_fail_and_never_mix(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        show_of(lake, 1)
        stop, written = threading.Event(), 0

        def work() -> None:
            nonlocal written
            while not stop.is_set():
                written += 1
                show_of(lake, written % 50 + 1)
                if written % 5 == 0:  # a stream that has nothing to say any more
                    for file in (tmp_path / "gold" / "stream_health").glob("*-n1*"):
                        file.unlink()

        job = threading.Thread(target=work)
        job.start()
        try:
            sql = "select count(*), min(total_bps), max(total_bps) from stream_health"
            answers = [ask(tmp_path, sql)[0] for _ in range(12)]
        finally:
            stop.set()
            job.join()
    assert all(answer in ((0, None, None), (answer[1],) * 3) for answer in answers)
    assert len(set(answers)) > 1, "the job wrote nothing meanwhile"


# --- what it may not do


@pytest.mark.parametrize("sql", [sql for sql, _ in REFUSED])
def test_what_is_refused_leaves_the_lake_as_it_was(night: Path, sql: str) -> None:
    before = digest(night)
    complaint(night, sql)
    assert digest(night) == before


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '{lake}/gold/audience/new.parquet'",
        "copy (select 1) to '{first}' (format parquet, use_tmp_file false)",
        "select * from read_text('{lake}/_lake.json')",
        "select * from read_parquet('{lake}/silver/sessions/*.parquet')",
        "select * from glob('/*')",
        "select * from read_csv('/etc/passwd')",
        "attach '{lake}/x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set allowed_directories = ['/']",
        "set memory_limit = '90GB'",
        "set lock_configuration = false",
        "create persistent secret s (type http)",
    ],
)
def test_duckdb_itself_refuses_too_should_the_first_look_ever_miss_something(
    night: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(night)
    first = min((night / "silver" / "sessions").iterdir())  # a file of a table that the query is not about
    monkeypatch.setattr(on_duckdb, "tables_in", lambda connection, sql, tables: ["audience"])
    assert complaint(night, sql.format(lake=night, first=first)).startswith("the query failed: ")
    assert digest(night) == before


def test_no_variable_of_the_program_is_a_table(night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_duckdb, "tables_in", lambda connection, sql, tables: [])
    secret = pa.table({"key": ["hunter2"]})
    assert "secret does not exist" in complaint(night, "select * from secret")
    assert secret.num_rows == 1


# --- complaints


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "select\n totl_bps from stream_health",
            'column "totl_bps" (line 2, character 2), expected one of node, stream, stream_id, started_at, status, '
            "issues, total_bps, frame_rate, keyframe_interval_max_ms, av_skew_ms, max_gap_ms, drift_ms, "
            "declared_video_kbps, declared_frame_rate, video_codec, audio_codec, width, height; "
            "did you mean total_bps?",
        ),
        (
            "select p.fond from problems p",
            'column "fond" (line 1, character 8), expected one of source, file, byte_offset, text, found, expected, '
            "count; did you mean found?",
        ),
        (
            "with x as (select 1 as plays) select play from x",
            'column "play" (line 1, character 38), expected one of plays; did you mean plays?',
        ),
        (
            "select stream from audience join sessions using (node)",
            "the query failed: Ambiguous reference to column name \"stream\" (use: 'audience.stream' or "
            "'sessions.stream') (line 1, character 8)",
        ),
        (
            "select stream::int from audience where stream = 'live/show'",
            "the query failed: Could not convert string 'live/show' to INT32 when casting from source column stream "
            "(line 1, character 14)",
        ),
        (
            "select lenght(stream) from audience",
            'the query failed: Scalar Function with name lenght does not exist! Did you mean "length"? '
            "(line 1, character 8)",
        ),
    ],
)
def test_a_mistake_is_one_line_that_says_what_there_is(night: Path, sql: str, expected: str) -> None:
    assert complaint(night, sql) == expected


def test_columns_are_listed_by_table_where_there_are_several(night: Path) -> None:
    said = complaint(night, "select viewr from problems, sessions")
    assert "source, file" in said
    assert "; sessions: node, stream" in said
    assert said.endswith("; did you mean viewer?")


def test_a_file_that_is_no_parquet_is_named_as_the_failure(tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake")
    (lake / "gold" / "audience" / "broken.parquet").write_bytes(b"PAR1 and no more")
    assert complaint(lake, "select * from audience").startswith("the query failed: ")
    assert ask(lake, "select count(*) from incidents") == [(3,)]


# --- bounds


def test_memory_and_temporary_files_are_bounded(night: Path) -> None:
    sql = "select current_setting('memory_limit'), current_setting('max_temp_directory_size')"
    assert ask(night, sql) == [("953.6 MiB", "7.4 GiB")]


def test_what_does_not_fit_goes_to_temporary_files_which_are_gone_afterwards(
    night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(on_duckdb, "_MEMORY", "60MB")
    monkeypatch.setitem(on_duckdb._CONFIG, "threads", "1")
    sql = "select range, range::varchar || 'some text' from range(2000000) order by hash(range)"
    with on_duckdb.run(find_tables(night, made_by=""), sql) as result:
        next(result.rows)
        assert [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_there_either_is_told(night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(on_duckdb, "_MEMORY", "60MB")
    monkeypatch.setattr(on_duckdb, "_TEMPORARY", "1MB")
    sql = "select range, range::varchar || 'some text' from range(2000000) order by hash(range)"
    expected = "the query failed: it needs more than 60MB of memory and 1MB of temporary files"
    assert complaint(night, sql) == expected
    assert not list(tmp_path.iterdir())


def test_rows_come_before_the_last_one_is_made(night: Path) -> None:
    with on_duckdb.run(find_tables(night, made_by=""), "select * from range(1000000000000)") as result:
        assert next(result.rows) == (0,)


def test_nothing_stays_open(night: Path) -> None:
    ask(night, "select * from audience")
    before = len(os.listdir("/dev/fd"))
    ask(night, "select * from audience, sessions")
    complaint(night, "select nothing from audience")
    assert len(os.listdir("/dev/fd")) == before


def test_the_answer_is_json_when_asked_with_json_functions(night: Path) -> None:
    (row,) = ask(night, "select to_json(destinations_dropped) from incidents where kind = 'publisher_stall'")
    assert json.loads(row[0]) == ["YouTube"]
