"""What a task does with its pieces, without Spark around it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from headrace.pipeline.sources.flv.files import FileBytes
from headrace.pipeline.sources.flv.filters import RowFilter
from headrace.pipeline.sources.flv.listing import Files
from headrace.pipeline.sources.flv.pieces import FlvPartition, Piece, Place, Range, split
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


def test_many_small_files_come_in_few_batches_with_the_rows_of_each(tmp_path: Path) -> None:
    paths = [
        write_flv(tmp_path / f"live_s{number:03}_20260102_030405.flv", recording(number % 3)) for number in range(300)
    ]
    pieces = [Piece(str(path), Range.whole(path.stat().st_size)) for path in paths]
    reading = FlvReading(Files([str(tmp_path)], "*", is_recursive=True), TAGS, TAG_SCHEMA_WITH_PAYLOAD)
    together = list(reading.read(FlvPartition(pieces)))
    apart = [row for piece in pieces for batch in reading.read(FlvPartition([piece])) for row in batch.to_pylist()]
    assert len(together) == 3
    assert [row for batch in together for row in batch.to_pylist()] == apart
    wanted = replace(reading, wanted=RowFilter(frozenset({"video"}), {"is_config": False}))
    found = [row for batch in wanted.read(FlvPartition(pieces)) for row in batch.to_pylist()]
    assert found == [row for row in apart if row["kind"] == "video" and not row["is_config"]] != []


def test_files_that_are_mapped_while_a_batch_is_put_together_are_let_go(tmp_path: Path) -> None:
    paths = [write_flv(tmp_path / f"{number:03}.flv", recording(1)) for number in range(300)]
    for path in paths:
        os.utime(path, (0, 0))  # quiet enough to be mapped, and a mapping holds a descriptor
    before = len(os.listdir("/proc/self/fd"))
    reading = FlvReading(Files([str(tmp_path)], "*", is_recursive=True), TAGS, TAG_SCHEMA_WITH_PAYLOAD)
    pieces = [Piece(str(path), Range.whole(path.stat().st_size)) for path in paths]
    held = [len(os.listdir("/proc/self/fd")) - before for _ in reading.read(FlvPartition(pieces))]
    assert max(held) <= 130
    assert len(os.listdir("/proc/self/fd")) == before


def test_positions_behind_damage_are_not_known_also_where_files_share_a_batch(tmp_path: Path) -> None:
    tags = recording(4)
    paths = [write_flv(tmp_path / name, [*tags[:5], b"\xff" * 20, *tags[5:]]) for name in ("a.flv", "b.flv")]
    pieces = [
        Piece(str(path), Range.whole(path.stat().st_size), Place(first, None))
        for path, first in zip(paths, (40, 90), strict=True)
    ]
    reading = FlvReading(Files([str(tmp_path)], "*", is_recursive=True), TAGS, TAG_SCHEMA_WITH_PAYLOAD)
    rows = [row for batch in reading.read(FlvPartition(pieces)) for row in batch.to_pylist()]
    assert [row["log_position"] for row in rows] == [*[None] * 3, 40, 41, *[None] * 6, *[None] * 3, 90, 91, *[None] * 6]


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
