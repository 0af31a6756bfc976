"""The event log on disk: whole lines in order, rotation, crashes, disks that are full, slow or shared."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from headrace.telemetry import event_log
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import CodecDetected, Event, PlayRefused, ServerStarted
from headrace.telemetry.identity import Identity
from tests.helpers.log_lines import LogLines, captured_log
from tests.helpers.waiting import DEADLINE_S, eventually

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}

IDENTITY = Identity("node-1", bytes(32))
NOON_S = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
NEVER_S = 1e9


@pytest.fixture(autouse=True)
def _quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "WRITE_S", 0.002)


@pytest.fixture
def complaints() -> Iterator[LogLines]:
    with captured_log() as lines:
        yield lines


class Clock:
    def __init__(self, now_s: float = NOON_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def opened(folder: Path, **options: Any) -> EventLog:
    """A log that rotates only if the test asks for it."""
    options = {"wall_time": Clock(), "rotate_s": NEVER_S, **options}
    return EventLog(folder, IDENTITY, **options)


def numbered(number: int = 0) -> Event:
    return ServerStarted(version=str(number))


def emit(log: EventLog, count: int) -> None:
    for _ in range(count):
        log.emit(numbered(log.events_emitted + 1))


def emit_and_wait(log: EventLog, count: int = 1) -> None:
    """Until the thread has dealt with them, written or lost."""
    emit(log, count)
    eventually(lambda: log.events_written + log.events_lost >= log.events_emitted, "the events to be written")


def files(folder: Path) -> list[Path]:
    """What readers see, in the order in which it was written."""
    return sorted((folder / event_log.FOLDER).rglob("*.jsonl"), key=lambda path: path.name)


def growing(folder: Path) -> list[Path]:
    return sorted((folder / "events-open").glob("*"))


def lines_of(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    assert content.endswith(b"\n"), f"{path} ends in {content[-20:]!r}"
    return [json.loads(line) for line in content[:-1].split(b"\n")]


def sequence(folder: Path) -> list[int]:
    """The sequence numbers as they stand on disk; each line says of itself which it is."""
    lines = [line for path in files(folder) for line in lines_of(path)]
    assert all(line["version"] == str(line["seq"]) for line in lines if line["type"] == "server_started")
    return [line["seq"] for line in lines]


# --- lines


def test_lines_are_whole_and_in_order_and_no_number_is_missing(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_s=0, rotate_bytes=20_000)
    emit(log, 20_000)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == list(range(1, 20_001))
    assert (log.events_emitted, log.events_written, log.events_lost) == (20_000, 20_000, 0)


def test_an_event_that_comes_while_the_thread_takes_the_others_is_not_lost(tmp_path: Path) -> None:
    """The clock is asked in the middle of `emit`: what the thread does meanwhile must not cost the event."""
    logs: list[EventLog] = []

    def slow_clock() -> float:
        for log in logs:
            before = log.events_written
            log._pending.append((log.events_emitted + 1000, 0, numbered()))
            eventually(lambda: log.events_written > before, "a round of the thread")  # noqa: B023
        return NOON_S

    log = opened(tmp_path, wall_time=slow_clock)
    logs.append(log)
    log.emit(numbered(1))
    assert log.close(DEADLINE_S)
    assert 1 in [line["seq"] for path in files(tmp_path) for line in lines_of(path)]
    assert log.events_written == 2


@pytest.mark.parametrize(
    "text",
    [
        "a\nb",
        "a\r\nb",
        "\u2028\u2029\x85",
        "\0\x1b[31m",
        "half a pair \ud800",
        'say "this" \\',
        "é漢😀",
        "x" * 1_000_000,
    ],
    ids=["newline", "crlf", "unicode newlines", "controls", "surrogate", "quotes", "not ascii", "huge"],
)
def test_whatever_a_peer_says_stays_one_line(tmp_path: Path, text: str) -> None:
    log = opened(tmp_path)
    log.emit(PlayRefused(conn="c1", viewer="", stream=text, reason=text))
    log.emit(numbered(2))
    assert log.close(DEADLINE_S)
    [path] = files(tmp_path)
    assert len(path.read_bytes().splitlines()) == 2
    first, second = lines_of(path)
    assert (first["stream"], first["reason"]) == (text, text)
    assert second["seq"] == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_known(tmp_path: Path, value: float) -> None:
    log = opened(tmp_path)
    log.emit(CodecDetected(stream="live/a", stream_id="1", frame_rate=value))
    assert log.close(DEADLINE_S)
    [path] = files(tmp_path)
    [line] = lines_of(path)
    assert line["frame_rate"] is None


def test_what_is_no_json_costs_its_own_event_and_no_other(tmp_path: Path, complaints: LogLines) -> None:
    log = opened(tmp_path)
    emit(log, 1)
    mistake: Any = object()
    log.emit(CodecDetected(stream="live/a", stream_id="1", frame_rate=mistake))
    emit(log, 1)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == [1, 3]
    assert log.events_lost == 1
    [complaint] = complaints.of("Event log failed")
    assert "traceback" in complaint, "a mistake of ours says where it is"


# --- rotation


def test_readers_see_a_file_only_when_it_is_finished(tmp_path: Path) -> None:
    log = opened(tmp_path)
    emit_and_wait(log, 10)
    assert files(tmp_path) == []
    [path] = growing(tmp_path)
    assert len(lines_of(path)) == 10
    assert log.close(DEADLINE_S)
    assert growing(tmp_path) == []
    assert [path.name for path in files(tmp_path)] == [path.name]


def test_a_file_is_finished_when_it_is_old_enough(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_s=0.01)
    emit(log, 3)
    eventually(lambda: files(tmp_path), "a finished file without another event")
    assert sequence(tmp_path) == [1, 2, 3]
    assert log.close(DEADLINE_S)


def test_a_file_is_finished_when_it_is_large_enough(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_bytes=1000)
    for _ in range(40):
        emit_and_wait(log)
    assert log.close(DEADLINE_S)
    sizes = [path.stat().st_size for path in files(tmp_path)]
    assert len(sizes) > 3
    assert all(1000 <= size < 1200 for size in sizes[:-1]), "a line is about 130 bytes"
    assert sequence(tmp_path) == list(range(1, 41))


@pytest.mark.parametrize("at_once", [True, False], ids=["in one round", "in several rounds"])
def test_each_hour_has_its_folder_in_utc(tmp_path: Path, at_once: bool) -> None:
    clock = Clock(1_772_323_199.999)  # 2026-02-28 23:59:59.999
    log = opened(tmp_path, wall_time=clock, rotate_s=NEVER_S)
    act = emit if at_once else emit_and_wait
    act(log, 2)
    for step_s in (0.001, 3599.999, 0.001, -1800):  # the last: a clock that was set back
        clock.now_s = round(clock.now_s + step_s, 3)
        act(log, 1)
    assert log.close(DEADLINE_S)
    found = [
        (str(path.parent.relative_to(tmp_path)), [line["seq"] for line in lines_of(path)]) for path in files(tmp_path)
    ]
    assert found == [
        ("events/date=2026-02-28/hour=23", [1, 2]),
        ("events/date=2026-03-01/hour=00", [3, 4]),
        ("events/date=2026-03-01/hour=01", [5]),
        ("events/date=2026-03-01/hour=00", [6]),
    ]
    for path in files(tmp_path):
        hours = {time.strftime("date=%Y-%m-%d/hour=%H", time.gmtime(one["time_ms"] / 1000)) for one in lines_of(path)}
        assert hours == {str(path.parent.relative_to(tmp_path / "events"))}


def test_no_file_that_readers_see_ever_changes(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_s=0, rotate_bytes=500)
    seen: dict[Path, bytes] = {}
    while len(seen) < 60:
        emit(log, 7)
        for path in files(tmp_path):
            seen.setdefault(path, path.read_bytes())
    assert log.close(DEADLINE_S)
    assert all(content.endswith(b"\n") for content in seen.values())
    assert {path: path.read_bytes() for path in seen} == seen


def test_a_server_to_which_nothing_happens_leaves_no_file(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_s=0)
    assert log.close(DEADLINE_S)
    assert list(tmp_path.iterdir()) == []


# --- crashes

ENDLESS = """
import sys
import time
from pathlib import Path
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import ServerStarted
from headrace.telemetry.identity import Identity

