"""A query on Spark, for lakes that are too large for one machine: the same tables, answers and complaints.

Executors open files by their names, so a file that a job replaces in between fails the query. It is then tried again,
if the files have changed indeed. So that no row is out by then, the answer is first put on the executors' disks whole.
"""

from __future__ import annotations

import logging
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, ParseException, PySparkException, QueryContextType
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.layout import SCHEMA_FILE
from headrace.pipeline.query import complaints
from headrace.pipeline.query.lake import Table, is_named, patiently, stored_files
from headrace.pipeline.query.result import Result, distinct
from headrace.pipeline.session import make_session, reach_lake
from headrace.pipeline.stores.store import Entry, Store

TRIES = 10  # a live stream's files are replaced every two seconds or so, and a small query on a warm JVM takes half
_SMALL_BYTES = 64 << 20  # to read them takes seconds, and to start Spark as many
_CALLS_INTO_JAVA = ("reflect", "java_method", "try_reflect")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")

Stamps = dict[str, tuple[int, ...]]


@contextmanager
def run(store: Store, tables: Mapping[str, Table], sql: str, master: str, conf: Mapping[str, str]) -> Iterator[Result]:
    """The answer, as long as the block lasts. Raises PipelineError where there is none."""
    # Else every mistake in a query is told twice, once with the JVM's whole stack, and so is a Ctrl-C.
    logging.disable(logging.CRITICAL)
    is_short = _are_small(store, _named(tables, sql))
    spark = make_session("headrace query", master=master, conf=conf, is_short=is_short)
    # Spark's own handler asks the JVM to cancel its jobs, over the connection that waits for their end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_interrupted = False
    try:
        for table in list(tables.values())[:1]:
            reach_lake(spark, store, f"{table.layer}/{table.name}/{SCHEMA_FILE}", _schema(table))
        with run_in(spark, store, tables, sql) as result:
            yield result
    except KeyboardInterrupt:
        is_interrupted = True
        raise
    finally:
        if not is_interrupted:  # the JVM has had the same Ctrl-C, and ends with us in any case
            spark.stop()
        logging.disable(logging.NOTSET)


def _named(tables: Mapping[str, Table], sql: str) -> list[Table]:
    return [table for table in tables.values() if is_named(table.name, sql)]


def _are_small(store: Store, own: list[Table]) -> bool:
    return sum(file.size_bytes for file in _files(store, own, time.sleep).values()) <= _SMALL_BYTES


def _directory(table: Table) -> str:
    return f"{table.layer}/{table.name}"


@contextmanager
def run_in(
    spark: SparkSession,
    store: Store,
    tables: Mapping[str, Table],
    sql: str,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Result]:
    """The same in a session that is there already; settings, views and functions of its own stay as they are."""
    session = spark.newSession()
    session.conf.set("spark.sql.runSQLOnFiles", "false")  # no parquet.`/some/where`
    _forget_functions(session)
    own = _named(tables, sql)
    with _translated(tables, own, sql):
        _require_query(session, sql)
        kept = _kept(session, store, own, sql, pause)
        try:
            yield _result(kept)
        finally:
            kept.unpersist()


def _kept(session: SparkSession, store: Store, own: list[Table], sql: str, pause: Callable[[float], None]) -> DataFrame:
    for attempt in range(1, TRIES + 1):
        before = _stamps(store, own, pause)
        for table in own:
            reader = session.read.schema(_schema(table)).option("recursiveFileLookup", "true")
            reader.parquet(store.spark_path(_directory(table))).createOrReplaceTempView(f"`{table.name}`")
        answer = session.sql(sql).persist(StorageLevel.DISK_ONLY)
        try:
            answer.count()
            return answer
        except (PySparkException, Py4JJavaError):
            answer.unpersist()
            if attempt == TRIES or _stamps(store, own, pause) == before:
                raise
    raise AssertionError("unreachable")


def _schema(table: Table) -> StructType:
    columns = table.columns.items()
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return StructType.fromJson({"type": "struct", "fields": fields})


