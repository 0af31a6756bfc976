"""How far a job has come: a bar where somebody watches a terminal, a plain line every few seconds elsewhere.

Work is told stage by stage: `begin`, `advance` as often as one likes, `end` with the line that says what came of it.
That line goes to standard output and is all that is left of a stage; what is shown meanwhile goes to standard error.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from headrace.pipeline.jobs.report import Say

PLAIN_EVERY_S = 5.0


@dataclass(slots=True)
class Stage:
    """What there is to do, and what is done. Totals of 0 are not known."""

    what: str
    total_files: int
    total_bytes: int
    began_s: float
    unit: str = "files"
    files: int = 0
    size_bytes: int = 0
    rows: int = 0
    inside: str = ""  # what goes on within the step that is not done yet

    @property
    def share(self) -> float | None:
        """0 to 1; by bytes where they are known, as files may be of any size."""
        if self.total_bytes:
            return min(self.size_bytes / self.total_bytes, 1.0)
        return min(self.files / self.total_files, 1.0) if self.total_files else None

    def left_s(self, now_s: float) -> float | None:
        """At the pace so far."""
        share = self.share
        return (now_s - self.began_s) * (1 - share) / share if share else None

    def done(self) -> list[str]:
        """In words, without what there is nothing of."""
        words = []
        if self.total_files or self.files:
            words.append(f"{self.unit} {self.files}{_of(self.total_files, str)}")
        if self.total_bytes or self.size_bytes:
            words.append(f"{human_bytes(self.size_bytes)}{_of(self.total_bytes, human_bytes)}")
        if self.rows:
            words.append(f"rows {human_count(self.rows)}")
        return words + ([self.inside] if self.inside else [])


def _of(total: int, shown: Callable[[int], str]) -> str:
    return f" of {shown(total)}" if total else ""


class Progress(Protocol):
    """Used by one thread at a time but for `inside`, which another may tell."""

    def begin(self, what: str, *, files: int = 0, size_bytes: int = 0, unit: str = "files") -> None:
        """A stage, with as much of it as is known; what is counted may be something else than files."""

    def advance(self, *, files: int = 0, size_bytes: int = 0, rows: int = 0) -> None:
        """So much more is done."""

    def inside(self, text: str) -> None:
        """What goes on within a step."""

    def end(self, line: str) -> None:
        """The stage is over, and this came of it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class StagedProgress(ABC):
    """Counts what a stage has done; how that is shown is its heirs' matter."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._stage: Stage | None = None
        self._lock = threading.Lock()

    def advance(self, *, files: int = 0, size_bytes: int = 0, rows: int = 0) -> None:
        with self._lock:
            if self._stage is None:
                return
            self._stage.files += files
            self._stage.size_bytes += size_bytes
            self._stage.rows += rows
            self._stage.inside = ""
            self._show(self._stage)

    def inside(self, text: str) -> None:
        with self._lock:
            if self._stage is not None:
                self._stage.inside = text
                self._show(self._stage)

    def end(self, line: str) -> None:
        self._close()
        self._say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @abstractmethod
    def _show(self, stage: Stage) -> None:
        """Called under the lock."""

    def _close(self) -> None:
        with self._lock:
            self._stage = None


class PlainProgress(StagedProgress):
    """Lines: one every few seconds at most, and the one at a stage's end."""

    def __init__(
        self,
        say: Say,
        show: Say,
        *,
        every_s: float = PLAIN_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(say)
        self._show_line = show
        self._every_s = every_s
        self._clock = clock
        self._shown_s = 0.0

    def begin(self, what: str, *, files: int = 0, size_bytes: int = 0, unit: str = "files") -> None:
        self._stage = Stage(what, files, size_bytes, self._clock(), unit)
        self._shown_s = self._stage.began_s

    def _show(self, stage: Stage) -> None:
        now_s = self._clock()
        if now_s - self._shown_s < self._every_s:
            return
        self._shown_s = now_s
        share, left_s = stage.share, stage.left_s(now_s)
        words = [f"{share:.0%}"] if share is not None else []
        words += stage.done()
        words += [f"{human_time(left_s)} left"] if left_s is not None else []
        self._show_line(f"{stage.what}: {', '.join(words)}")


class SilentProgress(PlainProgress):
    """The lines at the ends of stages and nothing else, for whoever calls a job from a program."""

    def __init__(self, say: Say) -> None:
        super().__init__(say, lambda line: None)


def open_progress(say: Say) -> Progress:
    """What fits standard error."""
    if sys.stderr.isatty() and os.environ.get("TERM") not in (None, "dumb"):
        from headrace.pipeline.jobs.terminal import TerminalProgress

        return TerminalProgress(say)
    return PlainProgress(say, _show_on_stderr)


def _show_on_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


_UNITS = ("B", "kB", "MB", "GB", "TB")


def human_bytes(count: int) -> str:
    size, unit = float(count), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 99.5 else f"{size:.1f} {_UNITS[unit]}"


def human_count(count: int) -> str:
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:,.1f} million"


def human_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
