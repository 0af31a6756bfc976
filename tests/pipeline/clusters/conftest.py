"""What a server left, the tables that a local run makes of it, and a cluster on loopback: once for all tests here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs import batch
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.jobs.times import Range
from tests.pipeline.bare_python import NOT_ON_EXECUTORS, make_python
from tests.pipeline.clusters.loopback import Spark, Standalone, standalone
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import all_tables, some_stream, write_events


class Logs(NamedTuple):
    data_dir: Path
    record_dir: Path

    def words(self, lake: Path | str) -> list[str]:
        return ["--data-dir", str(self.data_dir), "--record-dir", str(self.record_dir), "--lake", str(lake)]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Two nodes with the same stream, one recording with a broken end, copies of events, and lines that are none."""
    folder = tmp_path_factory.mktemp("logs")
    found = Logs(folder / "data", folder / "rec-n1")
    one, two = some_stream("n1", "n1.b.1", 1), some_stream("n2", "n2.b.1", 1)
    write_events(found.data_dir, "a", [*one[8:], *two[:4]])
    write_events(found.data_dir, "b", [*one[:8], *two, *one[8:12]])
    bad = found.data_dir / "events" / "date=2027-01-15" / "hour=08" / "c.jsonl"
    bad.write_text("no event\n" + json.dumps({"v": 9}) + "\n")
    found.record_dir.mkdir()
    flv = found.record_dir / "live_show_20270115_080000.flv"
    flv.write_bytes(HEADER + b"".join(recording(400)) + b"cut")
    os.utime(flv, (0, 0))  # so old that a stream takes its end for an end
    return found


@pytest.fixture(scope="session")
def local_tables(spark: SparkSession, logs: Logs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What every cluster must end with."""
    lake_dir = tmp_path_factory.mktemp("local")
    with open_lake(lake_dir, "test") as lake:
        batch.run(spark, lake, [logs.data_dir], [logs.record_dir], Range(), lambda line: None)
    tables = all_tables(lake_dir)
    assert [table for table, rows in tables.items() if not rows] == [], "tables without rows to compare"
    return tables


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Spark:
    """Spark with a Python that has no headrace."""
    folder = tmp_path_factory.mktemp("cluster")
    return Spark(folder, make_python(folder / "python", without=NOT_ON_EXECUTORS))


@pytest.fixture(scope="module")
def cluster(elsewhere: Spark) -> Iterator[Standalone]:
    with standalone(elsewhere, workers=2) as started:
        yield started
