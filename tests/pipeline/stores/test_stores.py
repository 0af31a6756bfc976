"""What a lake relies on, wherever it lies: whole parts, files replaced in a step, one job at a time, crashes mended."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores import hdfs, lease, local, objects
from headrace.pipeline.stores.store import Note, Store
from tests.helpers.waiting import eventually
from tests.pipeline.stores.places import EVERYWHERE, HDFS, REMOTE, Fuse, Killed, Place, kill_at, place_of

SCHEMA = pa.schema([("n", pa.int64())])
TABLE = "bronze/numbers"


@pytest.fixture(params=EVERYWHERE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, request, tmp_path)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": list(values)}, schema=SCHEMA)


def prepared(place: Place) -> Store:
    store = place.store()
    with store.held("a test"):
        store.clean_up()
        store.make_directory(TABLE)
        store.put_file(numbers(), f"{TABLE}/schema.parquet")
    return store


def write_as_spark_does(store: Store, *values: int) -> str:
    """Several files and a mark, among what is temporary."""
    written = "_tmp/written"
    for number, value in enumerate(values):
        store.write_rows(numbers(value), f"{written}/part-{number:05d}-x.snappy.parquet")
    store.write_note(f"{written}/_SUCCESS", {})
    return written


def test_parts_are_there_whole_and_known_again_by_whoever_opens_it(place: Place) -> None:
    store = prepared(place)
    assert store.parts(TABLE) == []
    store.put_part(numbers(1, 2), TABLE, "b")
    store.move_part(write_as_spark_does(store, 3, 4, 5), TABLE, "a")
    for one in (store, place.store()):
        assert one.parts(TABLE) == ["a", "b"]
        assert (one.has_part(TABLE, "a"), one.has_part(TABLE, "c")) == (True, False)
        files = one.part_files(TABLE, "a")
        assert len(files) == 3
        assert sum(one.metadata(file).num_rows for file in files) == 3
        assert sorted(one.dataset(files, SCHEMA).to_table()["n"].to_pylist()) == [3, 4, 5]
        assert one.part_files(TABLE, "c") == []
        assert one.dataset(TABLE, SCHEMA).count_rows() == 5
    assert place.read(TABLE, "n") == [1, 2, 3, 4, 5]
    assert all(entry.name.endswith((".parquet", ".crc")) for entry in store.entries(TABLE, is_recursive=True))


def test_a_file_is_replaced_and_deleted(place: Place) -> None:
    store = prepared(place)
    store.put_file(numbers(1), f"{TABLE}/x.parquet")
    store.put_file(numbers(2, 3), f"{TABLE}/x.parquet")
    assert place.read(TABLE, "n") == [2, 3]
    store.write_rows(numbers(4), "_tmp/y/z.parquet")
    store.move_file("_tmp/y/z.parquet", f"{TABLE}/x.parquet")
    assert place.read(TABLE, "n") == [4]
    names = {entry.name: entry for entry in store.entries(TABLE)}
    assert set(names) == {"x.parquet", "schema.parquet"}
    assert names["x.parquet"] == store.entry(f"{TABLE}/x.parquet")
    assert not names["x.parquet"].is_directory
    assert names["x.parquet"].size_bytes > 0
    for _ in range(2):  # what is not there is deleted too
        store.delete(f"{TABLE}/x.parquet")
        assert place.read(TABLE, "n") == []
    assert store.entry(f"{TABLE}/x.parquet") is None
    with pytest.raises(FileNotFoundError):
        store.metadata(f"{TABLE}/x.parquet")


def test_notes_are_written_and_read(place: Place) -> None:
    store = prepared(place)
    assert store.read_note("_note.json") is None
    for note in ({}, {"é": [1]}):
        store.write_note("_note.json", note)
        assert store.read_note("_note.json") == note
    with pytest.raises(ValueError, match=r"codec can't decode|Expecting value"):
        store.read_note(f"{TABLE}/schema.parquet")
    assert [entry.name for entry in store.entries("nowhere")] == []


@pytest.mark.parametrize("place", REMOTE, indirect=True)
def test_a_note_is_read_whole_while_it_is_replaced(place: Place) -> None:
    store, notes, read = prepared(place), [{"a": "x" * 10}, {"b": "y" * 1000}], list[Note | None]()
    store.write_note("_note.json", notes[0])
    is_written = threading.Event()

    def write() -> None:
        writer = place.store()
        for _ in range(8):
            for note in notes:
                writer.write_note("_note.json", note)
        is_written.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not is_written.is_set():
        read.append(store.read_note("_note.json"))
    thread.join(60)
    assert all(note in notes for note in read)


def test_a_file_s_bytes_come_in_chunks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_chunks(monkeypatch)
    store = prepared(place)
    store.put_file(numbers(*range(1000)), f"{TABLE}/x.parquet")
    chunks = [*store.chunks(f"{TABLE}/x.parquet")]
    assert len(chunks) > 2
    assert pq.read_table(pa.BufferReader(b"".join(chunks)))["n"].to_pylist() == [*range(1000)]
    with pytest.raises(FileNotFoundError):
        next(iter(store.chunks(f"{TABLE}/y.parquet")))


@pytest.mark.parametrize("others", [1, 5000], ids=["shorter", "longer"])
def test_a_file_that_is_replaced_under_its_reader_is_the_old_one_or_an_error(
    place: Place, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_chunks(monkeypatch)
    store = prepared(place)
    store.put_file(numbers(*range(1000)), f"{TABLE}/x.parquet")
    reader = iter(store.chunks(f"{TABLE}/x.parquet"))
    read = [next(reader)]
    place.store().put_file(numbers(*range(others)), f"{TABLE}/x.parquet")
    if place.kind == "s3":
        with pytest.raises(OSError, match="replaced while it was read") as caught:
            read += reader
        assert caught.value.errno == errno.ESTALE
        return
    read += reader
    assert pq.read_table(pa.BufferReader(b"".join(read))).num_rows == 1000


def shorten_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (local, hdfs, objects):
        monkeypatch.setattr(kind, "CHUNK_BYTES", 1000)


def test_what_is_temporary_is_gone_afterwards(place: Place) -> None:
    store = prepared(place)
    with store.temporary() as name:
        store.write_rows(numbers(1), f"{name}/x.parquet")
        assert store.entry(f"{name}/x.parquet") is not None
    assert store.entries(name) == []
    with store.held("a test"):
        directory = store.working_directory("slots")
        (directory / "x").write_text("x")
        assert store.working_directory("slots") == directory
        store.write_rows(numbers(1), "_tmp/left/x.parquet")
        store.clean_up()
    assert store.entries("_tmp/left") == []
    assert place.kind == "local" or not directory.exists()


def at_every_step(place: Place, work: Callable[[Store], None], check: Callable[[], None]) -> int:
    """Kill before each step that changes something, look, reopen, look again; how many steps there were."""
    for step in range(100):
        fuse = Fuse(step)
        store = place.store()
        with pytest.MonkeyPatch.context() as patch:
            kill_at(store, fuse, patch)
            try:
                work(store)
            except Killed:
                assert fuse.is_blown
        check()
        if not fuse.is_blown:
            return step
    raise AssertionError("no end of steps")


def test_a_crash_at_any_step_leaves_a_part_or_none_of_it(place: Place) -> None:
    prepared(place).put_part(numbers(0), TABLE, "before")

    def work(store: Store) -> None:
        written = write_as_spark_does(store, 1, 2)
        store.move_part(written, TABLE, "part")
        store.delete_directory(written)

    def check() -> None:
        seen = place.read(TABLE, "n")
        assert len(set(seen)) == len(seen), "never a row twice, even before anybody has opened it again"
        store = place.store()
        store.clean_up()
        if not store.has_part(TABLE, "part"):
            assert place.read(TABLE, "n") == [0]
            work(store)  # the batch is done again
        assert place.read(TABLE, "n") == [0, 1, 2]
        store.delete_directory(f"{TABLE}/part")

    assert at_every_step(place, work, check) >= 2


def test_a_crash_at_any_step_leaves_the_old_file_or_the_new_one(place: Place) -> None:
    store = prepared(place)
    store.put_file(numbers(0), f"{TABLE}/x.parquet")

    def work(store: Store) -> None:
        store.put_file(numbers(1), f"{TABLE}/x.parquet")

    def check() -> None:
        assert place.read(TABLE, "n") in ([0], [1])
        place.store().clean_up()
        assert place.read(TABLE, "n") in ([0], [1])

    assert at_every_step(place, work, check) >= 1
    assert place.read(TABLE, "n") == [1]


@pytest.mark.parametrize("place", ["local", HDFS], indirect=True)
def test_a_crash_at_any_step_of_a_merge_loses_and_doubles_nothing(place: Place) -> None:
    store = prepared(place)
    everything = [1, 2, 3]
    for number in everything:
        store.put_part(numbers(number), TABLE, f"p{number}")

    def work(store: Store) -> None:
        with store.temporary() as fresh:
            store.write_rows(numbers(1, 2), f"{fresh}/merged/few.parquet")
            store.swap(TABLE, ["p1", "p2"], fresh)

    def check() -> None:
        try:
            assert place.read(TABLE, "n") == everything
        except FileNotFoundError:
            assert place.kind == "hdfs", "there the table is put aside meanwhile"
        store = place.store()
        store.clean_up()
        assert place.read(TABLE, "n") == everything
        assert store.entries("_aside") == []
        if store.parts(TABLE) == ["merged", "p3"]:  # the whole way back, for the next one
            for number in (1, 2):
                store.write_rows(numbers(number), f"_tmp/back/p{number}/few.parquet")
            store.swap(TABLE, ["merged"], "_tmp/back")
        assert store.parts(TABLE) == ["p1", "p2", "p3"]

    assert at_every_step(place, work, check) >= 5


def test_in_an_object_store_nothing_is_merged(object_store: object, request: pytest.FixtureRequest) -> None:
    place = place_of("s3", request, Path())
    store = prepared(place)
    assert not store.can_swap
    store.put_part(numbers(1), TABLE, "p1")
    with pytest.raises(PipelineError, match="object store, where small files cannot be merged"):
        store.swap(TABLE, ["p1"], "_tmp/fresh")
    assert place.read(TABLE, "n") == [1]


def test_a_file_that_somebody_has_written_since_is_not_replaced(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = place_of("local", request, tmp_path)
    check_unchanged(prepared(place), place)


@pytest.mark.xdist_group("spark")
def test_nor_is_it_on_hdfs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = place_of("hdfs", request, tmp_path)
    check_unchanged(prepared(place), place)


def check_unchanged(store: Store, place: Place) -> None:
    file = f"{TABLE}/x.parquet"
    store.put_file(numbers(1), file)
    seen = store.entry(file)
    assert seen is not None
    store.write_rows(numbers(), "_tmp/a/x.parquet")
    assert store.move_unchanged("_tmp/a/x.parquet", file, seen)
    thinned = store.entry(file)
    assert thinned is not None
    assert thinned.changed_s == seen.changed_s, "it is as old as it was"
    store.put_file(numbers(2, 3), file)
    store.write_rows(numbers(), "_tmp/b/x.parquet")
    assert not store.move_unchanged("_tmp/b/x.parquet", file, thinned)
    assert place.read(TABLE, "n") == [2, 3]


def test_what_is_too_long_for_one_copy_goes_through_this_machine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_MAX_COPY_BYTES", 10)
    place = place_of("s3", request, Path())
    store = prepared(place)
    store.move_part(write_as_spark_does(store, 1, 2), TABLE, "part")
    assert place.read(TABLE, "n") == [1, 2]


# Who uses it --------------------------------------------------------------------------------------------------------


def test_a_second_job_is_refused_and_told_who_has_it(place: Place) -> None:
    with place.store().held("headrace pipeline run"):
        with pytest.raises(PipelineError, match=r"in use by headrace pipeline run, process \d+") as refused:
            place.store().held("another").__enter__()
        assert refused.value.condition == "LAKE_BUSY"
        assert place.store().is_held_by(int(str(refused.value.parameters["holder"]).split()[4]))
    with place.store().held("the next"):
        pass


@pytest.mark.parametrize("place", REMOTE, indirect=True)
def test_of_many_who_ask_at_once_one_has_it(place: Place) -> None:
    prepared(place)
    having, refused, most = 0, list[str](), [0]
    lock, all_done = threading.Lock(), threading.Barrier(4)

    def ask() -> None:
        nonlocal having
        try:
            with place.store().held("one of many"):
                with lock:
                    having += 1
                    most[0] = max(most[0], having)
                all_done.wait(100)
                with lock:
                    having -= 1
        except PipelineError as error:
            with lock:
                refused.append(error.condition)
            all_done.wait(100)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert most[0] <= 1
    assert set(refused) == {"LAKE_BUSY"}
    assert len(refused) >= 3


@pytest.mark.parametrize("place", REMOTE, indirect=True)
def test_a_job_that_died_is_taken_over_when_it_is_silent_for_long(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_EVERY_S", 1000.0)
    dead = place.store().held("headrace pipeline run")
    dead.__enter__()
    with pytest.raises(PipelineError, match="in use by headrace pipeline run"):
        place.store().held("the next").__enter__()
    monkeypatch.setattr(lease, "TAKEN_OVER_S", 2.0)

    def is_taken() -> bool:
        try:
            with place.store().held("the next"):
                return True
        except PipelineError:
            return False

    eventually(is_taken, "the lake", deadline_s=60)


@pytest.mark.parametrize("place", REMOTE, indirect=True)
def test_a_job_that_was_silent_too_long_writes_nothing_any_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(place)
    store = place.store()
    with store.held("a job that slept"):
        store.put_part(numbers(1), TABLE, "p1")
        written = write_as_spark_does(store, 2)
        monkeypatch.setattr(lease, "LOST_S", -1.0)
        writes: list[Callable[[], object]] = [
            lambda: store.put_part(numbers(2), TABLE, "p2"),
            lambda: store.move_part(written, TABLE, "p3"),
            lambda: store.put_file(numbers(2), f"{TABLE}/x.parquet"),
            lambda: store.move_file(f"{written}/part-00000-x.snappy.parquet", f"{TABLE}/x.parquet"),
            lambda: store.write_note("_note.json", {}),
            lambda: store.delete(f"{TABLE}/schema.parquet"),
        ]
        for write in writes:
            with pytest.raises(PipelineError, match="another job may have it by now"):
                write()
        store.clean_up()
        assert store.entries("_tmp"), "what is temporary may be another one's by now"
    assert place.read(TABLE, "n") == [1]


def test_nobody_there_is_one_line_without_a_key() -> None:
    for address in ("hdfs://127.0.0.1:9/lake", "s3a://key:hidden@bucket/lake?endpoint_override=127.0.0.1:9&region=x"):
        with pytest.raises(PipelineError) as refused:
            Place("", address).store().held("a test").__enter__()
        assert refused.value.condition == "LAKE_NOT_REACHED"
        assert "\n" not in str(refused.value)
        assert "hidden" not in str(refused.value)
        assert address.partition("?")[0].replace("key:hidden@", "") in str(refused.value)


@pytest.mark.xdist_group("spark")
def test_what_a_name_node_refuses_is_one_line(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = prepared(place_of("hdfs", request, tmp_path))
    with pytest.raises(OSError, match=r"^[^\n]*file[^\n]*$|^[^\n]*not a directory[^\n]*$") as refused:
        store.write_note(f"{TABLE}/schema.parquet/below", {"a file": "is no directory"})
    assert "\tat " not in str(refused.value)
    assert "RPCError" not in str(refused.value)
