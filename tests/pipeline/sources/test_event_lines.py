"""Events read in Python are those that Spark reads, or none are."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.schema import ENVELOPE_NAMES
from headrace.pipeline.sources import event_lines
from headrace.pipeline.sources import events as by_spark
from headrace.pipeline.sources.event_lines import SCHEMA, read_events, read_texts
from headrace.telemetry.events import EVENT_TYPES, field_types
from tests.pipeline.tables.rows import event, sample

VALUES: dict[Any, list[Any]] = {
    int: [0, -1, 2**63 - 1],
    float: [29.97, 30, -0.0],
    str: ["", 'live/ä\u2028\U0001f600\\"/\n\t\u0000', "x" * 5000],
    bool: [True, False],
    dict[str, int]: [{}, {"lag": 3}, {"b": 1, "a": 2**40}],
}


def values_of(hint: Any, number: int) -> Any:
    (plain,) = (kind for kind in VALUES if hint == kind or hint == kind | None)
    return VALUES[plain][number % len(VALUES[plain])]


def every_kind() -> list[dict[str, Any]]:
    """Events of each type: with all fields, with values of all sorts, and with none."""
    found = []
    for kind in EVENT_TYPES:
        fields = {name: hint for name, hint in field_types(EVENT_TYPES[kind]).items() if name not in ENVELOPE_NAMES}
        bare = {"v": 1, "node": "n1", "boot": "b", "time_ms": 1_800_000_000_000, "type": kind}
        found += [bare, {**bare, **dict.fromkeys(fields)}]
        found += [{**bare, **{name: values_of(hint, n) for name, hint in fields.items()}} for n in range(3)]
    return [{**one, "seq": number} for number, one in enumerate(found)]


def text_of(*events: dict[str, Any]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in events).encode()


def rows_of(text: bytes) -> list[dict[str, Any]]:
    rows = read_events(text)
    assert rows is not None
    assert rows.schema.equals(SCHEMA)
    found: list[dict[str, Any]] = rows.sort_by("seq").to_pylist()
    return found


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_events_of_every_type_are_as_spark_reads_them(spark: SparkSession) -> None:
    text = text_of(*every_kind())
    lines = spark.createDataFrame([(line, "f") for line in text.decode().split("\n")[:-1]], "line string, file string")
    good = by_spark.good(by_spark.parse(lines)).drop("line").toArrow()
    assert good.num_rows == len(every_kind())
    assert rows_of(text) == good.sort_by("seq").to_pylist()


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b"",
        b"  ",
        b"[1]",
        text_of({**sample(0, 1), "v": 2})[:-1],
        text_of({**sample(0, 1), "boot": None})[:-1],
        text_of({name: value for name, value in sample(0, 1).items() if name != "seq"})[:-1],
        text_of(event("of_a_later_release", 0, 2))[:-1],
        text_of(sample(0, 1, shape="round"))[:-1],
        text_of(sample(0, 1, viewer="a field of other events"))[:-1],
        text_of(sample(0, 1, frames="1"))[:-1],
        text_of(sample(0, 1, frames=1.0))[:-1],
        text_of(sample(0, 1, frames=True))[:-1],
        text_of(sample(0, 1, frames=2**63))[:-1],
        text_of(sample(0, 1, frames=2**64))[:-1],
        text_of(sample(0, 1, stream=5))[:-1],
        text_of(sample(0, 1))[:-1] + b" ",
        b" " + text_of(sample(0, 1))[:-1],
        text_of(sample(0, 1))[:-1] + b" " + text_of(sample(0, 2))[:-1],
        text_of(sample(0, 1))[:-1] * 2,
        text_of(sample(0, 1))[:-1].replace(b", ", b",\n", 1),
        text_of(sample(0, 1))[:-1].replace(b", ", b",\r", 1),
        # Two halves of one line and two events in another: as many events as lines.
        text_of(sample(0, 1))[:-1].replace(b", ", b",\n", 1) + b"\n" + text_of(sample(0, 2))[:-1] * 2,
        text_of(sample(0, 1))[:-1].replace(b'"n1"', b'"\xff"'),
        text_of(sample(0, 1))[:-1].replace(b'"n1"', b'"\\ud800"'),
        b"\xef\xbb\xbf" + text_of(sample(0, 1))[:-1],
    ],
)
def test_a_line_that_is_not_ordinary_is_left_to_others(line: bytes) -> None:
    around = text_of(sample(0, 8)), text_of(sample(0, 9))
    assert len(rows_of(b"".join(around))) == 2
    assert read_events(around[0] + line + b"\n" + around[1]) is None
    assert gc.isenabled()


def test_the_last_line_may_lack_its_end_and_there_may_be_none() -> None:
    assert [row["seq"] for row in rows_of(text_of(sample(0, 1), sample(0, 2))[:-1])] == [1, 2]
    assert rows_of(b"") == []


def test_files_are_read_in_pieces_of_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lines, "_TEXT_BYTES", 1000)
    paths = [tmp_path / name for name in ("a", "b", "gone", "empty", "c")]
    paths[0].write_bytes(text_of(*(sample(0, n) for n in range(10))))
    paths[1].write_bytes(text_of(*(sample(0, n) for n in range(10, 13)))[:-1])
    paths[3].touch()
    paths[4].write_bytes(text_of(sample(0, 13)))
    texts = list(read_texts(paths))
    assert [row["seq"] for text in texts for row in rows_of(text)] == list(range(14))
    assert len(texts) > 3
    assert max(map(len, texts)) < 3000
    # What never ends is not held in memory for ever, and is no line of ours.
    paths[0].write_bytes(b"x" * 10_000)
    assert max(map(len, read_texts(paths[:1]))) <= 2001
    assert list(read_texts([])) == []
