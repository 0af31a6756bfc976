"""A query on DuckDB, inside this process: views over the lake's files, in bounded memory, and nothing else in reach.

DuckDB may open the files of the query's tables and its own temporary ones. It loads no extension, sees no variable of
ours, and its settings are locked before the query is looked at. What it might still write to is `sql`'s business.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

import duckdb

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.query import complaints
from headrace.pipeline.query.lake import Table
from headrace.pipeline.query.pins import DESCRIPTORS, pinned
from headrace.pipeline.query.result import Result, distinct
from headrace.pipeline.query.sql import tables_in
from headrace.pipeline.query.types import duckdb_type, identifier, literal

_ROWS_AT_ONCE = 2048  # as DuckDB makes them
# A server may run beside us. What needs more memory goes to temporary files, and what needs more than those fails.
_MEMORY, _TEMPORARY = "1GB", "8GB"
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
Answer = TypeVar("Answer")

_NO_COLUMN = re.compile(r'does not have a column named "(.+?)"|Referenced column "(.+?)" not found')


@contextmanager
def run(tables: Mapping[str, Table], sql: str) -> Iterator[Result]:
    """The answer, as long as the block lasts. Raises PipelineError where there is none."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-query-") as spill,
        closing(duckdb.connect(config={**_CONFIG, "memory_limit": _MEMORY, "temp_directory": spill})) as connection,
    ):
        own = [tables[name] for name in tables_in(connection, sql, tables)]
        with pinned(own) as paths:
            _restrict(connection, [path for some in paths.values() for path in some])
            for table in own:
                if paths[table.name]:
                    _make_view(connection, table, paths[table.name])
                else:  # of a lake elsewhere, one that the query only lists (SHOW TABLES)
                    _make_empty_view(connection, table)
            with _Attended(connection, sql, own) as attended:
                cursor = attended(lambda: connection.execute(sql))
                yield Result(distinct(column[0] for column in cursor.description or ()), _rows(cursor, attended))


def _restrict(connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
    # Given with the connection, this one is shown and not kept to (DuckDB 2.0).
    connection.execute("set max_temp_directory_size = ?", [_TEMPORARY])
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set errors_as_json = true")
    # DuckDB looks where a path leads: to a file of the lake or, once that was replaced, to the descriptor itself.
    connection.execute("set allowed_paths = ?", [paths])
    connection.execute("set allowed_directories = ?", [[DESCRIPTORS]])
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _make_view(connection: duckdb.DuckDBPyConnection, table: Table, paths: list[str]) -> None:
    # With the columns told, a file that lacks one has nulls there. `union_by_name` would find out by itself, but keeps
    # what it read of every file until the end: 9000 small files took 630 MB so, and 160 MB like this.
    columns = ", ".join(
        f"{literal(name)}: {{name: {literal(name)}, type: {literal(duckdb_type(kind))}, default_value: null}}"
        for name, kind in table.columns.items()
    )
    files = ", ".join(literal(path) for path in paths)
    connection.execute(
        f"create view {identifier(table.name)} as "  # noqa: S608 names and paths are quoted
        f"select * from read_parquet([{files}], schema = map {{{columns}}}, hive_partitioning = false)"
    )


def _make_empty_view(connection: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ", ".join(
        f"cast(null as {duckdb_type(kind)}) as {identifier(name)}" for name, kind in table.columns.items()
    )
    connection.execute(f"create view {identifier(table.name)} as select {columns} limit 0")


class _Attended:
    """Calls DuckDB in another thread: while it works it takes no Ctrl-C, and somebody has to tell it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sql: str, own: list[Table]) -> None:
        self._connection, self._sql, self._own = connection, sql, own
        self._worker = ThreadPoolExecutor(max_workers=1)

    def __enter__(self) -> _Attended:
        return self

    def __exit__(self, *_: object) -> None:
        # Whoever stops reading has no use for the rest, which may take hours.
        self._connection.interrupt()
        self._worker.shutdown()

    def __call__(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return self._worker.submit(ask).result()
        except duckdb.Error as error:
            raise _translated(error, self._sql, self._own) from None


def _rows(cursor: duckdb.DuckDBPyConnection, attended: _Attended) -> Iterator[tuple[Any, ...]]:
    while rows := attended(lambda: cursor.fetchmany(_ROWS_AT_ONCE)):
        yield from rows


def _translated(error: duckdb.Error, sql: str, own: list[Table]) -> PipelineError:
    if isinstance(error, duckdb.OutOfMemoryException):
        return complaints.failed(f"it needs more than {_MEMORY} of memory and {_TEMPORARY} of temporary files")
    said = str(error)
    try:
        facts: dict[str, Any] = json.loads(said[said.index("{") :])
    except ValueError:
        return complaints.failed(said)
    message = str(facts.get("exception_message", said)).split("\n\n")[0]  # what follows is advice on settings
    position = int(facts["position"]) if "position" in facts else None
    column = _NO_COLUMN.search(message)
    if column is not None:
        candidates = [name for name in str(facts.get("candidates", "")).split(",") if name and " " not in name]
        columns = {table.name: table.columns for table in own}
        name = column[1] or column[2]
        return complaints.no_such_column(name, columns, candidates, sql=sql, position=position)
    return complaints.failed(message, sql, position)
