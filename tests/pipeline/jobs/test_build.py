"""Built in steps, as a live stream is, or at once: the same tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.build import EventTables, RecordingTables, build_all
from headrace.pipeline.jobs.ingest import take_in_lines, take_in_tags
from headrace.pipeline.jobs.lake import Lake, open_lake
from tests.pipeline.flv_files import HEADER, recording
from tests.pipeline.jobs.logs_on_disk import all_tables, read, some_stream

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

EVENTS = some_stream("n1", "n1.b.1", 1)


def streams(tables: EventTables | RecordingTables) -> int:
    built = tables.build()
    assert built is not None
    return built.streams


def add_events(spark: SparkSession, lake: Lake, part: str, start: int, stop: int | None = None) -> None:
    rows = [(json.dumps(one), "/data/a.jsonl") for one in EVENTS[start:stop]]
    take_in_lines(spark, lake, part, spark.createDataFrame(rows, schema="line string, file string"))


def add_tags(spark: SparkSession, lake: Lake, part: str, folder: Path) -> None:
    take_in_tags(spark, lake, part, spark.read.format("flv").load(str(folder)))


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    folder = tmp_path / "rec-n1"
    folder.mkdir()
    (folder / "live_show_20270115_080000.flv").write_bytes(HEADER + b"".join(recording(40)))
    return folder


def test_in_steps_or_at_once(spark: SparkSession, tmp_path: Path, recordings: Path) -> None:
    with open_lake(tmp_path / "steps", "a test") as lake:
        events, rest = EventTables(spark, lake), RecordingTables(spark, lake)
        assert (events.build(), rest.build()) == (None, None)
        add_events(spark, lake, "p1", 0, 8)
        assert rest.build() is None, "what is not told yet is none of its business"
        assert (streams(events), events.build()) == (1, None)
        assert read(Path(lake.address), "sessions")
        assert not read(Path(lake.address), "relay_audit")
        assert streams(rest) == 1
        add_tags(spark, lake, "t1", recordings)
        assert (events.build(), streams(rest)) == (None, 1)
        add_events(spark, lake, "p2", 8)
        assert streams(events) == 2, "the stream, and the name that a play was refused of"
        assert (streams(rest), rest.build()) == (2, None)
        few = rest._for_few()
        plans = {**events._few._plans, **few._plans, "of_streams": few._of_streams}
        assert [name for name, plan in plans.items() if not plan.is_kept] == [], "planned anew at each build"
    with open_lake(tmp_path / "once", "a test") as lake:
        add_events(spark, lake, "p1", 0)
        add_tags(spark, lake, "t1", recordings)
        early = RecordingTables(spark, lake)
        early.prepare()
        assert {"stream_windows", "gops", "recordings", "alone"} <= set(early._for_few()._plans)
        assert build_all(spark, lake) == 2
        assert build_all(spark, lake) == 0
    assert all_tables(tmp_path / "steps") == all_tables(tmp_path / "once")


def test_after_a_crash_between_rows_and_note_the_tables_are_built_again(
    spark: SparkSession, tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with open_lake(tmp_path / "lake", "a test") as lake:
        add_events(spark, lake, "p1", 0)
        add_tags(spark, lake, "t1", recordings)
        for method in ("mark_told", "mark_built"):
            monkeypatch.setattr(lake, method, crash)
            with pytest.raises(KeyboardInterrupt):
                build_all(spark, lake)
            monkeypatch.undo()
    before = all_tables(tmp_path / "lake")
    with open_lake(tmp_path / "lake", "a test") as lake:
        assert build_all(spark, lake) == 2
    assert all_tables(tmp_path / "lake") == before
