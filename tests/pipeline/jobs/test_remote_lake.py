"""A lake elsewhere: the same tables, the same notes, and one line for what cannot be done there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from headrace import cli
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs import batch, status, streaming
from headrace.pipeline.jobs.board import Board
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.jobs.times import Range
from headrace.pipeline.layout import Unit, file_of
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import some_stream, write_events
from tests.pipeline.object_store import KEY, SECRET
from tests.pipeline.stores.places import HDFS, REMOTE, Place, place_of
from tests.pipeline.tables.rows import T0, event


@pytest.fixture(params=REMOTE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, request, tmp_path)


def add_plays(lake: Lake, part: str, *seqs: int) -> None:
    rows = [event("play_started", seq, seq) for seq in seqs]
    lake.add_part("events", part, pa.Table.from_pylist(rows, schema=lake.arrow_schema("events")))


def sessions(lake: Lake, *stream_ids: str) -> pa.Table:
    rows = [{"node": "n1", "stream": "live/show", "stream_id": stream_id} for stream_id in stream_ids]
    return pa.Table.from_pylist(rows, schema=lake.arrow_schema("sessions"))


def events_schema() -> pa.Schema:
    return to_arrow_schema(TABLES["events"].schema, timezone="UTC")


def seqs(place: Place) -> list[int]:
    return place.read("bronze/events", "seq")


def test_rows_and_notes_are_there_for_whoever_opens_it_next(place: Place) -> None:
    with open_lake(place.address, "a test") as lake:
        assert {name: place.rows(name) for name in TABLES} == {name: [] for name in TABLES}
        assert lake.pending() == {"events": [], "tags": []}
        add_plays(lake, "p1", 1, 2)
        add_plays(lake, "p1", 1, 2)  # a batch that is done again
        add_plays(lake, "p2", 3)
        assert lake.untold() == ["p1", "p2"]
        lake.mark_told(["p1"])
        assert (lake.event_span("p1"), lake.newest_event_ms(["p1", "p2"])) == ((T0 + 1, T0 + 2), T0 + 3)
        units = [file_of(Unit("n1", stream_id, None)) for stream_id in ("a", "b")]
        lake.replace_units("sessions", sessions(lake, "a", "b"), units)
        lake.replace_units("sessions", sessions(lake, "b"), units)
    assert seqs(place) == [1, 2, 3]
    assert place.read("silver/sessions", "stream_id") == ["b"]
    with open_lake(place.address, "the next") as lake:
        assert (lake.untold(), lake.pending()["events"]) == (["p2"], ["p1"])
        assert lake.dataset("events", ["p2"]).count_rows() == 1
        assert lake.has_part("events", "p1")


@pytest.mark.parametrize("place", [HDFS], indirect=True)
def test_small_parts_are_merged_on_hdfs(place: Place) -> None:
    with open_lake(place.address, "a test") as lake:
        for number in range(4):
            add_plays(lake, f"stream-q1-events-{number:09d}", 2 * number, 2 * number + 1)
        lake.mark_told(lake.parts("events"))
        lake.mark_built({"events": lake.parts("events"), "tags": []})
        lake.replace_units("sessions", sessions(lake, "a"), [])
        done = compact(lake, Retention(bronze_ms=10**15), now_ms=T0, quiet_s=-1e12)
        assert done.files_before - done.files_after == 2
        assert len(lake.parts("events")) == 2
        assert (lake.untold(), lake.pending()["events"]) == ([], [])
        assert seqs(place) == list(range(8))
        # What is older than its time goes, and what was built of it stays.
        now_ms = max(T0, round(time.time() * 1000)) + 20 * 86_400_000
        done = compact(lake, Retention(), now_ms=now_ms, quiet_s=-1e12)
        assert done.streams_settled == 1
        assert (seqs(place), place.read("silver/sessions", "stream_id")) == ([], ["a"])


def test_the_commands_know_such_a_lake(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        code = cli.main(["pipeline", *words, "--lake", place.address])
        told = capsys.readouterr()
        assert (KEY in told.out + told.err, SECRET in told.out + told.err) == (False, False)
        assert code == (0 if not told.err else 1)
        return told.err or told.out

    shown = place.store().address
    assert f"there is no lake at {shown}: `headrace pipeline run`" in said("status")
    with open_lake(place.address, "headrace pipeline batch") as lake:
        add_plays(lake, "p1", 1, 2)
        Board(lake.store, "batch")
        assert "in use by headrace pipeline batch, process" in said("batch")
        report = status.look(place.address)
        assert report.is_running
    told = json.loads(said("status", "--format", "json"))
    assert told["lake"] == shown
    rows = {table["table"]: (table["rows"], table["files"]) for table in told["tables"]}
    assert rows["events"] == (2, 2)
    assert rows.keys() == TABLES.keys()
    if place.kind == "s3":
        assert f"the lake {shown} lies in an object store, where small files cannot be merged" in said("compact")
    else:
        assert "compacted files=" in said("compact")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_lake_of_another_version_is_refused_there_too(place: Place) -> None:
    with open_lake(place.address, "a test") as lake:
        lake.store.write_note("_lake.json", {**(lake.store.read_note("_lake.json") or {}), "events": 0})
    with pytest.raises(PipelineError, match="event schema version 0, expected 1") as refused:
        open_lake(place.address, "a test").__enter__()
    assert SECRET not in str(refused.value)
    with pytest.raises(PipelineError, match="event schema version 0"):
        open_lake(place.address, "who was refused has not kept it").__enter__()


# With Spark ---------------------------------------------------------------------------------------------------------


def tables(place: Place) -> dict[str, list[str]]:
    return {
        table: sorted(json.dumps(row, default=str, sort_keys=True) for row in place.rows(table)) for table in TABLES
    }


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_executors_write_parts_and_streams_files_on_hdfs(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = place_of("hdfs", request, tmp_path)
    rows = pa.Table.from_pylist([event("play_started", seq, seq) for seq in range(5)], schema=events_schema())
    with open_lake(place.address, "a test") as lake:
        lake.connect_spark(spark)
        played = spark.createDataFrame(rows).repartition(2)
        assert lake.add_part("events", "p1", played) == 5
        assert lake.add_part("events", "p1", played) == 0, "a batch that is done again"
        assert lake.add_part("events", "p2", played.where("seq > 99")) == 0
        assert lake.parts("events") == ["p1"]
        assert sorted(row.seq for row in lake.read(spark, "events").collect()) == list(range(5))
        units = [file_of(Unit("n1", stream_id, None)) for stream_id in ("a", "b", "c")]
        lake.replace_units("sessions", sessions(lake, "c"), units)
        lake.replace_units("sessions", spark.createDataFrame(sessions(lake, "a", "b", "b")), units)
        assert lake.store.entries("_tmp") == []
    assert seqs(place) == list(range(5))
    assert place.read("silver/sessions", "stream_id") == ["a", "b", "b"]
    names = {entry.name for entry in place.store().entries("silver/sessions")}
    assert names == {"schema.parquet", *(f"{unit}.parquet" for unit in units[:2])}


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark")
def test_on_hdfs_batch_and_stream_give_the_tables_that_they_give_on_a_disk(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    data, rec = tmp_path / "data", tmp_path / "rec-n1"
    rec.mkdir()
    flv = rec / "live_show_20270115_080000.flv"
    events, tags = some_stream("n1", "n1.b.1", 1), recording(40)
    on_disk, elsewhere = (place_of(kind, request, tmp_path) for kind in ("local", "hdfs"))

    def run_once() -> None:
        with open_lake(elsewhere.address, "test") as lake:
            streaming.run(spark, lake, [data], [rec], lambda line: None, is_once=True)

    def run_batch(place: Place) -> None:
        with open_lake(place.address, "test") as lake:
            batch.run(spark, lake, [data], [rec], Range(), lambda line: None)

    write_events(data, "a", events[8:])
    flv.write_bytes(HEADER + b"".join(tags[:20]))
    run_once()
    write_events(data, "b", [*events[:8], *events[8:10]])
    (data / "events" / "date=2027-01-15" / "hour=08" / "c.jsonl").write_text("no event\n")
    with flv.open("ab") as file:
        file.write(b"".join(tags[20:]))
    run_batch(elsewhere)
    run_batch(on_disk)
    expected = tables(on_disk)
    assert all(expected.values())
    assert tables(elsewhere) == expected
    # The stream goes on from its checkpoint, which lies on HDFS too, and finds that all of it has been taken in.
    run_once()
    assert tables(elsewhere) == expected
    checkpoints = elsewhere.store().entries("_checkpoints", is_recursive=True)
    commits = sorted(entry.name.partition("-")[0] for entry in checkpoints if entry.name.endswith("/commits/1"))
    assert commits == ["events", "problems", "tags"]
