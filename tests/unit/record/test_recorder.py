"""The recorder on its event loop: batches, slow and broken disks, the end of a stream."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import resource
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import structlog

from headrace import logs
from headrace.errors import UsageError
from headrace.protocol import messages
from headrace.record import flvfile
from headrace.record.recorder import Recorder, RecorderState, RecordingTotals
from headrace.record.service import RecordingService
from headrace.record.writer import RecordingWriter
from headrace.stream.cadence import Due, Prepare
from headrace.stream.cursor import SkipReason
from headrace.stream.log import Entry, LogLimits
from headrace.stream.registry import Stream, StreamRegistry
from headrace.telemetry.events import Delivery, Event, RecordingClosed, RecordingOpened
from tests.unit.record.samples import (
    AAC_HEADER,
    AVC_HEADER,
    AVC_KEYFRAME,
    NO_LIMITS,
    Sent,
    audio,
    contents,
    data,
    video,
)

DEADLINE_S = 10.0
NOON_S = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
PREFACE = [data(0), video(0, AVC_HEADER), audio(0, AAC_HEADER)]

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of the log so far."""
    saved = structlog.get_config()
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.configure(**saved)


class Source:
    """A publisher, as far as the registry has to know it."""

    last_received_s = 0.0

    def displace(self) -> None: ...

    def rest(self, until_s: float) -> float:
        return 0.0

    def expect(self, due: Due, prepare: Prepare) -> bool:
        return False


