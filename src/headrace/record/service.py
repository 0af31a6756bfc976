"""The recording service: every recording of a server, the threads they share, and the totals.

Owns the directory, the thread pool and the set of active recorders. Knows nothing of who publishes, nor why a
stream is to be recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.errors import UsageError
from headrace.record.recorder import GATHER_S, MAX_BATCH_BYTES, Recorder, RecordingTotals
from headrace.record.writer import RecordingWriter
from headrace.stream.registry import Stream
from headrace.telemetry.proof import Emit, emit_nothing

# A write to the page cache takes well under a millisecond, so a few threads serve hundreds of recordings.
# More than one, because one file on a network file system may hang. Threads start when first needed.
WRITER_THREADS = 8


class RecordingService:
    """Starts recordings and closes them. Made anywhere, used on the event loop."""

    def __init__(
        self,
        directory: Path,
        *,
        segment_duration_s: float | None = None,
        wall_time: Callable[[], float] = time.time,
        gather_s: float = GATHER_S,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        threads: int = WRITER_THREADS,
        emit: Emit = emit_nothing,
    ) -> None:
        self._emit = emit
        # Whoever reads the event log runs elsewhere than the server.
        self._directory = directory.absolute()
        self._segment_duration_s = segment_duration_s
        self._wall_time = wall_time
        self._gather_s = gather_s
        self._max_batch_bytes = max_batch_bytes
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headrace-record")
        self._recorders: dict[Stream, Recorder] = {}
        self._finished = RecordingTotals()
        self._is_closed = False

    @property
    def active(self) -> tuple[Recorder, ...]:
        """Recorders that are not closed yet, those that still drain a stream's end included."""
        return tuple(self._recorders.values())

    @property
    def totals(self) -> RecordingTotals:
        """Of all recordings since the start."""
        totals = RecordingTotals()
        totals.add(self._finished)
        for recorder in self._recorders.values():
            totals.add(recorder.totals)
        return totals

    def start(self, stream: Stream) -> Recorder:
        """Record this stream until it ends; a second call gives the same recorder.

        Nothing touches the disk here: a directory that cannot be written is the recording's own logged error.
        """
        if self._is_closed:
            raise UsageError(f"recording of {stream.key} started after the service was closed")
        if stream in self._recorders:
            return self._recorders[stream]
        writer = RecordingWriter(
            self._directory,
            stream.app,
            stream.name,
            segment_duration_s=self._segment_duration_s,
            wall_time=self._wall_time,
        )
        recorder = Recorder(
            stream,
            writer,
            self._executor,
            gather_s=self._gather_s,
            max_batch_bytes=self._max_batch_bytes,
            on_closed=self._recorder_closed,
            emit=self._emit,
        )
        self._recorders[stream] = recorder
        return recorder

    async def close(self, deadline_s: float) -> bool:
        """Write what is left and close every file; False if some were not done in time.

        A thread that hangs in a dead disk cannot be stopped, and Python waits for it at exit: after False,
        only `os._exit` ends the process in time.
        """
        self._is_closed = True
        for recorder in self.active:
            recorder.stop()
        closed = await asyncio.gather(*(recorder.wait_closed(deadline_s) for recorder in self.active))
        for recorder in self.active:
            recorder.abandon(f"not written within {deadline_s:g} s")
        self._executor.shutdown(wait=False, cancel_futures=True)
        return all(closed)

    def _recorder_closed(self, recorder: Recorder) -> None:
        self._recorders.pop(recorder.stream, None)
        self._finished.add(recorder.totals)
