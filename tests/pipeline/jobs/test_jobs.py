from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs import batch, chunks, few_lines, few_tags, streaming, units
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.jobs.times import Range
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import all_tables, at_hour, event_keys, read, some_stream, write_events
from tests.pipeline.tables.rows import T0

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def run_once(spark: SparkSession, lake_dir: Path, data: list[Path], recordings: list[Path]) -> list[str]:
    said: list[str] = []
    with open_lake(lake_dir, "test") as lake:
        streaming.run(spark, lake, data, recordings, said.append, is_once=True)
    return said


def run_batch(
    spark: SparkSession, lake_dir: Path, data: list[Path], recordings: list[Path], **wanted: datetime
) -> None:
    with open_lake(lake_dir, "test") as lake:
        batch.run(spark, lake, data, recordings, Range(**wanted), lambda line: None)


def test_stream_and_batch_give_the_same_rows_however_they_arrive(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, rec = tmp_path / "data", tmp_path / "rec-n1"
    streamed, batched = tmp_path / "streamed", tmp_path / "batched"
    rec.mkdir()
    flv = rec / "live_show_20270115_080000.flv"
    # Two nodes with the same stream name, at the same time.
    one, two = some_stream("n1", "n1.b.1", 1), some_stream("n2", "n2.b.1", 1)
    tags = recording(40)

    # First its end, so that the rest is late; then a copy of what is known, bad lines, and the recording so far.
    write_events(data, "a", [*one[8:], *two[:4]])
    assert any(line.startswith("tables") for line in run_once(spark, streamed, [data], [rec]))
    write_events(data, "b", [*one[:8], *two, *one[8:12]])
    (data / "events" / "date=2027-01-15" / "hour=08" / "c.jsonl").write_text("no event\n" + json.dumps({"v": 9}) + "\n")
    flv.write_bytes(HEADER + b"".join(tags[:20]))
    run_once(spark, streamed, [data], [rec])
    # Small parts become larger ones under a stream that then goes on.
    with open_lake(streamed, "test") as lake:
        parts = lake.parts("events")
        compact(lake, Retention(), now_ms=T0 + 60_000, quiet_s=-1e12)
        assert len(lake.parts("events")) < len(parts)
    with flv.open("ab") as file:
        file.write(b"".join(tags[20:]))
    run_once(spark, streamed, [data], [rec])

    run_batch(spark, batched, [data], [rec])
    by_stream, by_batch = all_tables(streamed), all_tables(batched)
    for table, rows in by_batch.items():
        assert by_stream[table] == rows, table
        assert rows, f"{table} has no rows to compare"
    assert event_keys(streamed) == sorted((node, seq) for node in ("n1", "n2") for seq in range(1, len(one) + 1))
    assert len(by_batch["problems"]) == 2
    assert len(by_batch["tags"]) == len(tags)
    nodes = sorted(json.loads(row)["node"] for row in by_batch["destination_health"])
    assert nodes == ["n1", "n2"]
    assert [json.loads(row)["found_tags"] for row in by_batch["recordings"]] == [len(tags), None]

    # So many events that the executors keep them and write the tables, and that they are taken in file by file.
    monkeypatch.setattr(units, "MAX_FEW_EVENTS", 0)
    monkeypatch.setattr(few_lines, "MAX_BYTES", 0)
    monkeypatch.setattr(few_tags, "MAX_BYTES", 0)
    monkeypatch.setattr(chunks, "EVENT_BYTES", 1)
    monkeypatch.setattr(chunks, "RECORDING_BYTES", 1)
    run_batch(spark, tmp_path / "large", [data], [rec])
    assert all_tables(tmp_path / "large") == by_batch
    monkeypatch.undo()

    # Once more, and each on the lake of the other: nothing changes.
    run_batch(spark, streamed, [data], [rec])
    run_once(spark, batched, [data], [rec])
    assert all_tables(streamed) == by_stream
    assert all_tables(batched) == by_batch


def test_a_batch_takes_in_only_what_lies_between_two_times(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_events(data, "a", some_stream("n1", "n1.b.1", 1), hour=8)
    later = at_hour(some_stream("n1", "n1.b.2", 100), 9)
    write_events(data, "b", later, hour=9)
    nine = datetime(2027, 1, 15, 9, tzinfo=UTC)
    run_batch(spark, tmp_path / "lake", [data], [], start=nine)
    assert [seq for _, seq in event_keys(tmp_path / "lake")] == [one["seq"] for one in later]
    run_batch(spark, tmp_path / "lake", [data], [], stop=nine)
    assert len(event_keys(tmp_path / "lake")) == 2 * len(later)
    assert len(read(tmp_path / "lake", "destination_health")) == 2
