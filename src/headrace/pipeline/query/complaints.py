"""What is wrong with a query, as one line: what was not found, what comes nearest, what there is, and where.

Both engines complain in these words. The text of a query may hold anything, so whatever is quoted is made printable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from headrace.pipeline.errors import PipelineError
from headrace.units import printable, quoted


def no_such_table(name: str, known: Sequence[str], sql: str = "", position: int | None = None) -> PipelineError:
    table = quoted(name) + _where(sql, position)
    return PipelineError("TABLE_NOT_FOUND", table=table, tables=", ".join(known) + nearest(name, known))


def no_such_column(
    name: str,
    tables: Mapping[str, Iterable[str]],
    others: Sequence[str] = (),
    *,
    sql: str = "",
    position: int | None = None,
) -> PipelineError:
    """`tables` are those of the query with their columns; `others` what else the query has named."""
    listed = {table: list(columns) for table, columns in tables.items()}
    own = [column for columns in listed.values() for column in columns]
    others = [one for one in others if one not in own]
    parts = [", ".join(columns) if len(listed) == 1 else f"{t}: {', '.join(columns)}" for t, columns in listed.items()]
    expected = "; ".join([*parts, *([", ".join(others)] if others else [])])
    near = nearest(name.split(".")[-1], own + others)
    return PipelineError("COLUMN_NOT_FOUND", column=quoted(name) + _where(sql, position), columns=expected + near)


def syntax_error(what: str, sql: str, position: int) -> PipelineError:
    line, character = line_and_character(sql, position)
    return PipelineError("SQL_SYNTAX", what=one_line(what), line=line, character=character)


def failed(what: str, sql: str = "", position: int | None = None) -> PipelineError:
    return PipelineError("SQL_FAILED", reason=one_line(what) + _where(sql, position))


def nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower()[:80], list(by_lower), n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def line_and_character(sql: str, position: int) -> tuple[int, int]:
    """Both from 1. DuckDB counts in bytes."""
    before = sql.encode("utf-8")[:position].decode("utf-8", "ignore")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def _where(sql: str, position: int | None) -> str:
    if position is None or position > len(sql.encode("utf-8")):  # which says that it is not known
        return ""
    line, character = line_and_character(sql, position)
    return f" (line {line}, character {character})"
