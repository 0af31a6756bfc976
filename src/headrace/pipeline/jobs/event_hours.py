"""The event log of a live server as streams, one for each of its folders.

Spark's file source lists all files below its path whenever it looks, and keeps the names of all that it has read, for
ever. A server finishes tens of thousands of files a day, so both are bounded by the hour: each folder is a stream of
its own, with a checkpoint of its own. The newest is followed. One before it is read to its end and left, and read again
if something was put there since: at its next start a server that crashed brings in what it had left open.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.pipeline.jobs.lake import Lake

FOLLOWED_S = 30.0  # a folder, after the first file in a newer one: servers that share it do not rotate in one moment
# An old folder that has changed. When the server makes room, the oldest one changes every few seconds.
AGAIN_S = 300.0
_LOOK_S = 0.5
# A folder's checkpoint is kept as long as files may still come late. After that one is read whole, and what is in the
# lake already is known by its keys.
MAX_CHECKPOINTS = 72


class Query(Protocol):
    def is_active(self, stop: threading.Event) -> bool: ...

    def wait_begun(self, stop: threading.Event) -> None: ...

    def stop(self) -> None: ...


class Folder(NamedTuple):
    """Below the log's own; sorted by time. Where files lie in the log's folder itself the name is empty."""

    name: str

    @property
    def checkpoint(self) -> str:
        """What the name adds to that of the log."""
        return "".join(f"-{level.rpartition('=')[2]}" for level in self.name.split("/") if level)


Start = Callable[[Folder, bool], Query]  # and whether only what is there now is wanted


class EventHours:
    """Follows one event log."""

    def __init__(self, log: Path, lake: Lake, checkpoint: str, start: Start, *, is_once: bool) -> None:
        self._log = log
        self._lake = lake
        self._checkpoint = checkpoint
        self._start = start
        self._is_once = is_once
        self._note_file = f"_read-{checkpoint}.json"
        # How each folder was when everything in it had been read.
        self._read: dict[str, int] = dict((lake.store.read_note(self._note_file) or {}).get("folders", {}))
        self._read_at_s: dict[str, float] = {}
        self._followed: dict[Folder, Query] = {}
        self._left_s: dict[Folder, float] = {}  # since when there is a newer one
        self._reading: tuple[Folder, int, Query] | None = None  # an older one to its end, and how it was before
        self._looked_s = -_LOOK_S
        self._dropped: set[Folder] = set()

    def wait_begun(self, stop: threading.Event) -> None:
        self.is_active(stop)
        for query in self._queries():
            query.wait_begun(stop)

    def is_active(self, stop: threading.Event) -> bool:
        """False if all of it has been read, and no more is wanted. Raises PipelineError if a query fails for good."""
        if self._reading is not None and not self._reading[2].is_active(stop):
            folder, version, _ = self._reading
            self._reading = None
            self._note(folder, version)
        for query in self._followed.values():
            query.is_active(stop)
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S or (self._is_once and self._reading is None):
            self._looked_s = now_s
            self._look(now_s)
        return not self._is_once or self._reading is not None

    def stop(self) -> None:
        for query in self._queries():
            query.stop()

    def _queries(self) -> list[Query]:
        return [*self._followed.values(), *([self._reading[2]] if self._reading is not None else [])]

    def _look(self, now_s: float) -> None:
        folders = self._folders()
        if not self._is_once and folders:
            self._follow(max(folders), now_s)
        if self._reading is not None:
            return
        for folder, version in folders.items():
            if folder not in self._followed and self._has_news(folder, version, now_s):
                self._dropped.discard(folder)
                self._reading = folder, version, self._start(folder, True)
                return
        self._forget(folders)

    def _follow(self, newest: Folder, now_s: float) -> None:
        if newest not in self._followed:
            if self._reading is not None and self._reading[0] == newest:
                return  # one query at a time has a checkpoint
            self._followed[newest] = self._start(newest, False)
        for folder in [folder for folder in self._followed if folder != newest]:
            if now_s - self._left_s.setdefault(folder, now_s) > FOLLOWED_S:
                self._followed.pop(folder).stop()
                del self._left_s[folder]

    def _has_news(self, folder: Folder, version: int, now_s: float) -> bool:
        if self._read.get(folder.name) == version:
            return False
        return self._is_once or now_s - self._read_at_s.get(folder.name, -AGAIN_S) >= AGAIN_S

    def _folders(self) -> dict[Folder, int]:
        """Those with files, the oldest first, and something that is another number when a file was put there."""
        found = {}
        for place in (self._log, *_directories(self._log)):
            hours = [place] if place == self._log else [place, *_directories(place)]
            for folder in hours:
                # Between two levels there is usually nothing but folders; a folder of an hour is not listed.
                is_hour = folder.parent.parent == self._log
                if is_hour or any(folder.glob("*.jsonl")):
                    name = "" if folder == self._log else folder.relative_to(self._log).as_posix()
                    with suppress(FileNotFoundError):  # somebody deleted it
                        found[Folder(name)] = folder.stat().st_mtime_ns
        return dict(sorted(found.items()))

    def _note(self, folder: Folder, version: int) -> None:
        self._read[folder.name] = version
        self._read_at_s[folder.name] = time.monotonic()
        self._lake.store.write_note(self._note_file, {"folders": self._read})

    def _forget(self, folders: dict[Folder, int]) -> None:
        """What is known of folders that are gone, and the checkpoints of those that are long over."""
        gone = [Folder(name) for name in self._read if Folder(name) not in folders]
        for folder in {*gone, *list(folders)[:-MAX_CHECKPOINTS]} - self._dropped:
            self._lake.drop_checkpoint(f"{self._checkpoint}{folder.checkpoint}")
            self._dropped.add(folder)
        if gone:
            for folder in gone:
                del self._read[folder.name]
            self._lake.store.write_note(self._note_file, {"folders": self._read})


def _directories(place: Path) -> list[Path]:
    with suppress(FileNotFoundError), os.scandir(place) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    return []
