from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.report import destinations, gather, happenings, ingest, tables, viewers
from headrace.pipeline.report.choosing import _COLUMNS as CHOOSING_COLUMNS
from headrace.pipeline.report.choosing import Catalogue
from headrace.pipeline.report.tables import LakeTables
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.report.lakes import OWN, START, audit, healthy, merged, publish, recording, write_lake

DAY_MS = 86_400_000
START_MS = int(START.timestamp() * 1000)


def test_the_layers_are_those_of_the_jobs() -> None:
    assert {name: TABLES[name].layer for name in tables.LAYERS} == tables.LAYERS


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("sessions", CHOOSING_COLUMNS),
        ("sessions", viewers.SESSION_COLUMNS),
        ("audience", viewers.AUDIENCE_COLUMNS),
        ("stream_windows", (*ingest.WINDOW_COLUMNS, "clock", "window_s")),
        ("stream_health", ingest.HEALTH_COLUMNS),
        ("gops", ingest.GOP_COLUMNS),
        ("destination_health", destinations.HEALTH_COLUMNS),
        ("destination_states", destinations.STATE_COLUMNS),
        ("relay_audit", destinations.AUDIT_COLUMNS),
        ("incidents", happenings.INCIDENT_COLUMNS),
        ("recordings", gather.RECORDING_COLUMNS),
    ],
)
def test_every_column_that_is_asked_for_is_one_of_the_table(table: str, columns: tuple[str, ...]) -> None:
    assert set(columns) <= set(TABLES[table].schema.names)


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}], ids=["by pyarrow", "by Spark"])
def test_times_are_utc_and_counts_by_reason_are_dicts(tmp_path: Path, options: dict[str, bool]) -> None:
    rows = {"sessions": [publish()], "relay_audit": [audit("far", 1, {"lag": 3})]}
    lake = LakeTables(write_lake(tmp_path, rows, **options))
    (unit,) = lake.units("sessions")
    assert lake.rows("sessions", unit, ["started_at"]) == [{"started_at": START}]
    assert lake.rows("relay_audit", unit, ["skipped_by_reason"]) == [{"skipped_by_reason": {"lag": 3}}]


def test_a_column_that_a_file_lacks_is_null_and_matches_nothing(tmp_path: Path) -> None:
    lake = LakeTables(write_lake(tmp_path, {"sessions": [publish()]}))
    (unit,) = lake.units("sessions")
    assert lake.rows("sessions", unit, ["node", "from_the_future"]) == [{"node": "n1", "from_the_future": None}]
    assert lake.rows("sessions", unit, ["node"], from_the_future=1) == []
    assert lake.rows("sessions", unit, ["node"], kind=("play", "publish")) == [{"node": "n1"}]
    assert lake.rows("audience", unit, ["node"]) == []


def test_a_directory_without_a_lake_is_told(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no lake at"):
        LakeTables(tmp_path / "nowhere")


def test_a_lake_of_another_layout_is_refused(tmp_path: Path) -> None:
    write_lake(tmp_path, {})
    (tmp_path / "_lake.json").write_text('{"layout": 99}')
    with pytest.raises(PipelineError, match="has layout 99, expected 1"):
        LakeTables(tmp_path)


def test_a_file_that_is_no_parquet_is_one_line(tmp_path: Path) -> None:
    lake = LakeTables(write_lake(tmp_path, healthy()))
    (unit,) = lake.units("audience")
    (tmp_path / "gold" / "audience" / f"{unit}.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(PipelineError, match="cannot be read") as caught:
        lake.rows("audience", unit, ["plays"])
    assert "\n" not in str(caught.value)


def test_readers_see_whole_rows_while_a_job_replaces_files_and_takes_some_away(tmp_path: Path) -> None:
    others = [recording(**{**OWN, "stream_id": f"n1.b.{n}"}) for n in range(2, 8)]
    rows = {"recordings": [recording(), *others]}
    lake = LakeTables(write_lake(tmp_path / "lake", rows))
    spare = write_lake(tmp_path / "spare", rows) / "gold" / "recordings"
    target = lake.root / "gold" / "recordings"
    is_over = threading.Event()

    def replace_and_remove() -> None:
        while not is_over.is_set():
            for place, file in enumerate(sorted(spare.glob("*-*.parquet"))):
                new = tmp_path / "new.parquet"
                shutil.copy(file, new)
                if place % 2:
                    (target / file.name).unlink(missing_ok=True)
                os.replace(new, target / file.name)

    job = threading.Thread(target=replace_and_remove)
    job.start()
    try:
        for _ in range(60):
            for _, own in lake.all_rows("recordings", ["stream_id", "keyframes"]):
                assert [len(row["keyframes"]) for row in own] == [30]
    finally:
        is_over.set()
        job.join()
    assert len(list(lake.all_rows("recordings", ["stream_id"]))) == 7


def test_a_broadcast_that_is_settled_has_the_report_it_had(tmp_path: Path) -> None:
    rows = merged(healthy(), {"stream_windows": [{**OWN, "clock": "wall", "window_s": 300, "start_ms": START_MS}]})
    with open_lake(tmp_path, "a test"):
        shapes = (tmp_path / "_lake.json").read_text()
    lake = LakeTables(write_lake(tmp_path, rows))
    (tmp_path / "_lake.json").write_text(shapes)
    (unit,) = lake.units("sessions")
    before = {table: lake.rows(table, unit, TABLES[table].schema.names) for table in tables.LAYERS}
    assert before["sessions"]
    with open_lake(tmp_path, "a test") as own:
        own.settle({unit: START_MS})
        compact(own, Retention(), now_ms=START_MS + 40 * DAY_MS)
    assert not list(tmp_path.glob(f"*/*/{unit}.parquet"))
    assert lake.units("sessions") == [unit]
    for table, own_rows in before.items():
        if table not in ("gops", "stream_windows"):
            assert lake.rows(table, unit, TABLES[table].schema.names) == own_rows, table
    # Of fine windows and groups of pictures the time is over.
    assert [row["window_s"] for row in lake.rows("stream_windows", unit, ["window_s"])] == [300]
    assert lake.rows("gops", unit, ["path"]) == []
    known = Catalogue(lake)
    report = gather.build_report(lake, known.newest(), None)
    assert report.ingest is not None
    assert report.ingest.window_s == 300
    assert report.verdict.startswith("Healthy for 1 min")