log = EventLog(Path(sys.argv[1]), Identity("node-1", bytes(32)), rotate_s=1e9, rotate_bytes=1 << 40,
               max_pending=1 << 40)
while True:
    for _ in range(200):
        log.emit(ServerStarted(version=str(log.events_emitted + 1)))
    print(log.events_written, flush=True)
    time.sleep(0.005)  # a pace, no wait: as fast as it goes there would be a million lines to read
    if len(sys.argv) > 2 and not sys.stdin.readline():
        break
log.close(20)
"""


def _start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(folder), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize("tail", [b"", b'{"v":1,"node":"node-1","se', b"\0" * 512], ids=["as it was", "torn", "zeros"])
def test_what_a_killed_process_left_is_brought_in_at_the_next_start(tmp_path: Path, tail: bytes) -> None:
    with _start(tmp_path) as child:
        assert child.stdout is not None
        written = 0
        while written < 1000:
            written = int(child.stdout.readline())
        child.kill()
        child.wait(DEADLINE_S)
    [left] = growing(tmp_path)
    assert files(tmp_path) == []
    with left.open("ab") as file:
        file.write(tail)  # as a crash of the machine may leave it
    log = opened(tmp_path)
    eventually(lambda: files(tmp_path), "the leftover to be brought in")
    assert log.close(DEADLINE_S)
    assert growing(tmp_path) == []
    numbers = sequence(tmp_path)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= written
    [path] = files(tmp_path)
    when = time.gmtime(lines_of(path)[0]["time_ms"] / 1000)
    assert path.parent == tmp_path / time.strftime("events/date=%Y-%m-%d/hour=%H", when)


def test_a_live_process_on_the_same_folder_is_not_robbed_of_its_file(tmp_path: Path) -> None:
    with _start(tmp_path, "until its input ends") as child:
        assert child.stdin is not None
        eventually(lambda: growing(tmp_path), "the other's file")
        for _ in range(3):
            log = opened(tmp_path, wall_time=time.time, rotate_s=0)
            emit_and_wait(log, 5)
            assert log.close(DEADLINE_S)
        [path] = growing(tmp_path)
        assert all(other.name != path.name for other in files(tmp_path))
        child.stdin.close()
        assert child.wait(DEADLINE_S) == 0
    [finished] = [other for other in files(tmp_path) if other.name == path.name]
    assert [line["seq"] for line in lines_of(finished)] == list(range(1, 201))
    assert growing(tmp_path) == []


def test_a_file_is_locked_before_another_server_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    starts = [1]

    def start_another_first(file: IO[bytes], flags: int) -> None:
        if starts:
            starts.pop()
            assert opened(tmp_path, wall_time=Clock(NOON_S + 1)).close(DEADLINE_S)
        lock(file, flags)

    monkeypatch.setattr(fcntl, "flock", start_another_first)
    log = opened(tmp_path)
    emit_and_wait(log, 3)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == [1, 2, 3]
    assert log.events_lost == 0


def test_a_crashed_neighbour_is_recovered_by_whoever_lives(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_s=0)
    emit_and_wait(log)
    (tmp_path / "events-open" / "node-0.jsonl").write_bytes(b'{"time_ms":0,"type":"x"}\n')
    emit(log, 1)
    eventually(lambda: len(files(tmp_path)) == 3, "the neighbour's file")
    assert (tmp_path / "events/date=1970-01-01/hour=00/node-0.jsonl").exists()
    assert log.close(DEADLINE_S)


@pytest.mark.parametrize(
    "content",
    [
        b'{"time_ms":' + b"9" * 40 + b"}\n",
        b'{"time_ms":-5}\n',
        b'{"time_ms":Infinity}\n',
        b'{"time_ms":null}\n',
        b"{}\n",
        b"[]\n",
        b"\0\0\0\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_damaged_leftover_goes_to_the_hour_of_its_file_and_stops_nothing(tmp_path: Path, content: bytes) -> None:
    left = tmp_path / "events-open" / "left.jsonl"
    left.parent.mkdir()
    left.write_bytes(content)
    os.utime(left, (NOON_S, NOON_S))
    log = opened(tmp_path)
    emit(log, 1)
    assert log.close(DEADLINE_S)
    assert (tmp_path / "events/date=2026-03-01/hour=12/left.jsonl").read_bytes() == content
    assert len(files(tmp_path)) == 2


def test_a_leftover_that_cannot_be_read_keeps_none_of_the_others(tmp_path: Path, complaints: LogLines) -> None:
    (tmp_path / "events-open" / "a.jsonl").mkdir(parents=True)
    (tmp_path / "events-open" / "b.jsonl").write_bytes(b'{"time_ms":0}\n{"torn')
    log = opened(tmp_path, rotate_bytes=1)
    for _ in range(3):
        emit_and_wait(log)
    assert log.close(DEADLINE_S)
    assert (tmp_path / "events/date=1970-01-01/hour=00/b.jsonl").read_bytes() == b'{"time_ms":0}\n'
    assert log.events_lost == 0
    assert [line["error"] for line in complaints.of("Event log failed")] == [os.strerror(errno.EISDIR)]


def test_an_empty_leftover_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "events-open" / "left.jsonl"
    left.parent.mkdir()
    left.write_bytes(b'{"no line')
    assert opened(tmp_path).close(DEADLINE_S)
    assert growing(tmp_path) == files(tmp_path) == []


# --- full disks


class SmallDisk:
    """Files that take so many bytes, then what fits of a write, then ENOSPC: as Linux does it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        open_real = EventLog._open
        monkeypatch.setattr(EventLog, "_open", lambda log, hour: _SmallFile(self, open_real(log, hour)))


