"""A bar on a terminal, by rich. It is gone when a stage is over, and the cursor is back whatever happens."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from headrace.pipeline.jobs.progress import Stage, StagedProgress, human_time
from headrace.pipeline.jobs.report import Say

_STEPS = 1000  # of the bar


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this: a bar that is half there can be neither stopped nor left."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python has no interrupts there
        return
    noted: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted and callable(before):
        before(*noted[0])


class TerminalProgress(StagedProgress):
    """See `progress.Progress`."""

    def __init__(self, say: Say) -> None:
        super().__init__(say)
        # Colours as rich thinks fit, which is none where NO_COLOR is set.
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def begin(self, what: str, *, files: int = 0, size_bytes: int = 0, unit: str = "files") -> None:
        self._close()
        stage = Stage(what, files, size_bytes, time.monotonic(), unit)
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[words]}"),
            console=self._console,
            transient=True,
            expand=True,
            # What others print stays theirs.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with self._lock:
            self._stage, self._bar = stage, bar
            # Without a total the bar moves to and fro.
            self._task = bar.add_task(what, total=None if stage.share is None else _STEPS, words="")
        with _uninterrupted():
            bar.start()

    def _show(self, stage: Stage) -> None:
        if self._bar is None:
            return
        left_s = stage.left_s(time.monotonic())
        words = stage.done() + ([f"{human_time(left_s)} left"] if left_s is not None else [])
        share = stage.share
        self._bar.update(self._task, completed=0 if share is None else round(share * _STEPS), words=", ".join(words))

    def _close(self) -> None:
        with self._lock:
            bar, self._bar, self._stage = self._bar, None, None
        if bar is not None:
            with _uninterrupted():
                bar.stop()
