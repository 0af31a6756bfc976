"""One FLV file on disk: created, never overwritten, appended to, and made of whole tags only.

Owns the file descriptor. Knows nothing of streams, nor why a file begins or ends (`writer`). Everything here
may block and belongs in a worker thread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.protocol.flv import encode_file_header
from headrace.record import names

# No buffer of our own: what was written is the kernel's, and outlives a kill -9. O_EXCL follows no symlink.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
_MODE = 0o644

# A recorder cannot know whether the other kind of media is still to come, and rewriting the byte later would
# make the file more than append-only. Most servers claim both; FFmpeg believes only the tags.
FILE_HEADER = encode_file_header(has_audio=True, has_video=True)


def create(directory: Path, stem: str, first: int = 1) -> tuple[FlvFile, int]:
    """A new file with a name nobody has, and the number that made it so. Makes a missing directory."""
    for number, name in names.candidates(stem, first):
        path = directory / name
        try:
            return FlvFile(_open(path), path), number
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, f"{names.MAX_CANDIDATES} names are taken", str(directory / stem))


def _open(path: Path) -> int:
    try:
        return os.open(path, _FLAGS, _MODE)
    except FileNotFoundError:
        pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        # Something that is no directory stands there: not the collision that `create` goes on from.
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error
    return os.open(path, _FLAGS, _MODE)


class FlvFile:
    """Appends tags to an open file. After an error it is closed, and ends with its last whole tag."""

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self.tags = 0
        self.size_bytes = 0  # of the whole tags and the header before them
        self._descriptor = descriptor

    def append(self, tags: Sequence[bytes]) -> None:
        """Write encoded tags in one call, the file header with the first of them. Raises OSError."""
        if not tags:
            return
        pieces = tags if self.size_bytes else [FILE_HEADER + tags[0], *tags[1:]]
        data = memoryview(b"".join(pieces))
        written = 0
        try:
            while written < len(data):
                count = os.write(self._descriptor, data[written:])
                if not count:
                    raise OSError(errno.EIO, "nothing could be written")
                written += count
        except OSError as error:
            self._keep_whole_tags(pieces, written)
            error.filename = str(self.path)
            raise
        self.tags += len(pieces)
        self.size_bytes += written

    def close(self) -> None:
        """Raises OSError: some file systems say only now that they could not keep what they took."""
        try:
            os.close(self._descriptor)
        except OSError as error:
            error.filename = str(self.path)
            raise

    def _keep_whole_tags(self, pieces: Sequence[bytes], written: int) -> None:
        whole = 0
        for piece in pieces:
            if whole + len(piece) > written:
                break
            whole += len(piece)
            self.tags += 1
        self.size_bytes += whole
        try:
            if written > whole:
                os.ftruncate(self._descriptor, self.size_bytes)
            if not self.size_bytes:
                self.path.unlink()  # created by us, exclusively, and empty
        except OSError:
            pass  # readers stop at the cut tag as after a crash
        try:
            os.close(self._descriptor)
        except OSError:
            pass  # the first error is the one to report
