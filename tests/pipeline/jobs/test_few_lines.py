"""The quick ways into bronze must end with the rows of the general one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.jobs import few_lines
from headrace.pipeline.jobs.few_lines import take_in_few_files, take_in_few_lines
from headrace.pipeline.jobs.ingest import Taken, take_in_lines
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.jobs.many_lines import take_in_many_files
from headrace.pipeline.jobs.times import Range
from tests.pipeline.jobs.logs_on_disk import event_keys, read, some_stream
from tests.pipeline.tables.rows import at

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
    assert take_in_few_lines(spark, lake, "p1", lines_of(spark, events[:5])) == Taken(5, 0)
    assert take_in_few_lines(spark, lake, "p2", lines_of(spark, events[3:])) == Taken(len(events) - 5, 0)
    assert take_in_few_lines(spark, lake, "p3", lines_of(spark, events[3:6])) == Taken(0, 0)
    assert take_in_few_lines(spark, lake, "p2", lines_of(spark, events[3:])) == Taken(0, 0)  # again after a crash
    assert take_in_few_lines(spark, lake, "p4", lines_of(spark, [])) == Taken(0, 0)
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events]
    assert general == []
    assert lake.parts("events") == ["p1", "p2"]


def test_the_rows_are_those_of_the_general_way(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    lines = lines_of(spark, events)
    take_in_lines(spark, lake, "p1", lines)
    expected = read(Path(lake.address), "events")
    assert len(expected) == len(events)
    paths = files_of(tmp_path, events)
    ways: dict[str, Callable[[Lake], Taken | None]] = {
        "lines": lambda lake: take_in_few_lines(spark, lake, "p1", lines),
        "few": lambda lake: take_in_few_files(lake, "p1", paths, Range()),
        "many": lambda lake: take_in_many_files(spark, lake, "p1", paths, Range()),
    }
    for name, take_in in ways.items():
        with open_lake(tmp_path / name, "a test") as other:
            assert take_in(other) == Taken(len(events), 0)
            assert take_in(other) == Taken(0, 0)
        assert read(tmp_path / name, "events") == expected


def test_what_is_out_of_the_ordinary_goes_the_general_way(
    spark: SparkSession, lake: Lake, general: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    assert take_in_few_lines(spark, lake, "bad", lines_of(spark, events[:2], "no event", '{"v":9}')) == Taken(2, 2)
    assert take_in_few_lines(spark, lake, "twice", lines_of(spark, [events[2], events[2]])) == Taken(1, 0)
    monkeypatch.setattr(few_lines, "MAX_LINES", 3)
    assert take_in_few_lines(spark, lake, "many", lines_of(spark, events[3:7])) == Taken(4, 0)
    assert general == ["bad", "twice", "many"]
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events[:7]]
    assert len(read(Path(lake.address), "problems")) == 2


def test_files_with_something_out_of_the_ordinary_are_not_touched(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    (tmp_path / "bad.jsonl").write_text("no event\n")
    bad = [*files_of(tmp_path, events), tmp_path / "bad.jsonl"]
    twice = [*files_of(tmp_path, events), *files_of(tmp_path, events[4:5], "copy")]
    for paths in (bad, twice):
        assert take_in_few_files(lake, "p1", paths, Range()) is None
        assert take_in_many_files(spark, lake, "p1", paths, Range()) is None
    assert lake.parts("events") == []
    # Some that are in the lake already: the few are left out here, the many are left to others.
    assert take_in_few_files(lake, "p1", files_of(tmp_path, events[:3]), Range()) == Taken(3, 0)
    assert take_in_many_files(spark, lake, "p2", files_of(tmp_path, events), Range()) is None
    assert take_in_few_files(lake, "p2", files_of(tmp_path, events), Range()) == Taken(len(events) - 3, 0)
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events]


def test_only_events_of_the_wanted_time_are_taken_in(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    events = some_stream("n1", "n1.b.1", 1)
    paths = files_of(tmp_path, events)
    second, third, later = (at(ms) for ms in (1000, 3000, 5000 + 1))
    assert take_in_many_files(spark, lake, "p1", paths, Range(second, third)) == Taken(2, 0)
    assert take_in_few_files(lake, "p2", paths, Range(third, later)) == Taken(7, 0)
    assert take_in_few_files(lake, "p3", paths, Range(stop=second)) == Taken(5, 0)
    assert take_in_many_files(spark, lake, "p4", paths, Range(start=later + timedelta(hours=1))) == Taken(0, 0)
    assert take_in_many_files(spark, lake, "p4", paths, Range(start=later)) == Taken(1, 0)
    assert event_keys(Path(lake.address)) == [("n1", one["seq"]) for one in events]


def files_of(folder: Path, events: list[dict[str, Any]], name: str = "log") -> list[Path]:
    """Some events in each of a few files."""
    paths = []
    for start in range(0, len(events), 2):
        path = folder / f"{name}-{start:02d}.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in events[start : start + 2]))
        paths.append(path)
    return paths
