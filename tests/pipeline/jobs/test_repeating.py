"""Which files a job that repeats batches looks at: those that changed, and those that nobody writes to any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.pipeline.jobs.repeating import Changes


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "a.flv"
    path.write_bytes(b"FLV")
    return path


def test_a_file_is_told_when_it_is_new_and_when_it_has_grown(recording: Path) -> None:
    changes = Changes()
    assert changes.look([recording]) == ({recording}, set())
    assert changes.look([recording]) == (set(), set())
    with recording.open("ab") as file:
        file.write(b"more")
    assert changes.look([recording]) == ({recording}, set())
    assert changes.look([recording]) == (set(), set())


def test_one_that_is_renamed_with_an_old_time_is_told(recording: Path, tmp_path: Path) -> None:
    changes = Changes()
    changes.look([recording])
    stat = recording.stat()
    other = tmp_path / "other"
    other.write_bytes(b"flv")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    time.sleep(0.01)  # the clock of some file systems ticks every four milliseconds
    other.rename(recording)
    assert changes.look([recording]).files == {recording}


def test_one_that_has_settled_is_told_once_more_and_again_if_it_changes_after_all(recording: Path) -> None:
    now_s = recording.stat().st_mtime
    changes = Changes(clock=lambda: now_s)
    assert changes.look([recording]) == ({recording}, set())
    now_s += 61
    assert changes.look([recording]) == ({recording}, {recording})
    assert changes.look([recording]) == (set(), set())
    recording.write_bytes(b"FLV and more")
    os.utime(recording, (now_s, now_s))
    assert changes.look([recording]) == ({recording}, set())
    now_s += 61
    assert changes.look([recording]) == ({recording}, {recording})


def test_an_old_one_is_new_and_settled_at_once_and_one_that_is_gone_is_nothing(recording: Path) -> None:
    os.utime(recording, (0, 0))
    changes = Changes()
    assert changes.look([recording]) == ({recording}, {recording})
    recording.unlink()
    assert changes.look([recording]) == (set(), set())
