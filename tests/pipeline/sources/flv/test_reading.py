"""What a task does with its pieces, without Spark around it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from headrace.pipeline.sources.flv.files import FileBytes
from headrace.pipeline.sources.flv.listing import Files
from headrace.pipeline.sources.flv.pieces import FlvPartition, split
from headrace.pipeline.sources.flv.reading import FlvReading
from headrace.pipeline.sources.flv.schema import PROBLEM_SCHEMA, PROBLEMS, TAG_SCHEMA_WITH_PAYLOAD, TAGS
from tests.pipeline.flv_files import recording, write_flv


def read(folder: Path, rows: str, *paths: Path, size: int = 100, max_bytes: int = 100) -> list[dict[str, Any]]:
    schema = PROBLEM_SCHEMA if rows == PROBLEMS else TAG_SCHEMA_WITH_PAYLOAD
    reading = FlvReading(Files([str(folder)], "*", is_recursive=True), rows, schema)
    pieces = [piece for path in paths for piece in split(str(path), 0, size, max_bytes)]
    return [row for batch in reading.read(FlvPartition(pieces)) for row in batch.to_pylist()]


def test_several_files_are_read_by_one_task(tmp_path: Path) -> None:
    paths = [write_flv(tmp_path / name, recording(5)) for name in ("a.flv", "b.flv")]
    found = read(tmp_path, TAGS, *paths, size=paths[0].stat().st_size, max_bytes=1 << 20)
    assert [(row["path"], row["tag_index"]) for row in found] == [
        (str(path), number) for path in paths for number in range(13)
    ]


def test_a_file_that_is_gone_is_one_problem_and_no_rows(tmp_path: Path) -> None:
    missing = tmp_path / "gone.flv"
    assert read(tmp_path, TAGS, missing) == []
    (problem,) = read(tmp_path, PROBLEMS, missing, max_bytes=10)  # ten pieces, one of which says it
    assert (problem["file"], problem["byte_offset"]) == (str(missing), 0)
    assert (problem["found"], problem["expected"]) == ("No such file or directory", "a file that can be read")


def test_an_error_of_the_disk_is_not_the_files_and_fails_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Files, path: str) -> FileBytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Files, "open", broken)
    with pytest.raises(OSError, match="Input/output error"):
        read(tmp_path, TAGS, tmp_path / "a.flv")


def test_many_problems_come_in_several_batches(tmp_path: Path) -> None:
    path = tmp_path / "bad.flv"
    write_flv(path, [b"\xff" + tag * 2 for tag in recording(600)])
    size = path.stat().st_size
    found = read(tmp_path, PROBLEMS, path, size=size, max_bytes=size)
    assert len(found) > 1024
    assert {row["found"] for row in found} == {"tag type 0xff"}


def test_a_task_without_pieces_has_no_rows(tmp_path: Path) -> None:
    reading = FlvReading(Files([str(tmp_path)], "*", is_recursive=True), TAGS, TAG_SCHEMA_WITH_PAYLOAD)
    assert list(reading.read(InputPartition(None))) == []
