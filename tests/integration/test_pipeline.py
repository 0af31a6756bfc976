"""The whole way: FFmpeg publishes, the server relays to two others, and the pipeline says what went wrong."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import av
import pytest

from tests.helpers.sockets import free_port
from tests.integration.child import Child
from tests.integration.clips import FFMPEG, ClipLibrary
from tests.integration.harness import PATIENT, ServerProcess, Stage
from tests.pipeline.jobs.logs_on_disk import all_tables, read

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SPARK_DEADLINE_S = 400.0  # against hanging: a JVM beside four other processes on two cores
STALL_S = 5.0

# A picture of every second and a tone, keyframes every two seconds.
ENCODER = (
    *(
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=320x180:rate=25",
        "-f",
        "lavfi",
        "-i",
        "sine=frequency=440:sample_rate=44100",
    ),
    *("-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-pix_fmt", "yuv420p", "-g", "50"),
    *("-b:v", "400k", "-maxrate", "400k", "-bufsize", "400k", "-c:a", "aac", "-b:a", "64k", "-ar", "44100"),
)


class Node:
    """A server with its folders."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.folder = stage.folder / name
        self.data, self.recordings = self.folder / "data", self.folder / "recordings"
        self.port = free_port()
        self._stage = stage

    def start(self, *flags: str | Path) -> ServerProcess:
        own = ("-data-dir", self.data, "-record-all", "-record-dir", self.recordings)
        return self._stage.server(*own, *flags, listen=f"127.0.0.1:{self.port}")


def test_a_stall_and_a_killed_destination_are_what_the_tables_tell(stage: Stage, tmp_path: Path) -> None:
    near, lame, sound = Node(stage, "near"), Node(stage, "lame"), Node(stage, "sound")
    nodes = (near, lame, sound)
    streamed, batched = tmp_path / "streamed", tmp_path / "batched"
    lame_server = lame.start()
    sound.start()
    config = tmp_path / "destinations.json"
    destinations = [
        {"name": n, "url": f"rtmp://127.0.0.1:{node.port}/{n}"} for n, node in zip(NAMES, nodes[1:], strict=True)
    ]
    config.write_text(json.dumps({"destinations": destinations}))
    near_server = near.start("-relay-config", config)

    job = pipeline(stage, "run", streamed, nodes)
    job.wait_until("the queries", lambda: any((streamed / "_checkpoints").glob("*/metadata")) or None, SPARK_DEADLINE_S)
    publisher = stage.run(
        "publisher", FFMPEG, "-v", "warning", "-re", *ENCODER, "-f", "flv", f"rtmp://127.0.0.1:{near.port}/live/show"
    )
    for name in NAMES:
        near_server.wait_for_log("Destination connected", destination=name)
    # Here and below: how long each part of the story lasts. Nothing is waited for by these.
    time.sleep(6)
    publisher.send_signal(signal.SIGSTOP)
    time.sleep(STALL_S)
    publisher.send_signal(signal.SIGCONT)
    time.sleep(13)  # so long that what comes is no longer put down to the stall
    lame_server.kill()
    time.sleep(3)
    lame.start()
    near_server.wait_for_log("Destination connected", count=2, destination="lame")
    time.sleep(5)
    publisher.send_signal(signal.SIGINT)
    publisher.wait()
    near_server.wait_for_log("Recording finished")
    for server in stage.servers():
        if server.is_running:
            server.stop()

    # The job that ran beside them comes to the end by itself.
    job.wait_until("the whole audit", lambda: is_told_to_the_end(streamed), SPARK_DEADLINE_S)
    job.send_signal(signal.SIGTERM)
    assert job.wait(SPARK_DEADLINE_S) == 0
    assert pipeline(stage, "run", streamed, nodes, "--once").wait(SPARK_DEADLINE_S) == 0
    assert pipeline(stage, "batch", batched, nodes).wait(SPARK_DEADLINE_S) == 0
    by_stream, by_batch = all_tables(streamed), all_tables(batched)
    for table, rows in by_batch.items():
        assert by_stream[table] == rows, table

    assert_health(tables_of(by_batch, "stream_health"))
    assert_destinations(tables_of(by_batch, "destination_health"))
    assert_incidents(tables_of(by_batch, "incidents"))
    assert_audit(tables_of(by_batch, "relay_audit"), near, lame, sound)


