"""Which files a path names, on local disks and elsewhere, and their bytes by range."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.files import CopiedFile, FileBytes, MappedFile, RemoteFile, open_local
from headrace.pipeline.sources.flv.listing import Files, Root
from tests.pipeline.flv_files import HEADER, read_split, read_whole, recording, write_flv


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "a.flv",
        "b.flv",
        "notes.txt",
        ".hidden.flv",
        "day1/c.flv",
        "day1/cam2/d.flv",
        "day2/e.flv",
        "x[1].flv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    return tmp_path


def found(tree: Path, *paths: str, glob: str = "*.flv", is_recursive: bool = True) -> list[str]:
    files = Files([str(tree / path) for path in paths], glob, is_recursive=is_recursive)
    return [os.path.relpath(file.path, tree) for file in files.find(may_be_missing=False)]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", "a.flv b.flv day1/c.flv day1/cam2/d.flv day2/e.flv x[1].flv"),
        ("day1", "day1/c.flv day1/cam2/d.flv"),
        ("a.flv", "a.flv"),
        ("notes.txt", "notes.txt"),
        ("*.flv", "a.flv b.flv x[1].flv"),
        ("[ab].flv", "a.flv b.flv"),
        ("[!a].flv", "b.flv"),
        ("?.flv", "a.flv b.flv"),
        ("day*/*.flv", "day1/c.flv day2/e.flv"),
        ("**/*.flv", "a.flv b.flv day1/c.flv day1/cam2/d.flv day2/e.flv x[1].flv"),
        ("day1/**/d.flv", "day1/cam2/d.flv"),
        ("x[1].flv", "x[1].flv"),
        ("nothing/*.flv", ""),
    ],
)
def test_a_path_names_files(tree: Path, path: str, names: str) -> None:
    assert found(tree, path) == names.split()


def test_a_file_is_found_once_however_often_it_is_named(tree: Path) -> None:
    assert found(tree, "day1", "day1/c.flv", "day1/*.flv") == ["day1/c.flv", "day1/cam2/d.flv"]


def test_directories_are_searched_by_glob_and_depth(tree: Path) -> None:
    assert found(tree, "", is_recursive=False) == ["a.flv", "b.flv", "x[1].flv"]
    assert found(tree, "", glob="*.txt") == ["notes.txt"]


def test_sizes_and_times_are_told(tree: Path) -> None:
    os.utime(tree / "a.flv", ns=(0, 1_700_000_000_123_999_999))
    (file,) = Files([str(tree / "a.flv")], "*", is_recursive=True).find(may_be_missing=False)
    assert file == (str(tree / "a.flv"), 5, 1_700_000_000_123)


def test_a_path_with_nothing_at_it_is_refused_unless_it_may_still_come(tmp_path: Path) -> None:
    files = Files([str(tmp_path / "recordings")], "*.flv", is_recursive=True)
    assert files.find(may_be_missing=True) == []
    with pytest.raises(PipelineError, match=r"there is nothing at .*recordings") as caught:
        files.find(may_be_missing=False)
    assert caught.value.condition == "PATH_NOT_FOUND"


def test_a_file_address_is_a_local_path(tree: Path) -> None:
    files = Files([f"file://{tree}/day2"], "*.flv", is_recursive=True)
    (file,) = files.find(may_be_missing=False)
    assert file.path == str(tree / "day2" / "e.flv")
    assert bytes(files.open(file.path).read(1, 4)) == b"234"


def test_credentials_of_an_address_are_in_no_name() -> None:
    root = Root("s3://key:secret@bucket/rec/*.flv?region=eu&secret_key=hidden")
    assert (root.name, repr(root)) == ("s3://bucket/rec", "s3://bucket/rec/*.flv")
    assert Root("abfs://container@account.net/rec").name == "abfs://container@account.net/rec"
    assert Root("hdfs://user@node:8020/rec/").name == "hdfs://user@node:8020/rec"


def test_a_file_is_opened_by_the_root_it_is_under() -> None:
    root = Root("s3://bucket/rec")
    assert root.holds("s3://bucket/rec/a.flv")
    assert not root.holds("s3://bucket/recordings/a.flv")
    assert not root.holds("/bucket/rec/a.flv")
    with pytest.raises(FileNotFoundError, match="is under none of"):
        Files(["/rec"], "*", is_recursive=True).open("/elsewhere/a.flv")


def _remote_root(filesystem: pafs.FileSystem, base: str) -> Root:
    """As if `from_uri` had connected to it."""
    root = Root("mock://bucket/rec")
    root.__dict__["_place"] = filesystem, base
    return root


def test_files_elsewhere_are_listed_and_read_through_pyarrow(tmp_path: Path) -> None:
    (tmp_path / "rec" / "sub").mkdir(parents=True)
    write_flv(tmp_path / "rec" / "sub" / "one.flv", recording(30))
    filesystem = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    root = _remote_root(filesystem, "rec")
    (file,) = root.list_files("*.flv", is_recursive=True) or []
    assert file.path == "mock://bucket/rec/sub/one.flv"
    assert read_whole(root.open(file.path)) == read_whole(open_local(str(tmp_path / "rec" / "sub" / "one.flv")))


def test_a_root_travels_without_its_connection() -> None:
    root = _remote_root(pafs._MockFileSystem(), "rec")
    assert "_place" not in pickle.loads(pickle.dumps(root)).__dict__


# --- bytes by range


def _mock_file(data: bytes) -> RemoteFile:
    filesystem = pafs._MockFileSystem()
    with filesystem.open_output_stream("a.flv") as stream:
        stream.write(data)
    return RemoteFile(filesystem, "a.flv")


def _opened(how: str, path: Path) -> FileBytes:
    if how == "remote":
        return _mock_file(path.read_bytes())
    descriptor = os.open(path, os.O_RDONLY)
    return MappedFile(descriptor) if how == "mapped" else CopiedFile(descriptor)


@pytest.mark.parametrize("how", ["mapped", "copied", "remote"])
def test_every_way_to_a_file_gives_the_same_bytes(how: str, tmp_path: Path) -> None:
    path = write_flv(tmp_path / "a.flv", recording(300))
    data = path.read_bytes()
    file = _opened(how, path)
    assert file.size == len(data)
    for start, stop in (
        (0, 13),
        (5000, 5001),
        (100, len(data)),
        (len(data) - 3, len(data) + 9),
        (7, 7),
        (len(data), 9**9),
    ):
        assert bytes(file.read(start, stop)) == data[start:stop]
    damaged = bytearray(data)
    damaged[5000:5010] = b"\xff" * 10
    path.write_bytes(damaged)
    if how == "remote":
        file = _opened(how, path)
    assert len(read_whole(file).problems) == 1
    assert read_split(file, 3000) == read_whole(file)
    file.close()


@pytest.mark.parametrize("how", ["mapped", "copied", "remote"])
def test_an_empty_file_has_no_bytes(how: str, tmp_path: Path) -> None:
    (tmp_path / "empty.flv").touch()
    file = _opened(how, tmp_path / "empty.flv")
    assert file.size == 0
    assert bytes(file.read(0, 100)) == b""
    assert len(read_whole(file).problems) == 1
    file.close()


def test_a_file_is_mapped_only_when_nobody_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "a.flv"
    path.write_bytes(HEADER)
    assert isinstance(open_local(str(path)), CopiedFile)
    os.utime(path, (0, 0))
    assert isinstance(open_local(str(path)), MappedFile)


def test_small_questions_to_an_object_store_are_answered_from_one_block() -> None:
    file = _mock_file(bytes(range(256)) * 100)
    first = file.read(100, 110)
    again = file.read(5000, 5010)
    assert again.base is first.base
