"""The quick way into bronze must end with the rows of the general one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.jobs import few_lines
from headrace.pipeline.jobs.few_lines import FewLines, read_few_lines
from headrace.pipeline.jobs.ingest import Taken, take_in_lines
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.sources import events as event_source
from tests.pipeline.jobs.logs_on_disk import event_keys, read, some_stream

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path / "lake", "a test") as lake:
        yield lake


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts that were left to the general way."""
    parts: list[str] = []

    def noted(spark: SparkSession, lake: Lake, part: str, lines: DataFrame) -> Taken:
        parts.append(part)
        return take_in_lines(spark, lake, part, lines)

    monkeypatch.setattr(few_lines, "take_in_lines", noted)
    return parts


def lines_of(spark: SparkSession, events: list[dict[str, Any]], *others: str) -> DataFrame:
    rows = [(text, "/data/a.jsonl") for text in (*map(json.dumps, events), *others)]
    return spark.createDataFrame(rows, schema="line string, file string")


def test_new_events_are_taken_in_once_and_copies_are_not(spark: SparkSession, lake: Lake, general: list[str]) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    few = FewLines(spark, lake)
    assert few.take_in(spark, lake, "p1", lines_of(spark, events[:5])) == Taken(5, 0)
    assert few.take_in(spark, lake, "p2", lines_of(spark, events[3:])) == Taken(len(events) - 5, 0)
    assert few.take_in(spark, lake, "p3", lines_of(spark, events[3:6])) == Taken(0, 0)
    assert few.take_in(spark, lake, "p2", lines_of(spark, events[3:])) == Taken(0, 0)  # done again after a crash
    # Another job, which has to look into the parts first.
    assert FewLines(spark, lake).take_in(spark, lake, "p4", lines_of(spark, events)) == Taken(0, 0)
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events]
    assert general == []
    assert lake.parts("events") == ["p1", "p2"]


def test_the_rows_are_those_of_the_general_way(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    FewLines(spark, lake).take_in(spark, lake, "p1", lines_of(spark, events))
    with open_lake(tmp_path / "other", "a test") as other:
        take_in_lines(spark, other, "p1", lines_of(spark, events))
    assert read(Path(lake.address), "events") == read(tmp_path / "other", "events")


def test_what_is_out_of_the_ordinary_goes_the_general_way(
    spark: SparkSession, lake: Lake, general: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    few = FewLines(spark, lake)
    assert few.take_in(spark, lake, "bad", lines_of(spark, events[:2], "no event", '{"v":9}')) == Taken(2, 2)
    assert few.take_in(spark, lake, "twice", lines_of(spark, [events[2], events[2]])) == Taken(1, 0)
    monkeypatch.setattr(few_lines, "MAX_LINES", 3)
    assert few.take_in(spark, lake, "many", lines_of(spark, events[3:7])) == Taken(4, 0)
    assert general == ["bad", "twice", "many"]
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events[:7]]
    assert len(read(Path(lake.address), "problems")) == 2


def test_files_of_few_lines_are_read_as_spark_reads_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "events" / "hour=08"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_bytes("one\ntwo\r\n\n drei \u00e4\u2028x\x0b\x0c\x1c\x85\n".encode())
    (folder / "b.jsonl").write_bytes(b"an end without a newline")
    paths = sorted(folder.glob("*.jsonl"))
    few = read_few_lines(paths)
    assert few is not None
    by_spark = event_source.read_lines(spark, tmp_path).orderBy("file").toArrow()
    assert few.sort_by("line").to_pylist() == by_spark.sort_by("line").to_pylist()
    assert few.num_rows == 5
    monkeypatch.setattr(few_lines, "MAX_LINES", 4)
    assert read_few_lines(paths) is None
    monkeypatch.undo()
    (folder / "c.jsonl").write_bytes(b"\xff\xfe")
    assert read_few_lines([*paths, folder / "c.jsonl"]) is None
