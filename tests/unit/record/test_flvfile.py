"""One file on disk: names that are taken, disks that are full for real, writes that are cut."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.protocol.flv import encode_tag
from headrace.record import flvfile, names
from headrace.record.flvfile import FlvFile
from tests.unit.record.samples import read_tags

TAG = encode_tag(9, 0, bytes(1000))


@contextmanager
def _file_size_limit(size_bytes: int) -> Iterator[None]:
    """The kernel itself cuts the write that crosses the limit, then refuses with EFBIG (Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_taken_name_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x.flv").write_text("mine")
    (tmp_path / "x-2.flv").symlink_to(tmp_path / "elsewhere")
    file, number = flvfile.create(tmp_path, "x")
    file.append([TAG])
    file.close()
    assert (file.path, number) == (tmp_path / "x-3.flv", 3)
    assert (tmp_path / "x.flv").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_names_that_are_all_taken_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MAX_CANDIDATES", 3)
    for name in ("x.flv", "x-2.flv", "x-3.flv"):
        (tmp_path / name).touch()
    with pytest.raises(FileExistsError, match="3 names are taken"):
        flvfile.create(tmp_path, "x")


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    file, _ = flvfile.create(tmp_path / "a" / "b", "x")
    file.close()
    assert (tmp_path / "a" / "b" / "x.flv").exists()


@pytest.mark.parametrize("below", ["", "sub"])
def test_a_directory_that_is_a_file_is_an_error_that_says_so(tmp_path: Path, below: str) -> None:
    (tmp_path / "recordings").write_text("not a directory")
    with pytest.raises(NotADirectoryError):
        flvfile.create(tmp_path / "recordings" / below, "x")


def test_a_directory_that_is_a_link_to_nowhere_is_an_error_and_no_search_for_names(tmp_path: Path) -> None:
    (tmp_path / "recordings").symlink_to(tmp_path / "unplugged")
    with pytest.raises(NotADirectoryError) as caught:
        flvfile.create(tmp_path / "recordings", "x")
    assert caught.value.filename == str(tmp_path / "recordings")


def test_the_file_header_comes_with_the_first_tags_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = os.write

    def counted(descriptor: int, data: memoryview) -> int:
        writes.append(len(data))
        return write(descriptor, data)

    file, _ = flvfile.create(tmp_path, "x")
    monkeypatch.setattr(os, "write", counted)
    file.append([TAG, TAG])
    file.append([TAG])
    file.append([])
    monkeypatch.undo()
    file.close()
    assert writes == [13 + 2 * len(TAG), len(TAG)]
    assert (file.tags, file.size_bytes) == (3, 13 + 3 * len(TAG))
    assert len(read_tags(file.path)) == 3


def test_a_write_in_pieces_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    file, _ = flvfile.create(tmp_path, "x")
    file.append([TAG, TAG])
    monkeypatch.undo()
    file.close()
    assert len(read_tags(file.path)) == 2


@pytest.mark.parametrize("room", [13 + 1, len(TAG) + 13, 2 * len(TAG) + 12, 2 * len(TAG) + 13 + 500])
def test_a_file_that_may_not_grow_keeps_its_whole_tags(tmp_path: Path, room: int) -> None:
    file, _ = flvfile.create(tmp_path, "x")
    with _file_size_limit(room), pytest.raises(OSError) as caught:
        file.append([TAG] * 4)
    whole = (room - 13) // len(TAG)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(file.path)
    assert file.tags == whole
    if whole:
        assert len(read_tags(file.path)) == whole
        assert file.size_bytes == file.path.stat().st_size == 13 + whole * len(TAG)
    else:
        assert not file.path.exists()


def test_tags_written_before_the_failed_batch_stay(tmp_path: Path) -> None:
    file, _ = flvfile.create(tmp_path, "x")
    file.append([TAG, TAG])
    with _file_size_limit(file.size_bytes + 10), pytest.raises(OSError):
        file.append([TAG])
    assert len(read_tags(file.path)) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error_even_where_nothing_can_be_truncated(tmp_path: Path) -> None:
    file = FlvFile(os.open("/dev/full", os.O_WRONLY), tmp_path / "x.flv")
    with pytest.raises(OSError) as caught:
        file.append([TAG])
    assert caught.value.errno == errno.ENOSPC
    assert (file.tags, file.size_bytes) == (0, 0)


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = flvfile.create(tmp_path, "x")
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="nothing could be written"):
        file.append([TAG])


def test_an_error_at_closing_names_the_file(tmp_path: Path) -> None:
    # Only a network file system does this for real: the descriptor is taken away instead.
    file, _ = flvfile.create(tmp_path, "x")
    file.append([TAG])
    os.close(file._descriptor)
    with pytest.raises(OSError) as caught:
        file.close()
    assert caught.value.filename == str(file.path)
