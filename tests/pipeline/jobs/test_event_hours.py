"""Which folders of an event log are followed, read once, and left alone. The queries here only note what is asked."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipeline.jobs import event_hours
from headrace.pipeline.jobs.event_hours import EventHours, Folder
from headrace.pipeline.jobs.lake import Lake, open_lake

STOP = threading.Event()
NAME = "events-12345678"


class Query:
    def __init__(self) -> None:
        self.is_running = True

    def is_active(self, stop: threading.Event) -> bool:
        return self.is_running

    def wait_begun(self, stop: threading.Event) -> None:
        pass

    def stop(self) -> None:
        self.is_running = False


class Log:
    """An event log on disk, and what was started on it: folder, and whether only what is there was wanted."""

    def __init__(self, folder: Path, lake: Lake) -> None:
        self.folder = folder
        self.lake = lake
        self.started: list[tuple[str, bool]] = []
        self.queries: dict[str, Query] = {}
        self.files = 0

    def put(self, hour: str) -> None:
        self.files += 1
        place = self.folder / hour
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{self.files}.jsonl").write_text("{}\n")
        # Clocks of file systems tick slower than tests.
        os.utime(place, ns=(self.files, self.files))

    def follow(self, *, is_once: bool = False) -> EventHours:
        self.started = []
        return EventHours(self.folder, self.lake, NAME, self._start, is_once=is_once)

    def _start(self, folder: Folder, is_once: bool) -> Query:
        self.started.append((folder.name, is_once))
        checkpoint = Path(self.lake.checkpoint(f"{NAME}{folder.checkpoint}"))
        checkpoint.mkdir(parents=True, exist_ok=True)
        self.queries[folder.name] = Query()
        return self.queries[folder.name]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in Path(self.lake.checkpoint("x")).parent.glob(f"{NAME}*"))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(event_hours, "_LOOK_S", 0.0)
    monkeypatch.setattr(event_hours, "AGAIN_S", 0.0)
    with open_lake(tmp_path / "lake", "test") as lake:
        (tmp_path / "events").mkdir()
        yield Log(tmp_path / "events", lake)


def read_all(hours: EventHours, log: Log) -> None:
    """Every query that reads to an end comes to it."""
    for _ in range(100):
        for name, is_once in log.started:
            log.queries[name].is_running = not is_once
        if not hours.is_active(STOP):
            return


NINE, TEN, ELEVEN = (f"date=2027-01-15/hour={hour}" for hour in ("09", "10", "11"))


def test_the_newest_hour_is_followed_and_those_before_are_read_one_after_the_other(log: Log) -> None:
    for hour in (TEN, NINE, ELEVEN):
        log.put(hour)
    hours = log.follow()
    assert hours.is_active(STOP)
    assert log.started == [(ELEVEN, False), (NINE, True)], "one at a time"
    read_all(hours, log)
    assert log.started == [(ELEVEN, False), (NINE, True), (TEN, True)]
    hours.stop()
    assert not any(query.is_running for query in log.queries.values())


def test_once_everything_is_read_and_then_it_is_over(log: Log) -> None:
    for hour in (NINE, TEN):
        log.put(hour)
    hours = log.follow(is_once=True)
    assert hours.is_active(STOP)
    read_all(hours, log)
    assert not hours.is_active(STOP)
    assert log.started == [(NINE, True), (TEN, True)]


def test_what_was_read_to_its_end_is_left_alone_after_a_restart_until_a_file_is_put_there(log: Log) -> None:
    for hour in (NINE, TEN):
        log.put(hour)
    read_all(log.follow(), log)
    read_all(log.follow(), log)
    assert log.started == [(TEN, False)]
    log.put(NINE)  # by a server that crashed and came back
    read_all(log.follow(), log)
    assert log.started == [(TEN, False), (NINE, True)]


def test_a_query_that_was_stopped_on_its_way_is_begun_again(log: Log) -> None:
    log.put(NINE)
    hours = log.follow(is_once=True)
    assert hours.is_active(STOP)
    hours.stop()
    assert log.follow(is_once=True).is_active(STOP)
    assert log.started == [(NINE, True)]


def test_an_hour_is_followed_for_some_time_after_it_is_over_and_then_read_to_its_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.put(NINE)
    hours = log.follow()
    hours.is_active(STOP)
    log.put(TEN)
    hours.is_active(STOP)
    assert log.started == [(NINE, False), (TEN, False)]
    monkeypatch.setattr(event_hours, "FOLLOWED_S", 0.0)
    nine = log.queries[NINE]
    while nine.is_running:  # until the clock has moved on
        hours.is_active(STOP)
    assert log.started == [(NINE, False), (TEN, False), (NINE, True)]


def test_an_old_folder_that_changes_all_the_time_is_not_read_all_the_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server makes room by deleting the oldest files."""
    for hour in (NINE, TEN):
        log.put(hour)
    hours = log.follow()
    read_all(hours, log)
    monkeypatch.setattr(event_hours, "AGAIN_S", 1000.0)
    log.put(NINE)
    read_all(hours, log)
    assert log.started == [(TEN, False), (NINE, True)]


def test_files_beside_the_folders_of_hours_are_read_too(log: Log) -> None:
    log.put(NINE)
    log.put("")
    log.put("date=2027-01-15")
    read_all(hours := log.follow(is_once=True), log)
    assert sorted(name for name, _ in log.started) == ["", "date=2027-01-15", NINE]
    assert log.checkpoints() == [NAME, f"{NAME}-2027-01-15", f"{NAME}-2027-01-15-09"]
    hours.stop()


def test_checkpoints_go_with_their_folders_and_old_ones_by_number(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for hour in (NINE, TEN, ELEVEN):
        log.put(hour)
    hours = log.follow()
    read_all(hours, log)
    assert len(log.checkpoints()) == 3
    monkeypatch.setattr(event_hours, "MAX_CHECKPOINTS", 2)
    read_all(hours, log)
    assert log.checkpoints() == [f"{NAME}-2027-01-15-10", f"{NAME}-2027-01-15-11"]
    for file in (log.folder / TEN).iterdir():
        file.unlink()
    (log.folder / TEN).rmdir()
    read_all(hours, log)
    assert log.checkpoints() == [f"{NAME}-2027-01-15-11"]
