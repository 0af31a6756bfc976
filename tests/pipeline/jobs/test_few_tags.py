"""Few tags are taken in without Spark, which reads the same files in `test_jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.jobs import few_tags
from headrace.pipeline.jobs.few_tags import take_in_few_tags
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.tables import tags
from tests.pipeline.flv_files import HEADER, recording, write_flv


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path / "lake", "a test") as lake:
        yield lake


def offsets(lake: Lake) -> list[int]:
    return sorted(lake.dataset("tags", lake.parts("tags")).to_table()["byte_offset"].to_pylist())


def test_every_tag_is_taken_in_once_also_of_a_file_that_grew(lake: Lake, tmp_path: Path) -> None:
    own = recording(20)
    path = write_flv(tmp_path / "live_show_20270115_080000.flv", own[:12])
    other = write_flv(tmp_path / "live_other_20270115_080000.flv", own)
    assert take_in_few_tags(lake, "p1", [str(path)]) == 12
    write_flv(path, own)
    assert take_in_few_tags(lake, "p2", [str(path), str(other)]) == 2 * len(own) - 12
    assert take_in_few_tags(lake, "p3", [str(path), str(other)]) == 0
    assert take_in_few_tags(lake, "p2", [str(path)]) == 0, "a part that is there is from before a crash"
    assert lake.parts("tags") == ["p1", "p2"]
    begins = [len(HEADER) + sum(map(len, own[:number])) for number in range(len(own))]
    assert offsets(lake) == sorted(2 * begins)


def test_where_nothing_was_recorded_there_is_nothing_to_take_in(lake: Lake) -> None:
    assert take_in_few_tags(lake, "p1", []) == 0
    assert lake.parts("tags") == []


def test_the_columns_are_those_of_the_table(lake: Lake, tmp_path: Path) -> None:
    path = write_flv(tmp_path / "live_show_20270115_080000.flv", recording(3))
    take_in_few_tags(lake, "p1", [str(path)])
    rows = lake.dataset("tags", ["p1"]).to_table()
    assert rows.schema.equals(lake.arrow_schema("tags"))
    assert set(rows["path"].to_pylist()) == {str(path)}
    assert set(rows["stream"].to_pylist()) == {"live/show"}
    assert None not in rows["payload_digest"].to_pylist()
    assert tags.SCHEMA.names == rows.schema.names


def test_bytes_that_are_no_tags_and_many_tags_are_left_to_spark(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_flv(tmp_path / "live_show_20270115_080000.flv", recording(20))
    broken = tmp_path / "live_other_20270115_080000.flv"
    broken.write_bytes(HEADER + b"no tag" * 30 + b"".join(recording(2)))
    assert take_in_few_tags(lake, "p1", [str(whole), str(broken)]) is None
    monkeypatch.setattr(few_tags, "MAX_FEW_TAGS", 10)
    assert take_in_few_tags(lake, "p1", [str(whole)]) is None
    assert lake.parts("tags") == []
