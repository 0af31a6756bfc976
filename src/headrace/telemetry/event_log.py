"""The event log on disk: JSON lines, written by a thread, rotated by rename, never in the way of the media.

`emit` appends to a list in memory. A thread turns the list into lines of an open file, and every few seconds (or when
the file is large) renames the file into `events/date=…/hour=…/`, where readers find whole files only. What a crash
left open is brought in at the next start. Memory and disk are bounded, and what is lost is counted: a lost event has
used its sequence number, so readers see the hole.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO

import msgspec

from headrace.logs import get_logger
from headrace.telemetry.events import FIELD_NAMES, SCHEMA_VERSION, Event
from headrace.telemetry.identity import Identity

FOLDER = "events"
_OPEN_FOLDER = "events-open"  # beside, not inside: a reader of the folder must never see a file that grows
_SUFFIX = ".jsonl"

ROTATE_S = 1.5  # how old the newest event may be before readers can see it
ROTATE_BYTES = 16 << 20
WRITE_S = 0.25
# 20,000 viewers give 20,000 samples a second: five seconds of a disk that hangs.
MAX_PENDING = 100_000
MAX_DISK_BYTES = 4 << 30
_COMPLAIN_S = 60.0
_LEARN_S = 300.0  # how often the folder is looked through where others write to it too

_HOUR_MS = 3_600_000
_MAX_HOUR = 70_000_000  # in the year 9955: a later one has no date, and comes from a damaged file

_encode = msgspec.json.Encoder().encode  # 1 us a sample, json takes 6; what is no number is null
_encode_as_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class EventLog:
    """Takes events on the event loop and writes them in a thread of its own."""

    def __init__(
        self,
        data_dir: Path,
        identity: Identity,
        *,
        wall_time: Callable[[], float] = time.time,
        rotate_s: float = ROTATE_S,
        rotate_bytes: int = ROTATE_BYTES,
        max_pending: int = MAX_PENDING,
        max_disk_bytes: int = MAX_DISK_BYTES,
        is_shared: bool = False,
    ) -> None:
        self.identity = identity
        self.folder = data_dir / FOLDER
        self._open_folder = data_dir / _OPEN_FOLDER
        self._wall_time = wall_time
        self._rotate_s = rotate_s
        self._rotate_bytes = rotate_bytes
        self._max_pending = max_pending
        self._max_disk_bytes = max_disk_bytes
        self._is_shared = is_shared  # other workers write here too: what they keep counts as well
        self._learned_s = 0.0
        # Two processes may share a directory, and a process may start twice in a millisecond of a reset clock.
        self.boot = f"{int(wall_time() * 1000):x}-{os.getpid():x}"
        self.events_emitted = 0
        self.events_written = 0
        # Each is counted by one thread alone: two that add to one number lose some.
        self._events_refused = 0
        self._events_unwritten = 0
        self.files_removed = 0  # old ones, for the cap on disk use
        self._pending: list[tuple[int, int, Event]] = []
        self._is_closing = threading.Event()
        self._wake = threading.Event()
        self._log = get_logger(__name__)
        self._complained_s = -_COMPLAIN_S
        self._file: IO[bytes] | None = None
        self._path = self._open_folder
        self._file_bytes = 0
        self._file_hour = 0
        self._file_since_s = 0.0
        self._file_count = 0
        self._kept: deque[tuple[Path, int]] = deque()  # finished files, oldest first
        self._kept_bytes = 0
        self._thread = threading.Thread(target=self._run, name="headrace-events", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Note what happened. Returns at once, whatever the disk does."""
        self.events_emitted += 1
        if len(self._pending) >= self._max_pending:
            self._events_refused += 1
            return
        # One step for the interpreter. The thread takes from the front of this very list: if it put another in its
        # place, an event could be appended to the old one after that was read.
        self._pending.append((self.events_emitted, int(self._wall_time() * 1000), event))

    @property
    def events_lost(self) -> int:
        """For want of room in memory or on the disk."""
        return self._events_refused + self._events_unwritten

    def close(self, deadline_s: float) -> bool:
        """Write what is there and finish the file; False if the disk did not let us in time."""
        self._is_closing.set()
        self._wake.set()
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # The thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._guard(self._recover)
        while not self._is_closing.is_set():
            self._wake.wait(WRITE_S)
            self._guard(self._write_pending)
        self._guard(self._write_pending)
        self._guard(self._rotate)

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # whatever it is, the thread must live: without it every later event is lost
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if time.monotonic() - self._complained_s < _COMPLAIN_S:
            return
        self._complained_s = time.monotonic()
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        trace = None if isinstance(error, OSError) else error  # a disk is full; anything else is a mistake of ours
        self._log.error("Event log failed", error=reason, events_lost=self.events_lost, exc_info=trace)

    def _write_pending(self) -> None:
        pending = self._pending[:]
        del self._pending[: len(pending)]
        lines = self._encode_lines(pending)
        written_before = self.events_written
        try:
            for hour, group in groupby(lines, itemgetter(0)):
                if self._file is not None and (hour != self._file_hour or self._file_bytes >= self._rotate_bytes):
                    self._rotate()
                if self._file is None:
                    self._file = self._open(hour)
                self._append(self._file, b"".join([line for _, line in group]))
        except OSError:
            self._events_unwritten += len(lines) - (self.events_written - written_before)
            self._abandon()
            raise
        if self._file is not None and time.monotonic() - self._file_since_s >= self._rotate_s:
            self._rotate()

    def _encode_lines(self, pending: list[tuple[int, int, Event]]) -> list[tuple[int, bytes]]:
        """Each event as its hour and its line."""
        node = _encode_as_ascii(self.identity.node)
        envelope = f'{{"v":{SCHEMA_VERSION},"node":{node},"boot":"{self.boot}","seq":'.encode()
        lines: list[tuple[int, bytes]] = []
        for seq, time_ms, event in pending:
            try:
                body = _body_of(event)
            except (ValueError, TypeError) as error:  # no JSON at all: a mistake of ours that costs one event
                self._events_unwritten += 1
                self._complain(error)
                continue
            kind = event.type.encode()
            lines.append(
                (time_ms // _HOUR_MS, b'%b%d,"time_ms":%d,"type":"%b",%b\n' % (envelope, seq, time_ms, kind, body[1:]))
            )
        return lines

    def _open(self, hour: int) -> IO[bytes]:
        self._open_folder.mkdir(parents=True, exist_ok=True)
        self._file_count += 1
        path = self._open_folder / f"{self.identity.node}-{self.boot}-{self._file_count:06d}{_SUFFIX}"
        # Ours as long as we live. It gets its name when it is locked: before, another server could recover it.
        nameless = path.with_suffix(".new")
        file = nameless.open("wb", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(nameless, path)
        except OSError:
            file.close()
            nameless.unlink(missing_ok=True)
            raise
        self._path = path
        self._file_bytes = 0
        self._file_hour = hour
        self._file_since_s = time.monotonic()
        return file

    def _append(self, file: IO[bytes], lines: bytes) -> None:
        taken = 0
        try:
            while taken < len(lines):  # a disk that fills up takes a part of it, and says so the next time only
                taken += file.write(memoryview(lines)[taken:])
        finally:
            self._file_bytes += taken
            self.events_written += lines.count(b"\n", 0, taken)

    def _rotate(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            self._publish(self._path, self._file_hour)
        self._bring_in()  # what a full disk made us leave open, or another server that crashed

    def _abandon(self) -> None:
        """After a write error: keep the whole lines that are there, and begin a new file."""
        file, self._file = self._file, None
        if file is None:
            return
        with file:
            _cut_to_whole_lines(self._path)
            self._publish(self._path, self._file_hour)

    def _publish(self, path: Path, hour: int) -> None:
        """Move a finished file to where readers look."""
        size_bytes = path.stat().st_size
        if size_bytes == 0:
            path.unlink()
            return
        when = datetime.fromtimestamp(hour * _HOUR_MS / 1000, UTC)
        folder = self.folder / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / path.name
        os.rename(path, target)
        self._keep(target, size_bytes)
        self._make_room()

    def _recover(self) -> None:
        """Bring in what a crash left open, and learn what is there already."""
        self._learn()
        self._make_room()
        self._bring_in()

    def _learn(self) -> None:
        self._learned_s = time.monotonic()
        self._kept.clear()
        self._kept_bytes = 0
        found = []
        for path in self.folder.rglob(f"*{_SUFFIX}"):
            try:
                found.append((path, path.stat()))
            except FileNotFoundError:
                continue  # another server made room
        for path, stat in sorted(found, key=lambda one: one[1].st_mtime_ns):
            self._keep(path, stat.st_size)

    def _bring_in(self) -> None:
        for path in sorted(self._open_folder.glob(f"*{_SUFFIX}")):
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _cut_to_whole_lines(path)
                    self._publish(path, _hour_of_first_line(path))
            except (BlockingIOError, FileNotFoundError):
                continue  # another server's, alive or finished this moment
            except OSError as error:
                self._complain(error)  # a file that cannot be had keeps none of the others
                continue
            self._log.info("Event log recovered", file=path.name)

    def _keep(self, path: Path, size_bytes: int) -> None:
        self._kept.append((path, size_bytes))
        self._kept_bytes += size_bytes

    def _make_room(self) -> None:
        if self._is_shared and time.monotonic() - self._learned_s > _LEARN_S:
            self._learn()
        while self._kept_bytes > self._max_disk_bytes and len(self._kept) > 1:
            path, size_bytes = self._kept.popleft()
            self._kept_bytes -= size_bytes
            path.unlink(missing_ok=True)
            self.files_removed += 1


def _body_of(event: Event) -> bytes:
    """In ASCII: some readers take a few characters of Unicode for the end of a line."""
    with suppress(UnicodeEncodeError):  # half a character, in what a peer calls itself
        body = _encode(event)
        if body.isascii():
            return body
    return _encode_as_ascii({name: getattr(event, name) for name in FIELD_NAMES[event.type]}).encode()


def _cut_to_whole_lines(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _hour_of_first_line(path: Path) -> int:
    with path.open("rb") as file:
        line = file.readline()
    try:
        hour = int(json.loads(line)["time_ms"]) // _HOUR_MS
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        hour = -1
    return hour if 0 <= hour < _MAX_HOUR else int(path.stat().st_mtime * 1000) // _HOUR_MS
