"""What a task does: open the files of its pieces, walk them, give batches of the rows that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from headrace.pipeline.sources.flv.columns import RowFilter, problem_batch, tag_batch
from headrace.pipeline.sources.flv.listing import Files
from headrace.pipeline.sources.flv.pieces import Piece
from headrace.pipeline.sources.flv.positions import Counter
from headrace.pipeline.sources.flv.schema import PROBLEMS
from headrace.pipeline.sources.flv.walk import Problem, Tags, walk

_PAYLOAD_WINDOW_BYTES = 8 << 20  # payloads are copied on their way to the JVM, whose heap is small
_PROBLEMS_PER_BATCH = 1024


class FlvPartition(InputPartition):
    """One task's pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


@dataclass
class FlvReading:
    """The part of a reader that travels to executors."""

    files: Files
    rows: str
    schema: StructType
    wanted: RowFilter = field(default_factory=RowFilter)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark plans a partition of its own, without pieces, where there are no files.
        for piece in getattr(partition, "pieces", ()):
            if self.rows == PROBLEMS:
                yield from self._problems(piece)
            else:
                yield from self._tags(piece)

    def _tags(self, piece: Piece) -> Iterator[Any]:
        positions = Counter(piece.place) if piece.place is not None else None
        for found in self._walk(piece):
            if isinstance(found, Tags):
                yield tag_batch(piece.path, found, self.schema, self.wanted, positions)
            elif positions is not None:
                positions.stop()

    def _problems(self, piece: Piece) -> Iterator[Any]:
        problems: list[Problem] = []
        for found in self._walk(piece):
            if isinstance(found, Problem):
                problems.append(found)
            if len(problems) == _PROBLEMS_PER_BATCH:
                yield problem_batch(piece.path, problems, self.schema)
                problems = []
        if problems:
            yield problem_batch(piece.path, problems, self.schema)

    def _walk(self, piece: Piece) -> Iterator[Tags | Problem]:
        try:
            file = self.files.open(piece.path)
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            # Any other error of a disk or a network is not the file's: the task fails, and Spark tries it again.
            if piece.part.is_exact:
                yield Problem(piece.part.begin, error.strerror or "nothing", "a file that can be read")
            return
        if "payload" in self.schema.names:
            file.window_bytes = min(file.window_bytes, _PAYLOAD_WINDOW_BYTES)
        try:
            yield from walk(file, piece.part)
        finally:
            file.close()