def test_the_tables_of_two_workers_are_those_of_one_server(stage: Stage, clips: ClipLibrary, tmp_path: Path) -> None:
    near, far = Node(stage, "near"), Node(stage, "far")
    far.start()
    server = near.start(*PATIENT, "-workers", "2", "-relay-to", f"rtmp://127.0.0.1:{far.port}/far")
    publisher = stage.feed(clips["h264_nine_seconds"], server.url("live/show"), is_paced=True)
    server.wait_for_log("Recording started")
    players = [stage.play(server.url("live/show")) for _ in range(4)]
    server.wait_for_log("Subscriber added", count=4)
    assert {line["worker"] for line in server.logged("Subscriber added")} == {0, 1}
    publisher.finish()
    for player in players:
        player.wait_ended()
    server.wait_for_log("Recording finished")
    server.stop()
    lake = tmp_path / "lake"
    assert pipeline(stage, "batch", lake, [near]).wait(SPARK_DEADLINE_S) == 0
    tables = all_tables(lake)
    assert not tables["problems"]
    sessions = tables_of(tables, "sessions")
    assert sorted(row["kind"] for row in sessions) == ["play"] * 4 + ["publish"]
    assert not any(row["is_open"] for row in sessions)
    (audience,) = tables_of(tables, "audience")
    assert (audience["attempts"], audience["plays"], audience["peak_viewers"]) == (4, 4, 4)
    for table in ("stream_health", "sessions", "recordings", "relay_audit"):
        assert {row["stream_id"] for row in tables_of(tables, table)} == {audience["stream_id"]}, table
    audit = tables_of(tables, "relay_audit")
    assert sorted(row["reader"] for row in audit) == ["destination", "recorder"]
    assert all(row["is_final"] and row["is_accounted"] and row["skipped"] == 0 for row in audit)
    assert len(tables_of(tables, "recordings")) == 1
    assert not tables_of(tables, "incidents")


NAMES = ("lame", "sound")


def pipeline(stage: Stage, job: str, lake: Path, nodes: Iterable[Node], *words: str) -> Child:
    places = [word for node in nodes for word in ("--data-dir", node.data, "--record-dir", node.recordings)]
    return stage.run(
        f"pipeline {job}", sys.executable, "-m", "headrace", "pipeline", job, *words, "--lake", lake, *places
    )


def is_told_to_the_end(lake: Path) -> bool | None:
    rows = [row for row in map(json.loads, read(lake, "relay_audit")) if row["stream"] == "live/show"]
    return (bool(rows) and all(row["is_final"] for row in rows)) or None


def tables_of(rows: dict[str, list[str]], table: str) -> list[dict[str, Any]]:
    """Of the near node's stream."""
    return [row for row in map(json.loads, rows[table]) if row["stream"] == "live/show"]


def assert_health(windows: list[dict[str, Any]]) -> None:
    issues = Counter(issue["name"] for window in windows for issue in window["issues"] if issue["severity"] != "info")
    assert set(issues) == {"videoIngestionStarved"}


def assert_destinations(rows: list[dict[str, Any]]) -> None:
    lame, sound = sorted(rows, key=lambda row: str(row["destination"]))
    assert (lame["failures"], lame["reconnects"], lame["state"]) == (1, 1, "disconnected")
    assert lame["last_error_class"] in ("reset", "refused")
    assert 2000 < lame["mttr_ms"] < 60_000
    assert lame["availability"] < 1
    assert (sound["failures"], sound["reconnects"], sound["last_error"], sound["dropped"]) == (0, 0, None, [])
    assert sound["availability"] > lame["availability"]


def assert_incidents(rows: list[dict[str, Any]]) -> None:
    stall, drop = sorted(rows, key=lambda row: str(row["started_at"]))
    assert (stall["kind"], stall["cause"]) == ("publisher_stall", "publisher")
    assert (STALL_S - 1.5) * 1000 < stall["duration_ms"] < (STALL_S + 10) * 1000
    assert (drop["kind"], drop["destination"], drop["cause_id"]) == ("destination_drop", "lame", None)
    assert drop["cause"] in ("reset", "refused")


def assert_audit(rows: list[dict[str, Any]], near: Node, lame: Node, sound: Node) -> None:
    by_name = {row["name"]: row for row in rows}
    assert by_name.keys() == {"lame", "sound", "recorder"}
    ours = packets(near)
    for name, node in (("lame", lame), ("sound", sound)):
        row, theirs = by_name[name], packets(node)
        assert row["is_final"]
        assert row["is_accounted"], row
        assert row["ingested"] == row["before_start"] + row["delivered"] + row["skipped"]
        assert row["far_candidates"] == 1
        assert (row["near_frames"], row["far_frames"]) == (ours.total(), theirs.total())
        assert row["far_missing"] == (ours - theirs).total()
        assert (row["far_duplicated"], row["far_corrupted"], row["far_unknown"], row["far_reordered"]) == (0, 0, 0, 0)
        assert row["far_misheaded"] == 0
    assert by_name["lame"]["far_missing"] > 0
    assert by_name["lame"]["skipped"] > 0
    assert by_name["sound"]["far_missing"] == by_name["sound"]["skipped"] == 0
    assert by_name["recorder"]["skipped"] == 0


def packets(node: Node) -> Counter[tuple[str, int, str]]:
    """What is in the node's recordings, by PyAV: kind, timestamp and digest of every packet."""
    found: Counter[tuple[str, int, str]] = Counter()
    for path in sorted(node.recordings.glob("*.flv")):
        with av.open(str(path)) as file:
            for packet in file.demux():
                if packet.dts is not None and packet.size:
                    found[packet.stream.type, packet.dts, hashlib.sha256(bytes(packet)).hexdigest()] += 1
    return found
