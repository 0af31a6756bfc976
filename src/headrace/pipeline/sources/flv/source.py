"""`format("flv")` itself: what Spark calls to plan a batch read or to run a stream.

Owns the two readers and their registration. Spark 4.3 gives a Python source no list of the columns a query needs, so
columns are pruned by naming them: `spark.read.schema("path string, size_bytes int").format("flv")`.

Spark plans in processes of their own, which import this module anew, as every command of ours does: numpy, pyarrow and
what reads files are imported where files are read.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.filters import RowFilter, Wanted, push
from headrace.pipeline.sources.flv.listing import Files, FoundFile
from headrace.pipeline.sources.flv.offsets import Limits, Offset, Progress, advance
from headrace.pipeline.sources.flv.options import FlvOptions
from headrace.pipeline.sources.flv.pieces import FlvPartition, Piece, Place, Range, pack, piece_bytes, split
from headrace.pipeline.sources.flv.prompt import Prompt
from headrace.pipeline.sources.flv.schema import require_columns, schema_of

_NOT_IN_STREAMS = "none in a stream: a tag may come before the event that tells its place"


def register(spark: SparkSession) -> None:
    """Make `format("flv")` known to a session, and let filters reach it: without the setting Spark refuses to read."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(FlvDataSource)


class FlvDataSource(DataSource):
    """FLV files as rows, one per tag. Options are described in `options`, columns in `schema`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        _settle()

    @classmethod
    def name(cls) -> str:
        return "flv"

    def schema(self) -> StructType:
        options = FlvOptions.parse(self.options)
        return schema_of(options.rows, has_payload=options.has_payload)

    def reader(self, schema: StructType) -> FlvReader:
        _settle()
        return FlvReader(FlvOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> FlvStreamReader:
        options = FlvOptions.parse(self.options)
        if options.events is not None:
            raise PipelineError("OPTION_INVALID", option="events", value=options.events, expected=_NOT_IN_STREAMS)
        return FlvStreamReader(options, schema)


class FlvReader(Prompt, DataSourceReader):
    """Reads the files that are there when the query is planned, as long as they are then."""

    def __init__(self, options: FlvOptions, schema: StructType) -> None:
        require_columns(schema, options.rows)
        self._options = options
        self._schema = schema
        self._files = options.files()
        self._wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = push(filters, self._options.rows)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        place_of = _places(options.events) if options.events is not None else None
        found = [file for file in self._files.find(may_be_missing=False) if self._wanted.has_file(file.path)]
        most = piece_bytes(sum(file.size for file in found), options.max_split_bytes, options.min_partitions)
        pieces: list[Piece] = []
        for file in found:
            if place_of is not None and (place := place_of(file.path)) is not None:
                pieces.append(Piece(file.path, Range.whole(file.size), place))
            else:
                pieces += split(file.path, 0, file.size, most)
        return [FlvPartition(task) for task in pack(pieces, options.max_split_bytes, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._files, self._options.rows, self._schema, self._wanted.rows)


class FlvStreamReader(Prompt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows files that grow. All it knows between two calls is in the offsets (see `offsets`)."""

    def __init__(self, options: FlvOptions, schema: StructType, clock: Callable[[], float] = time.time) -> None:
        require_columns(schema, options.rows)
        self._options = options
        self._schema = schema
        self._files = options.files()
        self._clock = clock
        self._target: tuple[list[FoundFile], int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return Offset().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._options.max_batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        listing, now_ms = self._target or self._look()
        before = Offset.from_json(start)
        after = advance(before, listing, now_ms, self._limits(limit), self._whole_tags)
        return start if after is before else after.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options, before, after = self._options, Offset.from_json(start), Offset.from_json(end)
        new: list[tuple[str, Progress, Progress]] = []
        for path, progress in after.files.items():
            known = before.files.get(path)
            if known is None or known.position < progress.position:
                new.append((path, known or Progress(0, 0, 0), progress))
        total = sum(progress.position - known.position for _, known, progress in new)
        most = piece_bytes(total, options.max_split_bytes, options.min_partitions)
        pieces: list[Piece] = []
        for path, known, progress in new:
            pieces += split(path, known.position, progress.position, most, known.tags)
        return [FlvPartition(task) for task in pack(pieces, options.max_split_bytes, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._files, self._options.rows, self._schema, RowFilter())

    def _look(self) -> tuple[list[FoundFile], int]:
        # The clock first: a file that changes during the listing must not seem older than it is.
        now_ms = int(self._clock() * 1000)
        return self._files.find(may_be_missing=True), now_ms

    def _limits(self, limit: ReadLimit) -> Limits:
        options = self._options
        max_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        max_files = limit.max_files if isinstance(limit, ReadMaxFiles) else options.max_batch_files
        return Limits(options.close_after_ms, max_bytes, None if isinstance(limit, ReadAllAvailable) else max_files)

    def _whole_tags(self, path: str, position: int, stop: int) -> tuple[int, int]:
        from headrace.pipeline.sources.flv.walk import whole_tags

        try:
            file = self._files.open(path)
        except (FileNotFoundError, PermissionError):
            return position, 0
        try:
            return whole_tags(file, position, stop)
        finally:
            file.close()


def _read(partition: InputPartition, files: Files, rows: str, schema: StructType, wanted: RowFilter) -> Iterator[Any]:
    from headrace.pipeline.sources.flv.reading import FlvReading

    _settle()
    return FlvReading(files, rows, schema, wanted).read(partition)


@cache
def _settle() -> None:
    """Once in a process of Spark's, when all is imported.

    Behind every step and task such a process looks for garbage in all that was ever imported: 10 to 20 ms of a
    processor that the query's next step needs, four times a query. What is there by now stays as long as the process.
    """
    gc.freeze()


def _places(events: str) -> Callable[[str], Place | None]:
    from headrace.pipeline.sources.flv.positions import Places

    return Places.read(events).of