class SlowWriter(RecordingWriter):
    """A disk that answers only when told; tells how often it was asked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "live", "cam", wall_time=lambda: NOON_S)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.batches: list[int] = []

    def write(self, entries: Sequence[Entry]) -> None:
        self.batches.append(len(entries))
        self.is_asked.set()
        assert self.may_answer.wait(DEADLINE_S)
        super().write(entries)


def _run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work

    asyncio.run(limited())


def _stream(name: str = "cam", limits: LogLimits = NO_LIMITS) -> Stream:
    return Stream("live", name, limits, 0.0)


def _service(directory: Path, **options: Any) -> RecordingService:
    return RecordingService(directory, gather_s=0, wall_time=lambda: NOON_S, **options)


def _send(stream: Stream, messages: Sequence[Sent]) -> None:
    for message in messages:
        stream.append(*message)


def _gop(first_ms: int, frames: int = 25) -> list[Sent]:
    return [video(first_ms, AVC_KEYFRAME), *(video(first_ms + 40 * n) for n in range(1, frames))]


async def _until(condition: Callable[[], bool]) -> None:
    """Lets the loop and the threads work until it is so, however long that takes; `_run` has the deadline."""
    while not condition():  # noqa: ASYNC110 - a recorder reports to nobody
        await asyncio.sleep(0.001)


def test_what_is_published_is_in_the_file_when_the_stream_has_ended(tmp_path: Path, lines: Lines) -> None:
    messages = [*PREFACE, *_gop(0), *_gop(1000)]
    path = tmp_path / "live_cam_20260301_120000.flv"
    totals = RecordingTotals()

    async def work() -> None:
        registry = StreamRegistry(limits=NO_LIMITS, grace_s=5)
        publisher = Source()
        stream = registry.publish("live", "cam", publisher, 0.0).stream
        service = _service(tmp_path)
        recorder = service.start(stream)
        assert service.start(stream) is recorder
        _send(stream, messages)
        registry.unpublish(stream, publisher, "unpublish")
        assert await recorder.wait_closed(DEADLINE_S)
        assert recorder.state is RecorderState.CLOSED
        assert service.active == ()
        totals.add(service.totals)
        assert await service.close(DEADLINE_S)

    _run(work())
    assert totals == RecordingTotals(files=1, tags=53, size_bytes=path.stat().st_size)
    assert contents(path) == messages
    started, finished = lines()
    assert (started["msg"], finished["msg"]) == ("Recording started", "Recording finished")
    assert {line["stream_key"] for line in (started, finished)} == {"live/cam"}
    assert {line["path"] for line in (started, finished)} == {str(path)}
    assert finished["bytes"] == path.stat().st_size
    assert (finished["tags"], finished["duration_s"]) == (53, 1.96)


def test_messages_reach_the_file_while_the_stream_lives(tmp_path: Path) -> None:
    path = tmp_path / "live_cam_20260301_120000.flv"
    found: list[Sent] = []

    async def work() -> None:
        stream, service = _stream(), _service(tmp_path)
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0)])
        await _until(lambda: recorder.totals.tags == 28 and recorder.state is RecorderState.IDLE)
        _send(stream, _gop(1000))
        await _until(lambda: recorder.totals.tags == 53)
        found.extend(await asyncio.to_thread(contents, path))
        assert await service.close(DEADLINE_S)

    _run(work())
    assert found == [*PREFACE, *_gop(0), *_gop(1000)]


def test_a_recorder_that_starts_in_mid_stream_begins_at_the_newest_keyframe(tmp_path: Path) -> None:
    async def work() -> None:
        stream, service = _stream(), _service(tmp_path)
        _send(stream, [*PREFACE, *_gop(0), *_gop(1000)])
        recorder = service.start(stream)
        await _until(lambda: recorder.totals.tags == 28)  # without waiting for another message
        assert await service.close(DEADLINE_S)

    _run(work())
    assert contents(next(tmp_path.iterdir()))[3:] == _gop(1000)


def test_messages_are_gathered_and_one_batch_at_a_time_is_written(tmp_path: Path) -> None:
    async def work() -> None:
        with ThreadPoolExecutor(4) as executor:
            stream, writer = _stream(), SlowWriter(tmp_path)
            recorder = Recorder(stream, writer, executor, gather_s=0, max_batch_bytes=1000)
            _send(stream, [*PREFACE, *_gop(0)])
            assert recorder.state is RecorderState.GATHERING
            await _until(writer.is_asked.is_set)
            _send(stream, [audio(1000 + n, b"\xaf\x01" + bytes(498)) for n in range(10)])
            assert writer.batches == [28]
            writer.may_answer.set()
            recorder.stop()
            assert await recorder.wait_closed(DEADLINE_S)
            assert writer.batches == [28, 2, 2, 2, 2, 2]  # of a thousand bytes each
            assert recorder.totals.tags == 38

    _run(work())


def test_a_slow_disk_delays_nobody_and_what_is_skipped_is_counted(tmp_path: Path, lines: Lines) -> None:
    async def work() -> None:
        with ThreadPoolExecutor(1) as executor:
            stream = _stream(limits=LogLimits(retain_s=1e9, max_messages=60))
            writer = SlowWriter(tmp_path)
            recorder = Recorder(stream, writer, executor, gather_s=0)
            _send(stream, [*PREFACE, *_gop(0)])
            await _until(writer.is_asked.is_set)
            for second in range(1, 101):  # the disk does not answer: appending goes on, memory does not grow
                _send(stream, _gop(second * 1000))
                await asyncio.sleep(0)
            assert stream.log.tail == 3 + 101 * 25
            assert len(writer.batches) == 1
            writer.may_answer.set()
            await _until(lambda: recorder.totals.tags == 28 + 25)
            _send(stream, _gop(101_000))
            stream._end("unpublish")
            assert await recorder.wait_closed(DEADLINE_S)
            assert recorder.totals.skipped == {SkipReason.EVICTED: 99 * 25}

    _run(work())
    [path] = tmp_path.iterdir()
    assert contents(path) == [*PREFACE, *_gop(0), *_gop(100_000), *_gop(101_000)]
    [skipped] = [line for line in lines() if line["msg"] == "Recording skipped"]
    assert (skipped["reason"], skipped["messages"]) == ("evicted", 99 * 25)


def test_a_publisher_that_comes_back_within_the_grace_goes_on_in_the_same_file(tmp_path: Path) -> None:
    async def work() -> None:
        registry = StreamRegistry(limits=NO_LIMITS, grace_s=5)
        first, second = Source(), Source()
        stream = registry.publish("live", "cam", first, 0.0).stream
        service = _service(tmp_path)
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0)])
        await _until(lambda: recorder.totals.tags == 28)
        registry.lose(stream, first, 1.0)
        assert registry.publish("live", "cam", second, 3.0).is_resumed
        _send(stream, [*PREFACE, *_gop(0)])
        registry.unpublish(stream, second, "unpublish")
        assert await service.close(DEADLINE_S)
        assert service.totals.files == 1

    _run(work())
    found = contents(next(tmp_path.iterdir()))
    assert [message.payload for message in found] == [m.payload for m in (*PREFACE, *_gop(0)) * 2]
    times_ms = [m.timestamp_ms for m in found if m.type_id != messages.DATA]  # metadata is always stamped 0
    assert times_ms == sorted(times_ms)


@pytest.mark.parametrize("fault", ["limit", "injected"])
def test_an_error_of_the_disk_stops_one_recording_and_nothing_else(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """`limit`: the kernel refuses to let the file grow. `injected`: where the error must be ENOSPC itself."""
    filler = [audio(n, b"\xaf\x01" + bytes(1000)) for n in range(100)]
    append = flvfile.FlvFile.append

    def full(self: flvfile.FlvFile, tags: Sequence[bytes]) -> None:
        if "victim" in self.path.name and self.tags > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        append(self, tags)

    async def work() -> None:
        service = _service(tmp_path, max_batch_bytes=5000)
        victim, other = _stream("victim"), _stream("other")
        stopped = service.start(victim)
        going_on = service.start(other)
        _send(victim, [*PREFACE, *_gop(0), *filler])
        _send(other, [*PREFACE, *_gop(0)])
        await _until(lambda: stopped.state is RecorderState.CLOSED)
        assert await stopped.wait_closed(DEADLINE_S)
        assert service.active == (going_on,)
        tags = stopped.totals.tags
        _send(victim, filler)  # the relay goes on
        _send(other, _gop(1000))
        await _until(lambda: going_on.totals.tags == 53)
        assert stopped.totals.tags == tags
        assert (service.totals.errors, service.totals.files) == (1, 2)
        assert await service.close(DEADLINE_S)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if fault == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
        else:
            monkeypatch.setattr(flvfile.FlvFile, "append", full)
        _run(work())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    path = tmp_path / "live_victim_20260301_120000.flv"
    [failed] = [line for line in lines() if line["level"] == "error"]
    assert (failed["msg"], failed["stream_key"], failed["path"]) == ("Recording failed", "live/victim", str(path))
    assert failed["error"] == os.strerror(errno.EFBIG if fault == "limit" else errno.ENOSPC)
    assert "traceback" not in failed
    assert contents(path) == [*PREFACE, *_gop(0), *filler][: len(contents(path))]
    assert [line["path"] for line in lines() if line["msg"] == "Recording finished"] == [
        str(tmp_path / "live_other_20260301_120000.flv")
    ]


def test_a_directory_that_cannot_be_made_is_one_error_per_recording(tmp_path: Path, lines: Lines) -> None:
    (tmp_path / "taken").write_text("a file")

    async def work() -> None:
        service = _service(tmp_path / "taken" / "recordings")
        for name in ("a", "b"):
            _send_all(service, name)
        await _until(lambda: not service.active)
        assert service.totals.errors == 2
        assert await service.close(DEADLINE_S)

    def _send_all(service: RecordingService, name: str) -> None:
        stream = _stream(name)
        service.start(stream)
        _send(stream, [*PREFACE, *_gop(0)])

    _run(work())
    # Two threads: either may be the first.
    assert sorted((line["msg"], line["stream_key"], line["error"]) for line in lines()) == [
        ("Recording failed", f"live/{name}", "Not a directory") for name in ("a", "b")
    ]


def test_a_mistake_of_ours_in_the_thread_is_logged_with_its_traceback(tmp_path: Path, lines: Lines) -> None:
    class BrokenWriter(RecordingWriter):
        def write(self, entries: Sequence[Entry]) -> None:
            raise ZeroDivisionError("ours")

    async def work() -> None:
        with ThreadPoolExecutor(1) as executor:
            stream = _stream()
            writer = BrokenWriter(tmp_path, "live", "cam", wall_time=lambda: NOON_S)
            recorder = Recorder(stream, writer, executor, gather_s=0)
            _send(stream, PREFACE)
            assert await recorder.wait_closed(DEADLINE_S)
            recorder.stop()
            _send(stream, PREFACE)

    _run(work())
    [line] = lines()
    assert (line["msg"], line["error"]) == ("Recording failed", "ours")
    assert "ZeroDivisionError" in line["traceback"]


def test_closing_the_service_writes_what_live_streams_have_sent(tmp_path: Path) -> None:
    async def work() -> None:
        service = _service(tmp_path, threads=2)
        streams = [_stream(f"cam{number}") for number in range(10)]
        for stream in streams:
            service.start(stream)
            _send(stream, [*PREFACE, *_gop(0)])
        assert len(service.active) == 10
        assert await service.close(DEADLINE_S)
        assert service.active == ()
        with pytest.raises(UsageError, match="live/cam0 started after the service was closed"):
            service.start(streams[0])

    _run(work())
    assert [len(contents(path)) for path in tmp_path.iterdir()] == [28] * 10


def test_closing_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()
    append = flvfile.FlvFile.append

    def hanging(self: flvfile.FlvFile, tags: Sequence[bytes]) -> None:
        if "hangs" in self.path.name:
            assert may_answer.wait(DEADLINE_S)
        append(self, tags)

    monkeypatch.setattr(flvfile.FlvFile, "append", hanging)

    async def work() -> None:
        service = _service(tmp_path)
        for name in ("hangs", "cam"):
            stream = _stream(name)
            service.start(stream)
            _send(stream, [*PREFACE, *_gop(0)])
        assert not await service.close(0.05)
        assert service.active == ()
        assert (service.totals.errors, service.totals.tags) == (1, 28)
        may_answer.set()

    _run(work())
    [failed] = [line for line in lines() if line["level"] == "error"]
    assert (failed["stream_key"], failed["error"]) == ("live/hangs", "not written within 0.05 s")


def test_a_recording_that_waits_behind_one_that_hangs_is_given_up_too(tmp_path: Path, lines: Lines) -> None:
    may_answer = threading.Event()

    async def work() -> None:
        service = _service(tmp_path, threads=1)
        hanging = asyncio.get_running_loop().run_in_executor(service._executor, may_answer.wait, DEADLINE_S)
        stream = _stream()
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0)])
        assert not await service.close(0.05)
        assert recorder.state is RecorderState.CLOSED
        may_answer.set()
        assert await hanging

    _run(work())
    assert [(line["msg"], line["error"]) for line in lines()] == [("Recording failed", "not written within 0.05 s")]
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_has_ended_before_is_recorded_from_its_last_keyframe(tmp_path: Path) -> None:
    async def work() -> None:
        stream, service = _stream(), _service(tmp_path)
        _send(stream, [*PREFACE, *_gop(0)])
        stream._end("unpublish")
        assert await service.start(stream).wait_closed(DEADLINE_S)
        assert await service.close(DEADLINE_S)

    _run(work())
    assert len(contents(next(tmp_path.iterdir()))) == 28


def test_segments_of_a_live_stream_are_logged_one_by_one(tmp_path: Path, lines: Lines) -> None:
    async def work() -> None:
        stream, service = _stream(), _service(tmp_path, segment_duration_s=1.0)
        service.start(stream)
        _send(stream, [*PREFACE, *_gop(0), *_gop(1000), *_gop(2000)])
        assert await service.close(DEADLINE_S)
        assert service.totals.files == 3

    _run(work())
    told = [(line["msg"].split()[1], line["path"][-10:]) for line in lines()]
    assert told == [(event, f"seg00{number}.flv") for number in (1, 2, 3) for event in ("started", "finished")]


# --- what the event log is told


def test_paths_are_told_absolute_wherever_the_directory_was_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[Event] = []

    async def work() -> None:
        stream, service = _stream(), _service(Path("recordings"), emit=told.append)
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0)])
        await _until(lambda: recorder.totals.tags == 28)
        monkeypatch.chdir("/")  # the place is settled
        assert await service.close(DEADLINE_S)

    _run(work())
    path = str(tmp_path / "recordings" / "live_cam_20260301_120000.flv")
    assert [event.path for event in told if isinstance(event, RecordingOpened | RecordingClosed)] == [path, path]
    assert [line["path"] for line in lines()] == [path, path]
    assert Path(path).exists()


def test_a_segment_that_fails_is_told_with_what_is_in_that_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    told: list[Event] = []

    def fills_up(descriptor: int, content: memoryview) -> int:
        """The second file's disk takes a keyframe, nine frames and a part of the next, then no more."""
        second = next(tmp_path.glob("*seg002.flv"), None)
        if second is None or not os.path.samestat(os.fstat(descriptor), second.stat()):
            return write(descriptor, content)
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(descriptor, content[: room[0]])
        room[0] -= taken
        return taken

    gop = _gop(1000)
    preface = len(flvfile.FILE_HEADER) + sum(11 + len(message.payload) + 4 for message in PREFACE)
    kept = preface + sum(11 + len(message.payload) + 4 for message in gop[:10])
    room = [kept + 5]
    monkeypatch.setattr(os, "write", fills_up)

    async def work() -> None:
        stream, service = _stream(), _service(tmp_path, segment_duration_s=1.0, emit=told.append)
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0), *gop])
        await _until(lambda: recorder.state is RecorderState.CLOSED)
        assert recorder.totals.tags == 28 + 13
        assert await service.close(DEADLINE_S)

    _run(work())
    opened = [event for event in told if isinstance(event, RecordingOpened)]
    first, second = [event for event in told if isinstance(event, RecordingClosed)]
    assert [event.path for event in opened] == [first.path, second.path]
    assert [(event.position, event.frame_position) for event in opened] == [(0, 3), (28, 28)]
    assert (first.tags_total, first.duration_ms, first.error) == (28, 24 * 40, None)
    assert (second.tags_total, second.bytes_total) == (13, kept)
    assert (second.duration_ms, second.error) == (9 * 40, os.strerror(errno.ENOSPC))
    assert Path(second.path).stat().st_size == kept


