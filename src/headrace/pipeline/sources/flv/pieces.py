"""Files to tasks: a large file becomes several pieces, many small files one task.

Planning happens in a process of its own that Spark starts for it: nothing here needs numpy or pyarrow, which are half
of what such a process would import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

# A task costs about as long as reading this much: fewer bytes than that are not worth one of their own.
_LEAST_TASK_BYTES = 64 << 20
# A file is not split for less: its pieces each look for their place, and most of its tags have no index then.
_LEAST_SPLIT_BYTES = 512 << 20
_OPEN_BYTES = 1 << 20  # what opening a file costs, in the same coin
# And what it costs a piece to find its place: 12 ms of a processor. That is 190 MB of packets' columns, and 70 MB where
# all columns are read. One file of 1 GB took 104 ms with pieces of one length, and takes 90 since the first is longer.
_PLACE_BYTES = 128 << 20


class Range(NamedTuple):
    """A part of a file to read: tags that start in it, from `begin` up to `stop`."""

    begin: int
    stop: int
    size: int  # of the file, as it was when the ranges were made
    is_exact: bool = True  # begins where a tag does, or the file
    tags_before: int | None = 0

    @classmethod
    def whole(cls, size: int) -> Range:
        return cls(0, size, size)


class Place(NamedTuple):
    """Of a file: the position of its first frame, and the first one behind it that is not known any more."""

    first: int
    stop: int | None


class Piece(NamedTuple):
    """What one task reads of one file."""

    path: str
    part: Range
    place: Place | None = None  # in the log, of a whole file


class FlvPartition(InputPartition):
    """One task's pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


def piece_bytes(total_bytes: int, max_bytes: int, min_tasks: int) -> int:
    """How long the pieces of a large file are among files of so many bytes: all tasks together end at about a time."""
    return min(max_bytes, max(_LEAST_SPLIT_BYTES, -(-total_bytes // _count_tasks(total_bytes, max_bytes, min_tasks))))


def split(path: str, begin: int, size: int, share_bytes: int, tags_before: int | None = 0) -> Iterator[Piece]:
    """The pieces of a file from `begin`, which is its first byte or a tag's, up to `size`.

    All of about one length, `share_bytes` at most, but for the first: it is up to a quarter longer, since it need not
    look for its place.
    """
    length = size - begin
    count = max(1, -(-length // share_bytes))
    lead = min(_PLACE_BYTES, length // count // 4) if count > 1 else 0
    step = max(1, -(-(length - lead) // count))
    first_stop = min(begin + step + lead, size)
    yield Piece(path, Range(begin, first_stop, size, tags_before=tags_before))
    for start in range(first_stop, size, step):
        yield Piece(path, Range(start, min(start + step, size), size, is_exact=False, tags_before=None))


def pack(pieces: Iterable[Piece], max_bytes: int, min_tasks: int) -> list[tuple[Piece, ...]]:
    """Pieces put together in their order into tasks of similar size."""
    pieces = list(pieces)
    total = sum(map(_cost, pieces))
    count = min(_count_tasks(total, max_bytes, min_tasks), -(-total // min(max_bytes, _LEAST_TASK_BYTES)))
    tasks: dict[int, list[Piece]] = {}
    before = 0
    for piece in pieces:
        # By where its middle lies among all: filled one after the other, tasks leave a last one with next to nothing.
        tasks.setdefault((2 * before + _cost(piece)) * count // (2 * total), []).append(piece)
        before += _cost(piece)
    return [tuple(task) for task in tasks.values()]


def _count_tasks(total_bytes: int, max_bytes: int, min_tasks: int) -> int:
    """A multiple of the processors, so that none waits for the others while they do a last round."""
    rounds = max(1, -(-total_bytes // (max_bytes * min_tasks)))
    return rounds * min_tasks


def _cost(piece: Piece) -> int:
    part = piece.part
    return part.stop - part.begin + _OPEN_BYTES + (0 if part.is_exact else _PLACE_BYTES)
