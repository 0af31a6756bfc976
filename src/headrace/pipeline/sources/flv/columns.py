"""Tags and problems to Arrow batches with exactly the columns that were asked for.

Arrays are made from numpy's buffers and not by `pyarrow.array`, which loads pandas when it is first called: 0.6 s of
processor time and 40 MB in every Python worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.sources.flv.chain import SIZE_BYTES, TAG_HEADER_BYTES
from headrace.pipeline.sources.flv.facts import Facts, Flags, Numbers, read_facts
from headrace.pipeline.sources.flv.filters import RowFilter
from headrace.pipeline.sources.flv.names import stream_of
from headrace.pipeline.sources.flv.positions import Counter
from headrace.pipeline.sources.flv.walk import Problem, Tags
from headrace.protocol.messages import AUDIO, DATA, VIDEO

KINDS = {"audio": AUDIO, "video": VIDEO, "script": DATA}
_KIND_INDEX = np.zeros(32, np.int64)  # by the tag's type
_KIND_INDEX[list(KINDS.values())] = range(len(KINDS))


class Run(NamedTuple):
    """Tags of one file that follow each other, and where their places in the log are known, who counts them."""

    path: str
    tags: Tags
    positions: Counter | None = None


def tag_batch(runs: Sequence[Run], schema: StructType, wanted: RowFilter) -> Any:
    """A `pyarrow.RecordBatch` of the tags that pass the filter, in the order of the runs."""
    rows = _Rows(runs, wanted)
    arrow = to_arrow_schema(schema, timezone="UTC")
    return pa.RecordBatch.from_arrays([_COLUMNS[column.name](rows).cast(column.type) for column in arrow], schema=arrow)


def problem_batch(problems: Iterable[tuple[str, Problem]], schema: StructType) -> Any:
    """Of problems, each with the path of its file."""
    values = [
        {
            "file": path,
            "stream": stream_of(path),
            "byte_offset": problem.byte_offset,
            "found": problem.found,
            "expected": problem.expected,
            "resumed_at": problem.resumed_at,
        }
        for path, problem in problems
    ]
    return pa.RecordBatch.from_pylist(values, schema=to_arrow_schema(schema, timezone="UTC"))


class _Rows:
    """The tags of a batch that passed the filter, and one method per column."""

    def __init__(self, runs: Sequence[Run], wanted: RowFilter) -> None:
        self._runs = runs
        self._facts = read_facts(*(run.tags for run in runs))
        self._counts = [len(run.tags.starts) for run in runs]
        mask = _mask(wanted, self._facts)
        self._keep = slice(None) if mask is None else mask

    def path(self) -> Any:
        return self._by_run([run.path for run in self._runs])

    def stream(self) -> Any:
        return self._by_run([stream_of(run.path) for run in self._runs])

    def tag_index(self) -> Any:
        first = [-1 if run.tags.first_index is None else run.tags.first_index for run in self._runs]
        before = np.cumsum(self._counts) - self._counts  # tags of the batch before each run
        index = np.arange(sum(self._counts)) + np.repeat(np.array(first) - before, self._counts)
        is_known = np.repeat(np.array(first) >= 0, self._counts)
        return _numbers(index[self._keep], is_known[self._keep])

    def log_position(self) -> Any:
        positions = np.zeros(sum(self._counts), np.int64)
        is_known = np.zeros(sum(self._counts), bool)
        for run, rows in zip(self._runs, self._slices(), strict=True):
            if run.positions is not None:
                positions[rows], is_known[rows] = run.positions.count(self._facts.payloads.is_frame[rows])
        return _numbers(positions[self._keep], is_known[self._keep])

    def byte_offset(self) -> Any:
        return _numbers(np.concatenate([run.tags.starts + run.tags.base for run in self._runs])[self._keep])

    def kind(self) -> Any:
        return _strings(list(KINDS)).take(_numbers(_KIND_INDEX[self._facts.kind[self._keep]]))

    def timestamp_ms(self) -> Any:
        return _numbers(self._facts.timestamp_ms[self._keep])

    def composition_ms(self) -> Any:
        payloads = self._facts.payloads
        return _numbers(payloads.composition_ms[self._keep], payloads.has_composition[self._keep])

    def size_bytes(self) -> Any:
        return _numbers(self._facts.size_bytes[self._keep])

    def codec(self) -> Any:
        index = self._facts.payloads.codec[self._keep]
        return _strings(self._facts.payloads.names).take(_numbers(index, index >= 0))

    def is_keyframe(self) -> Any:
        return _flags(self._facts.payloads.is_keyframe[self._keep])

    def is_config(self) -> Any:
        return _flags(self._facts.payloads.is_config[self._keep])

    def is_frame(self) -> Any:
        return _flags(self._facts.payloads.is_frame[self._keep])

    def payload_digest(self) -> Any:
        digest = xxhash.xxh3_64_intdigest
        return _numbers(np.array([digest(payload) for payload in self._payloads()], np.uint64).view(np.int64))

    def payload(self) -> Any:
        # Arrow wants the values without the tag headers between them, so they are copied, once.
        return _values(pa.binary(), self._facts.size_bytes[self._keep], b"".join(self._payloads()))

    def _payloads(self) -> Iterator[memoryview]:
        for run, rows in zip(self._runs, self._slices(), strict=True):
            keep = self._keep if isinstance(self._keep, slice) else self._keep[rows]
            view = run.tags.data.data
            starts, stops = run.tags.starts[keep] + TAG_HEADER_BYTES, run.tags.ends[keep] - SIZE_BYTES
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                yield view[start:stop]

    def _by_run(self, words: list[str]) -> Any:
        return _strings(words).take(_numbers(np.repeat(np.arange(len(words)), self._counts)[self._keep]))

    def _slices(self) -> Iterator[slice]:
        """Which of the batch's tags are each run's."""
        stop = 0
        for count in self._counts:
            yield slice(stop, stop + count)
            stop += count


def _mask(wanted: RowFilter, facts: Facts) -> Flags | None:
    masks = [getattr(facts.payloads, name) == value for name, value in wanted.flags.items()]
    if wanted.kinds is not None:
        masks.append(np.isin(facts.kind, [KINDS[kind] for kind in wanted.kinds if kind in KINDS]))
    return np.logical_and.reduce(masks) if masks else None


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