class _SmallFile:
    def __init__(self, disk: SmallDisk, file: IO[bytes]) -> None:
        self._disk = disk
        self._file = file

    def write(self, data: memoryview) -> int:
        if data and not self._disk.free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = self._file.write(data[: self._disk.free_bytes])
        self._disk.free_bytes -= size
        return size

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._file.close()


def test_a_full_disk_costs_what_does_not_fit_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaints: LogLines
) -> None:
    disk = SmallDisk(monkeypatch, 5000)
    log = opened(tmp_path)
    emit_and_wait(log, 20)
    emit_and_wait(log, 100)
    assert log.events_lost > 50
    emit_and_wait(log, 10)
    emit_and_wait(log, 10)
    disk.free_bytes = 100_000
    emit_and_wait(log, 30)
    assert log.close(DEADLINE_S)
    numbers = sequence(tmp_path)
    last_before = next(number for number in numbers if number + 1 not in numbers)
    assert last_before > 20, "what did fit is kept"
    assert numbers == [*range(1, last_before + 1), *range(141, 171)]
    assert log.events_lost == 170 - len(numbers), "the hole is as large as the count"
    [complaint] = complaints.of("Event log failed")
    assert complaint["error"] == os.strerror(errno.ENOSPC)
    assert "traceback" not in complaint


