"""How far a stream has read: a byte position per file that is not finished yet, and a time before which all are.

Owns the offset that Spark keeps in the checkpoint, and every step from one offset to the next. Pure: listings, the
clock and the walk of a growing file are passed in.

- A *growing* file is read up to its last whole tag. Damage in it stops it until it is closed: what is there may still
  be on its way to the disk.
- A file is *closed* when it has not grown for `closeAfter`. Then it is read to its last byte, as a batch read would.
- A closed file that has been read is *forgotten* with the next batch, and the *horizon* moves to its modification time.
  A file that is in no offset and not younger than the horizon is never looked at again, also after a restart.
  Files are taken in from the oldest on, so that the horizon passes none that is waiting.

Guaranteed: every whole tag once, and every problem once, in any run of restarts, while offsets hold no more files than
changed within `closeAfter` or came with one batch. Provided that files are only appended to; that a file does not grow
again after standing still for `closeAfter` (it would be read a second time from its start: keys repeat); and that none
appears with a modification time older than `closeAfter`, by a copy that keeps times or a clock that is behind (it would
not be read: touch it). A file that is deleted before its batch is committed is missing from it, with a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.pipeline.sources.flv.listing import FoundFile

_VERSION = 1
# (path, position, stop) -> where the last whole tag before `stop` ends, or the first if it is longer; and how many.
WholeTags = Callable[[str, int, int], tuple[int, int]]


class Progress(NamedTuple):
    """Of one file: what was read, and when it was last seen to change."""

    position: int
    tags: int | None  # None where nobody counted: a closed file may have been read in several pieces
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class Offset:
    horizon_ms: int = -1
    files: dict[str, Progress] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Offset:
        return cls(data["horizon_ms"], {path: Progress(*values) for path, values in data["files"].items()})

    def to_json(self) -> dict[str, Any]:
        files = {path: list(progress) for path, progress in self.files.items()}
        return {"version": _VERSION, "horizon_ms": self.horizon_ms, "files": files}


@dataclass(frozen=True, slots=True)
class Limits:
    close_after_ms: int
    max_bytes: int | None  # None for everything there is
    max_files: int | None


def advance(start: Offset, listing: Iterable[FoundFile], now_ms: int, limits: Limits, whole_tags: WholeTags) -> Offset:
    """The offset of the next batch; `start` itself if there is nothing to read."""
    quiet_ms = now_ms - limits.close_after_ms
    listed = sorted(listing, key=lambda file: (file.mtime_ms, file.path))
    waiting = [file for file in listed if _is_waiting(start, file)]
    read: dict[str, Progress] = {}
    left = limits.max_bytes
    for file in waiting:
        if len(read) == limits.max_files or (left is not None and left <= 0):
            break
        before = start.files.get(file.path, Progress(0, 0, 0))
        if file.mtime_ms <= quiet_ms:
            after = Progress(file.size, None, file.mtime_ms)
        else:
            stop = file.size if left is None else min(file.size, before.position + left)
            position, tags = whole_tags(file.path, before.position, stop)
            after = Progress(position, None if before.tags is None else before.tags + tags, file.mtime_ms)
        is_new_and_closed = file.path not in start.files and file.mtime_ms <= quiet_ms  # empty, perhaps
        if after.position > before.position or is_new_and_closed:
            read[file.path] = after
            left = None if left is None else left - (after.position - before.position)
    if not read:
        return start
    return _forget(start, read, listed, waiting, quiet_ms)


def _is_waiting(start: Offset, file: FoundFile) -> bool:
    known = start.files.get(file.path)
    return file.mtime_ms > start.horizon_ms if known is None else file.size > known.position


def _forget(
    start: Offset, read: dict[str, Progress], listed: list[FoundFile], waiting: list[FoundFile], quiet_ms: int
) -> Offset:
    """`start` and what is read now, without files that were finished at `start`.

    A file that is finished now stays for one batch more: the two offsets are all that a batch is planned from.
    """
    changed_ms = {file.path: file.mtime_ms for file in listed}
    unfinished = {file.path for file in waiting}
    # The horizon must not pass a file that nobody has begun to read.
    unread_ms = (file.mtime_ms for file in waiting if file.path not in read and file.path not in start.files)
    until_ms = min([quiet_ms, *(mtime_ms - 1 for mtime_ms in unread_ms)])
    files: dict[str, Progress] = {}
    horizon_ms = start.horizon_ms
    for path, progress in start.files.items():
        mtime_ms = changed_ms.get(path, progress.mtime_ms)  # a file that is gone is done with, in the same time
        if path not in unfinished and mtime_ms <= until_ms:
            horizon_ms = max(horizon_ms, mtime_ms)
        else:
            files[path] = progress
    return Offset(horizon_ms, files | read)
