"""The source on an object store: pyarrow's S3 client against a server that speaks S3 on loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import S3FileSystem
from pyspark.sql import DataFrame, SparkSession

from tests.helpers.waiting import eventually
from tests.integration.far_ends import free_port
from tests.pipeline.flv_files import HEADER, recording

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

KEY, SECRET = "access-key", "the-secret-of-the-bucket"
TAGS = recording(40)


class Bucket:
    def __init__(self, port: int) -> None:
        place = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "region": "us-east-1"}
        self._store = S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **place)
        self.address = f"s3://{KEY}:{SECRET}@bucket/rec?" + "&".join(f"{k}={v}" for k, v in place.items())

    def create(self) -> bool:
        try:
            self._store.create_dir("bucket")
        except OSError:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        with self._store.open_output_stream(f"bucket/rec/{name}") as file:
            file.write(content)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    port = free_port()
    with (tmp_path / "store.log").open("w") as log:
        store = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    try:
        found = Bucket(port)
        eventually(found.create, "the object store", deadline_s=60)
        yield found
    finally:
        store.kill()
        store.wait()


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
        bucket.put(name, content)
        (tmp_path / "rec" / name).write_bytes(content)
    here = rows_of(spark.read.format("flv").load(str(tmp_path / "rec")))
    there = spark.read.format("flv").load(bucket.address)
    assert rows_of(there) == here
    paths = {row.path for row in there.select("path").distinct().collect()}
    assert paths == {f"s3://bucket/rec/{name}" for name in files}, "no key in a table"
    assert rows_of(spark.read.format("flv").option("maxSplitBytes", "300").load(bucket.address)) == here


def test_a_cut_file_in_a_bucket_is_a_problem_and_new_files_are_followed(
    spark: SparkSession, bucket: Bucket, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def follow() -> list[Any]:
        """What is new since the last time."""
        before = len(seen)
        writer: Any = spark.readStream.format("flv").load(bucket.address).writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda rows, _: seen.extend(rows.collect())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return seen[before:]

    bucket.put("live_c_20270115_080000.flv", (HEADER + b"".join(TAGS))[:-5])
    (problem,) = spark.read.format("flv").option("rows", "problems").load(bucket.address).collect()
    assert (problem.file, problem.expected) == ("s3://bucket/rec/live_c_20270115_080000.flv", "a whole tag of 39")
    assert len(follow()) == len(TAGS) - 1
    assert follow() == []
    bucket.put("live_d_20270115_080000.flv", HEADER + b"".join(TAGS[:10]))
    assert len(follow()) == 10
