"""What a query gives, whichever engine it ran on: names of columns, and rows of plain Python values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple


class Result(NamedTuple):
    columns: list[str]
    rows: Iterator[Sequence[Any]]  # as they come, never all at once


def distinct(names: Iterable[str]) -> list[str]:
    """The names, told apart: of two columns of one name the second gets a number. An object has no name twice."""
    chosen: list[str] = []
    for name in names:
        number, own = 1, name
        while own in chosen:
            number += 1
            own = f"{name}_{number}"
        chosen.append(own)
    return chosen
