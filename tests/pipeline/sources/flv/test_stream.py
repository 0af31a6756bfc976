"""`spark.readStream.format("flv")`: files that grow, restarts, and what is forgotten.

Every query here runs until nothing is left and ends, and the next one goes on from its checkpoint: each is a restart.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.helpers.waiting import eventually
from tests.pipeline.flv_files import HEADER, recording, write_flv

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Rows = list[tuple[str, int]]


class Follower:
    """A stream of one folder into the memory of this process: rows of all batches, in the order of the batches."""

    def __init__(self, spark: SparkSession, folder: Path, state: Path, **options: object) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {name: str(value) for name, value in options.items()}
        self.checkpoint = state / "checkpoint"
        self.batches: list[list[Any]] = []

    def run(self) -> list[Any]:
        """The rows that are new since the last run."""
        before = len(self.batches)
        query = self._writer().trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return [row for batch in self.batches[before:] for row in batch]

    def follow(self, until: Callable[[], object], what: str) -> None:
        """Go on as files grow, until something is true."""
        query = self._writer().trigger(processingTime="0 seconds").start()
        try:
            eventually(lambda: query.exception() or until(), what, deadline_s=90)
            assert query.exception() is None
        finally:
            query.stop()

    def offset(self) -> dict[str, Any]:
        """The newest one in the checkpoint."""
        newest = max((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        offset: dict[str, Any] = json.loads(newest.read_text().splitlines()[-1])
        return offset

    @property
    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch]

    def _writer(self) -> Any:
        stream = self._spark.readStream.format("flv").options(**self._options).load(str(self._folder))
        return stream.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(self._keep)

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.batches.append(frame.collect())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "recordings"
    path.mkdir()
    return path


def batch_rows(spark: SparkSession, folder: Path) -> list[Any]:
    return spark.read.format("flv").load(str(folder)).orderBy("path", "byte_offset").collect()


def aged(path: Path, seconds: float = 1000) -> Path:
    """As if nobody had written to it for so long."""
    then = time.time() - seconds
    os.utime(path, (then, then))
    return path


def test_a_growing_file_is_read_once_over_restarts_and_ends_as_a_batch_reads_it(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    follower = Follower(spark, folder, tmp_path)
    data = HEADER + b"".join(recording(30))
    path = folder / "live_cam_20260102_030405.flv"
    counts = []
    for length in (5, 400, len(data) - 3, len(data)):
        with path.open("ab") as file:
            file.write(data[file.tell() : length])
        counts.append(len(follower.run()))
    assert counts[0] == 0
    assert counts[-1] == 1
    assert sorted(follower.rows) == batch_rows(spark, folder)
    assert [row.tag_index for row in follower.rows] == list(range(63))


def test_a_query_that_keeps_running_sees_files_come_and_grow(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    follower = Follower(spark, folder, tmp_path, maxFilesPerBatch=1)
    tags = recording(30)
    paths = [folder / f"live_s{number}_20260102_030405.flv" for number in range(2)]
    for path in paths:
        write_flv(path, tags[:10])
    steps = iter(range(10, 63, 26))

    def is_grown() -> bool:
        """Appends when everything so far was read."""
        if len(follower.rows) < sum(_tags_in(path, tags) for path in paths):
            return False
        at = next(steps, None)
        if at is None:
            return True
        for path in paths:
            with path.open("ab") as file:
                file.write(b"".join(tags[at : at + 26]))
        return False

    follower.follow(is_grown, "all tags read")
    assert sorted(follower.rows) == batch_rows(spark, folder)
    assert len(follower.rows) == 2 * 63


def _tags_in(path: Path, tags: list[bytes]) -> int:
    size, count = path.stat().st_size - len(HEADER), 0
    while size > 0:
        size -= len(tags[count])
        count += 1
    return count


def test_files_that_are_closed_are_forgotten_and_not_read_again(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    follower = Follower(spark, folder, tmp_path, closeAfter="60s")
    old = [aged(write_flv(folder / f"old{number}.flv", recording(2)), 1000 - number) for number in range(5)]
    assert len(follower.run()) == 5 * 7
    assert len(follower.offset()["files"]) == 5  # this batch is planned from it
    write_flv(folder / "new.flv", recording(3))
    assert {row.path for row in follower.run()} == {str(folder / "new.flv")}
    offset = follower.offset()
    assert list(offset["files"]) == [str(folder / "new.flv")]
    assert offset["horizon_ms"] == int(old[-1].stat().st_mtime * 1000)
    assert follower.run() == []
    assert len(follower.rows) == 5 * 7 + 9


def test_a_cut_and_a_damaged_file_are_read_to_the_end_when_they_are_closed(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    tags = recording(10)
    tags[12] = b"\xff" + tags[12][1:]
    damaged, cut = folder / "damaged.flv", folder / "cut.flv"
    write_flv(damaged, tags)
    last = recording(4)[-1][:-1]
    write_flv(cut, [*recording(4), last])
    rows = Follower(spark, folder, tmp_path / "rows", closeAfter="60s")
    problems = Follower(spark, folder, tmp_path / "problems", closeAfter="60s", rows="problems")
    assert len(rows.run()) == 12 + 11  # what is there may still be on its way
    aged(damaged)
    aged(cut)
    assert [row.tag_index for row in rows.run()] == [*range(12, 22)]
    found = sorted((Path(row.file).name, row.found) for row in problems.run())
    assert found == [("cut.flv", f"the end of the file after {len(last)} bytes"), ("damaged.flv", "tag type 0xff")]
    assert sorted(rows.rows) == batch_rows(spark, folder)
    assert problems.run() == []


def test_a_batch_takes_in_no_more_than_it_may(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    path = write_flv(folder / "live_cam_20260102_030405.flv", recording(40))
    follower = Follower(spark, folder, tmp_path, maxBytesPerBatch=1000)
    follower.run()
    sizes = [sum(row.size_bytes + 15 for row in batch) for batch in follower.batches]
    assert len(sizes) == -(-path.stat().st_size // 1000)
    assert max(sizes) <= 1000
    assert follower.rows == batch_rows(spark, folder)


def test_a_folder_that_does_not_exist_yet_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    follower = Follower(spark, tmp_path / "later", tmp_path)
    assert follower.run() == []
    (tmp_path / "later").mkdir()
    write_flv(tmp_path / "later" / "a.flv", recording(1))
    assert len(follower.run()) == 5
