from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.query import pins
from headrace.pipeline.query.lake import Table, parquet_files
from headrace.pipeline.query.pins import pinned


def table_of(folder: Path, **files: str) -> Table:
    for name, text in files.items():
        (folder / f"{name}.parquet").write_text(text)
    return Table("audience", "gold", folder, {})


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_what_is_pinned_stays_what_it_was(tmp_path: Path) -> None:
    before = open_files()
    with pinned([table_of(tmp_path, a="old a", b="old b")]) as paths:
        (tmp_path / "new").write_text("new a")
        os.replace(tmp_path / "new", tmp_path / "a.parquet")
        (tmp_path / "b.parquet").unlink()
        assert [Path(path).read_text() for path in paths["audience"]] == ["old a", "old b"]
    assert open_files() == before


def test_a_file_that_goes_between_listing_and_opening_makes_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, a="a", b="b", c="c")
    pauses: list[float] = []

    def list_then_remove(directory: Path) -> Iterator[str]:
        listed = list(parquet_files(directory))
        if not pauses:
            (tmp_path / "b.parquet").unlink()
        return iter(listed)

    monkeypatch.setattr(pins, "parquet_files", list_then_remove)
    before = open_files()
    with pinned([table], pauses.append) as paths:
        assert [Path(path).read_text() for path in paths["audience"]] == ["a", "c"]
    assert len(pauses) == 1
    assert open_files() == before


def test_a_table_that_never_stands_still_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = str(tmp_path / "gone.parquet")
    monkeypatch.setattr(pins, "parquet_files", lambda directory: iter([gone]))
    with pytest.raises(PipelineError, match=r"gone\.parquet is not there, at 20 looks"):
        pinned([table_of(tmp_path)], lambda seconds: None).__enter__()


def test_more_files_than_the_system_allows_are_told_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path, **{f"f{number}": "" for number in range(40)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = open_files() + 20
    monkeypatch.setattr(pins, "_allow_many_files", lambda: None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    before = open_files()
    try:
        with pytest.raises(PipelineError, match=f"audience has 40 files, and {limit} may be open at once"):
            pinned([table]).__enter__()
        assert open_files() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
