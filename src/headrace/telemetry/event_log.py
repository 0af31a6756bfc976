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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from headrace.logs import get_logger
from headrace.telemetry.events import FIELD_NAMES, SCHEMA_VERSION, Event
from headrace.telemetry.identity import Identity

FOLDER = "events"
_OPEN_FOLDER = "events-open"  # beside, not inside: a reader of the folder must never see a file that grows
_SUFFIX = ".jsonl"

ROTATE_S = 3.0  # how old the newest event may be before readers can see it
ROTATE_BYTES = 16 << 20
WRITE_S = 0.25
# 20,000 viewers give 20,000 samples a second: five seconds of a disk that hangs.
MAX_PENDING = 100_000
MAX_DISK_BYTES = 4 << 30
_COMPLAIN_S = 60.0

_HOUR_MS = 3_600_000

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


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
    ) -> None:
        self.identity = identity
        self.folder = data_dir / FOLDER
        self._open_folder = data_dir / _OPEN_FOLDER
        self._wall_time = wall_time
        self._rotate_s = rotate_s
        self._rotate_bytes = rotate_bytes
        self._max_pending = max_pending
        self._max_disk_bytes = max_disk_bytes
        # Two processes may share a directory, and a process may start twice in a millisecond of a reset clock.
        self.boot = f"{int(wall_time() * 1000):x}-{os.getpid():x}"
        self.events_emitted = 0
        self.events_lost = 0
        self.files_removed = 0  # old ones, for the cap on disk use
        self._pending: list[tuple[int, int, Event]] = []
        self._is_closing = threading.Event()
        self._wake = threading.Event()
        self._log = get_logger(__name__)
        self._complained_s = -_COMPLAIN_S
        self._file: IO[bytes] | None = None
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
            self.events_lost += 1
            return
        # Appending is one step for the interpreter, and the thread takes the whole list by swapping it.
        self._pending.append((self.events_emitted, int(self._wall_time() * 1000), event))

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
        except OSError as error:
            if time.monotonic() - self._complained_s >= _COMPLAIN_S:
                self._complained_s = time.monotonic()
                self._log.error("Event log failed", error=error.strerror or str(error), events_lost=self.events_lost)

    def _write_pending(self) -> None:
        pending, self._pending = self._pending, []
        try:
            for hour, lines in self._lines_by_hour(pending):
                if self._file is not None and (hour != self._file_hour or self._file_bytes >= self._rotate_bytes):
                    self._rotate()
                if self._file is None:
                    self._open(hour)
                assert self._file is not None
                self._file.write(lines)
                self._file_bytes += len(lines)
        except OSError:
            self.events_lost += len(pending)
            self._abandon()
            raise
        if self._file is not None and time.monotonic() - self._file_since_s >= self._rotate_s:
            self._rotate()

    def _lines_by_hour(self, pending: list[tuple[int, int, Event]]) -> Iterator[tuple[int, bytes]]:
        envelope = f'{{"v":{SCHEMA_VERSION},"node":{_encode(self.identity.node)},"boot":"{self.boot}","seq":'
        lines: list[str] = []
        hour = 0
        for seq, time_ms, event in pending:
            if lines and time_ms // _HOUR_MS != hour:
                yield hour, "".join(lines).encode()
                lines = []
            hour = time_ms // _HOUR_MS
            body = {name: getattr(event, name) for name in FIELD_NAMES[event.type]}
            lines.append(f'{envelope}{seq},"time_ms":{time_ms},"type":"{event.type}",{_encode(body)[1:]}\n')
        if lines:
            yield hour, "".join(lines).encode()

    def _open(self, hour: int) -> None:
        self._open_folder.mkdir(parents=True, exist_ok=True)
        self._file_count += 1
        path = self._open_folder / f"{self.identity.node}-{self.boot}-{self._file_count:06d}{_SUFFIX}"
        file = path.open("wb", buffering=0)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ours as long as we live: nobody recovers it meanwhile
        self._file = file
        self._file_bytes = 0
        self._file_hour = hour
        self._file_since_s = time.monotonic()

    def _rotate(self) -> None:
        file = self._file
        if file is None:
            return
        self._file = None
        self._publish(Path(file.name), self._file_hour)
        file.close()
        self._make_room()

    def _abandon(self) -> None:
        """After a write error: keep the whole lines that are there, and begin a new file."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            _cut_to_whole_lines(Path(file.name))
            self._publish(Path(file.name), self._file_hour)
        finally:
            file.close()

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

    def _recover(self) -> None:
        """Bring in what a crash left open, and learn what is there already."""
        found = [(path, path.stat()) for path in self.folder.rglob(f"*{_SUFFIX}")]
        for path, stat in sorted(found, key=lambda one: one[1].st_mtime_ns):
            self._keep(path, stat.st_size)
        for path in sorted(self._open_folder.glob(f"*{_SUFFIX}")):
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # another server's, alive
                _cut_to_whole_lines(path)
                self._publish(path, _hour_of_first_line(path))
            self._log.info("Event log recovered", file=path.name)
        self._make_room()

    def _keep(self, path: Path, size_bytes: int) -> None:
        self._kept.append((path, size_bytes))
        self._kept_bytes += size_bytes

    def _make_room(self) -> None:
        while self._kept_bytes > self._max_disk_bytes and len(self._kept) > 1:
            path, size_bytes = self._kept.popleft()
            self._kept_bytes -= size_bytes
            path.unlink(missing_ok=True)
            self.files_removed += 1


def _cut_to_whole_lines(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _hour_of_first_line(path: Path) -> int:
    with path.open("rb") as file:
        line = file.readline()
    try:
        return int(json.loads(line)["time_ms"]) // _HOUR_MS
    except (ValueError, KeyError, TypeError):
        return int(path.stat().st_mtime * 1000) // _HOUR_MS