@pytest.mark.parametrize("fails", ["create", "close"])
def test_a_recording_that_fails_between_two_files_tells_the_end_of_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    told: list[Event] = []
    create = flvfile.create

    def no_second(directory: Path, stem: str, first: int = 1) -> tuple[flvfile.FlvFile, int]:
        if stem.endswith("seg002"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(directory))
        return create(directory, stem, first)

    def close(file: flvfile.FlvFile) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(file.path))

    if fails == "create":
        monkeypatch.setattr(flvfile, "create", no_second)
    else:
        monkeypatch.setattr(flvfile.FlvFile, "close", close)

    async def work() -> None:
        stream, service = _stream(), _service(tmp_path, segment_duration_s=1.0, emit=told.append)
        recorder = service.start(stream)
        _send(stream, [*PREFACE, *_gop(0), *_gop(1000)])
        await _until(lambda: recorder.state is RecorderState.CLOSED)
        assert recorder.totals.tags == 28
        assert await service.close(DEADLINE_S)

    _run(work())
    assert len([event for event in told if isinstance(event, RecordingOpened)]) == 1
    [closed] = [event for event in told if isinstance(event, RecordingClosed)]
    assert (closed.tags_total, closed.duration_ms) == (28, 24 * 40)
    assert closed.error == (None if fails == "create" else os.strerror(errno.EIO))


def test_each_recorder_of_a_stream_is_a_feed_of_its_own(tmp_path: Path) -> None:
    told: list[Event] = []

    async def work() -> None:
        stream = _stream()
        for _ in range(2):
            service = _service(tmp_path, emit=told.append)
            service.start(stream)
            _send(stream, [*PREFACE, *_gop(1000 * stream.log.tail)])
            assert await service.close(DEADLINE_S)

    _run(work())
    assert {event.feed for event in told if isinstance(event, Delivery)} == {"/1", "/2"}
