from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.schema import EVENTS
from headrace.pipeline.sources import events as source
from headrace.pipeline.tables import events, problems, tags
from headrace.telemetry.events import EVENT_TYPES, FIELD_NAMES
from tests.pipeline.tables.rows import dicts, event, sample, tag, tags_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def write_lines(data_dir: Path, *lines: str, name: str = "a.jsonl") -> None:
    folder = data_dir / "events" / "date=2027-01-15" / "hour=08"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(line + "\n" for line in lines), "utf-8")


def test_the_schema_has_every_field_of_the_contract() -> None:
    for kind in EVENT_TYPES:
        assert set(FIELD_NAMES[kind]) <= set(EVENTS.names)
    assert EVENTS["dropped"].dataType.simpleString() == "map<string,bigint>"
    assert EVENTS["first_keyframe_ms"].dataType.simpleString() == "bigint"
    assert EVENTS["frame_rate"].dataType.simpleString() == "double"


def test_events_are_read_once_and_bad_lines_become_problems(spark: SparkSession, tmp_path: Path) -> None:
    good = json.dumps(sample(1000, 1, dropped={"lag": 3}))
    lines: list[Any] = [
        good,
        good,
        json.dumps(event("of_a_later_release", 0, 2, shape="round")),
        "",
        "no JSON " + "x" * 300,
        json.dumps({"v": 1, "node": "n1"}),
        json.dumps({**sample(0, 3), "v": 9}),
        json.dumps({**sample(0, 4), "frames": "many"}),
        "[1]",
    ]
    data_dir = tmp_path / "a b+c%20d"
    write_lines(data_dir, *lines)
    write_lines(data_dir, good, name="copy.jsonl")
    parsed = source.parse(source.read_lines(spark, data_dir)).persist()
    rows = events.build(source.good(parsed))
    assert rows.schema == events.SCHEMA
    assert [(row["seq"], row["type"]) for row in dicts(rows)] == [(1, "publisher_sample"), (2, "of_a_later_release")]
    assert [row["dropped"] for row in dicts(rows, "dropped")] == [None, {"lag": 3}]

    found = problems.build_from_events(source.bad(parsed))
    assert found.schema.simpleString() == problems.SCHEMA.simpleString()
    rows_found = dicts(found)
    assert {row["file"] for row in rows_found} == {str(data_dir / "events/date=2027-01-15/hour=08/a.jsonl")}
    assert sorted(row["found"] for row in rows_found) == [
        "no boot, seq, time_ms, type",
        "no event, or a value of another type",
        "no event, or a value of another type",
        "no event, or a value of another type",
        "schema version 9",
    ]
    assert max(len(row["text"]) for row in rows_found) == 200
    assert sum(row["count"] for row in rows_found) == 5
    parsed.unpersist()


def test_a_tag_that_was_read_twice_is_one_row(spark: SparkSession) -> None:
    rows = tags.build(tags_of(spark, [tag(13, 0), tag(13, 0), tag(99, 40)]))
    assert [row["byte_offset"] for row in dicts(rows)] == [13, 99]
    assert "tag_index" not in rows.columns
