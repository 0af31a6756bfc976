"""Which files there are: paths, directories and globs on local disks, and by address on whatever pyarrow knows.

Owns the names of files in rows and offsets: absolute for local ones, `scheme://place/path` for others. Credentials
that an address may carry (`user:password@`, `?access_key=…`) stay here and never become part of a name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.errors import PipelineError

if TYPE_CHECKING:  # a local listing is planned without numpy and pyarrow (see `source`)
    import pyarrow.fs as pafs

    from headrace.pipeline.sources.flv.files import FileBytes

DEFAULT_GLOB = "*.flv"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MAGIC = re.compile(r"[*?[]")
# user:password@, and how pyarrow says "without any"; but not the container@ of Azure or the user@ of HDFS.
_SECRET = re.compile(r"^(?:[^/@]*:[^/@]*|anonymous)@")


class FoundFile(NamedTuple):
    path: str
    size: int
    mtime_ms: int


class Root:
    """One path that was asked for: a file, a directory, or a glob. `name` is what its files' names begin with."""

    def __init__(self, address: str) -> None:
        scheme = _SCHEME.match(address)
        self._is_local = scheme is None or scheme[1].lower() == "file"
        if scheme is None or self._is_local:
            path = os.path.abspath(address if scheme is None else address[scheme.end() :])
            # A file may have a bracket in its name.
            self.name, self._pattern = (path, None) if os.path.lexists(path) else _split_glob(path)
            self._uri = ""
        else:
            path, question, query = address[scheme.end() :].partition("?")
            place, self._pattern = _split_glob(path.rstrip("/"))
            self.name = scheme[0] + _SECRET.sub("", place)
            self._uri = scheme[0] + place + question + query

    def __repr__(self) -> str:
        return self.name if self._pattern is None else f"{self.name}/{self._pattern}"

    def __getstate__(self) -> dict[str, object]:
        """Without what was connected: an executor connects by itself."""
        return {key: value for key, value in self.__dict__.items() if key != "_place"}

    def list_files(self, glob: str, *, is_recursive: bool) -> list[FoundFile] | None:
        """None if there is nothing at the path itself."""
        if self._pattern is not None:
            wanted = re.compile(_translate(self._pattern))
            found = self._select("*", is_recursive="/" in self._pattern)
            start = len(self.name.rstrip("/")) + 1
            return [file for file in found if wanted.fullmatch(file.path, start)]
        if self._is_local:
            if os.path.isdir(self.name):
                return list(self._select(glob, is_recursive=is_recursive))
            return [_found_file(self.name, os.stat(self.name))] if os.path.isfile(self.name) else None
        filesystem, base = self._place
        info = filesystem.get_file_info(base)
        if info.type.name == "Directory":
            return list(self._select(glob, is_recursive=is_recursive))
        return [self._found(info)] if info.is_file else None

    def holds(self, path: str) -> bool:
        """Whether a file of this name can be from here."""
        return path == self.name or path.startswith(self.name.rstrip("/") + "/")

    def open(self, path: str) -> FileBytes:
        from headrace.pipeline.sources.flv.files import RemoteFile, open_local

        if self._is_local:
            return open_local(path)
        filesystem, base = self._place
        return RemoteFile(filesystem, base + path[len(self.name) :])

    @cached_property
    def _place(self) -> tuple[pafs.FileSystem, str]:
        """The file system of an address, and what it calls the place that we call `name`."""
        from headrace.pipeline.filesystems import connect

        filesystem, base = connect(self._uri)
        return filesystem, base.rstrip("/")

    def _select(self, glob: str, *, is_recursive: bool) -> Iterator[FoundFile]:
        if self._is_local:
            yield from _scan(self.name, glob, is_recursive=is_recursive)
            return
        import pyarrow.fs as pafs

        filesystem, base = self._place
        selector = pafs.FileSelector(base, recursive=is_recursive, allow_not_found=True)
        for info in filesystem.get_file_info(selector):
            if info.is_file and _is_taken(info.base_name, glob):
                yield self._found(info)

    def _found(self, info: pafs.FileInfo) -> FoundFile:
        name = self.name + info.path[len(self._place[1]) :]
        return FoundFile(name, info.size or 0, (info.mtime_ns or 0) // 1_000_000)


class Files:
    """Every file of some paths, each once."""

    def __init__(self, addresses: Sequence[str], glob: str, *, is_recursive: bool) -> None:
        self._roots = [Root(address) for address in addresses]
        self._glob = glob
        self._is_recursive = is_recursive

    def find(self, *, may_be_missing: bool) -> list[FoundFile]:
        """Sorted by name. A path without anything at it is an error, unless a recorder may still make it."""
        found: dict[str, FoundFile] = {}
        for root in self._roots:
            files = root.list_files(self._glob, is_recursive=self._is_recursive)
            if files is None and not may_be_missing:
                raise PipelineError("PATH_NOT_FOUND", path=root)
            found.update((file.path, file) for file in files or ())
        return [found[path] for path in sorted(found)]

    def open(self, path: str) -> FileBytes:
        for root in self._roots:
            if root.holds(path):
                return root.open(path)
        raise FileNotFoundError(f"{path} is under none of {self._roots}")


def _scan(folder: str, glob: str, *, is_recursive: bool) -> Iterator[FoundFile]:
    """The files of a local directory. What goes away meanwhile was not there."""
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                if entry.is_dir():
                    if is_recursive:
                        folders.append(entry.path)
                elif _is_taken(entry.name, glob) and entry.is_file():
                    with suppress(FileNotFoundError):
                        yield _found_file(entry.path, entry.stat())


def _is_taken(name: str, glob: str) -> bool:
    return not name.startswith(".") and fnmatchcase(name, glob)


def _found_file(path: str, status: os.stat_result) -> FoundFile:
    return FoundFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _split_glob(path: str) -> tuple[str, str | None]:
    """The directory before the first part with a wildcard, and the rest; all of it and None if there is none."""
    parts = path.split("/")
    for number, part in enumerate(parts):
        if _MAGIC.search(part):
            return "/".join(parts[:number]) or "/", "/".join(parts[number:])
    return path, None


def _translate(pattern: str) -> str:
    """A glob over a path as a regular expression: `*` and `?` stay inside one part, `**` is any number of parts."""
    out, position = "", 0
    while position < len(pattern):
        rest = pattern[position:]
        bracket = re.match(r"\[[!^]?\]?[^]/]*\]", rest)
        if rest.startswith("**/"):
            out, position = out + "(?:.*/)?", position + 3
        elif rest[0] == "*":
            out, position = out + "[^/]*", position + 1
        elif rest[0] == "?":
            out, position = out + "[^/]", position + 1
        elif bracket:
            inside = bracket[0][1:-1].replace("\\", "\\\\")
            negated = inside[0] in "!^"
            out, position = f"{out}[{'^' if negated else ''}{inside[negated:]}]", position + bracket.end()
        else:
            out, position = out + re.escape(rest[0]), position + 1
    return out
