"""`headrace pipeline run`: Structured Streaming over the event log and the recordings.

Each source is a query of its own (an event log one for each hour, see `event_hours`) whose batches become parts of
bronze, named by the query and the batch: a batch that is done again after a crash finds its part there. The main thread
builds the tables of events of the streams that have new parts, over and over; a thread beside it does so with the
tables that it takes recordings for, which takes longer.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.board import Board
from headrace.pipeline.jobs.build import EventTables, RecordingTables
from headrace.pipeline.jobs.event_hours import EventHours, Folder, Query
from headrace.pipeline.jobs.few_lines import take_in_few_lines
from headrace.pipeline.jobs.housekeeping import Housekeeping
from headrace.pipeline.jobs.ingest import Taken, take_in_lines, take_in_problems, take_in_tags
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.plans import quick_plans
from headrace.pipeline.jobs.report import Say, describe
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.session import is_in_process, prepare_flv
from headrace.pipeline.sources import events as event_source

# How often each source is looked at. Events are wanted first: what tags tell takes a core for seconds to build, and a
# broken recording can wait.
TRIGGER_S = {"events": 0.5, "tags": 5.0, "problems": 10.0}
_LOOK_S = 0.2
# Between two builds of tables of recordings: as long as one takes, within these. The others are wanted sooner.
PAUSE_S, MAX_PAUSE_S = 3.0, 10.0
# A machine that is too busy to start a Python worker in ten seconds makes a query fail. It goes on from its checkpoint.
MAX_FAILURES = 5
_RESTART_S = 2.0
_BEGIN_S = 120.0

TakeIn = Callable[[SparkSession, Lake, str, DataFrame], Taken]


@dataclass(frozen=True, slots=True)
class Feed:
    """One source of bronze rows, followed from its own checkpoint."""

    what: str
    place: Path
    rows: DataFrame
    take_in: TakeIn
    folder: Folder | None = None  # of an event log

    @property
    def name(self) -> str:
        return _name_of(self.what, self.place)

    @property
    def checkpoint_name(self) -> str:
        return f"{self.name}{self.folder.checkpoint if self.folder is not None else ''}"


def run(
    spark: SparkSession,
    lake: Lake,
    data_dirs: list[Path],
    record_dirs: list[Path],
    say: Say,
    *,
    is_once: bool = False,
    stop: threading.Event | None = None,
    board: Board | None = None,
    retention: Retention | None = None,
    compact_every_s: float | None = None,
) -> None:
    """Until `stop` is set, or, once, until everything that is there is in the tables."""
    stop = stop or threading.Event()
    board = board or Board(lake.store, "run")
    queries: list[Query] = []

    def follow(feed: Feed, is_once: bool) -> FollowedQuery:
        return FollowedQuery(feed, partial(_start, lake, feed, say, board, is_once=is_once), say, board)

    try:
        for begin in _sources(spark, lake, data_dirs, record_dirs, board, follow, is_once=is_once):
            query = begin()
            queries.append(query)
            # One after the other: each starts a Python process, which on a busy machine must not take ten seconds.
            query.wait_begun(stop)
        events, recordings = EventTables(spark, lake), RecordingTables(spark, lake)
        if not is_once and lake.store.can_swap:
            Housekeeping(lake, retention or Retention(), compact_every_s, say, stop)
        beside = None if is_once else _Beside(recordings, say, board, stop)
        while not stop.is_set():
            are_active = [query.is_active(stop) for query in queries]
            is_new = _build("events", events, say, board)
            if beside is not None:
                beside.check()
            else:
                is_new |= _build("recordings", recordings, say, board)
            if not is_new:
                if is_once and not any(are_active):
                    return
                stop.wait(_LOOK_S)
        if beside is not None:
            beside.join()
    finally:
        for query in queries:
            query.stop()


class FollowedQuery:
    """A query that is started again when it fails, a few times in a row."""

    def __init__(self, feed: Feed, start: Callable[[], StreamingQuery], say: Say, board: Board) -> None:
        self._feed = feed
        self._board = board
        self._start = start
        self._say = say
        self._failures = 0
        self._query = start()

    def wait_begun(self, stop: threading.Event) -> None:
        """Until its first batch is done or it has looked and found nothing, or it has ended."""
        end_s = time.monotonic() + _BEGIN_S
        while time.monotonic() < end_s and not stop.is_set():
            if not self.is_active(stop) or self._query.lastProgress is not None or self._is_waiting():
                return
            stop.wait(_LOOK_S)

    def _is_waiting(self) -> bool:
        status: dict[str, Any] = self._query.status
        return not status["isTriggerActive"] and status["message"].startswith("Waiting")

    def is_active(self, stop: threading.Event) -> bool:
        """False if it has done all it was started for. Raises PipelineError if it fails again and again."""
        if self._query.isActive:
            return True
        error = self._query.exception()
        if error is None:
            return False
        if self._query.lastProgress is not None:
            self._failures = 0  # it has worked since
        self._failures += 1
        reason = _first_line(error)
        self._board.failed(f"{self._feed.what}: {reason}", self._feed.name)
        if self._failures > MAX_FAILURES:
            raise PipelineError("QUERY_FAILED", what=self._feed.what, reason=reason) from error
        self._say(f"{self._feed.what} failed, starting again: {reason}")
        stop.wait(_RESTART_S)
        self._query = self._start()
        return True

    def stop(self) -> None:
        self._query.stop()


def _sources(
    spark: SparkSession,
    lake: Lake,
    data_dirs: list[Path],
    record_dirs: list[Path],
    board: Board,
    follow: Callable[[Feed, bool], FollowedQuery],
    *,
    is_once: bool,
) -> Iterator[Callable[[], Query]]:
    """Whatever there is to follow, to be begun one after the other."""
    for data_dir in data_dirs:
        name = _name_of("events", data_dir)
        board.watch(name, "events", data_dir)
        log = data_dir / event_source.FOLDER
        # The server may start after us.
        log.mkdir(parents=True, exist_ok=True)
        take_in = take_in_few_lines if is_in_process(spark) else take_in_lines

        def start(folder: Folder, is_all: bool, log: Path = log, take_in: TakeIn = take_in) -> Query:
            lines = event_source.stream_lines(spark, log / folder.name)
            return follow(Feed("events", log.parent, lines, take_in, folder), is_all)

        yield partial(EventHours, log, lake, name, start, is_once=is_once)
    flv_options = prepare_flv(spark) if record_dirs else {}
    for record_dir in record_dirs:
        flv = spark.readStream.format("flv").options(**flv_options)
        tags = flv.load(str(record_dir))
        broken = flv.option("rows", "problems").load(str(record_dir))  # from here on it reads those
        for feed in (
            Feed("tags", record_dir, tags, take_in_tags),
            Feed("problems", record_dir, broken, take_in_problems),
        ):
            board.watch(feed.name, feed.what, feed.place)
            yield partial(follow, feed, is_once)


def _name_of(what: str, place: Path) -> str:
    # Another directory is another source, and begins at its own beginning.
    return f"{what}-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"


def _start(lake: Lake, feed: Feed, say: Say, board: Board, *, is_once: bool) -> StreamingQuery:
    def write(rows: DataFrame, batch_id: int) -> None:
        began_s = time.monotonic()
        # The query's own id is part of the name: batches of a checkpoint that was deleted are other batches.
        prefix = f"stream-{lake.query_id(feed.checkpoint_name)}-{feed.what}-"
        own = {"own_prefix": prefix} if feed.what == "tags" else {}
        try:
            with lake.sharing.used(), quick_plans(rows.sparkSession):
                taken = feed.take_in(rows.sparkSession, lake, f"{prefix}{batch_id:09d}", rows, **own)
        except Exception as error:
            # Spark looks for its own words in the whole text, by an expression whose stack long ones overflow.
            raise RuntimeError(_first_line(error)) from None
        if taken.rows or taken.problems:
            took_s = time.monotonic() - began_s
            board.took_in(feed.name, taken.rows, taken.problems, took_s)
            say(describe(feed.what, taken.rows, taken.problems, took_s, batch_id))

    writer: Any = feed.rows.writeStream.foreachBatch(write).option(
        "checkpointLocation", lake.checkpoint(feed.checkpoint_name)
    )
    writer = writer.queryName(feed.checkpoint_name)
    trigger = {"availableNow": True} if is_once else {"processingTime": f"{TRIGGER_S[feed.what]} seconds"}
    query: StreamingQuery = writer.trigger(**trigger).start()
    return query


class _Beside(threading.Thread):
    """Builds tables in a thread of its own."""

    def __init__(self, tables: RecordingTables, say: Say, board: Board, stop: threading.Event) -> None:
        super().__init__(name="tables of recordings", daemon=True)
        self._tables = tables
        self._say = say
        self._board = board
        self._stop_asked = stop
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                began_s = time.monotonic()
                is_new = _build("recordings", self._tables, self._say, self._board)
                took_s = time.monotonic() - began_s
                self._stop_asked.wait(min(max(PAUSE_S, took_s), MAX_PAUSE_S) if is_new else _LOOK_S)
        except Exception as error:  # told by the main thread, which ends the job
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def _build(lane: str, tables: EventTables | RecordingTables, say: Say, board: Board) -> bool:
    began_s = time.monotonic()
    built = tables.build()
    if built is None:
        return False
    took_s = time.monotonic() - began_s
    board.built(lane, built.streams, took_s, built.newest_event_ms)
    if built.streams:
        say(describe("tables" if lane == "events" else f"tables of {lane}", built.streams, 0, took_s))
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
