"""`headrace pipeline batch`: what is there now, or the part of it between two times, into the lake.

The two times say what is taken in. Tables are always of all that the lake holds of a stream, so a stream that began
before `--from` is not cut in gold if the lake has its beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs import chunks as chunked
from headrace.pipeline.jobs import few_lines, few_tags, many_lines
from headrace.pipeline.jobs.board import Board
from headrace.pipeline.jobs.build import EventTables, RecordingTables
from headrace.pipeline.jobs.chunks import Chunk
from headrace.pipeline.jobs.following import following
from headrace.pipeline.jobs.ingest import Taken, take_in_lines, take_in_problems, take_in_tags
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.parts import EventParts
from headrace.pipeline.jobs.progress import Progress, SilentProgress
from headrace.pipeline.jobs.report import Say, describe
from headrace.pipeline.jobs.times import Range
from headrace.pipeline.session import is_in_process, prepare_flv
from headrace.pipeline.sources import events as event_source
from headrace.pipeline.tables import timeline
from headrace.pipeline.tables.catalog import DERIVED

_SHORT_EVENT_BYTES = 4 << 20  # no more than a few lines, or longer ones than any event is


class Only(NamedTuple):
    """Some of the files that are there."""

    files: Collection[Path]
    settled: Collection[Path]  # recordings that nobody writes to any more: an end that is cut short is one for good


TookIn = Callable[[int, int, float], None]  # rows, problems, and how long it took


def is_short(data_dirs: list[Path], record_dirs: list[Path]) -> bool:
    """Whether it is the work of a minute at most, by what there is to take in."""
    events = (path for data_dir in data_dirs for path in event_files(data_dir))
    recordings = (path for record_dir in record_dirs for path in recordings_in(record_dir))
    return chunked.is_below(events, _SHORT_EVENT_BYTES) and chunked.is_below(recordings, few_tags.MAX_BYTES)


def run(
    spark: SparkSession,
    lake: Lake,
    data_dirs: list[Path],
    record_dirs: list[Path],
    wanted: Range,
    say: Say,
    progress: Progress | None = None,
    board: Board | None = None,
    only: Only | None = None,
) -> None:
    """Says one line for each directory and one for the tables, and meanwhile shows how far it has come.

    `only` are the files to be read, where it is not all of them.
    """
    progress, board = progress or SilentProgress(say), board or Board(lake.store, "batch")
    with lake.sharing.used():
        part = _next_part(lake)
        for number, data_dir in enumerate(data_dirs):
            took_in = partial(board.took_in, f"events-{number}")
            board.watch(f"events-{number}", "events", data_dir)
            _take_in_events(spark, lake, f"{part}-{number}", data_dir, wanted, only, progress, took_in)
        for number, record_dir in enumerate(record_dirs):
            took_in = partial(board.took_in, f"recordings-{number}")
            board.watch(f"recordings-{number}", "recordings", record_dir)
            _take_in_recordings(spark, lake, f"{part}-{number}", record_dir, wanted, only, progress, took_in)
    _build(spark, lake, progress, board)


def event_files(data_dir: Path) -> Iterator[Path]:
    return (data_dir / event_source.FOLDER).glob("**/*.jsonl")


def recordings_in(record_dir: Path) -> Iterator[Path]:
    return record_dir.glob("**/*.flv")


def _build(spark: SparkSession, lake: Lake, progress: Progress, board: Board) -> None:
    began_s, streams = time.monotonic(), 0
    progress.begin("tables", files=len(DERIVED), unit="tables")
    lake.on_replaced = lambda table: progress.advance(files=1)
    try:
        # Nobody else wants the other core.
        parts = EventParts(lake)
        events, recordings = EventTables(spark, lake, parts), RecordingTables(spark, lake, parts, threads=2)
        with following(spark, progress), ThreadPoolExecutor(1) as beside:
            prepared = beside.submit(recordings.prepare)
            for lane, tables in (("events", events), ("recordings", recordings)):
                since_s = time.monotonic()
                built = tables.build()
                if built is not None:
                    streams = max(streams, built.streams)
                    board.built(lane, built.streams, time.monotonic() - since_s, built.newest_event_ms)
            prepared.result()
    finally:
        lake.on_replaced = lambda table: None
    progress.end(describe("tables", streams, 0, time.monotonic() - began_s))


def _next_part(lake: Lake) -> str:
    numbers = [
        int(name.split("-")[1])
        for table in ("events", "tags", "problems")
        for name in lake.parts(table)
        if name.startswith("batch-")
    ]
    return f"batch-{max(numbers, default=0) + 1:06d}"


def _take_in_events(
    spark: SparkSession,
    lake: Lake,
    part: str,
    data_dir: Path,
    wanted: Range,
    only: Only | None,
    progress: Progress,
    took_in: TookIn,
) -> None:
    began_s = time.monotonic()
    files = _event_files(data_dir, wanted)
    if only is None:
        chunks = chunked.by_folder(files, chunked.EVENT_BYTES)
    else:
        chunks = chunked.by_file((path for path in files if path in only.files), chunked.EVENT_BYTES)
    if not chunks:
        return
    _begin(progress, "events", chunks)
    total = Taken(0, 0)
    for number, chunk in enumerate(chunks):
        with following(spark, progress):
            taken = _take_in_chunk(spark, lake, _named(part, number), data_dir, chunk, wanted)
        total = Taken(total.rows + taken.rows, total.problems + taken.problems)
        progress.advance(files=chunk.files, size_bytes=chunk.size_bytes, rows=taken.rows)
    took_in(*total, time.monotonic() - began_s)
    progress.end(describe("events", total.rows, total.problems, time.monotonic() - began_s))


def _take_in_chunk(spark: SparkSession, lake: Lake, part: str, data_dir: Path, chunk: Chunk, wanted: Range) -> Taken:
    taken = None
    if is_in_process(spark):
        paths = _files_in(chunk)
        if chunk.size_bytes <= few_lines.MAX_BYTES:
            taken = few_lines.take_in_few_files(lake, part, paths, wanted)
        elif lake.store.is_on_this_machine:
            taken = many_lines.take_in_many_files(spark, lake, part, paths, wanted)
    if taken is None:
        taken = take_in_lines(spark, lake, part, _lines(spark, data_dir, chunk.paths, wanted))
    return taken


def _files_in(chunk: Chunk) -> list[Path]:
    places = map(Path, chunk.paths)
    return [path for place in places for path in (sorted(place.glob("*.jsonl")) if place.is_dir() else [place])]


def _begin(progress: Progress, what: str, chunks: list[Chunk]) -> None:
    files, size_bytes = sum(chunk.files for chunk in chunks), sum(chunk.size_bytes for chunk in chunks)
    progress.begin(what, files=files, size_bytes=size_bytes)


def _advance(progress: Progress, chunks: list[Chunk], rows: int) -> None:
    """All of them at once."""
    for chunk in chunks:
        progress.advance(files=chunk.files, size_bytes=chunk.size_bytes)
    progress.advance(rows=rows)


def _named(part: str, number: int) -> str:
    return part if number == 0 else f"{part}-{number:04d}"


def _event_files(data_dir: Path, wanted: Range) -> Iterator[Path]:
    if wanted.is_everything:
        yield from event_files(data_dir)
        return
    for path, hour in _hours(data_dir / event_source.FOLDER):
        if wanted.has_hour(hour):
            yield from path.glob("**/*.jsonl")


def _lines(spark: SparkSession, data_dir: Path, folders: list[str] | None, wanted: Range) -> DataFrame:
    lines = event_source.read_lines(spark, data_dir, folders)
    if wanted.is_everything:
        return lines
    time_ms = F.get_json_object("line", "$.time_ms").cast("long")
    # A line without a time is a problem of its hour.
    with_time = lines.withColumn("time_ms", time_ms)
    inside = wanted.limit(with_time, "time_ms")
    return inside.unionByName(with_time.where(F.col("time_ms").isNull())).drop("time_ms")


def _hours(folder: Path) -> Iterator[tuple[Path, datetime]]:
    for path in sorted(folder.glob("date=*/hour=*")):
        try:
            text = f"{path.parent.name.partition('=')[2]} {path.name.partition('=')[2]}"
            yield path, datetime.strptime(text, "%Y-%m-%d %H").replace(tzinfo=UTC)
        except ValueError:
            continue


def _take_in_recordings(
    spark: SparkSession,
    lake: Lake,
    part: str,
    record_dir: Path,
    wanted: Range,
    only: Only | None,
    progress: Progress,
    took_in: TookIn,
) -> None:
    began_s = time.monotonic()
    paths = [path for path in recordings_in(record_dir) if only is None or path in only.files]
    if not wanted.is_everything:
        # A file's own name tells only roughly when it is from: the event of its opening tells.
        opened = wanted.limit(timeline.opened_files(lake.read(spark, "events")), "opened_ms").select("file_name")
        names = {row.file_name for row in opened.distinct().collect()}
        paths = [path for path in paths if path.name in names]
    chunks = chunked.by_file(paths, chunked.RECORDING_BYTES)
    _begin(progress, "tags", chunks)
    total = Taken(0, 0)
    if is_in_process(spark) and sum(chunk.size_bytes for chunk in chunks) <= few_tags.MAX_BYTES:
        few = few_tags.take_in_few_tags(lake, part, [path for chunk in chunks for path in chunk.paths])
        if few is not None:
            _advance(progress, chunks, few)
            total, chunks = Taken(few, 0), []
    flv_options = prepare_flv(spark) if chunks else {}
    for number, chunk in enumerate(chunks):
        where = str(record_dir) if len(chunks) == 1 and wanted.is_everything and only is None else chunk.paths
        name = _named(part, number)
        with following(spark, progress):
            flv = spark.read.format("flv").options(**flv_options)
            taken = take_in_tags(spark, lake, name, flv.load(where))
            if only is not None:
                where = [path for path in chunk.paths if Path(path) in only.settled]
            problems = flv.option("rows", "problems")
            found = take_in_problems(spark, lake, f"{name}-recordings", problems.load(where)) if where else Taken(0, 0)
        total = Taken(total.rows + taken.rows, total.problems + found.problems)
        progress.advance(files=chunk.files, size_bytes=chunk.size_bytes, rows=taken.rows)
    took_in(*total, time.monotonic() - began_s)
    progress.end(describe("tags", total.rows, total.problems, time.monotonic() - began_s))
