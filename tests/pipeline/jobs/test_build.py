"""Built in steps, as a live stream is, or at once: the same tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs import build
from headrace.pipeline.jobs.build import Builder
from headrace.pipeline.jobs.ingest import take_in_lines, take_in_tags
from headrace.pipeline.jobs.lake import Lake, open_lake
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import all_tables, read, some_stream

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EVENTS = some_stream("n1", "n1.b.1", 1)


def add_events(spark: SparkSession, lake: Lake, part: str, start: int, stop: int | None = None) -> None:
    rows = [(json.dumps(one), "/data/a.jsonl") for one in EVENTS[start:stop]]
    take_in_lines(spark, lake, part, spark.createDataFrame(rows, schema="line string, file string"))


def add_tags(spark: SparkSession, lake: Lake, part: str, folder: Path) -> None:
    take_in_tags(spark, lake, part, spark.read.format("flv").load(str(folder)))


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "rec-n1"
    folder.mkdir()
    (folder / "live_show_20270115_080000.flv").write_bytes(HEADER + b"".join(recording(40)))
    return folder


def test_in_steps_or_at_once(
    spark: SparkSession, tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MIN_WAIT_S", 0.0)
    monkeypatch.setattr(build, "MAX_WAIT_S", float("inf"))
    with open_lake(tmp_path / "steps", "a test") as lake:
        builder = Builder(spark, lake)
        assert builder.build_next() is None
        add_events(spark, lake, "p1", 0, 8)
        assert builder.build_next() == 1
        assert read(lake.root, "sessions")
        assert not read(lake.root, "relay_audit"), "tables of recordings come later"
        assert lake.pending()["events"] == ["p1"], "it is not done"
        add_tags(spark, lake, "t1", recordings)
        add_events(spark, lake, "p2", 8)
        assert builder.build_next() == 2, "the stream, and the name that a play was refused of"
        assert builder.build_next() == 2
        assert lake.pending() == {"events": [], "tags": []}
        assert builder.build_next() is None
    with open_lake(tmp_path / "once", "a test") as lake:
        add_events(spark, lake, "p1", 0)
        add_tags(spark, lake, "t1", recordings)
        assert Builder(spark, lake).build_pending() == 2
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "once")


def test_new_events_cannot_keep_the_rest_waiting_for_ever(
    spark: SparkSession, tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MAX_WAIT_S", 0.0)
    with open_lake(tmp_path / "lake", "a test") as lake:
        builder = Builder(spark, lake)
        add_events(spark, lake, "p1", 0)
        add_tags(spark, lake, "t1", recordings)
        assert builder.build_next() == 2
        assert lake.pending() == {"events": [], "tags": []}
        assert read(lake.root, "recordings")