def test_a_disk_that_has_room_again_before_it_complains_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes a part of a write without an error: the rest must follow, or the next line is glued to it."""
    disk = SmallDisk(monkeypatch, 0)
    free = iter([777, 1, 100_000])
    write = _SmallFile.write

    def write_a_part(file: _SmallFile, data: memoryview) -> int:
        disk.free_bytes = next(free, 100_000)
        return write(file, data)

    monkeypatch.setattr(_SmallFile, "write", write_a_part)
    log = opened(tmp_path)
    emit_and_wait(log, 50)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == list(range(1, 51))
    assert log.events_lost == 0


def test_a_disk_that_stays_full_is_complained_of_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaints: LogLines
) -> None:
    SmallDisk(monkeypatch, 0)
    monkeypatch.setattr(event_log, "_COMPLAIN_S", 0.0)
    log = opened(tmp_path)
    for _ in range(3):
        emit_and_wait(log, 2)
    assert log.close(DEADLINE_S)
    assert [line["events_lost"] for line in complaints.of("Event log failed")] == [2, 4, 6]
    assert files(tmp_path) == growing(tmp_path) == []


def test_a_file_that_could_not_be_finished_is_finished_later(tmp_path: Path, complaints: LogLines) -> None:
    (tmp_path / "events").write_text("in the way")
    log = opened(tmp_path, rotate_s=0)
    emit(log, 2)
    complaints.wait("Event log failed")
    (tmp_path / "events").unlink()
    emit_and_wait(log, 2)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == [1, 2, 3, 4]
    assert growing(tmp_path) == []
    assert log.events_lost == 0


FILL_UP = """
import json, sys, time
from pathlib import Path
from headrace.telemetry import event_log
from headrace.telemetry.events import ServerStarted
from headrace.telemetry.identity import Identity

