"""The source on object stores: pyarrow's clients against servers that speak S3 and Google's protocol on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.object_store import Bucket, GoogleBucket, ObjectServer, start_object_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TAGS = recording(40)


@pytest.fixture(scope="module")
def google_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with start_object_store(tmp_path_factory.mktemp("google"), GoogleBucket) as running:
        yield running


@pytest.fixture(params=["object_store", "google_store"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    store: ObjectServer = request.getfixturevalue(request.param)
    return store.bucket()


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Without the path, whose root differs."""
    rows = frame.drop("path", "tag_index").collect()
    return sorted(tuple(row) for row in rows)


def test_files_in_a_bucket_give_the_rows_that_they_give_on_a_disk(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    files = {"live_a_20270115_080000.flv": TAGS, "deep/live_b_20270115_080000.flv": TAGS[:20]}
    (tmp_path / "rec" / "deep").mkdir(parents=True)
    for name, tags in files.items():
        content = HEADER + b"".join(tags)
        bucket.put(f"rec/{name}", content)
        (tmp_path / "rec" / name).write_bytes(content)
    here = rows_of(spark.read.format("flv").load(str(tmp_path / "rec")))
    there = spark.read.format("flv").load(bucket.address("rec"))
    assert rows_of(there) == here
    paths = {row.path for row in there.select("path").distinct().collect()}
    assert paths == {f"{bucket.scheme}://{bucket.name}/rec/{name}" for name in files}, "no key in a table"
    assert rows_of(spark.read.format("flv").option("maxSplitBytes", "300").load(bucket.address("rec"))) == here


def test_a_cut_file_in_a_bucket_is_a_problem_and_new_files_are_followed(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def follow() -> list[Any]:
        """What is new since the last time."""
        before = len(seen)
        writer: Any = spark.readStream.format("flv").load(bucket.address("rec")).writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda rows, _: seen.extend(rows.collect())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return seen[before:]

    bucket.put("rec/live_c_20270115_080000.flv", (HEADER + b"".join(TAGS))[:-5])
    (problem,) = spark.read.format("flv").option("rows", "problems").load(bucket.address("rec")).collect()
    assert (problem.file, problem.expected) == (
        f"{bucket.scheme}://{bucket.name}/rec/live_c_20270115_080000.flv",
        "a whole tag of 39",
    )
    assert len(follow()) == len(TAGS) - 1
    assert follow() == []
    bucket.put("rec/live_d_20270115_080000.flv", HEADER + b"".join(TAGS[:10]))
    assert len(follow()) == 10
