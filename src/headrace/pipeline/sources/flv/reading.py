"""What a task does: open the files of its pieces, walk them, give batches of the rows that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.pipeline.sources.flv.columns import Run, problem_batch, tag_batch
from headrace.pipeline.sources.flv.files import FileBytes
from headrace.pipeline.sources.flv.filters import RowFilter
from headrace.pipeline.sources.flv.listing import Files
from headrace.pipeline.sources.flv.pieces import Piece
from headrace.pipeline.sources.flv.positions import Counter
from headrace.pipeline.sources.flv.schema import PROBLEMS
from headrace.pipeline.sources.flv.walk import Problem, Tags, walk

_PAYLOAD_WINDOW_BYTES = 8 << 20  # payloads are copied on their way to the JVM, whose heap is small
_PROBLEMS_PER_BATCH = 1024
_RUNS_PER_BATCH = 128  # a mapped file holds a descriptor, and 1024 is what a process has of those by default


@dataclass
class FlvReading:
    """What is read, and of which files. Made anew in each task: see `source`."""

    files: Files
    rows: str
    schema: StructType
    wanted: RowFilter = field(default_factory=RowFilter)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark plans a partition of its own, without pieces, where there are no files.
        pieces: Sequence[Piece] = getattr(partition, "pieces", ())
        return self._problems(pieces) if self.rows == PROBLEMS else self._tags(pieces)

    def _tags(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        """Small files share a batch: one costs as much as reading 5 MB, however few rows it has."""
        runs: list[Run] = []
        held_bytes = 0
        for piece in pieces:
            file = self._open(piece)
            if isinstance(file, Problem):
                continue
            positions = Counter(piece.place) if piece.place is not None else None
            for found in _walk(file, piece):
                if isinstance(found, Tags):
                    runs.append(Run(piece.path, found, positions))
                    held_bytes += len(found.data)
                is_damage = positions is not None and isinstance(found, Problem)  # what is before it is counted first
                if runs and (is_damage or held_bytes >= file.window_bytes or len(runs) == _RUNS_PER_BATCH):
                    yield tag_batch(runs, self.schema, self.wanted)
                    runs, held_bytes = [], 0
                if positions is not None and is_damage:
                    positions.stop()
        if runs:
            yield tag_batch(runs, self.schema, self.wanted)

    def _problems(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        problems: list[tuple[str, Problem]] = []
        for piece in pieces:
            file = self._open(piece)
            if isinstance(file, Problem) and not piece.part.is_exact:
                continue  # its first piece tells
            for found in (file,) if isinstance(file, Problem) else _walk(file, piece):
                if isinstance(found, Problem):
                    problems.append((piece.path, found))
                if len(problems) == _PROBLEMS_PER_BATCH:
                    yield problem_batch(problems, self.schema)
                    problems = []
        if problems:
            yield problem_batch(problems, self.schema)

    def _open(self, piece: Piece) -> FileBytes | Problem:
        try:
            file = self.files.open(piece.path)
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            # Any other error of a disk or a network is not the file's: the task fails, and Spark tries it again.
            return Problem(piece.part.begin, error.strerror or "nothing", "a file that can be read")
        if "payload" in self.schema.names:
            file.window_bytes = min(file.window_bytes, _PAYLOAD_WINDOW_BYTES)
        return file


def _walk(file: FileBytes, piece: Piece) -> Iterator[Tags | Problem]:
    try:
        yield from walk(file, piece.part)
    finally:
        file.close()
