"""What Spark is doing right now, told while a query runs: so many of so many tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from headrace.pipeline.jobs.progress import Progress
from headrace.pipeline.session import is_connect

_LOOK_S = 0.5


@contextmanager
def following(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """For as long as the body takes."""
    over = threading.Event()
    thread = threading.Thread(target=_look, args=(spark, progress, over), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _look(spark: SparkSession, progress: Progress, over: threading.Event) -> None:
    if is_connect(spark):
        return  # its server does not say
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(_LOOK_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            return  # the session is on its way out, and nobody needs to be told
        known = [stage for stage in stages if stage is not None and stage.numTasks]
        if known:
            done, total = (
                sum(column) for column in zip(*((s.numCompletedTasks, s.numTasks) for s in known), strict=True)
            )
            progress.inside(f"task {done} of {total}")