event_log.WRITE_S = 0.002
small = Path(sys.argv[1])
filler = small / "filler"
filler.write_bytes(bytes(128 << 10))
log = event_log.EventLog(small, Identity("node-1", bytes(32)), rotate_s=0.05, rotate_bytes=30_000)

def emit(count):
    for _ in range(count):
        log.emit(ServerStarted(version=str(log.events_emitted + 1)))
    end_s = time.monotonic() + 20
    while log.events_written + log.events_lost < log.events_emitted and time.monotonic() < end_s:
        time.sleep(0.001)

while log.events_lost < 500:
    emit(100)
filler.unlink()
lost = log.events_lost
for _ in range(3):
    emit(100)
is_closed = log.close(20)
lines = [line for path in sorted((small / "events").rglob("*.jsonl"), key=lambda path: path.name)
         for line in path.read_text().splitlines()]
print(json.dumps({"closed": is_closed, "emitted": log.events_emitted, "lost": log.events_lost, "lost_before": lost,
                  "open": len(list((small / "events-open").iterdir())),
                  "seq": [json.loads(line)["seq"] for line in lines]}))
"""


def test_a_disk_that_is_full_for_real_is_survived_and_used_again_when_it_has_room(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare: the test with a small disk of our own making shows the same")
    # A mount of its own, which ends with the process whatever happens.
    script = 'mount -t tmpfs -o size=256k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    command = [unshare, "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FILL_UP]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip(f"no mount allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    numbers = report["seq"]
    assert report["closed"]
    assert report["open"] == 0
    assert len(numbers) == len(set(numbers)) == report["emitted"] - report["lost"]
    assert report["lost"] == report["lost_before"], "with room again nothing more is lost"
    assert numbers[-300:] == list(range(report["emitted"] - 299, report["emitted"] + 1))
    assert done.stderr.count("Event log failed") == 1
    assert os.strerror(errno.ENOSPC) in done.stderr


# --- a disk that hangs


class Gate:
    """Writes wait until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = threading.Event()
        self.is_waiting = threading.Event()
        append = EventLog._append

        def wait(log: EventLog, file: IO[bytes], lines: bytes) -> None:
            self.is_waiting.set()
            assert self.is_open.wait(2 * DEADLINE_S)
            append(log, file, lines)

        monkeypatch.setattr(EventLog, "_append", wait)


def test_emit_returns_while_the_disk_hangs_and_memory_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    log = opened(tmp_path, max_pending=10)
    emit(log, 1)
    assert gate.is_waiting.wait(DEADLINE_S)
    emit(log, 1000)  # on this thread: that it comes back is the test
    assert not gate.is_open.is_set()
    assert len(log._pending) == 10
    assert log.events_lost == 990
    gate.is_open.set()
    eventually(lambda: log.events_written == 11, "what was kept")
    emit(log, 3)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == [*range(1, 12), 1002, 1003, 1004], "the loss is a hole in the numbers"
    assert log.events_emitted - log.events_lost == log.events_written == 14


