"""Many small files become few: no row is lost, doubled or seen twice, and what is too old goes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from headrace import cli
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs import build, housekeeping
from headrace.pipeline.jobs import compact as compaction
from headrace.pipeline.jobs.batch import _next_part
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.housekeeping import Housekeeping, Request
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.jobs.parts import EventParts
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.layout import SETTLED, Unit, file_of
from headrace.pipeline.stores import exchange as exchanging
from headrace.pipeline.tables.catalog import TABLES
from tests.helpers.waiting import eventually
from tests.pipeline.jobs.logs_on_disk import all_tables, folder
from tests.pipeline.tables.rows import T0, event

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SOURCE = "stream-q1-events-"


def add_events(lake: Lake, part: str, *events: dict[str, Any], is_built: bool = True) -> None:
    lake.add_part("events", part, pa.Table.from_pylist(list(events), schema=lake.arrow_schema("events")))
    os.utime(folder(lake, "events") / part, (T0 / 1000, T0 / 1000))
    if is_built:
        lake.mark_told([part])
        lake.mark_built({"events": [part], "tags": []})


def add_tags(lake: Lake, part: str, path: str, offsets: range) -> None:
    rows = [{"path": path, "byte_offset": offset} for offset in offsets]
    lake.add_part("tags", part, pa.Table.from_pylist(rows, schema=lake.arrow_schema("tags")))
    lake.mark_built({"events": [], "tags": [part]})


def plays(count: int, first_seq: int = 0, **fields: Any) -> list[dict[str, Any]]:
    return [event("play_started", seq, seq, **fields) for seq in range(first_seq, first_seq + count)]


def seqs(lake_dir: Path) -> list[int]:
    rows = ds.dataset(lake_dir / "bronze" / "events", format="parquet").to_table(columns=["seq"])
    return sorted(rows["seq"].to_pylist())


def put_unit(lake: Lake, table: str, stream_id: str, *rows: dict[str, Any]) -> None:
    whole = [{"node": "n1", "stream": "live/show", "stream_id": stream_id, **row} for row in rows]
    unit = Unit("n1", stream_id, None)
    lake.replace_units(table, pa.Table.from_pylist(whole, schema=lake.arrow_schema(table)), [file_of(unit)])


def run(lake: Lake, now_ms: int = T0, retention: Retention | None = None) -> compaction.Compacted:
    return compact(lake, retention or Retention(), now_ms=now_ms, quiet_s=-1e12)


def test_small_parts_of_a_source_become_one_and_every_row_is_there_once(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        for number in range(10):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(3, 3 * number))
            add_events(lake, f"stream-q2-events-{number:09d}", *plays(1, 100 + number))
        add_events(lake, f"{SOURCE}{10:09d}", *plays(1, 50), is_built=False)
        before = seqs(tmp_path)
        done = run(lake)
        assert seqs(tmp_path) == before
        parts = lake.parts("events")
        # The newest of a stream's parts tells it that its batch is done; what is not built yet is to be built.
        assert {part for part in parts if "-m" not in part} == {
            f"{SOURCE}{10:09d}",
            f"stream-q2-events-{9:09d}",
            f"{SOURCE}{9:09d}",
        }
        assert len(parts) == 5
        assert {part.rpartition("m")[0] for part in parts if "-m" in part} == {SOURCE, "stream-q2-events-"}
        assert (lake.untold(), lake.pending()) == ([f"{SOURCE}{10:09d}"], {"events": [], "tags": []})
        assert (done.rows_dropped, done.files_before - done.files_after) == (0, 16)
        names = set(parts)
        run(lake)
        assert set(lake.parts("events")) == names, "nothing to do any more"
    with open_lake(tmp_path, "a test") as lake:
        assert lake.untold() == [f"{SOURCE}{10:09d}"]


def test_batches_go_on_counting_behind_those_that_were_merged(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        for number in (1, 2, 7):
            add_events(lake, f"batch-{number:06d}-0", *plays(1, number))
        add_events(lake, "batch-000007-0-0001", *plays(1, 70))  # an archive in pieces
        run(lake)
        assert len(lake.parts("events")) == 1
        assert _next_part(lake) == "batch-000008"
        add_events(lake, "batch-000008-0", *plays(1, 8))
        run(lake)
        assert len(lake.parts("events")) == 1
        assert _next_part(lake) == "batch-000009"
        assert seqs(tmp_path) == [1, 2, 7, 8, 70]


def test_parts_of_the_last_hour_stay_as_they_are(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        for number in range(4):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(1, number))
        for number in range(2):
            os.utime(folder(lake, "events") / f"{SOURCE}{number:09d}", (T0 / 1000 - 4000, T0 / 1000 - 4000))
        for number in (2, 3):
            os.utime(folder(lake, "events") / f"{SOURCE}{number:09d}", (T0 / 1000 - 60, T0 / 1000 - 60))
        compact(lake, Retention(), now_ms=T0)
        assert len(lake.parts("events")) == 3
        assert f"{SOURCE}{2:09d}" in lake.parts("events")


def test_large_parts_are_left_alone_and_merged_ones_have_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MERGED_ROWS", 10)
    with open_lake(tmp_path, "a test") as lake:
        add_events(lake, f"{SOURCE}{0:09d}", *plays(7))
        for number in range(1, 8):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(3, 10 * number))
        before = seqs(tmp_path)
        run(lake)
        assert seqs(tmp_path) == before
        assert f"{SOURCE}{0:09d}" in lake.parts("events")
        assert len(lake.parts("events")) == 4, "the large one, 9 rows, 9 rows, the newest"


def test_whoever_keeps_parts_in_memory_sees_the_same_rows_after_a_merge(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        opened = event("recording_opened", 0, 99, stream_id="a", path="/r/a.flv")
        add_events(lake, f"{SOURCE}{0:09d}", *plays(2, stream_id="a"), opened)
        add_events(lake, f"{SOURCE}{1:09d}", *plays(2, 2, stream_id="a"))
        add_events(lake, f"{SOURCE}{2:09d}", *plays(2, 4, stream_id="a"))
        events = EventParts(lake)
        before = sorted(events.rows(["a"])["seq"].to_pylist()), events.count(["a"]), events.opened().num_rows
        run(lake)
        assert (sorted(events.rows(["a"])["seq"].to_pylist()), events.count(["a"]), events.opened().num_rows) == before
        assert before == ([0, 1, 2, 3, 4, 5, 99], 7, 1)


def test_a_reader_never_sees_a_row_twice(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        stop, counts, errors = threading.Event(), set[int](), list[BaseException]()

        def read_on() -> None:
            while not stop.is_set():
                try:
                    counts.add(ds.dataset(tmp_path / "bronze" / "events", format="parquet").count_rows())
                except FileNotFoundError:
                    continue  # listed, then gone: whoever reads again sees the rows in their new place
                except BaseException as error:
                    errors.append(error)
                    return

        for number in range(8):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(5, 5 * number))
        reader = threading.Thread(target=read_on)
        reader.start()
        for merge in range(10):
            run(lake)
            # The same rows in other parts: as many as before for whoever reads.
            lake.swap_parts(
                "events",
                lake.parts("events"),
                {
                    f"{SOURCE}{100 * merge + number:09d}": pa.Table.from_pylist(
                        plays(5, 5 * number), schema=lake.arrow_schema("events")
                    )
                    for number in range(8)
                },
            )
            lake.mark_told(lake.parts("events"))
            lake.mark_built({"events": lake.parts("events"), "tags": []})
        stop.set()
        reader.join(30)
        assert not errors
        # One that lists a directory before the exchange and what is in it behind, as pyarrow does, may miss some.
        assert max(counts) == 40
        assert ds.dataset(tmp_path / "bronze" / "events", format="parquet").count_rows() == 40


Crash = Callable[[pytest.MonkeyPatch], None]


class Killed(BaseException):
    """As if by kill -9: nothing in the job catches it, and nothing is cleaned up behind it."""


def killed_before_the_step(patch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise Killed

    patch.setattr("headrace.pipeline.stores.local.exchange", crash)


def killed_behind_the_step(patch: pytest.MonkeyPatch) -> None:
    real = exchanging.exchange

    def crash(*places: Path) -> None:
        real(*places)
        raise Killed

    patch.setattr("headrace.pipeline.stores.local.exchange", crash)


def killed_between_two_steps(patch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOSYS, "not here")

    real = Path.rename

    def crash(self: Path, target: Path) -> Path:
        if "_aside" not in str(target) and "_aside" not in str(self) and "_tmp" in str(self):
            raise Killed
        return real(self, target)

    patch.setattr(exchanging, "_swap", unknown)
    patch.setattr(Path, "rename", crash)


@pytest.mark.parametrize("crash", [killed_before_the_step, killed_behind_the_step, killed_between_two_steps])
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: Crash
) -> None:
    with open_lake(tmp_path, "a test") as lake:
        for number in range(5):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(2, 2 * number))
        put_unit(lake, "sessions", "old", {"kind": "publish"})
    before = all_tables(tmp_path)
    with open_lake(tmp_path, "a test") as lake, monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        crash(patch)
        with pytest.raises(Killed):
            run(lake)
        patch.undo()
        crash_left = {path.name for path in (tmp_path / "_tmp").iterdir()}
        assert crash_left
    with open_lake(tmp_path, "a test") as lake:
        assert all_tables(tmp_path) == before
        lake.mark_told(lake.parts("events"))
        lake.mark_built({"events": lake.parts("events"), "tags": []})
        run(lake)
        assert all_tables(tmp_path) == before
        assert len(lake.parts("events")) == 2
        assert not (tmp_path / "_aside").exists()


def test_where_the_system_cannot_exchange_it_takes_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.EINVAL, "not on this file system")

    monkeypatch.setattr(exchanging, "_swap", unknown)
    with open_lake(tmp_path, "a test") as lake:
        for number in range(5):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(2, 2 * number))
        run(lake)
        assert seqs(tmp_path) == list(range(10))
        assert len(lake.parts("events")) == 2


def lake_of_two_streams(lake: Lake) -> None:
    """One whose last event is 20 days old, one of today; events of no stream, and refused names, of both days."""
    for stream_id, at_ms, number in (("old", -20 * DAY_MS, 0), ("new", 0, 1)):
        path = f"/r/{stream_id}.flv"
        add_events(
            lake,
            f"{SOURCE}{number:09d}",
            event("recording_opened", at_ms, 10 * number, stream_id=stream_id, path=path),
            event("stream_ended", at_ms + 5000, 10 * number + 1, stream_id=stream_id),
            event("connection_opened", at_ms, 10 * number + 2, stream_id=None, stream=None),
            event("play_refused", at_ms, 10 * number + 3, stream_id=None, stream="live/none"),
        )
        add_tags(lake, f"stream-q1-tags-{number:09d}", path, range(5))
        put_unit(lake, "sessions", stream_id, {"kind": "publish"})
        put_unit(lake, "gops", stream_id, {"path": path, "byte_offset": 0})
    add_events(lake, f"{SOURCE}{2:09d}", *plays(1, 100, stream_id="new"))
    add_tags(lake, f"stream-q1-tags-{2:09d}", "/r/new.flv", range(5, 6))


def test_what_a_stream_was_built_from_goes_after_its_time_and_what_was_built_stays(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        lake_of_two_streams(lake)
        done = run(lake)
        assert done.streams_settled == 1
        kept = ds.dataset(tmp_path / "bronze" / "events", format="parquet").to_table().to_pylist()
        assert sorted(row["seq"] for row in kept) == [3, 10, 11, 12, 13, 100], "a refused name is kept longer"
        tags = ds.dataset(tmp_path / "bronze" / "tags", format="parquet").to_table().to_pylist()
        assert {row["path"] for row in tags} == {"/r/new.flv"}
        assert len(tags) == 6
        assert [row["stream_id"] for row in rows(tmp_path, "sessions")] == ["new", "old"]
        assert [row["stream_id"] for row in rows(tmp_path, "gops")] == ["new"]
        files = {path.name for path in folder(lake, "sessions").glob("*.parquet")} - {"schema.parquet"}
        assert files == {f"{file_of(Unit('n1', 'new', None))}.parquet", *(f for f in files if f.startswith(SETTLED))}
        assert len(files) == 2
        # Late news of it build nothing anew: there is nothing to build it from.
        units = {Unit("n1", "old", None), Unit("n1", "new", None)}
        assert build._unsettled(lake, units) == {Unit("n1", "new", None)}
        before = all_tables(tmp_path)
        assert run(lake).rows_dropped == 0
        assert all_tables(tmp_path) == before
    with open_lake(tmp_path, "a test") as lake:
        assert build._unsettled(lake, units) == {Unit("n1", "new", None)}
        # Half a year later the other one is settled too, and goes into one file with the first.
        run(lake, T0 + 180 * DAY_MS)
        (file,) = (path for path in folder(lake, "sessions").glob("*.parquet") if path.name != "schema.parquet")
        assert file.name.startswith(SETTLED)
        assert [row["stream_id"] for row in rows(tmp_path, "sessions")] == ["new", "old"]
        assert rows(tmp_path, "tags") == []
        # And when its longest time is over, nothing is left.
        run(lake, T0 + 440 * DAY_MS)
        assert [row["stream_id"] for row in rows(tmp_path, "sessions")] == ["new"]
        run(lake, T0 + 500 * DAY_MS)
        assert all_tables(tmp_path) == {name: [] for name in TABLES}
        assert lake.settled() == {}


def rows(lake_dir: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ds.dataset(lake_dir / TABLES[table].layer / table, format="parquet").to_table().to_pylist()
    )
    return sorted(found, key=lambda row: str(row.get("stream_id")))


@pytest.mark.parametrize(
    ("age_ms", "left"),
    [
        (2 * HOUR_MS, [1, 10, 60, 300, 3600]),
        (4 * HOUR_MS, [60, 300, 3600]),
        (16 * DAY_MS, [300, 3600]),
        (64 * DAY_MS, [3600]),
        (456 * DAY_MS, []),
    ],
)
@pytest.mark.parametrize("clock", ["wall", "media"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_windows_go_when_their_tiers_time_is_over(
    tmp_path: Path, age_ms: int, left: list[int], clock: str, is_settled: bool
) -> None:
    sizes = (1, 10, 60, 300, 3600)
    with open_lake(tmp_path, "a test") as lake:
        made = [{"clock": "wall", "window_s": size, "start_ms": T0} for size in sizes]
        if clock == "media":
            made += [{"clock": "media", "window_s": size, "start_ms": 0} for size in sizes]
        put_unit(lake, "stream_windows", "s", *made)
        if is_settled:
            lake.settle({file_of(Unit("n1", "s", None)): T0})
        for path in folder(lake, "stream_windows").glob("*.parquet"):
            os.utime(path, (T0 / 1000, T0 / 1000))
        run(lake, T0 + age_ms)
        found = [row["window_s"] for row in rows(tmp_path, "stream_windows") if row["clock"] == clock]
        assert sorted(found) == left


def test_windows_of_a_live_stream_are_left_to_those_who_build_them(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        put_unit(lake, "stream_windows", "s", {"clock": "wall", "window_s": 1, "start_ms": T0})
        (path,) = (one for one in folder(lake, "stream_windows").glob("*.parquet") if one.name != "schema.parquet")
        now_ms = T0 + 5 * HOUR_MS
        os.utime(path, (now_ms / 1000 - 5, now_ms / 1000 - 5))
        run(lake, now_ms)
        assert len(rows(tmp_path, "stream_windows")) == 1
        (seen,) = (one for one in lake.files("stream_windows") if one.name == path.name)
        os.utime(path, (T0 / 1000, T0 / 1000))
        assert not lake.replace_unchanged("stream_windows", seen, lake.arrow_schema("stream_windows").empty_table())
        assert len(rows(tmp_path, "stream_windows")) == 1


def test_a_new_column_leaves_what_is_settled(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        lake_of_two_streams(lake)
        run(lake)
    known = json.loads((tmp_path / "_lake.json").read_text())
    del known["tables"]["sessions"]["kind"]
    (tmp_path / "_lake.json").write_text(json.dumps(known))
    with open_lake(tmp_path, "a test") as lake:
        assert [row["stream_id"] for row in rows(tmp_path, "sessions")] == ["old"]
        assert lake.untold() == lake.parts("events")


def test_a_job_that_runs_is_asked_and_answers(tmp_path: Path) -> None:
    said: list[str] = []
    heard: list[str] = []
    stop = threading.Event()
    with open_lake(tmp_path, "headrace pipeline run") as lake:
        for number in range(5):
            add_events(lake, f"{SOURCE}{number:09d}", *plays(2, 2 * number))
            os.utime(folder(lake, "events") / f"{SOURCE}{number:09d}", (1, 1))
        keeper = Housekeeping(lake, Retention(), None, said.append, stop)
        # What is to be kept comes with the question.
        day = Retention({**Retention().tiers_ms}, bronze_ms=10**15)
        housekeeping.run(Request(tmp_path, day, deadline_s=60), heard.append)
        assert heard[0] == f"asked process {os.getpid()}, which has the lake"
        assert heard[1].startswith("compacted files=")
        assert said == heard[1:]
        assert len(lake.parts("events")) == 2
        assert seqs(tmp_path) == list(range(10))
        stop.set()
        keeper.join(30)


def test_a_job_compacts_by_itself_every_so_often(tmp_path: Path) -> None:
    said: list[str] = []
    stop = threading.Event()
    with open_lake(tmp_path, "headrace pipeline run") as lake:
        keeper = Housekeeping(lake, Retention(), 0.01, said.append, stop)
        eventually(lambda: len(said) >= 2, "two compactions", deadline_s=60)
        stop.set()
        keeper.join(30)


def test_nobody_who_answers_and_no_lake_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_lake(tmp_path, "headrace pipeline run"):
        with pytest.raises(PipelineError, match="did not answer"):
            housekeeping.run(Request(tmp_path, Retention(), deadline_s=0.1), lambda line: None)
        assert not (tmp_path / "_compact.json").exists()
    with open_lake(tmp_path, "headrace pipeline batch"):
        assert cli.main(["pipeline", "compact", "--lake", str(tmp_path)]) == 1
        assert "in use by headrace pipeline batch" in capsys.readouterr().err
    assert cli.main(["pipeline", "compact", "--lake", str(tmp_path)]) == 0
    assert "compacted files=" in capsys.readouterr().out
    assert cli.main(["pipeline", "compact", "--lake", str(tmp_path / "none")]) == 1
    assert "there is no lake at" in capsys.readouterr().err
    assert cli.main(["pipeline", "compact", "--keep", "1s=3h"]) == 2
    assert cli.main(["pipeline", "run", "--compact-every", "often"]) == 2
