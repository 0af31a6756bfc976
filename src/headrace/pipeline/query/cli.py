"""`headrace query`: SQL in, rows out, one clear line if it cannot be.

Owns arguments and formats by name. Engines and the drawing of tables are imported when they are needed.
"""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from headrace.errors import ConfigError
from headrace.pipeline.commands import (
    Parser,
    exit_status,
    lake_place,
    require_packages,
    spark_setting,
    write_no_more,
)
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.fetched import fetched
from headrace.pipeline.query.formats import write_csv, write_json
from headrace.pipeline.query.lake import Table, find_tables, is_named
from headrace.pipeline.query.result import Result
from headrace.pipeline.query.types import spark_type

_INSTEAD = ": --master reads the tables where they lie"
_FORMATS = ("table", "csv", "json")
_EPILOG = """\
without SQL    lists the tables with their columns
formats        table (default on a terminal), csv (default elsewhere, RFC 4180), json (an object on each line);
               times are UTC
example        headrace query "select stream, status, count(*) from stream_health group by all"
"""


def main(argv: Sequence[str], program: str) -> int:
    """Called by `headrace.cli` with the arguments behind `query`."""
    return exit_status(program, lambda: _answer(_parser(program).parse_args(argv)))


def _answer(options: argparse.Namespace) -> None:
    sql = _sql(options)
    if options.conf and options.master is None:
        raise ConfigError("found --conf, expected --master with it")
    place: Path | str = options.lake or options.data_dir / "lake"
    needed = ["duckdb"] if options.master is None else ["pyspark"]
    if options.master is not None or isinstance(place, str):
        needed.append("pyarrow")
    require_packages("a query", (*needed, "rich"))

    def is_wanted(table: str) -> bool:
        return sql is not None and options.master is None and is_named(table, sql)

    with fetched(place, is_wanted, instead=_INSTEAD) as root:
        tables = find_tables(root, made_by=_made_by(options))
        _write_answer(options, place, tables, sql)


def _made_by(options: argparse.Namespace) -> str:
    made_by = f"headrace pipeline batch --data-dir {shlex.quote(str(options.data_dir))}"
    if isinstance(options.lake, Path):  # an address may hold keys
        made_by += f" --lake {shlex.quote(str(options.lake))}"
    return made_by


def _write_answer(options: argparse.Namespace, place: Path | str, tables: dict[str, Table], sql: str | None) -> None:
    format_name = options.format or ("table" if sys.stdout.isatty() else "csv")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON is, and the rest had better be
    try:
        if sql is None:
            _write_listing(tables, format_name)
        else:
            with _run(place, tables, sql, options) as result:
                _write(result, format_name)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        write_no_more()
        raise PipelineError("OUTPUT_NOT_WRITABLE", path="the answer", reason=error.strerror) from None


def _run(
    place: Path | str, tables: dict[str, Table], sql: str, options: argparse.Namespace
) -> AbstractContextManager[Result]:
    if options.master is None:
        from headrace.pipeline.query import on_duckdb

        return on_duckdb.run(tables, sql)
    from headrace.pipeline.query import on_spark
    from headrace.pipeline.stores.places import store_at

    return on_spark.run(store_at(place), tables, sql, options.master, dict(options.conf))


def _write(result: Result, format_name: str) -> None:
    if format_name == "csv":
        write_csv(result, sys.stdout)
    elif format_name == "json":
        write_json(result, sys.stdout)
    else:
        from headrace.pipeline.query.table_text import write_table

        write_table(result, sys.stdout)


def _write_listing(tables: dict[str, Table], format_name: str) -> None:
    if format_name == "table":
        from headrace.pipeline.query.table_text import write_listing

        write_listing(tables, sys.stdout)
        return
    _write(Result(["layer", "table", "column", "type"], _listing(tables)), format_name)


def _listing(tables: dict[str, Table]) -> Iterator[tuple[str, str, str, str]]:
    for table in tables.values():
        for column, kind in table.columns.items():
            yield table.layer, table.name, column, spark_type(kind)


def _sql(options: argparse.Namespace) -> str | None:
    if len(options.sql) > 1:
        raise ConfigError(f"found {len(options.sql)} words of SQL, expected them in quotes, as one")
    text: str | None = options.sql[0] if options.sql else None
    if options.file is not None and text is not None:
        raise ConfigError("found SQL and --file, expected one of them")
    try:
        if options.file is not None:
            text = options.file.read_text("utf-8")
        elif text == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
    except OSError as error:
        raise ConfigError(f"--file: {options.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{options.file or 'standard input'}: found bytes that are no UTF-8 text") from None
    return text


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="SQL over the tables of a lake, which is only read.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("sql", nargs="*", metavar="SQL", help="one SELECT, in quotes; - reads it from standard input")
    parser.add_argument("--file", type=Path, metavar="FILE", help="take the SQL from a file")
    parser.add_argument("--format", choices=_FORMATS, help="how rows are written")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), metavar="DIR", help="(default data)")
    parser.add_argument(
        "--lake",
        type=lake_place,
        metavar="PLACE",
        help="a directory, hdfs://… or s3a://… (default lake in the data directory)",
    )
    parser.add_argument("--master", metavar="URL", help="run on Spark there, such as local[*], and not on DuckDB")
    parser.add_argument(
        "--conf",
        type=spark_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of Spark, repeatable; with --master",
    )
    return parser
