"""Rows as a table for people, within the width of their terminal; a row too wide for that has a line for each column.

The first rows tell how wide the columns are, so a long answer is written as it comes and is never held as a whole.
Text of others, such as the name of a stream, may hold what moves a cursor: it is shown as an escape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headrace.pipeline.query import lake
from headrace.pipeline.query.result import Result
from headrace.pipeline.query.types import spark_type
from headrace.pipeline.query.values import text
from headrace.units import printable

_ROWS_AT_ONCE = 200
_GAP = 2
_LEAST_TEXT = 16  # narrower than that, folded text is no longer read
_NULL = "null"


class _Column(NamedTuple):
    name: str
    width: int
    is_number: bool


def write_table(result: Result, out: TextIO, width: int | None = None) -> None:
    """`width` is that of the terminal unless given."""
    console = _console(out, width)
    first = list(islice(result.rows, _ROWS_AT_ONCE))
    names = [printable(name) for name in result.columns]
    columns = _fitted(names, first, console.width)
    count = 0
    for batch in _batches(chain(first, result.rows)):
        if columns is None:
            _write_upright(console, names, batch, count)
        else:
            _write_rows(console, columns, batch, has_header=count == 0)
        count += len(batch)
    if count == 0 and columns is not None:
        _write_rows(console, columns, [], has_header=True)
    _print(console, Text(f"({count} row{'' if count == 1 else 's'})", "dim"))


def write_listing(tables: Mapping[str, lake.Table], out: TextIO, width: int | None = None) -> None:
    """Every table with its columns and their types."""
    console = _console(out, width)
    for table in tables.values():
        _print(console, Text.assemble((printable(table.name), "bold"), f" ({table.layer})"))
        columns = ", ".join(f"{name} {spark_type(kind)}" for name, kind in table.columns.items())
        _print(console, Padding(Text(printable(columns)), (0, 0, 0, 4)))


def _console(out: TextIO, width: int | None) -> Console:
    return Console(file=out, width=width, highlight=False, markup=False, emoji=False)


def _print(console: Console, what: RenderableType) -> None:
    """Without the spaces that fill every line up to the width."""
    with console.capture() as captured:
        console.print(what)
    console.file.writelines(line.rstrip() + "\n" for line in captured.get().splitlines())


def _batches(rows: Iterator[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield batch


def _fitted(names: list[str], rows: list[Sequence[Any]], width: int) -> list[_Column] | None:
    """The columns with their widths, or None where they cannot stand beside each other."""
    columns, wanted = [], []
    for place, name in enumerate(names):
        values = [row[place] for row in rows]
        natural = max([cell_len(name), *(cell_len(_shown(value)) for value in values)])
        is_text = any(isinstance(value, str | list | dict) for value in values)
        is_number = all(_is_number(value) for value in values if value is not None) and not is_text
        least = max(cell_len(name), min(natural, _LEAST_TEXT)) if is_text else natural
        columns.append(_Column(name, least, is_number))
        wanted.append(natural)
    spare = width - sum(column.width + _GAP for column in columns) + _GAP
    if spare < 0:
        return None
    # The spare room goes to those that lack least first: most columns are then whole, and few are folded.
    for place in sorted(range(len(columns)), key=lambda place: wanted[place] - columns[place].width):
        more = min(spare, wanted[place] - columns[place].width)
        columns[place] = columns[place]._replace(width=columns[place].width + more)
        spare -= more
    return columns


def _write_rows(console: Console, columns: list[_Column], rows: list[Sequence[Any]], *, has_header: bool) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=has_header, header_style="bold")
    for column in columns:
        justify: Literal["right", "left"] = "right" if column.is_number else "left"
        table.add_column(Text(column.name), justify=justify, width=column.width, overflow="fold")
    for row in rows:
        table.add_row(*[_cell(value) for value in row])
    _print(console, table)


def _write_upright(console: Console, names: list[str], rows: list[Sequence[Any]], before: int) -> None:
    left = max(map(cell_len, names))
    for number, row in enumerate(rows, start=before + 1):
        _print(console, Text(f"row {number}", "bold"))
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(width=min(left, console.width // 2), overflow="fold")
        grid.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            grid.add_row(Text(name), _cell(value))
        _print(console, grid)


def _cell(value: Any) -> Text:
    return Text(_shown(value), style="dim" if value is None else "")


def _shown(value: Any) -> str:
    return _NULL if value is None else printable(text(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
