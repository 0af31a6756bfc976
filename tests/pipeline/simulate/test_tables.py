"""A simulation through the whole pipeline: nothing is odd about it, and what went wrong in it is found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs import batch
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.jobs.times import Range
from tests.pipeline.jobs.logs_on_disk import read
from tests.pipeline.simulate.simulated import Line, by_feed, lines_of, simulate

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

Row = dict[str, Any]


def rows_of(lake_dir: Path, table: str) -> list[Row]:
    return [json.loads(row) for row in read(lake_dir, table)]


def test_a_simulated_log_and_its_recordings_give_tables_that_add_up(spark: SparkSession, tmp_path: Path) -> None:
    data_dir, lake_dir = simulate(tmp_path, seed=5, frames="thin"), tmp_path / "lake"
    lines = lines_of(data_dir)
    with open_lake(lake_dir, "test") as lake:
        batch.run(spark, lake, [data_dir], [tmp_path / "recordings"], Range(), lambda line: None)

    assert rows_of(lake_dir, "problems") == []
    assert len(rows_of(lake_dir, "events")) == len(lines)
    assert_recordings(lake_dir, lines)
    assert_relay_audit(lake_dir, lines)
    assert_health(lake_dir, lines)
    assert_incidents(lake_dir, lines)
    audience = rows_of(lake_dir, "audience")
    plays = [line for line in lines if line["type"] == "play_stopped"]
    assert sum(row["attempts"] - row["refused"] for row in audience) == len(plays)
    assert sum(row["exits_before_video"] for row in audience) == sum(
        play["first_keyframe_ms"] is None for play in plays
    )


def assert_recordings(lake_dir: Path, lines: list[Line]) -> None:
    told = {line["path"]: line for line in lines if line["type"] == "recording_closed"}
    found = {row["path"]: row for row in rows_of(lake_dir, "recordings")}
    assert found.keys() == told.keys()
    for path, row in found.items():
        assert row["found_path"] == path
        assert row["tags"] == row["found_tags"] == told[path]["tags_total"]
        assert row["duration_ms"] == row["found_duration_ms"] == told[path]["duration_ms"]
        assert (row["video_codec"], row["audio_codec"]) == ("h264", "aac")
    # Where the keyframes are in the log is known for all of them.
    gops = rows_of(lake_dir, "gops")
    assert len(gops) == sum(line["keyframes"] for line in lines if line["type"] == "publisher_sample")
    assert all(row["first_position"] is not None for row in gops)


def assert_relay_audit(lake_dir: Path, lines: list[Line]) -> None:
    audit = {row["feed"]: row for row in rows_of(lake_dir, "relay_audit")}
    proofs = by_feed(lines)
    assert audit.keys() == proofs.keys()
    for feed, row in audit.items():
        counts: Counter[str] = Counter()
        for line in proofs[feed]:
            counts[line["reason"] or "delivered"] += line["stop"] - line["start"]
        assert row["is_accounted"]
        assert row["is_final"]
        assert row["ingested"] == counts.total()
        assert row["delivered"] == counts.pop("delivered", 0)
        assert dict(row["skipped_by_reason"]) == counts
        assert not row["far_candidates"], "no stream can be taken for another"
    assert {"evicted", "no_keyframe"} <= {reason for row in audit.values() for reason, _ in row["skipped_by_reason"]}


def assert_health(lake_dir: Path, lines: list[Line]) -> None:
    health = rows_of(lake_dir, "stream_health")
    status = Counter(row["status"] for row in health)
    assert status["good"] > 0.7 * status.total()
    starved = [row for row in health if "videoIngestionStarved" in {issue["name"] for issue in row["issues"]}]
    stalled = [line for line in lines if line["type"] == "publisher_sample" and line["max_gap_ms"] > 2000]
    assert len({row["stream_id"] for row in starved}) == len({line["stream_id"] for line in stalled}) > 0
    # A publisher that comes back brings the time it was away as media time, which looks like haste.
    resumed = {line["stream_id"] for line in lines if line["type"] == "publish_started" and line["resumed"]}
    others = [row for row in health if row["stream_id"] not in resumed]
    assert {issue["name"] for row in others for issue in row["issues"]} == {"videoIngestionStarved"}


def assert_incidents(lake_dir: Path, lines: list[Line]) -> None:
    found = Counter(row["kind"] for row in rows_of(lake_dir, "incidents"))
    assert found["publisher_stall"] == sum(
        line["type"] == "publisher_sample" and line["max_gap_ms"] > 2000 for line in lines
    )
    assert found["publisher_lost"] == sum(
        line["type"] == "publish_stopped" and line["reason"] == "lost" for line in lines
    )
    dropped = [line for line in lines if line["type"] == "destination_state" and line["error_class"]]
    assert found["destination_drop"] == sum(line["error_class"] in ("reset", "stalled") for line in dropped)
