"""Each script of examples/ on data of a test's own, as a person would start it, and what it gave."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import av
import imageio_ffmpeg
import pytest

import headrace
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.query.night import NEWS, NIGHT, SHOW, after, write_lake

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(script: str, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(headrace.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, EXAMPLES / script, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_paper_lists_every_script_and_each_says_how_to_run_it() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    listed = re.findall(r"^\| \[(\w+\.py)\]\(\1\) \| \w", (EXAMPLES / "README.md").read_text("utf-8"), re.M)
    assert set(listed) == scripts
    for name in scripts:
        assert f"\n    python examples/{name} " in (EXAMPLES / name).read_text("utf-8")


# --- who_left.py


def test_who_left_tells_the_viewers_of_the_incident_that_drove_them_away(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake")
    done = run("who_left.py", "lake", cwd=tmp_path)
    line = "2027-01-14 20:05:03 live/show publisher_stall: 2 of 4 viewers left (50 %): b771 c9d2\n"
    assert (done.stdout, done.stderr, done.returncode) == (line, "", 0)


def test_who_left_says_so_if_nobody_did(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", {"incidents": []})
    assert run("who_left.py", "lake", cwd=tmp_path).stdout == "nobody left because of an incident\n"


def test_who_left_without_a_lake_is_one_line(tmp_path: Path) -> None:
    done = run("who_left.py", "lake", cwd=tmp_path)
    assert (done.stderr, done.returncode) == ("there is no lake at lake: headrace pipeline batch makes one\n", 1)


# --- export_day.py


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    """The night, exported from a lake that has some of the day after too."""
    folder = tmp_path_factory.mktemp("export")
    day = 86_400
    later = {**NEWS, "stream_id": "n1.b.3"}
    media = {"clock": "media", "window_s": 60, "start_ms": 0}
    more: dict[str, list[dict[str, object]]] = {
        "stream_health": [{**later, "started_at": after(day), "status": "good"}],
        "sessions": [{**later, "kind": "publish", "started_at": after(4 * 3600)}],  # at midnight: the next day
        "stream_windows": [{**SHOW, **media}, {**later, **media}],
        "relay_audit": [{**later, "reader": "recorder", "name": "recorder"}],
        "events": [{"node": "n1", "boot": "b", "seq": 9, "time_ms": int(after(4 * 3600).timestamp() * 1000) - 1}],
        "tags": [{"path": "/rec/other.flv", "byte_offset": 13}],
        "problems": [{"source": "events", "file": "x.jsonl", "text": 'a, "b"\r\n', "count": 1}],
    }
    write_lake(folder / "lake", {table: [*NIGHT.get(table, []), *rows] for table, rows in more.items()})
    done = run("export_day.py", "2027-01-14", "out", "--lake", "lake", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    rows: dict[str, list[dict[str, str]]] = {}
    for path in (folder / "out").iterdir():
        with path.open(newline="", encoding="utf-8") as written:
            rows[path.stem] = list(csv.DictReader(written))
        assert f"out/{path.name}: {len(rows[path.stem])} rows\n" in done.stdout
    return rows


def test_a_day_is_exported_table_by_table(exported: dict[str, list[dict[str, str]]]) -> None:
    assert exported.keys() == TABLES.keys()
    for table in ("destination_health", "audience", "incidents", "recordings", "sessions", "stream_health"):
        assert len(exported[table]) == len(NIGHT[table]), table
        assert list(exported[table][0]) == TABLES[table].schema.names
    stall = next(row for row in exported["incidents"] if row["kind"] == "publisher_stall")
    assert stall["started_at"] == "2027-01-14T20:05:03.000Z"
    assert stall["destinations_dropped"] == '["YouTube"]'


def test_rows_without_a_time_go_by_the_streams_and_recordings_of_the_day(
    exported: dict[str, list[dict[str, str]]],
) -> None:
    assert {row["stream_id"] for row in exported["relay_audit"]} == {"n1.b.1"}
    assert [row["stream_id"] for row in exported["stream_windows"] if row["clock"] == "media"] == ["n1.b.1"]
    assert {row["path"] for row in exported["tags"]} == {"/rec/live_show_20270114_200000.flv"}
    assert sorted(row["seq"] for row in exported["events"]) == ["1", "2", "3", "9"]
    assert [row["text"] for row in exported["problems"]] == ['a, "b"\r\n']


def test_an_export_without_a_lake_is_one_line(tmp_path: Path) -> None:
    done = run("export_day.py", "2027-01-14", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "there is no lake" in done.stderr


# --- plot_bitrate.py


def make_recording(path: Path, seconds: int, rate: str) -> Path:
    picture = f"testsrc2=size=320x180:rate=25:duration={seconds}"
    tone = f"sine=frequency=440:duration={seconds}"
    coding = "-c:v libx264 -preset ultrafast -tune zerolatency -g 25 -pix_fmt yuv420p -c:a aac -b:a 64k -f flv".split()
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", tone]
    subprocess.run([*command, "-b:v", rate, *coding, path], check=True, timeout=60)
    return path


def mbps_by_second(path: Path, seconds: int) -> list[float]:
    """As PyAV's demuxer sees the file: its packets, with what FLV puts before each one's bytes."""
    bits: Counter[int] = Counter()
    with av.open(str(path)) as container:
        for packet in container.demux():
            if packet.size and packet.dts is not None:
                before = 5 if packet.stream.type == "video" else 2
                bits[int(packet.dts * packet.time_base)] += (packet.size + before) * 8
    return [bits[second] / 1e6 for second in range(seconds)]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_plot_has_a_line_for_each_recording_with_its_bitrate(tmp_path: Path) -> None:
    (tmp_path / "recordings" / "more").mkdir(parents=True)
    low = make_recording(tmp_path / "recordings" / "low.flv", 4, "200k")
    high = make_recording(tmp_path / "recordings" / "more" / "high.flv", 3, "2M")
    done = run("plot_bitrate.py", "recordings", "bitrate.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = dict(re.findall(r"^(\S+): (.+)$", done.stdout, re.M))
    assert told.keys() == {"low.flv", "high.flv"}
    for path, seconds in ((low, 4), (high, 3)):
        expected = mbps_by_second(path, seconds)
        count, mean, most = re.findall(r"\d+(?:\.\d+)?", told[path.name])
        assert int(count) == seconds
        assert float(mean) == pytest.approx(sum(expected) / seconds, rel=0.02)
        assert float(most) == pytest.approx(max(expected), rel=0.02)
    picture = ElementTree.parse(tmp_path / "bitrate.svg")
    words = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"low.flv", "high.flv", "Mbit/s", "seconds since the first frame"} <= words
