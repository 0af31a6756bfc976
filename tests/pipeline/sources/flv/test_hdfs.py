"""The source on HDFS: read, split, followed while files grow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.hdfs import Hdfs

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TAGS = recording(40)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.drop("path", "tag_index").collect())


def test_files_on_hdfs_give_the_rows_that_they_give_on_a_disk(spark: SparkSession, hdfs: Hdfs, tmp_path: Path) -> None:
    files = {"live_a_20270115_080000.flv": TAGS, "deep/live_b_20270115_080000.flv": TAGS[:20]}
    (tmp_path / "rec" / "deep").mkdir(parents=True)
    for name, tags in files.items():
        content = HEADER + b"".join(tags)
        hdfs.put(f"/rec/{name}", content)
        (tmp_path / "rec" / name).write_bytes(content)
    here = rows_of(spark.read.format("flv").load(str(tmp_path / "rec")))
    there = spark.read.format("flv").load(f"{hdfs.address}/rec")
    assert rows_of(there) == here
    assert {row.path for row in there.select("path").distinct().collect()} == {
        f"{hdfs.address}/rec/{name}" for name in files
    }
    assert rows_of(spark.read.format("flv").load(f"{hdfs.address}/rec/**/*_b_*.flv")) == [
        row for row in here if row[0] == "live/b"
    ]
    assert rows_of(spark.read.format("flv").option("maxSplitBytes", "300").load(f"{hdfs.address}/rec")) == here


def test_a_file_that_grows_on_hdfs_is_read_once(spark: SparkSession, hdfs: Hdfs, tmp_path: Path) -> None:
    seen: list[Any] = []

    def follow() -> list[int]:
        """Where the new tags are."""
        before = len(seen)
        writer: Any = spark.readStream.format("flv").load(f"{hdfs.address}/grows").writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda rows, _: seen.extend(rows.collect())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return [row.tag_index for row in seen[before:]]

    path, content = "/grows/live_c_20270115_080000.flv", HEADER + b"".join(TAGS)
    hdfs.put(path, content[: len(HEADER) + len(b"".join(TAGS[:30])) + 5])
    # When a file last grew decides when it is finished.
    assert abs(hdfs.filesystem().get_file_info(path).mtime.timestamp() - time.time()) < 100
    assert follow() == [*range(30)]
    assert follow() == []
    hdfs.append(path, content[len(HEADER) + len(b"".join(TAGS[:30])) + 5 :])
    assert follow() == [*range(30, len(TAGS))]
