"""`headrace query` and `headrace report` of lakes elsewhere: they say what they say of the same lake on a disk."""

from __future__ import annotations

import _thread
import importlib.util
import itertools
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import cli
from headrace.pipeline import fetched as module
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.fetched import fetched
from headrace.pipeline.query.lake import PAUSE_S
from headrace.pipeline.stores.local import LocalStore
from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually
from tests.pipeline.object_store import KEY, SECRET
from tests.pipeline.query import night
from tests.pipeline.report.lakes import troubled
from tests.pipeline.report.lakes import write_lake as write_report_lake
from tests.pipeline.stores.places import REMOTE, Place, place_of

QUERIES = [
    [],  # the tables and their columns
    ["select * from stream_health order by stream, started_at"],
    ["select s.viewer, i.kind from incidents i join Sessions s on s.stream_id = i.stream_id order by all"],
    ["select count(*) from events"],
    ["show tables"],
    ["select table_name, column_name, data_type from information_schema.columns order by all"],
    ["select 1 as one"],
    ["select totl_bps from stream_health"],
    ["select * from stream_helth"],
    ["drop table audience"],
]
REPORTS = [
    [],
    ["--list"],
    ["live/show", "--format", "json"],
    ["2026-11-16", "--format", "json"],
    ["--format", "html", "--output", "-"],
    ["live/zzz"],
]


@pytest.fixture(scope="module")
def night_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return night.write_lake(tmp_path_factory.mktemp("night") / "lake")


@pytest.fixture(scope="module", params=REMOTE)
def night_place(request: pytest.FixtureRequest, night_lake: Path) -> Place:
    """The same lake elsewhere, for tests that change nothing there."""
    found = place_of(request.param, request, night_lake)
    found.upload(night_lake)
    return found


@pytest.fixture(params=REMOTE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, request, tmp_path)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where copies are made, and nothing is left of them."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert not list(folder.iterdir())


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main([*words])
    found = capsys.readouterr()
    return status, found.out, found.err


