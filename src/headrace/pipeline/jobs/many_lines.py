"""An archive of the event log into bronze on this machine: Spark's tasks in Python, which write the files themselves.

Between Python and Spark's own writer every row would be turned into columns, into a row and into columns again. What is
out of the ordinary (a line that is no event, two events of one key) is left to `ingest`, which does the same for any
lines, on any cluster and to any lake.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.copies import has_copies
from headrace.pipeline.jobs.ingest import Taken
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.times import Range
from headrace.pipeline.sources.event_lines import SCHEMA, read_events, read_texts

FILES = 4  # of a part: work for several cores
_GROUP_ROWS = 100_000  # what a task holds at most, and what those who read a file read at once


class _Task(NamedTuple):
    paths: list[str]
    wanted: Range
    file: str


class _ExtraordinaryError(Exception):
    """A line is, and somebody else has to look at it."""


def take_in_many_files(
    spark: SparkSession, lake: Lake, part: str, paths: Sequence[Path], wanted: Range
) -> Taken | None:
    """None where it is not for us, and nothing has been done."""
    if lake.has_part("events", part):
        return Taken(0, 0)  # from before a crash

    def write(directory: str) -> None:
        # Neighbours go to different tasks: an hour of a night is less than one of an evening.
        shares = [paths[number::FILES] for number in range(FILES)]
        tasks = [
            _Task([str(path) for path in share], wanted, f"{directory}/{number}.parquet")
            for number, share in enumerate(shares)
            if share
        ]
        if not all(spark.sparkContext.parallelize(tasks, len(tasks)).map(_write).collect()):
            raise _ExtraordinaryError

    try:
        with lake.staged("events", write) as staged:
            if has_copies(lake, staged):
                return None
            staged.become(part)
            return Taken(staged.rows, 0)
    except _ExtraordinaryError:
        return None


def _write(task: _Task) -> bool:
    """The events of some files into another; False if one of the lines is not ordinary."""
    held = SCHEMA.empty_table()
    with pq.ParquetWriter(task.file, SCHEMA) as writer:
        for text in read_texts(map(Path, task.paths)):
            rows = read_events(text)
            if rows is None:
                return False
            held = pa.concat_tables([held, task.wanted.limit_table(rows, "time_ms")])
            if held.num_rows >= _GROUP_ROWS:
                writer.write_table(held)
                held = SCHEMA.empty_table()
        if held.num_rows:  # a group of no rows has no first and last time either
            writer.write_table(held)
    return True
