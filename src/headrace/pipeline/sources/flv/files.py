"""The bytes of one file, by range: mapped from a local disk, or read from any file system that pyarrow knows.

Owns opening and reading. Knows nothing of FLV.

A mapped page of a file that was cut short meanwhile ends the process by SIGBUS. Our recorder cuts its last file when
the disk is full, so a file is mapped only when nobody has written to it for a while. Until then it is copied: 0.5 s
for all rows of 1 GB, against 0.2 s.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.fs as pafs

Bytes = npt.NDArray[np.uint8]

MAPPED_AFTER_S = 60.0
# How much a walk asks for at a time. A mapped window costs nothing, and larger batches of rows are cheaper. A copied
# one should stay in the processor's cache: at 32 MB the same walk took twice the time of one at 4 MB.
_MAPPED_WINDOW_BYTES = 64 << 20
_COPIED_WINDOW_BYTES = 4 << 20
_REMOTE_WINDOW_BYTES = 16 << 20
# The least that is asked of an object store: a request takes as long as this many bytes.
_REMOTE_LEAST_BYTES = 1 << 20


class FileBytes(Protocol):
    """An open file. What was read stays as it is."""

    window_bytes: int

    @property
    def size(self) -> int: ...

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes of a range, fewer if the file ends before."""

    def close(self) -> None: ...


class MappedFile:
    window_bytes = _MAPPED_WINDOW_BYTES

    def __init__(self, descriptor: int, size: int | None = None) -> None:
        try:
            self.size = os.fstat(descriptor).st_size if size is None else size
            self._map = mmap.mmap(descriptor, self.size, prot=mmap.PROT_READ) if self.size else None
        finally:
            os.close(descriptor)
        self._bytes = np.frombuffer(self._map if self._map is not None else b"", np.uint8)

    def read(self, start: int, stop: int) -> Bytes:
        return self._bytes[start:stop]

    def close(self) -> None:
        """The mapping itself goes with the last array that shows it."""
        self._bytes = self._bytes[:0]
        self._map = None


class CopiedFile:
    window_bytes = _COPIED_WINDOW_BYTES

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, start: int, stop: int) -> Bytes:
        return np.frombuffer(os.pread(self._descriptor, max(0, stop - start), start), np.uint8)

    def close(self) -> None:
        os.close(self._descriptor)


class RemoteFile:
    """Reads ahead a little, because the questions about one damaged place are many and small."""

    window_bytes = _REMOTE_WINDOW_BYTES

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self._file = filesystem.open_input_file(path)
        self.size: int = self._file.size()
        self._block_start = 0
        self._block = np.empty(0, np.uint8)

    def read(self, start: int, stop: int) -> Bytes:
        stop = min(stop, self.size)
        if start >= stop:
            return self._block[:0]
        if not self._block_start <= start <= stop <= self._block_start + len(self._block):
            length = max(stop - start, _REMOTE_LEAST_BYTES)
            self._block = np.frombuffer(self._file.read_at(min(length, self.size - start), start), np.uint8)
            self._block_start = start
        return self._block[start - self._block_start : stop - self._block_start]

    def close(self) -> None:
        self._file.close()


def open_local(path: str) -> FileBytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    # Event time never comes from this clock: it decides between two ways to the same bytes.
    status = os.fstat(descriptor)
    is_quiet = time.time() - status.st_mtime > MAPPED_AFTER_S
    return MappedFile(descriptor, status.st_size) if is_quiet else CopiedFile(descriptor)
