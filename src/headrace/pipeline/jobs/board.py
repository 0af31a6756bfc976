"""What a job has done so far, in `LAKE/_status.json`: written by the job, read by `headrace pipeline status`.

Owns the file. Nothing depends on it: a job whose board cannot be written goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.store import Store

FILE = "_status.json"
_LEAST_S = 1.0  # between two writes
_LEAST_REMOTE_S = 10.0
_MAX_ERROR = 300


@dataclass
class Source:
    """What was taken in of one directory."""

    what: str
    place: str
    batches: int = 0
    rows: int = 0
    problems: int = 0
    last_at: float | None = None
    last_took_s: float | None = None
    failures: int = 0


@dataclass
class Lane:
    """The tables of events, or those of recordings."""

    builds: int = 0
    last_at: float | None = None
    last_took_s: float | None = None
    last_streams: int = 0
    newest_event_ms: int | None = None  # that the tables know of


@dataclass
class Status:
    job: str
    pid: int
    started_at: float
    updated_at: float
    state: str = "running"  # or ended, failed
    sources: dict[str, Source] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    last_error: str | None = None
    last_error_at: float | None = None


class Board:
    """Where a job notes what it does. Called from the threads of all sources."""

    def __init__(self, store: Store, job: str, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._least_s = _LEAST_S if store.is_on_this_machine else _LEAST_REMOTE_S
        self._clock = clock
        self._lock = threading.Lock()
        self._status = Status(job, os.getpid(), clock(), clock())
        self._write(is_urgent=True)

    def watch(self, name: str, what: str, place: Path) -> None:
        """A source, before anything came of it."""
        with self._lock:
            self._status.sources[name] = Source(what, str(place))
        self._write()

    def took_in(self, name: str, rows: int, problems: int, took_s: float) -> None:
        with self._lock:
            source = self._status.sources[name]
            source.batches += 1
            source.rows += rows
            source.problems += problems
            source.last_at, source.last_took_s = self._clock(), round(took_s, 3)
        self._write()

    def built(self, lane: str, streams: int, took_s: float, newest_event_ms: int | None) -> None:
        with self._lock:
            found = self._status.lanes.setdefault(lane, Lane())
            found.builds += 1
            found.last_at, found.last_took_s = self._clock(), round(took_s, 3)
            found.last_streams = streams
            found.newest_event_ms = max(found.newest_event_ms or 0, newest_event_ms or 0) or None
        self._write()

    def failed(self, reason: str, source: str | None = None) -> None:
        with self._lock:
            if source is not None:
                self._status.sources[source].failures += 1
            self._status.last_error, self._status.last_error_at = reason[:_MAX_ERROR], self._clock()
        self._write(is_urgent=True)

    def end(self, error: str | None = None) -> None:
        if error is not None:
            self.failed(error)
        with self._lock:
            self._status.state = "ended" if error is None else "failed"
        self._write(is_urgent=True)

    def _write(self, *, is_urgent: bool = False) -> None:
        with self._lock:
            now_s = self._clock()
            if not is_urgent and now_s - self._status.updated_at < self._least_s:
                return
            self._status.updated_at = now_s
            # A lake that is lost is told by whoever writes rows.
            with suppress(OSError, PipelineError):
                self._store.write_note(FILE, asdict(self._status), is_durable=False)


def read_status(store: Store) -> Status | None:
    """What the newest job has noted; None if there is nothing to be read."""
    try:
        told = store.read_note(FILE) or {}
        return Status(
            **{
                **told,
                "sources": {name: Source(**one) for name, one in told["sources"].items()},
                "lanes": {name: Lane(**one) for name, one in told["lanes"].items()},
            }
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
