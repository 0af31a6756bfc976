"""Filters that cost nothing to apply while reading; all others stay with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In, IsNotNull, Not

from headrace.pipeline.sources.flv.names import stream_of
from headrace.pipeline.sources.flv.schema import PROBLEMS

_FLAGS = ("is_keyframe", "is_config", "is_frame")
_NEVER_NULL = frozenset({"path", "file", "stream", "kind", *_FLAGS, "byte_offset", "size_bytes"})


@dataclass(frozen=True)
class RowFilter:
    """Which tags are wanted, by facts that cost nothing. Empty wants all."""

    kinds: frozenset[str] | None = None
    flags: dict[str, bool] = field(default_factory=dict)  # is_keyframe, is_config, is_frame


@dataclass(frozen=True)
class Wanted:
    """What is left to read: files by path or stream, rows by facts. None means all."""

    paths: frozenset[str] | None = None
    streams: frozenset[str] | None = None
    rows: RowFilter = field(default_factory=RowFilter)

    def has_file(self, path: str) -> bool:
        is_path = self.paths is None or path in self.paths
        return is_path and (self.streams is None or stream_of(path) in self.streams)


def push(filters: Sequence[Filter], rows: str) -> tuple[Wanted, list[Filter]]:
    """What of the filters is applied while reading, and those that Spark must apply."""
    chosen: dict[str, frozenset[Any]] = {}
    left: list[Filter] = []
    by_row = ("kind", *_FLAGS) if rows != PROBLEMS else ()
    by_file = "file" if rows == PROBLEMS else "path"
    for one in filters:
        if isinstance(one, IsNotNull) and one.attribute[0] in _NEVER_NULL:
            continue
        column, values = _choice(one)
        if column in (by_file, "stream", *by_row) and values is not None:
            chosen[column] = chosen.get(column, values) & values
        else:
            left.append(one)
    flags = {name: chosen[name] for name in _FLAGS if name in chosen and len(chosen[name]) < 2}
    if any(not values for values in flags.values()):  # both true and false
        return Wanted(paths=frozenset()), left
    row_filter = RowFilter(chosen.get("kind"), {name: next(iter(values)) for name, values in flags.items()})
    return Wanted(chosen.get(by_file), chosen.get("stream"), row_filter), left


def _choice(one: Filter) -> tuple[str, frozenset[Any] | None]:
    """The column of a filter and the values it lets pass; None if it is not of that kind."""
    if isinstance(one, EqualTo | EqualNullSafe) and len(one.attribute) == 1 and one.value is not None:
        return one.attribute[0], frozenset({one.value})
    if isinstance(one, In) and len(one.attribute) == 1 and None not in one.value:
        return one.attribute[0], frozenset(one.value)
    if isinstance(one, Not):
        column, values = _choice(one.child)
        if column in _FLAGS and values in (frozenset({True}), frozenset({False})):
            return column, frozenset({True, False}) - values
    return "", None
