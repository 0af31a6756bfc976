"""`spark.read.format("flv")`: what a query gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.sources.flv.schema import PROBLEM_SCHEMA, TAG_SCHEMA
from tests.pipeline.flv_files import HEADER, VIDEO, encode_tag, recording, two_chains, write_flv

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings of our recorder's, one of them damaged; and a file that is none."""
    folder = tmp_path_factory.mktemp("recordings")
    write_flv(folder / "live_cam_20260102_030405_seg001.flv", recording(100))
    tags = recording(50)
    tags[20] = b"\xff" + tags[20][1:]
    tags[-1] = tags[-1][:-2]
    write_flv(folder / "live_other_20260102_030405.flv", tags)
    (folder / "movie.flv").write_bytes(b"\0\0\0\x18ftypmp42")
    for old in folder.iterdir():
        os.utime(old, (0, 0))
    return folder


def load(spark: SparkSession, *paths: Path, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("flv").options(**given).load([str(path) for path in paths])


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    order = [name for name in ("path", "file", "byte_offset") if name in frame.columns]
    return [row.asDict() for row in frame.orderBy(*order).collect()]


def test_a_row_per_tag_of_every_file(spark: SparkSession, folder: Path) -> None:
    frame = load(spark, folder)
    assert frame.schema == TAG_SCHEMA
    found = rows(frame)
    assert [row["stream"] for row in found] == ["live/cam"] * 203 + ["live/other"] * (103 - 2)
    assert [row["tag_index"] for row in found[:203]] == list(range(203))
    first = found[3]
    assert (first["kind"], first["codec"], first["is_keyframe"], first["composition_ms"]) == ("video", "h264", True, 80)


def test_problems_are_read_from_the_same_files_and_fail_nothing(spark: SparkSession, folder: Path) -> None:
    frame = load(spark, folder, rows="problems")
    assert frame.schema == PROBLEM_SCHEMA
    found = [(Path(row["file"]).name, row["found"], row["expected"], row["resumed_at"] is None) for row in rows(frame)]
    cut = len(recording(50)[-1]) - 2
    assert [one[0] for one in found] == ["live_other_20260102_030405.flv"] * 2 + ["movie.flv"]
    assert found[1][1:] == (f"the end of the file after {cut} bytes", f"a whole tag of {cut + 2}", True)
    assert found[2][1:] == ("signature b'\\x00\\x00\\x00'", "b'FLV'", True)
    assert found[0][1:] == ("tag type 0xff", "8, 9 or 18, not encrypted", False)


def test_columns_that_are_named_are_the_only_ones_made(spark: SparkSession, folder: Path) -> None:
    frame = spark.read.schema("codec string, size_bytes bigint").format("flv").load(str(folder))
    assert frame.groupBy("codec").count().orderBy("codec").collect() == [(None, 2), ("aac", 150), ("h264", 152)]
    with pytest.raises(PySparkException, match="column bitrate, expected one of path, stream"):
        spark.read.schema("bitrate int").format("flv").load(str(folder)).collect()


def test_filters_give_what_they_give_without_being_pushed(spark: SparkSession, folder: Path) -> None:
    whole = rows(load(spark, folder))
    query = load(spark, folder).where("stream = 'live/cam' AND kind = 'video' AND is_keyframe AND size_bytes > 15")
    expected = [
        row
        for row in whole
        if row["stream"] == "live/cam" and row["kind"] == "video" and row["is_keyframe"] and row["size_bytes"] > 15
    ]
    assert rows(query) == expected != []
    assert load(spark, folder).where("kind IN ('script', 'audio') AND NOT is_config").count() == 150


def test_payloads_come_if_asked_for(spark: SparkSession, folder: Path) -> None:
    found = rows(load(spark, folder / "live_cam_20260102_030405_seg001.flv", payload="true"))
    assert [bytes(row["payload"]) for row in found] == [tag[11:-4] for tag in recording(100)]


def test_a_split_file_gives_the_same_rows_but_for_their_numbers(spark: SparkSession, tmp_path: Path) -> None:
    inside = b"".join(recording(40))
    tags = [*recording(20), encode_tag(VIDEO, HEADER + inside), two_chains([(b"", bytes(90))] * 12), *recording(20)]
    path = write_flv(tmp_path / "hostile.flv", tags)
    whole = rows(load(spark, path))
    split = load(spark, path, maxSplitBytes=700)
    assert split.rdd.getNumPartitions() == -(-path.stat().st_size // 700)
    found = rows(split)
    known = [row["tag_index"] for row in found if row["tag_index"] is not None]
    assert known == list(range(len(known)))
    assert 0 < len(known) < len(found)
    assert [{**row, "tag_index": None} for row in found] == [{**row, "tag_index": None} for row in whole]


def test_many_small_files_are_read_by_few_tasks(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(60):
        write_flv(tmp_path / f"live_s{number}_20260102_030405.flv", recording(1))
    frame = load(spark, tmp_path / "*.flv")
    assert frame.rdd.getNumPartitions() <= 2
    assert frame.count() == 60 * 5


def test_a_path_with_nothing_at_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"there is nothing at .*/missing"):
        load(spark, tmp_path / "missing").collect()
