"""Lines of the event log as Arrow, as long as all of them are just what the contract says.

Almost all lines are, and to have Spark parse them costs five times the processor time: it looks up every column of the
wide row in every line. Owns what is ordinary: one event of this version in each line,
of a type that is known, with no other fields than that has, and values of their types. Whatever is not is left to
`events`, which tells what it is; both give the same rows.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, reduce
from operator import attrgetter, or_
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.schema import ENVELOPE_NAMES, EVENTS
from headrace.telemetry.events import EVENT_TYPES, SCHEMA_VERSION, field_types

SCHEMA: pa.Schema = to_arrow_schema(EVENTS)
_BETWEEN = b"}\n{"
# What is parsed at once: enough that the work of a column, not that of a table, is what costs.
_TEXT_BYTES = 4 << 20


def read_texts(paths: Iterable[Path]) -> Iterator[bytes]:
    """Whole lines of some files, several megabytes at a time."""
    held: list[bytes] = []
    held_bytes = 0
    for path in paths:
        with suppress(FileNotFoundError), path.open("rb") as file:  # or the server made room
            while block := file.read(_TEXT_BYTES) + file.readline(_TEXT_BYTES):
                held.append(block if block.endswith(b"\n") else block + b"\n")
                held_bytes += len(block)
                if held_bytes >= _TEXT_BYTES:
                    yield b"".join(held)
                    held, held_bytes = [], 0
    if held:
        yield b"".join(held)


def read_events(text: bytes) -> pa.Table | None:
    """The events of some whole lines, those of a type together; None if a line is out of the ordinary."""
    if not text:
        return SCHEMA.empty_table()
    lines = text.count(_BETWEEN) + 1
    # So that no line break is within an event, where it would be one of the two halves of nothing.
    if text.count(b"\n") != lines - (not text.endswith(b"\n")) or b"\r" in text:
        return None
    with _no_collector():
        try:
            events = _decoder().decode_lines(text)
            return _table(events) if len(events) == lines else None
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, pa.ArrowInvalid):
            return None


def _table(events: Sequence[Any]) -> pa.Table:
    of_kind: dict[type[msgspec.Struct], list[Any]] = {}
    for event in events:
        of_kind.setdefault(type(event), []).append(event)
    tables = [_table_of_kind(kind, own) for kind, own in of_kind.items()]
    return pa.concat_tables([SCHEMA.empty_table(), *tables], promote_options="default")


def _table_of_kind(kind: type[msgspec.Struct], events: list[Any]) -> pa.Table:
    names = kind.__struct_fields__
    columns = zip(*map(attrgetter(*names), events), strict=True)
    arrays = {name: _array(values, SCHEMA.field(name).type) for name, values in zip(names, columns, strict=True)}
    arrays["type"] = pa.repeat(pa.scalar(kind.__struct_config__.tag, pa.string()), len(events))
    return pa.table(arrays)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [value if value is None else list(value.items()) for value in values]
    return pa.array(values, kind)


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    kinds: Any = reduce(or_, map(_struct, EVENT_TYPES))
    return msgspec.json.Decoder(kinds)


def _struct(name: str) -> type[msgspec.Struct]:
    """An event as it stands in a line: its envelope, and its own fields, each of which may be missing or null."""
    kinds: dict[str, Any] = {"v": Literal[SCHEMA_VERSION], "node": str, "boot": str, "seq": int, "time_ms": int}
    own = [
        (field, hint | None, None)
        for field, hint in field_types(EVENT_TYPES[name]).items()
        if field not in ENVELOPE_NAMES
    ]
    return msgspec.defstruct(
        name, [*kinds.items(), *own], tag_field="type", tag=name, forbid_unknown_fields=True, kw_only=True, gc=False
    )


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python looks for cycles whenever there are so many more objects, and here there are none: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
