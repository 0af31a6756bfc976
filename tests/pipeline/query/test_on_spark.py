"""The same questions to both engines, and what Spark needs of its own. One session serves them all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.query import on_duckdb, on_spark
from headrace.pipeline.query.lake import find_tables
from headrace.pipeline.query.values import as_json
from headrace.pipeline.session import reach_lake
from headrace.pipeline.stores.places import store_at
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.query.night import SHOW, write_rows
from tests.pipeline.query.test_on_duckdb import digest
from tests.pipeline.stores.places import place_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PLAIN = [
    "select * from stream_health order by stream, started_at",
    "select destination, availability, dropped, first_seen_at from destination_health order by destination",
    "select keyframes, tags, path, stream as name, node as name from recordings "
    "where opened_at >= '2027-01-14 20:01:00' order by path",
    "select stream, date_trunc('minute', started_at) as minute, count(*) as n, sum(total_bps) as bits, "
    "avg(frame_rate) as rate from stream_health group by stream, date_trunc('minute', started_at) order by 1, 2",
    "select s.viewer, i.kind, s.stopped_at - i.started_at as later from incidents i join sessions s "
    "on s.stream_id = i.stream_id and s.stopped_at between i.started_at and i.ended_at order by 1, 2",
    "select count(*) as n, cast(null as bigint) as nothing, 1.50 as price, 'é' as text from events",
]


def ask(spark: SparkSession, lake: Path, sql: str) -> list[str]:
    with on_spark.run_in(spark, store_at(lake), find_tables(lake, made_by=""), sql) as result:
        return [as_json(dict(zip(result.columns, row, strict=True))) for row in result.rows]


def ask_duckdb(lake: Path, sql: str) -> list[str]:
    with on_duckdb.run(find_tables(lake, made_by=""), sql) as result:
        return [as_json(dict(zip(result.columns, row, strict=True))) for row in result.rows]


def test_both_engines_give_the_same_answers(spark: SparkSession, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()  # where an hour of every autumn is there twice
    try:
        for sql in PLAIN:
            answer = ask(spark, night, sql)
            assert answer == ask_duckdb(night, sql), sql
            assert answer, sql
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tables_elsewhere_are_read_where_they_lie(
    spark: SparkSession, night: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = place_of("hdfs", request, tmp_path)
    place.upload(night)
    store, tables = place.store(), find_tables(night, made_by="")
    reach_lake(spark, store, "gold/audience/schema.parquet", TABLES["audience"].schema)
    for sql in PLAIN:
        with on_spark.run_in(spark, store, tables, sql) as result:
            answer = [as_json(dict(zip(result.columns, row, strict=True))) for row in result.rows]
        assert answer == ask_duckdb(night, sql), sql


def test_a_mistake_is_told_in_the_same_words(spark: SparkSession, night: Path) -> None:
    for sql in ("select totl_bps from stream_health", "select 'é',\n* from stream_helth", "selec 1"):
        said = []
        for is_spark in (True, False):
            with pytest.raises(PipelineError) as caught:
                ask(spark, night, sql) if is_spark else ask_duckdb(night, sql)
            said.append(str(caught.value).replace("'selec'", '"selec"'))
        assert said[0] == said[1]


def test_a_query_on_spark_reads_and_no_more(spark: SparkSession, night: Path, tmp_path: Path) -> None:
    before = digest(night)
    table = f"{night}/gold/audience"
    for sql, found in (
        (f"insert overwrite directory '{tmp_path}/out' using csv select 1", "found InsertIntoDir"),
        ("create table t as select 1", "found CreateTableAsSelect"),
        ("drop view audience", "found DropView"),
        ("from audience insert into sessions select *", "found InsertIntoStatement"),
        ("set spark.sql.runSQLOnFiles = true", "found SetCommand"),
        (f"select * from parquet.`{table}`", f'table "parquet.{table}"'),
        (f"select * from text.`{night}/_lake.json`", 'table "text.'),
        ("select reflect('java.lang.System', 'getProperty', 'user.home')", "the query failed: Cannot resolve routine"),
        ("select java_method('java.lang.System', 'exit', 1)", "the query failed: Cannot resolve routine"),
        ("select 1; select 2", "syntax error at or near 'select': line 1, character 11"),
        ("", "Syntax error, unexpected empty statement."),
    ):
        with pytest.raises(PipelineError) as caught:
            ask(spark, night, sql)
        assert str(caught.value).startswith(found)
        assert "\n" not in str(caught.value)
    assert digest(night) == before
    assert not list(tmp_path.iterdir())
    assert spark.conf.get("spark.sql.runSQLOnFiles") == "true"  # of the session that was there, nothing is changed
    assert not spark.catalog.tableExists("audience")


@pytest.fixture
def tries(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What is done between the listing of a query's files and their reading, at the first try, the second, …"""
    kind = type(spark.range(1))
    persist, done = kind.persist, list[Callable[[], None]]()

    def persist_late(frame: DataFrame, level: StorageLevel) -> DataFrame:
        done.pop(0)()
        return persist(frame, level)

    monkeypatch.setattr(kind, "persist", persist_late)
    return done


def test_a_query_whose_files_were_replaced_under_it_runs_again(
    spark: SparkSession, tmp_path: Path, tries: list[Callable[[], None]]
) -> None:
    def replace() -> None:
        for file in (tmp_path / "gold" / "audience").glob("*-n1*"):
            file.unlink()
        write_rows(lake, "audience", [{**SHOW, "stream_id": f"n1.b.{len(tries)}", "plays": 2}])

    with open_lake(tmp_path, "a test") as lake:
        write_rows(lake, "audience", [{**SHOW, "plays": 1}])
        tries += [replace, replace, lambda: None]
        assert ask(spark, tmp_path, "select plays, stream_id from audience") == ['{"plays": 2, "stream_id": "n1.b.1"}']
        assert not tries


def test_a_query_that_fails_on_files_that_nobody_touched_is_not_tried_again(
    spark: SparkSession, tmp_path: Path, tries: list[Callable[[], None]]
) -> None:
    with open_lake(tmp_path, "a test"):
        (tmp_path / "gold" / "audience" / "broken.parquet").write_bytes(b"no parquet")
        tries += [lambda: None]
        with pytest.raises(PipelineError, match="the query failed: "):
            ask(spark, tmp_path, "select plays from audience")
        assert not tries