def test_close_waits_no_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    log = opened(tmp_path)
    emit(log, 1)
    assert gate.is_waiting.wait(DEADLINE_S)
    emit(log, 5)
    started_s = time.monotonic()
    assert not log.close(0.05)
    assert time.monotonic() - started_s < 5
    gate.is_open.set()
    assert log.close(DEADLINE_S), "it may be asked again"
    assert sequence(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_close_does_not_wait_for_the_next_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "WRITE_S", NEVER_S)
    log = opened(tmp_path)
    emit(log, 5)
    assert log.close(DEADLINE_S)
    assert sequence(tmp_path) == [1, 2, 3, 4, 5]


# --- the cap on disk use


def _used(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder))


def test_the_oldest_files_make_room_for_the_newest(tmp_path: Path) -> None:
    log = opened(tmp_path, rotate_bytes=1, max_disk_bytes=2000)
    for _ in range(50):
        emit_and_wait(log)
        assert _used(tmp_path) <= 2000
    assert log.close(DEADLINE_S)
    numbers = sequence(tmp_path)
    assert len(numbers) > 10
    assert numbers == list(range(51 - len(numbers), 51))
    assert log.files_removed == 50 - len(numbers)
    assert log.events_lost == 0, "they were written; that they are gone is counted in files"


def test_logs_that_share_a_folder_share_its_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_LEARN_S", 0.0)
    shared = [
        opened(tmp_path, wall_time=Clock(NOON_S + number), rotate_bytes=1, max_disk_bytes=2000, is_shared=True)
        for number in range(2)
    ]
    for _ in range(25):
        for log in shared:
            emit_and_wait(log)
            assert _used(tmp_path) <= 2000
    for log in shared:
        assert log.close(DEADLINE_S)
    assert len(files(tmp_path)) == 50 - sum(log.files_removed for log in shared) > 10


def test_what_earlier_runs_left_counts_and_goes_first(tmp_path: Path) -> None:
    for run in range(10):
        log = opened(tmp_path, wall_time=Clock(NOON_S + run))
        emit(log, 10)
        assert log.close(DEADLINE_S)
        os.utime(files(tmp_path)[-1], (NOON_S + run, NOON_S + run))
    before = files(tmp_path)
    size = before[0].stat().st_size
    assert opened(tmp_path, wall_time=Clock(NOON_S + 10), max_disk_bytes=3 * size + size // 2).close(DEADLINE_S)
    assert files(tmp_path) == before[-3:]


def test_files_that_somebody_else_removed_are_no_trouble(tmp_path: Path, complaints: LogLines) -> None:
    log = opened(tmp_path, rotate_bytes=1, max_disk_bytes=1000)
    for _ in range(30):
        emit_and_wait(log)
        shutil.rmtree(tmp_path / "events", ignore_errors=True)
    assert log.close(DEADLINE_S)
    assert not complaints.of("Event log failed")


def test_a_file_that_vanishes_while_a_server_starts_is_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaints: LogLines
) -> None:
    """Two servers on one folder: the other rotates and makes room at any moment."""
    folder = tmp_path / "events" / "date=2026-03-01" / "hour=12"
    folder.mkdir(parents=True)
    (tmp_path / "events-open").mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.jsonl").write_text("{}\n")
        (tmp_path / "events-open" / f"{name}.jsonl").write_text('{"time_ms":0}\n')

    def losing(search: Callable[[Path, str], Iterator[Path]]) -> Callable[[Path, str], list[Path]]:
        def found(self: Path, pattern: str) -> list[Path]:
            paths = sorted(search(self, pattern))
            for path in paths:
                if path.name == "a.jsonl":
                    path.unlink()
            return paths

        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rglob", losing(Path.rglob))
        patch.setattr(Path, "glob", losing(Path.glob))
        log = opened(tmp_path)
        emit(log, 1)
        assert log.close(DEADLINE_S)
    assert sorted(path.name for path in files(tmp_path)) == ["b.jsonl", "b.jsonl", f"node-1-{log.boot}-000001.jsonl"]
    assert not complaints.of("Event log failed")
