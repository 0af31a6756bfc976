"""What is let through to DuckDB and what is not, and which tables a query is found to be about."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.query.sql import tables_in

KNOWN = {"stream_health": 0, "sessions": 0, "audience": 0, "tags": 0, "recordings": 0}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select 1", []),
        ("select * from stream_health", ["stream_health"]),
        ('select * from "Stream_HEALTH" h', ["stream_health"]),
        ("select * from main.audience", ["audience"]),
        ("from audience", ["audience"]),
        ("table audience;", ["audience"]),
        ("-- a comment\nselect tags from recordings", ["recordings"]),
        ("select 1 from audience join sessions using (stream)", ["audience", "sessions"]),
        ("select 1 where exists (from tags) union all select n from range(3) t(n)", ["tags"]),
        ("with mine as (select * from audience) select * from mine, mine b", ["audience"]),
        ("with sessions as (select * from sessions) select * from sessions", ["sessions"]),
        ("with recursive t(n) as (select 1 union all select n + 1 from t where n < 9) select * from t", []),
        ("select i.name from (select unnest(issues) i from stream_health)", ["stream_health"]),
        ("select * from stream_health, unnest(issues)", ["stream_health"]),
        ("describe audience", ["audience"]),
        ("summarize audience", ["audience"]),
        ("show tables", list(KNOWN)),
        ("select * from information_schema.columns", list(KNOWN)),
    ],
)
def test_a_select_is_about_the_tables_it_names(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: list[str]
) -> None:
    assert tables_in(connection, sql, KNOWN) == tables


REFUSED = [
    ("", "found no statements"),
    (" -- nothing\n", "found no statements"),
    ("select 1; select 2", "found 2 statements"),
    ("copy audience to 'x.csv'", "found COPY"),
    ("copy (select 1) to '/dev/fd/3'", "found COPY"),
    ("with a as (copy (select 1) to '/dev/fd/3') select * from a", "found COPY inside a SELECT"),
    ("with a as (insert into audience values (1)) select 1", "found INSERT inside a SELECT"),
    ("with a as (delete from audience returning *) select * from a", "found DELETE inside a SELECT"),
    ("with a as (update audience set plays = 1 returning *) select 1", "found UPDATE inside a SELECT"),
    ("insert into audience values (1)", "found INSERT"),
    ("create table t as select 1", "found CREATE"),
    ("drop view audience", "found DROP"),
    ("attach 'x.db'", "found ATTACH"),
    ("install httpfs", "found LOAD"),
    ("load httpfs", "found LOAD"),
    ("set memory_limit = '90GB'", "found SET"),
    ("pragma enable_profiling", "found PRAGMA"),
    ("export database 'x'", "found EXPORT"),
    ("call pragma_version()", "found CALL"),
    ("explain analyze copy (select 1) to 'x'", "found EXPLAIN"),
    ("pivot audience on stream using sum(plays)", "found PIVOT"),
    ("select 1; copy (select 1) to 'x'", "found COPY"),
    ("select * from read_csv('/etc/passwd')", 'found the function "read_csv" in place of a table'),
    ("select * from READ_TEXT('/etc/passwd')", 'found the function "read_text" in place of a table'),
    ("select (select content from read_text('/etc/passwd'))", 'found the function "read_text"'),
    ("select * from glob('/*')", 'found the function "glob"'),
    ("select * from query('select 1')", 'found the function "query"'),
    ("select * from json_execute_serialized_sql('{}')", 'found the function "json_execute_serialized_sql"'),
    ("from parquet_metadata('x')", 'found the function "parquet_metadata"'),
    ("select * from enable_logging()", 'found the function "enable_logging"'),
]


@pytest.mark.parametrize(("sql", "found"), REFUSED)
def test_anything_but_one_select_over_tables_is_refused(
    connection: duckdb.DuckDBPyConnection, sql: str, found: str
) -> None:
    with pytest.raises(PipelineError) as caught:
        tables_in(connection, sql, KNOWN)
    assert str(caught.value).lower().startswith(found.lower())
    assert caught.value.condition == "SQL_REFUSED"


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("selec 1", 'syntax error at or near "selec": line 1, character 1'),
        ("select 'é',\n  1 + from", 'syntax error at or near "from": line 2, character 7'),
        (
            "select *\nfrom stream_helth",
            'table "stream_helth" (line 2, character 6), expected one of stream_health, sessions, audience, tags, '
            "recordings; did you mean stream_health?",
        ),
        (
            "select * from '/etc/passwd'",
            'table "/etc/passwd" (line 1, character 15), expected one of stream_health, sessions, audience, tags, '
            "recordings",
        ),
        (
            "select * from gold.audience",
            'table "gold.audience" (line 1, character 15), expected one of stream_health, sessions, audience, tags, '
            "recordings; did you mean audience?",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(connection: duckdb.DuckDBPyConnection, sql: str, complaint: str) -> None:
    with pytest.raises(PipelineError) as caught:
        tables_in(connection, sql, KNOWN)
    assert str(caught.value) == complaint


def test_sql_that_is_nested_without_end_is_one_line_too(connection: duckdb.DuckDBPyConnection) -> None:
    for depth in (500, 5_000):
        with pytest.raises(PipelineError) as caught:
            tables_in(connection, "select " + "(select " * depth + "1" + ")" * depth, KNOWN)
        assert "\n" not in str(caught.value)
