from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.query.lake import find_tables
from headrace.pipeline.query.result import Result
from headrace.pipeline.query.table_text import write_listing, write_table


def drawn(columns: list[str], rows: list[tuple[Any, ...]], width: int = 60) -> list[str]:
    out = io.StringIO()
    write_table(Result(columns, iter(rows)), out, width=width)
    return out.getvalue().splitlines()


def test_numbers_stand_right_and_text_stands_left() -> None:
    assert drawn(["stream", "plays"], [("live/show", 12), ("live/a", None)]) == [
        "stream     plays",
        "live/show     12",
        "live/a      null",
        "(2 rows)",
    ]


def test_text_too_long_for_the_width_is_folded_and_none_of_it_is_lost() -> None:
    lines = drawn(["path", "n"], [("x" * 100, 7)], width=40)
    assert max(map(len, lines)) <= 40
    assert "".join(lines).count("x") == 100


def test_a_row_with_too_many_columns_has_a_line_for_each() -> None:
    names = [f"a_rather_long_name_{number}" for number in range(9)]
    lines = drawn(names, [tuple(range(9)), tuple(range(9, 18))])
    assert lines[:3] == ["row 1", "a_rather_long_name_0  0", "a_rather_long_name_1  1"]
    assert lines[10:12] == ["row 2", "a_rather_long_name_0  9"]
    assert lines[-1] == "(2 rows)"


def test_no_rows_are_a_header_and_a_zero() -> None:
    assert drawn(["a", "b"], []) == ["a  b", "(0 rows)"]


def test_what_could_move_a_cursor_is_shown_as_an_escape() -> None:
    lines = drawn(["name"], [("a\x1b[31m\nb[bold]c",)])
    assert lines[1] == "a\\x1b[31m\\nb[bold]c"


def test_characters_of_two_cells_are_counted_as_two() -> None:
    assert drawn(["name", "n"], [("配信", 1), ("abcd", 2)])[1:3] == ["配信  1", "abcd  2"]


def test_a_long_answer_is_written_as_it_comes() -> None:
    out = io.StringIO()
    seen_when_asked_for_the_last: list[int] = []

    def rows() -> Iterator[tuple[int]]:
        for number in range(1000):
            if number == 999:
                seen_when_asked_for_the_last.append(out.getvalue().count("\n"))
            yield (number,)

    write_table(Result(["n"], rows()), out, width=60)
    assert seen_when_asked_for_the_last[0] > 700
    assert out.getvalue().splitlines()[-2:] == ["999", "(1000 rows)"]
    assert out.getvalue().splitlines().count("  n") == 1


@pytest.mark.parametrize("width", [40, 120])
def test_the_listing_has_every_table_and_keeps_within_the_width(night: Path, width: int) -> None:
    tables = find_tables(night, made_by="")
    out = io.StringIO()
    write_listing(tables, out, width=width)
    lines = out.getvalue().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [f"{t.name} ({t.layer})" for t in tables.values()]
    assert max(map(len, lines)) <= width
    assert "availability double" in " ".join(out.getvalue().split())
