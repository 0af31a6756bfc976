"""Tags and problems to Arrow batches with exactly the columns that were asked for.

Arrays are made from numpy's buffers and not by `pyarrow.array`, which loads pandas when it is first called: 0.6 s of
processor time and 40 MB in every Python worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.sources.flv.chain import SIZE_BYTES, TAG_HEADER_BYTES
from headrace.pipeline.sources.flv.facts import Facts, Flags, Numbers, read_facts
from headrace.pipeline.sources.flv.names import stream_of
from headrace.pipeline.sources.flv.positions import Counter
from headrace.pipeline.sources.flv.walk import Problem, Tags
from headrace.protocol.messages import AUDIO, DATA, VIDEO

KINDS = {"audio": AUDIO, "video": VIDEO, "script": DATA}
_KIND_INDEX = np.zeros(32, np.int64)  # by the tag's type
_KIND_INDEX[list(KINDS.values())] = range(len(KINDS))


@dataclass(frozen=True)
class RowFilter:
    """Which tags are wanted, by facts that cost nothing. Empty wants all."""

    kinds: frozenset[str] | None = None
    flags: dict[str, bool] = field(default_factory=dict)  # is_keyframe, is_config, is_frame

    def mask(self, facts: Facts) -> Flags | None:
        masks = [getattr(facts, name) == value for name, value in self.flags.items()]
        if self.kinds is not None:
            masks.append(np.isin(facts.kind, [KINDS[kind] for kind in self.kinds if kind in KINDS]))
        return np.logical_and.reduce(masks) if masks else None


def tag_batch(path: str, tags: Tags, schema: StructType, wanted: RowFilter, positions: Counter | None = None) -> Any:
    """A `pyarrow.RecordBatch` of the tags that pass the filter."""
    facts = read_facts(tags)
    rows = _Rows(path, tags, facts, wanted, positions.count(facts.is_frame) if positions is not None else None)
    arrow = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays([_COLUMNS[column.name](rows).cast(column.type) for column in arrow], schema=arrow)


def problem_batch(path: str, problems: Iterable[Problem], schema: StructType) -> Any:
    stream = stream_of(path)
    values = [
        {
            "file": path,
            "stream": stream,
            "byte_offset": problem.byte_offset,
            "found": problem.found,
            "expected": problem.expected,
            "resumed_at": problem.resumed_at,
        }
        for problem in problems
    ]
    return pa.RecordBatch.from_pylist(values, schema=to_arrow_schema(schema, timezone="UTC"))


class _Rows:
    """The tags of a batch that passed the filter, and one method per column."""

    def __init__(
        self, path: str, tags: Tags, facts: Facts, wanted: RowFilter, positions: tuple[Numbers, Flags] | None
    ) -> None:
        mask = wanted.mask(facts)
        self._keep = slice(None) if mask is None else mask
        self._path = path
        self._tags = tags
        self._facts = facts
        self._positions = positions
        self._starts = tags.starts[self._keep]
        self._ends = tags.ends[self._keep]
        self._count = len(self._starts)

    def path(self) -> Any:
        return _strings([self._path]).take(_numbers(np.zeros(self._count, np.int64)))

    def stream(self) -> Any:
        return _strings([stream_of(self._path)]).take(_numbers(np.zeros(self._count, np.int64)))

    def tag_index(self) -> Any:
        first = self._tags.first_index
        if first is None:
            return pa.nulls(self._count, pa.int64())
        return _numbers(np.arange(first, first + len(self._tags.starts))[self._keep])

    def log_position(self) -> Any:
        if self._positions is None:
            return pa.nulls(self._count, pa.int64())
        position, is_known = self._positions
        return _numbers(position[self._keep], is_known[self._keep])

    def byte_offset(self) -> Any:
        return _numbers(self._starts + self._tags.base)

    def kind(self) -> Any:
        return _strings(list(KINDS)).take(_numbers(_KIND_INDEX[self._facts.kind[self._keep]]))

    def timestamp_ms(self) -> Any:
        return _numbers(self._facts.timestamp_ms[self._keep])

    def composition_ms(self) -> Any:
        return _numbers(self._facts.composition_ms[self._keep], self._facts.has_composition[self._keep])

    def size_bytes(self) -> Any:
        return _numbers(self._facts.size_bytes[self._keep])

    def codec(self) -> Any:
        index = self._facts.codec[self._keep]
        return _strings(self._facts.names).take(_numbers(index, index >= 0))

    def is_keyframe(self) -> Any:
        return _flags(self._facts.is_keyframe[self._keep])

    def is_config(self) -> Any:
        return _flags(self._facts.is_config[self._keep])

    def is_frame(self) -> Any:
        return _flags(self._facts.is_frame[self._keep])

    def payload_digest(self) -> Any:
        digest = xxhash.xxh3_64_intdigest
        return _numbers(np.array([digest(payload) for payload in self._payloads()], np.uint64).view(np.int64))

    def payload(self) -> Any:
        # Arrow wants the values without the tag headers between them, so they are copied, once.
        return _values(pa.binary(), self._facts.size_bytes[self._keep], b"".join(self._payloads()))

    def _payloads(self) -> Iterable[memoryview]:
        view = self._tags.data.data
        starts, stops = self._starts + TAG_HEADER_BYTES, self._ends - SIZE_BYTES
        return (view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True))


def _numbers(values: Numbers, is_there: Flags | None = None) -> Any:
    validity = None if is_there is None else _bits(is_there)
    return pa.Array.from_buffers(pa.int64(), len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def _flags(values: Flags) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _bits(values: Flags) -> Any:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _strings(words: list[str]) -> Any:
    encoded = [word.encode("utf-8", "surrogateescape") for word in words]
    return _values(pa.string(), np.array([len(word) for word in encoded]), b"".join(encoded))


def _values(kind: Any, sizes: Numbers, values: bytes) -> Any:
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.Array.from_buffers(kind, len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


_COLUMNS: dict[str, Callable[[_Rows], Any]] = {
    name: method for name, method in vars(_Rows).items() if not name.startswith("_")
}