def files_in(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def copied(place: Place, *tables: str, pause: Callable[[float], None] = lambda seconds: None) -> dict[str, bytes]:
    with fetched(place.address, tables.__contains__, pause=pause) as root:
        return {name: (root / name).read_bytes() for name in files_in(root)}


# --- the same answers


def test_a_query_has_the_same_answer_as_on_a_disk(
    night_place: Place, night_lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in QUERIES:
        on_disk = said(capsys, "query", *words, "--lake", str(night_lake), "--format", "json")
        assert said(capsys, "query", *words, "--lake", night_place.address, "--format", "json") == on_disk


def test_a_report_is_the_same_as_on_a_disk(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = write_report_lake(tmp_path / "on disk", troubled())
    place.upload(lake)
    for words in REPORTS:
        status, out, err = said(capsys, "report", *words, "--lake", str(lake))
        expected = (status, out, err.replace(str(lake), place.store().address))
        assert said(capsys, "report", *words, "--lake", place.address) == expected


def test_s3_is_another_name_of_s3a(
    object_store: None, request: pytest.FixtureRequest, night_lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = place_of("s3", request, night_lake)
    place.upload(night_lake)
    address = place.address.replace("s3a://", "s3://")
    assert said(capsys, "query", "select count(*) as n from audience", "--lake", address) == (0, "n\r\n3\r\n", "")


# --- what is copied


def test_only_the_tables_that_are_wanted_are_copied(night_place: Place, night_lake: Path) -> None:
    lake_files = {name for name in files_in(night_lake) if name.startswith(("bronze/events/", "gold/audience/"))}
    found = copied(night_place, "events", "audience")
    assert found.keys() == {"_lake.json"} | {name for name in lake_files if name.endswith(".parquet")}
    for name in found.keys() - {"_lake.json"}:
        assert found[name] == (night_lake / name).read_bytes()
    with fetched(night_place.address, lambda table: False) as root:
        assert files_in(root) == {"_lake.json"}
        assert (root / "gold" / "audience").is_dir()


def test_a_lake_on_a_disk_is_its_own(tmp_path: Path) -> None:
    with fetched(tmp_path / "lake", lambda table: True) as root:
        assert root == tmp_path / "lake"


def test_too_much_is_refused_and_the_way_around_told(
    night_place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 5000)
    address = re.escape(night_place.store().address)
    for words, instead in (
        (["query", "select * from sessions, incidents"], ": --master reads the tables where they lie"),
        (["report"], ""),
    ):
        status, out, err = said(capsys, *words, "--lake", night_place.address)
        assert (status, out) == (1, "")
        expected = (
            rf"headrace {words[0]}: [\d.]+ kB of the lake {address} would be copied here, expected at most 5.0 kB"
        )
        assert re.fullmatch(f"{expected}{instead}\n", err)
    assert said(capsys, "query", "select 1 as one", "--lake", night_place.address)[0] == 0


def test_a_disk_without_room_is_told(night_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(PipelineError, match=r"temporary has room for 0 B, expected about [\d.]+ kB"):
        copied(night_place, "audience")


# --- beside a job


def test_what_a_job_takes_away_before_it_is_copied_makes_another_look(place: Place, night_lake: Path) -> None:
    place.upload(night_lake)
    store = place.store()
    rows = store.dataset("silver/sessions", pq.read_schema(night_lake / "silver" / "sessions" / "schema.parquet"))
    own = [file.name for file in store.entries("silver/sessions") if file.name != "schema.parquet"]
    pauses: list[float] = []

    def is_wanted(table: str) -> bool:
        if table == "audience" and not pauses:  # of gold, so silver is listed by now
            store.put_file(rows.to_table(), "silver/sessions/settled-1.parquet")
            for name in own:
                store.delete(f"silver/sessions/{name}")
        return table == "sessions"

    with fetched(place.address, is_wanted, pause=pauses.append) as root:
        found = files_in(root / "silver" / "sessions")
    assert own
    assert found == {"schema.parquet", "settled-1.parquet"}, "the rows of no stream twice"
    assert pauses == [PAUSE_S]


def test_a_table_that_does_not_come_back_is_told(place: Place, night_lake: Path) -> None:
    place.upload(night_lake)
    place.store().delete_directory("silver/sessions")
    pauses: list[float] = []
    with pytest.raises(PipelineError, match=r"cannot be read: sessions is not there, at 20 looks"):
        copied(place, "audience", pause=pauses.append)
    assert len(pauses) == 19


def test_a_file_that_is_replaced_all_the_time_is_copied_whole(place: Place, night_lake: Path) -> None:
    place.upload(night_lake)
    file = "gold/audience/live.parquet"
    states = [pa.table({"n": [*range(count)]}) for count in (10, 10_000)]
    place.store().put_file(states[0], file)
    is_over = threading.Event()

    def write() -> None:
        writer = place.store()
        for state in itertools.cycle(states):
            writer.put_file(state, file)
            if is_over.wait(0.05):
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(10):
            with fetched(place.address, "audience".__eq__) as root:
                assert pq.read_table(root / file) in states
    finally:
        is_over.set()
        thread.join(60)


# --- how it ends


def test_after_an_error_nothing_is_left_and_the_lake_is_meant(night_place: Place) -> None:
    for error in (KeyboardInterrupt(), ValueError()):
        with pytest.raises(type(error)), fetched(night_place.address, lambda table: False):
            raise error
    with (
        pytest.raises(PipelineError, match=f"^{re.escape(night_place.store().address)}/x cannot be read: y$"),
        fetched(night_place.address, lambda table: False) as root,
    ):
        raise PipelineError("TABLE_UNREADABLE", path=root / "x", reason="y")


def test_ctrl_c_while_a_long_file_is_copied_ends_it(night_lake: Path, temporary: Path) -> None:
    class Slow(LocalStore):
        def chunks(self, file: str) -> Iterator[bytes]:
            begun.set()
            while True:
                yield b"x"

    begun = threading.Event()
    copy = module._Copy(Slow(night_lake), temporary / "copy", lambda table: True, "")
    (temporary / "copy").mkdir()

    def interrupt() -> None:
        begun.wait()
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        copy.make(lambda seconds: None)
    thread.join()
    shutil.rmtree(temporary / "copy")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_ctrl_c_in_a_query_leaves_nothing(place: Place, night_lake: Path, temporary: Path) -> None:
    place.upload(night_lake)
    sql = "select count(*) from audience, range(1000000000000) a, range(1000000) b where hash(a.range, b.range) = 3"
    words = [sys.executable, "-m", "headrace", "query", sql, "--lake", place.address]
    source = {"PYTHONPATH": str(Path(cli.__file__).parents[1]), "TMPDIR": str(temporary)}
    with subprocess.Popen(words, env=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        eventually(lambda: list(temporary.glob("headrace-query-*")), "the query", deadline_s=60)
        started.send_signal(signal.SIGINT)
        assert (*started.communicate(timeout=60), started.returncode) == (b"", b"", 130)


# --- what cannot be


def test_no_lake_is_told_as_by_status(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    everybody_says_the_same(capsys, place.address, "there is no lake at")


def test_without_a_client_of_hdfs_the_same_is_told_as_by_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hdfs_native" else find(name))
    address = "hdfs://127.0.0.1:9/lake"
    said(capsys, "pipeline", "status", "--lake", address)  # pyarrow has other words for it when it is asked again
    everybody_says_the_same(capsys, address, "install headrace[hdfs]")


@pytest.mark.parametrize("address", ["ftp://user:the-key@host/lake", "s3a:///lake", "hdfs:///lake"])
def test_an_address_that_no_lake_can_have_is_told(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    everybody_says_the_same(capsys, address, "expected a directory, hdfs://host:port/path or s3a://bucket/path")


def test_a_store_that_does_not_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    where = f"endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    status, out, err = said(capsys, "query", "select 1", "--lake", f"s3a://{KEY}:{SECRET}@bucket/lake?{where}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("headrace query: this job cannot reach the lake s3a://bucket/lake: ")
    assert KEY not in err
    assert SECRET not in err


def test_a_name_node_that_does_not_answer_is_told_soon(capsys: pytest.CaptureFixture[str]) -> None:
    everybody_says_the_same(capsys, f"hdfs://127.0.0.1:{free_port()}/lake", "Connection refused")


def everybody_says_the_same(capsys: pytest.CaptureFixture[str], address: str, complaint: str) -> None:
    lines = {}
    for command in (["pipeline", "status"], ["query", "select 1"], ["query"], ["report"]):
        status, out, err = said(capsys, *command, "--lake", address)
        assert (status, out, err.count("\n")) == (1, "", 1)
        lines[" ".join(command)] = err.partition(": ")[2]
    assert complaint in lines["report"]
    assert len(set(lines.values())) == 1, lines
    for secret in (KEY, SECRET, "the-key"):
        assert secret not in lines["report"]


@pytest.mark.parametrize("note", ["{", "[]", '{"layout": 9, "tables": {}}', '{"layout": 1, "tables": 7}'])
@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_damaged_lake_is_told_by_its_address(place: Place, note: str, capsys: pytest.CaptureFixture[str]) -> None:
    filesystem, root = place.filesystem()
    with filesystem.open_output_stream(f"{root}/_lake.json") as file:
        file.write(note.encode())
    status, out, err = said(capsys, "query", "select 1", "--lake", place.address)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"headrace query: the lake {place.store().address} ")
