"""Archives in pieces: nothing is left out, nothing is taken twice, and none is larger than it may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.jobs import chunks
from headrace.pipeline.jobs.chunks import Chunk, by_file, by_folder, is_below


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Three hours: of two small files, of three larger ones, of one."""
    for hour, sizes in {"00": (10, 20), "01": (40, 40, 40), "02": (5,)}.items():
        (tmp_path / f"hour={hour}").mkdir()
        for number, size in enumerate(sizes):
            (tmp_path / f"hour={hour}" / f"{number}.jsonl").write_bytes(b"x" * size)
    return tmp_path


def named(pieces: list[Chunk], root: Path) -> list[list[str]]:
    return [[str(Path(path).relative_to(root)) for path in piece.paths] for piece in pieces]


def test_what_fits_is_one_piece_of_folders(archive: Path) -> None:
    [piece] = by_folder(archive.glob("*/*"), 155)
    assert named([piece], archive) == [["hour=00", "hour=01", "hour=02"]]
    assert (piece.files, piece.size_bytes) == (6, 155)


def test_folders_are_kept_together_as_long_as_they_fit(archive: Path) -> None:
    assert named(by_folder(archive.glob("*/*"), 130), archive) == [["hour=00"], ["hour=01", "hour=02"]]


def test_a_folder_that_is_too_large_is_cut(archive: Path) -> None:
    pieces = by_folder(archive.glob("*/*"), 80)
    assert named(pieces, archive) == [
        ["hour=00", "hour=01/0.jsonl"],
        ["hour=01/1.jsonl", "hour=01/2.jsonl"],
        ["hour=02"],
    ]
    assert sum(piece.files for piece in pieces) == 6
    assert sum(piece.size_bytes for piece in pieces) == 155


def test_a_file_is_never_cut(archive: Path) -> None:
    assert [piece.size_bytes for piece in by_file(archive.glob("hour=01/*"), 1)] == [40, 40, 40]


def test_there_is_an_end_to_how_many_files_are_named(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_FILES", 4)
    assert [piece.files for piece in by_file(archive.glob("*/*"), 1000)] == [4, 2]


def test_a_file_that_is_gone_by_now_is_left_out(archive: Path) -> None:
    paths = list(archive.glob("*/*"))
    paths[0].unlink()
    assert sum(piece.files for piece in by_file(paths, 1000)) == 5
    assert by_folder([], 1000) == []


def test_whether_it_is_little_is_known_without_looking_at_all_of_it(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Path] = []

    def files() -> Iterator[Path]:
        for path in sorted(archive.glob("*/*")):
            looked_at.append(path)
            yield path

    assert is_below(files(), 155)
    assert len(looked_at) == 6
    looked_at.clear()
    assert not is_below(files(), 69)
    assert len(looked_at) == 3
    assert is_below([archive / "gone.jsonl"], 0), "the server made room"
    monkeypatch.setattr(chunks, "MAX_FILES", 5)
    assert not is_below(files(), 155)
