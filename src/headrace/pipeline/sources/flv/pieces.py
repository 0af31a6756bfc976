"""Files to tasks: a large file becomes several pieces, many small files one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.pipeline.sources.flv.positions import Place
from headrace.pipeline.sources.flv.walk import Range

# A task costs about as long as reading this much: fewer bytes than that are not worth one of their own.
_LEAST_TASK_BYTES = 64 << 20
_OPEN_BYTES = 1 << 20  # what opening a file costs, in the same coin


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads of one file."""

    path: str
    part: Range
    place: Place | None = None  # in the log, of a whole file


def split(path: str, begin: int, size: int, max_bytes: int, tags_before: int | None = 0) -> Iterator[Piece]:
    """The pieces of a file from `begin`, which is its first byte or a tag's, up to `size`. All of one length."""
    count = max(1, -(-(size - begin) // max_bytes))
    step = max(1, -(-(size - begin) // count))
    yield Piece(path, Range(begin, min(begin + step, size), size, step, tags_before=tags_before))
    for start in range(begin + step, size, step):
        yield Piece(path, Range(start, min(start + step, size), size, step, is_exact=False, tags_before=None))


def pack(pieces: Iterable[Piece], max_bytes: int, min_tasks: int) -> list[tuple[Piece, ...]]:
    """Pieces put together in their order into tasks of similar size."""
    pieces = list(pieces)
    total = sum(map(_cost, pieces))
    target = min(max_bytes, max(_LEAST_TASK_BYTES, -(-total // min_tasks)))
    tasks: list[tuple[Piece, ...]] = []
    task: list[Piece] = []
    cost = 0
    for piece in pieces:
        if task and cost + _cost(piece) > target:
            tasks.append(tuple(task))
            task, cost = [], 0
        task.append(piece)
        cost += _cost(piece)
    return [*tasks, tuple(task)] if task else tasks


def _cost(piece: Piece) -> int:
    return piece.part.stop - piece.part.begin + _OPEN_BYTES
