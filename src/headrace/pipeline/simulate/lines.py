"""Lines of the event log, many at a time: columns in, the bytes of JSON lines out, as `EventLog` writes them.

pyarrow turns numbers into text and joins it. What a join gives is one buffer with all lines behind each other, so
lines that follow each other in the log are copied at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.simulate.chance import Flags, Ints
from headrace.telemetry.events import FIELD_NAMES, SCHEMA_VERSION, Event

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

# Of a field: numbers, JSON text for each line, or JSON text for all of them.
Values: TypeAlias = Any
Columns = Sequence[tuple[str, Values]]

# The order of what happens in one millisecond.
RANKS = {
    kind: rank
    for rank, kind in enumerate(
        (
            "server_started",
            "connection_opened",
            "publish_started",
            "publish_refused",
            "play_started",
            "play_refused",
            "metadata",
            "codec_detected",
            "recording_opened",
            "publisher_sample",
            "subscriber_sample",
            "delivery",
            "destination_sample",
            "destination_state",
            "play_stopped",
            "publish_stopped",
            "stream_ended",
            "recording_closed",
            "connection_closed",
            "server_stopped",
        )
    )
}
_RANK_BITS = 5


@dataclass(frozen=True, slots=True)
class Rows:
    """Events of one type, by time. Columns are asked for once it is known that the lines are wanted."""

    type: str
    time_ms: Ints
    columns: Callable[[], Columns]

    @property
    def sort_key(self) -> Ints:
        return np.asarray(sort_key(self.time_ms, self.type))


def sort_key(time_ms: Any, kind: str) -> Any:
    """In the order of the log."""
    return (time_ms << _RANK_BITS) + RANKS[kind]


def text(values: Iterable[str]) -> pa.Array:
    """JSON strings."""
    return pa.array([encode(value) for value in values], pa.string())


def fixed(pieces: Sequence[str], places: Ints) -> pa.Array:
    """What is the same in many lines: the piece of each."""
    return pa.array(pieces, pa.string()).take(pa.array(places))


def or_null(values: Ints, is_null: Flags) -> pa.Array:
    return pc.if_else(pa.array(is_null), "null", pa.array(values).cast(pa.string()))


def flags(values: Flags) -> pa.Array:
    return pc.if_else(pa.array(values), "true", "false")


def format_rows(rows: Rows, node: str, boot: str, seq: Ints) -> pa.Array:
    """The lines, each with its line feed. A column may hold several fields, `name` naming them all.

    ValueError if the fields are not those of the contract, in its order.
    """
    columns = rows.columns()
    names = tuple(name for column, _ in columns for name in column.split())
    if names != FIELD_NAMES[rows.type]:
        raise ValueError(f"{rows.type} with {names}, expected {FIELD_NAMES[rows.type]}")
    pieces: list[Any] = [f'{{"v":{SCHEMA_VERSION},"node":{encode(node)},"boot":"{boot}","seq":', _digits(seq)]
    pieces += [',"time_ms":', _digits(rows.time_ms), f',"type":"{rows.type}"']
    for column, values in columns:
        # Of several fields the text has the names too, but for the first.
        pieces.append(f',"{column.split()[0]}":')
        pieces.append(values if isinstance(values, (str, pa.Array)) else _digits(values))
    return pc.binary_join_element_wise(*_merged([*pieces, "}\n"]), "")


def format_events(events: Sequence[tuple[int, Event]], node: str, boot: str, seq: Ints) -> pa.Array:
    """The lines of single events."""
    envelope = f'{{"v":{SCHEMA_VERSION},"node":{encode(node)},"boot":"{boot}","seq":'
    lines = []
    for number, (time_ms, event) in zip(seq.tolist(), events, strict=True):
        body = encode({name: getattr(event, name) for name in FIELD_NAMES[event.type]})
        lines.append(f'{envelope}{number},"time_ms":{time_ms},"type":"{event.type}",{body[1:]}\n')
    return pa.array(lines, pa.string())


def _digits(values: Ints) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _merged(pieces: list[Any]) -> list[Any]:
    """Neighbours that are the same in all lines as one."""
    merged: list[Any] = []
    for piece in pieces:
        if merged and isinstance(piece, str) and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return [pa.scalar(piece) if isinstance(piece, str) else piece for piece in merged]


def several(**fields: object) -> str:
    """The text of several fields for a column that holds them all; its first name stands before it already."""
    return encode(fields)[1:-1].partition(":")[2]


def order_of(groups: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """The sort keys of all groups in one order: which came from where, and the place of each in it."""
    order = np.argsort(np.concatenate(groups), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return order, np.split(place, np.cumsum([len(group) for group in groups])[:-1])
