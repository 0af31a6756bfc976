"""`headrace pipeline run` over Spark Connect: one batch after the other, of the files that have changed.

A stream's batches would be taken in inside the server there, in a Python that is not given the client's archive. So
the client does what a stream would: it looks for files that are new or have grown, and takes those in. What the lake
has of them already is left out by their keys, so nothing need be remembered: the first batch is of everything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.jobs import batch
from headrace.pipeline.jobs.board import Board
from headrace.pipeline.jobs.housekeeping import Housekeeping
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.report import Say
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.jobs.times import Range

# Between two looks: a batch takes longer than this in any case.
_PAUSE_S = 3.0
# The end of a recording that nobody has written to for so long is its end.
_SETTLED_S = 60.0


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
    changes = Changes()
    if not is_once and lake.store.can_swap:
        Housekeeping(lake, retention or Retention(), compact_every_s, say, stop)
    while not stop.is_set():
        changed = changes.look(
            [path for data_dir in data_dirs for path in batch.event_files(data_dir)]
            + [path for record_dir in record_dirs for path in batch.recordings_in(record_dir)]
        )
        if changed.files:
            batch.run(spark, lake, data_dirs, record_dirs, Range(), say, board=board, only=changed)
        if is_once:
            return
        stop.wait(_PAUSE_S)


class Changes:
    """Which files are not what they were at the last look, and which are not going to change any more."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._settled: set[Path] = set()

    def look(self, paths: Iterable[Path]) -> batch.Only:
        """Each time a file has changed, and once more when it has settled."""
        now: dict[Path, tuple[int, int, int]] = {}
        settled_before = (self._clock() - _SETTLED_S) * 1e9
        for path in paths:
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                continue  # the server made room
            # Of its entry too, not of its content alone: a file that a crash had left open is renamed much later.
            now[path] = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
        changed = {path for path, state in now.items() if self._seen.get(path) != state}
        settled = {path for path, (written_ns, *_) in now.items() if written_ns < settled_before}
        news = settled - (self._settled - changed)
        self._seen, self._settled = now, settled
        return batch.Only(changed | news, news)
