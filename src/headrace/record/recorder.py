"""A recorder: a cursor on a stream's log whose messages are written to files by a worker thread.

Owns the rhythm of one recording: wait for messages, gather for a moment, write one batch, again. The event
loop never waits for the disk, and a disk that is too slow only makes the cursor fall off the log: what it
then skips is counted, and the file goes on from a keyframe. Knows nothing of sockets; what a file looks like
is the `writer`'s business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headrace.logs import get_logger
from headrace.record.writer import FileFinished, FileStarted, RecordingWriter
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.registry import Stream, StreamState
from headrace.telemetry.events import RecordingClosed, RecordingOpened
from headrace.telemetry.proof import DeliveryProof, Emit, emit_nothing

# A batch takes 0.2 ms of a processor however small it is, most of it for a thread that has to wake up, and the loop
# when it is done. Every 0.15 s that was several times what a reader costs; this way it is about as much as one. It is
# also how much of a recording a kill -9 costs.
GATHER_S = 0.5
# 17 Mbit/s in that time. A longer batch would only hold the interpreter for longer while it is put together.
MAX_BATCH_BYTES = 1 << 20
_PROOF_S = 1.0  # the event log is told once a second what was written


@dataclass(slots=True)
class RecordingTotals:
    """What was recorded, and what was not. `size_bytes` is of files, headers included; skips are messages."""

    files: int = 0
    tags: int = 0
    size_bytes: int = 0
    errors: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)

    def add(self, other: RecordingTotals) -> None:
        self.files += other.files
        self.tags += other.tags
        self.size_bytes += other.size_bytes
        self.errors += other.errors
        self.skipped.update(other.skipped)


class RecorderState(Enum):
    IDLE = "idle"  # everything is written
    GATHERING = "gathering"  # messages are there; a timer runs
    WRITING = "writing"  # a batch, or the close, is with a thread
    CLOSED = "closed"  # finished, failed or abandoned


class Recorder:
    """Records one stream until it ends. Made and used on the event loop; at most one write is in flight."""

    def __init__(
        self,
        stream: Stream,
        writer: RecordingWriter,
        executor: Executor,
        *,
        gather_s: float = GATHER_S,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        on_closed: Callable[[Recorder], None] | None = None,
        emit: Emit = emit_nothing,
    ) -> None:
        self.stream = stream
        self._emit = emit
        self.totals = RecordingTotals()
        self.state = RecorderState.IDLE
        self.path: Path | None = None  # the file being written, once there is one
        self._unfinished: FileFinished | None = None  # the same, as it was after the last write
        self._writer = writer
        self._executor = executor
        self._gather_s = gather_s
        self._max_batch_bytes = max_batch_bytes
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._log = get_logger(__name__).bind(stream_key=stream.key)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()
        self._end_position: int | None = None  # where to stop; None while the stream lives
        self._is_behind = False  # the last batch did not take everything
        self._cursor = Cursor(stream.log, on_skip=self._skipped)
        stream.log.wait_for(self._cursor)
        self._proven_s = 0.0
        self._written_position = self._cursor.position
        self._proof = DeliveryProof(
            emit,
            reader="recorder",
            name="recorder",
            feed=stream.new_reader_id(),
            stream=stream.key,
            stream_id=stream.id,
            start=self._cursor.position,
        )
        stream.add_listener(self)
        if stream.state is StreamState.ENDED:
            self.stop()
        elif self._cursor.position < stream.log.tail:
            self.stream_appended()

    def stream_appended(self) -> None:
        if self.state is RecorderState.IDLE:
            self.state = RecorderState.GATHERING
            self._timer = self._loop.call_later(self._gather_s, self._write_next)

    def stream_ended(self, reason: str) -> None:
        self.stop()

    def stop(self) -> None:
        """Write what the log has now, then close the file. `wait_closed` tells when that is done."""
        if self._end_position is None and self.state is RecorderState.CLOSED:
            self._proof.end(self.stream.log.tail, "error")  # it failed before: the rest was not recorded either
        if self._end_position is not None or self.state is RecorderState.CLOSED:
            return
        self._end_position = self.stream.log.tail
        self.stream.remove_listener(self)
        if self.state is not RecorderState.WRITING:
            self._write_next()

    async def wait_closed(self, deadline_s: float) -> bool:
        """True once the file is closed or the recording has failed; False if the deadline passes before."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    def abandon(self, reason: str) -> None:
        """Give up on a write that does not come back. Its thread cannot be stopped, only left alone."""
        if self.state is not RecorderState.CLOSED:
            self._fail(TimeoutError(reason))

    def _write_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        log = self.stream.log
        entries = []
        if self._end_position is None or self._cursor.position < self._end_position:
            entries = self._cursor.take(self._max_batch_bytes)
        self._is_behind = self._cursor.position < log.tail
        if entries:
            self._submit(lambda: self._writer.write(entries), self._written)
        elif self._end_position is not None:
            self._submit(self._writer.close, self._finished)
        else:
            self.state = RecorderState.IDLE

    def _submit(self, work: Callable[[], None], done: Callable[[asyncio.Future[None]], None]) -> None:
        self.state = RecorderState.WRITING
        self._loop.run_in_executor(self._executor, work).add_done_callback(done)

    def _written(self, future: asyncio.Future[None]) -> None:
        if not self._collect(future):
            return
        if self._is_behind or self._end_position is not None:
            self._write_next()
            return
        self.state = RecorderState.IDLE
        if self._cursor.position < self.stream.log.tail:
            self.stream_appended()

    def _finished(self, future: asyncio.Future[None]) -> None:
        if self._collect(future):
            self._close()

    def _collect(self, future: asyncio.Future[None]) -> bool:
        """Account for what the thread has done; False if the recording is over."""
        error = None if future.cancelled() else future.exception()
        if self.state is RecorderState.CLOSED:
            return False  # abandoned meanwhile
        writer = self._writer
        self.totals.files = writer.files
        self.totals.tags = writer.tags
        self.totals.size_bytes = writer.size_bytes
        for event in writer.take_events():
            if isinstance(event, FileStarted):
                self.path = event.path
                self._log.info("Recording started", path=str(event.path))
                self._emit(
                    RecordingOpened(
                        path=str(event.path),
                        stream=self.stream.key,
                        stream_id=self.stream.id,
                        position=event.position,
                        frame_position=event.frame_position,
                    )
                )
            else:
                self._log.info(
                    "Recording finished",
                    path=str(event.path),
                    bytes=event.size_bytes,
                    duration_s=event.duration_s,
                    tags=event.tags,
                )
                self._tell_closed(event)
        self._unfinished = writer.unfinished
        if future.cancelled():
            error = asyncio.CancelledError("the recording service was closed")
        if error is not None:
            self._fail(error)
            return False
        self._written_position = self._cursor.position
        if self._end_position is not None or self._loop.time() - self._proven_s >= _PROOF_S:
            self._proven_s = self._loop.time()
            self._proof.delivered_until(self._written_position)
        return True

    def _tell_closed(self, event: FileFinished, error: str | None = None) -> None:
        self._emit(
            RecordingClosed(
                path=str(event.path),
                stream=self.stream.key,
                stream_id=self.stream.id,
                bytes_total=event.size_bytes,
                tags_total=event.tags,
                duration_ms=round(event.duration_s * 1000),
                error=error,
            )
        )

    def _fail(self, error: BaseException) -> None:
        self.totals.errors += 1
        path, reason = self._writer.path, str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename is not None:
            path, reason = error.filename, error.strerror or reason
        # Anything but an error of the disk is a mistake of ours, and no reason to take the relay down.
        is_ours = not isinstance(error, (OSError, asyncio.CancelledError))
        self._log.error("Recording failed", path=str(path), error=reason, exc_info=error if is_ours else None)
        self._proof.delivered_until(self._written_position)
        self._proof.end(self.stream.log.tail, "error")
        if self._unfinished is not None:  # else it failed between two files, and the last one is whole
            self._tell_closed(self._unfinished, error=reason)
        self._close()
        if self._end_position is None:
            self.stream.add_listener(self)  # to tell what else of the stream was not recorded

    def _close(self) -> None:
        self.state = RecorderState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        self.stream.remove_listener(self)
        self.stream.log.wait_no_more_for(self._cursor)
        self._closed.set()
        if self._on_closed is not None:
            self._on_closed(self)

    def _skipped(self, reason: SkipReason, start: int, stop: int) -> None:
        self.totals.skipped[reason] += stop - start
        self._proof.skipped(reason.value, start, stop)
        if reason is SkipReason.EVICTED:
            # Rare by itself: the log must have been replaced whole before it can happen again.
            self._log.warning("Recording skipped", reason=reason.value, messages=stop - start)
