"""`headrace pipeline simulate`: plan, say how much it will be, write it with several processes, say how much it was."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.progress import Progress, human_bytes, human_count
from headrace.pipeline.jobs.report import Say
from headrace.pipeline.simulate.plan import Options, Plan, make_plan
from headrace.pipeline.simulate.publishers import Span
from headrace.pipeline.simulate.recordings import file_bytes, write_recording
from headrace.pipeline.simulate.stretches import CELL_MS, MAX_LINES, Counted, Stretch, Written, stretches
from headrace.telemetry.event_log import FOLDER

_LINE_BYTES = 425  # of an average event
_OPEN_FOLDER = "events-open"
_AHEAD = 3  # tasks that wait for each process: few enough for Ctrl-C to be quick
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class _Stretched(NamedTuple):
    span: Span
    first_seq: int
    first_file: int


def run(options: Options, jobs: int, say: Say, progress: Progress) -> None:
    """PipelineError, before anything is written, if there is no room for it."""
    _refuse_events(options.data_dir)
    plan = make_plan(options)
    if options.frames is not None:
        _refuse_recordings(plan)
    lines, size_bytes = _estimate(plan)
    recordings_bytes = 0 if options.frames is None else sum(map(_size_of(plan), range(len(plan.channels.broadcasts))))
    say(_announce(plan, lines, size_bytes, recordings_bytes))
    _require_room(options.data_dir, size_bytes)
    _require_room(options.record_dir, recordings_bytes)
    open_folder = options.data_dir / _OPEN_FOLDER
    open_folder.mkdir(parents=True, exist_ok=True)
    with _Workers(plan, jobs) as workers:
        _write_events(plan, workers, progress)
        if options.frames is not None:
            _write_recordings(plan, workers, progress, recordings_bytes)
    open_folder.rmdir()


def _write_events(plan: Plan, workers: _Workers, progress: Progress) -> None:
    began_s = time.monotonic()
    spans = stretches(plan)
    progress.begin("counting", files=_expected_files(plan))
    counts: list[Counted] = []
    for counted in workers.each(_count, spans):
        counts.append(counted)
        progress.advance(files=counted.files, rows=counted.lines)
    tasks, seq, file = [], 1, 1
    for span, counted in zip(spans, counts, strict=True):
        tasks.append(_Stretched(span, seq, file))
        seq, file = seq + counted.lines, file + counted.files
    # Once more: how many lines there are is known now, and how long they are nearly.
    progress.begin("events", files=file - 1, size_bytes=(seq - 1) * _LINE_BYTES)
    total_bytes = 0
    for written in workers.each(_write, tasks):
        total_bytes += written.bytes
        progress.advance(files=written.files, size_bytes=written.bytes, rows=written.lines)
    progress.end(f"events files={file - 1} rows={seq - 1} bytes={total_bytes} took={time.monotonic() - began_s:.1f}s")


def _write_recordings(plan: Plan, workers: _Workers, progress: Progress, size_bytes: int) -> None:
    began_s = time.monotonic()
    count = len(plan.channels.broadcasts)
    progress.begin("recordings", files=count, size_bytes=size_bytes)
    total_bytes = 0
    for written in workers.each(_record, range(count)):
        total_bytes += written
        progress.advance(files=1, size_bytes=written)
    progress.end(f"recordings files={count} bytes={total_bytes} took={time.monotonic() - began_s:.1f}s")


# Before anything is written ---------------------------------------------------------------------------------------


def _refuse_events(data_dir: Path) -> None:
    for folder in (FOLDER, _OPEN_FOLDER):
        found = next((data_dir / folder).rglob("*.jsonl*"), None)
        if found is not None:
            raise PipelineError("EVENTS_EXIST", path=data_dir, found=found.relative_to(data_dir))


def _refuse_recordings(plan: Plan) -> None:
    for stream in range(len(plan.channels.broadcasts)):
        if plan.recording(stream).exists():
            raise PipelineError("RECORDING_EXISTS", path=plan.recording(stream))


def _size_of(plan: Plan) -> Callable[[int], int]:
    return lambda stream: file_bytes(plan, stream)


def _estimate(plan: Plan) -> tuple[int, int]:
    """Lines and bytes, to a few percent: a sample a second of whoever is there, and the proofs."""
    publishes, plays, feeds = plan.channels.streams.publishes, plan.plays, plan.destinations.feeds
    seconds = (
        int((publishes.stopped_ms - publishes.started_ms).sum()) * 2
        + int((plays.stopped_ms - plays.started_ms).sum())
        + int((feeds.over_ms - feeds.created_ms).sum()) * 2
    ) // 1000
    lines = seconds + 5 * len(plays.stream) + len(plan.destinations.changes) + 9 * len(publishes.stream)
    return lines, lines * _LINE_BYTES


def _expected_files(plan: Plan) -> int:
    """One for each cell, and more where the lines of one do not fit."""
    cells = plan.span.length_ms // CELL_MS + 1
    return max(cells, _estimate(plan)[0] // MAX_LINES)


def _announce(plan: Plan, lines: int, size_bytes: int, recordings_bytes: int) -> str:
    files, data_dir = _expected_files(plan), plan.options.data_dir
    told = f"about {human_count(lines)} events, {human_bytes(size_bytes)} in {files} files, to {data_dir}"
    if plan.options.frames is None:
        return told
    streams = len(plan.channels.broadcasts)
    return f"{told}; {streams} recordings, {human_bytes(recordings_bytes)}, to {plan.options.record_dir}"


def _require_room(directory: Path, needed_bytes: int) -> None:
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(there).free
    if needed_bytes > free_bytes:
        raise PipelineError(
            "DISK_TOO_SMALL", path=directory, free=human_bytes(free_bytes), needed=human_bytes(needed_bytes)
        )


# Processes --------------------------------------------------------------------------------------------------------

_plan: Plan | None = None  # of a worker process, which gets it once


def _begin_worker(plan: Plan) -> None:
    global _plan
    _plan = plan


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C: it is for the one who started them, and who ends them too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _known_plan() -> Plan:
    assert _plan is not None
    return _plan


def _count(span: Span) -> Counted:
    return Stretch(_known_plan(), span).counted


def _write(task: _Stretched) -> Written:
    return Stretch(_known_plan(), task.span).write(task.first_seq, task.first_file)


def _record(stream: int) -> int:
    return write_recording(_known_plan(), stream)


class _Workers:
    """Processes that do tasks; with one job there is only ours."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        global _plan
        _plan = plan
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        if jobs > 1:
            # Not forked: pyarrow has threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(jobs, context, initializer=_begin_worker, initargs=(plan,))
            with _deaf():
                self._pool.submit(int)  # all of them start with the first task

    def each(self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
        """The results, in the tasks' order."""
        if self._pool is None:
            yield from map(work, tasks)
            return
        waiting: list[Future[_Result]] = []
        try:
            for task in tasks:
                waiting.append(self._pool.submit(work, task))
                if len(waiting) >= self._jobs * _AHEAD:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        except BrokenProcessPool:
            raise PipelineError("WORKER_DIED") from None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        global _plan
        _plan = None
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
            if kind is not None:
                for process in processes:  # in the middle of a stretch that nobody waits for
                    process.terminate()