def _result(answer: DataFrame) -> Result:
    # Spark hands times out as local ones without their zone, which is no time at all when clocks go back.
    places = [place for place, field in enumerate(answer.schema.fields) if isinstance(field.dataType, TimestampType)]
    numbered = answer.toDF(*[f"_{place}" for place in range(len(answer.columns))])
    rows = numbered.withColumns({f"_{place}": F.unix_micros(f"_{place}") for place in places})
    return Result(distinct(answer.columns), (_row(row, places) for row in rows.toLocalIterator()))


def _row(row: Row, times: list[int]) -> list[Any]:
    values = [_without_rows(value) for value in row]
    for place in times:
        if values[place] is not None:
            values[place] = _EPOCH + timedelta(microseconds=values[place])
    return values


def _without_rows(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: _without_rows(own) for name, own in zip(value.__fields__, value, strict=True)}
    if isinstance(value, list):
        return [_without_rows(own) for own in value]
    if isinstance(value, dict):
        return {key: _without_rows(own) for key, own in value.items()}
    return value


def _stamps(store: Store, own: list[Table], pause: Callable[[float], None]) -> Stamps:
    """What tells a file from the one that took its name."""
    return {name: file.version for name, file in _files(store, own, pause).items()}


def _files(store: Store, own: list[Table], pause: Callable[[float], None]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for table in own:
        directory = _directory(table)
        files = patiently(store.address, partial(stored_files, store, directory), pause)
        found |= {f"{directory}/{file.name}": file for file in files}
    return found


def _forget_functions(session: SparkSession) -> None:
    """Those that call any method of any class, to write files for instance."""
    jvm: Any = session._jvm
    registry = session._jsparkSession.sessionState().functionRegistry()
    some = jvm.scala.Option.apply
    for name in _CALLS_INTO_JAVA:
        place = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
        registry.dropFunction(place)


def _require_query(session: SparkSession, sql: str) -> None:
    parser = session._jsparkSession.sessionState().sqlParser()
    plan = parser.parsePlan(sql)
    try:
        parser.parseQuery(sql)
    except ParseException:
        raise PipelineError("SQL_REFUSED", found=f"found {plan.nodeName()}") from None


@contextmanager
def _translated(tables: Mapping[str, Table], own: list[Table], sql: str) -> Iterator[None]:
    try:
        yield
    except ParseException as error:
        place = _PLACE.search(str(error))
        found = (error.getMessageParameters() or {}).get("error", "")
        line, character = (int(place[1]), int(place[2]) + 1) if place else (1, 1)
        what = f"syntax error at or near {found}" if found else _sentence(error)
        raise PipelineError("SQL_SYNTAX", what=complaints.one_line(what), line=line, character=character) from None
    except AnalysisException as error:
        facts = error.getMessageParameters() or {}
        condition, position = error.getCondition() or "", _position(error, sql)
        if condition == "TABLE_OR_VIEW_NOT_FOUND":
            name = _unquoted(facts["relationName"])
            raise complaints.no_such_table(name, list(tables), sql, position) from None
        if condition.startswith("UNRESOLVED_COLUMN"):
            name = _unquoted(facts["objectName"])
            columns = {table.name: table.columns for table in own}
            proposed = [_unquoted(one).split(".")[-1] for one in facts.get("proposal", "").split(", ") if one]
            raise complaints.no_such_column(name, columns, proposed, sql=sql, position=position) from None
        raise complaints.failed(_sentence(error), sql, position) from None
    except (PySparkException, Py4JJavaError) as error:
        raise complaints.failed(_sentence(error)) from None


def _unquoted(name: str) -> str:
    return name.replace("`", "")


def _position(error: PySparkException, sql: str) -> int | None:
    """In bytes, as `complaints` counts."""
    context = next((one for one in error.getQueryContext() if one.contextType() is QueryContextType.SQL), None)
    return None if context is None else len(sql[: context.startIndex()].encode("utf-8"))


def _sentence(error: Exception) -> str:
    """What Spark says without its names and numbers for it, and without the plan that follows."""
    java = getattr(error, "java_exception", None)
    said = str(java.getMessage() if java is not None else error).strip().split("\n")[0]
    return re.sub(r"^\[[A-Z0-9_.]+\] | SQLSTATE: .*$", "", said)
