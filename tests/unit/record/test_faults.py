"""Recordings of processes that are killed, and on disks that are full for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.protocol.flv import FlvReader
from tests.unit.record.samples import (
    DEADLINE_S,
    MEDIA_HASHES,
    Sent,
    assert_plays,
    contents,
    frame_hashes,
    make_flv,
    read_tags,
    run_ffmpeg,
    sent,
)

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_flv(tmp_path_factory.mktemp("source") / "source.flv", "h264 and aac")


def _looped(source: Path, count: int) -> list[Sent]:
    """What the processes send: the source over and over, ten seconds apart, its metadata once."""
    messages = contents(source)
    round_size = len(messages) - 1
    looped = [messages[0]]
    for index in range(count - 1):
        number, place = divmod(index, round_size)
        message = messages[1 + place]
        looped.append(message._replace(timestamp_ms=message.timestamp_ms + number * 10_000))
    return looped


@pytest.mark.parametrize("enough", [1, 700, 2500])
def test_after_kill_9_the_file_plays_to_its_last_whole_tag(source: Path, tmp_path: Path, enough: int) -> None:
    recordings, errors = tmp_path / "recordings", tmp_path / "errors.txt"
    command = [sys.executable, "-m", "tests.unit.record.endless_recording", str(source), str(recordings)]
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=ENVIRONMENT, cwd=ROOT) as child,
    ):
        assert child.stdout is not None
        written = 0
        while written < enough:
            line = child.stdout.readline()  # the child has its own deadline: this ends
            assert line, f"ended by itself: status {child.wait(DEADLINE_S)} after {written} tags: {errors.read_text()}"
            written = int(line)
        child.kill()
        child.wait(DEADLINE_S)
    [path] = recordings.iterdir()
    reader = FlvReader()
    tags = reader.receive(path.read_bytes())
    reader.finish()  # a cut tag at the end is allowed, damage is not
    assert len(tags) >= written
    assert sent(tags) == _looped(source, len(tags))
    os.truncate(path, reader.offset)
    assert_plays(path)


def test_a_file_cut_inside_a_tag_plays_to_the_tag_before(source: Path, tmp_path: Path) -> None:
    whole = source.read_bytes()
    tag = read_tags(source)[-20]
    path = tmp_path / "cut.flv"
    path.write_bytes(whole[: tag.offset])
    clean = frame_hashes(path)
    # Every byte of the header, some of the payload, every byte of the size.
    for place in (*range(1, 14), len(tag.payload), *range(len(tag.payload) + 11, len(tag.payload) + 15)):
        path.write_bytes(whole[: tag.offset + place])
        found, _ = run_ffmpeg("-i", str(path), *MEDIA_HASHES)
        assert set(clean) <= set(found.splitlines())
        reader = FlvReader()
        assert reader.receive(path.read_bytes())[-1].end == tag.offset
        assert reader.finish() == place


def test_a_disk_that_fills_up_stops_its_recording_and_no_other(source: Path, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare: test_recorder has the same fault with a limit on the file's size")
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    # A mount of its own, which ends with the process whatever happens.
    script = 'mount -t tmpfs -o size=256k tmpfs "$1" && shift && exec "$@"'
    program = [sys.executable, "-m", "tests.unit.record.full_disk", str(source), str(small), str(large)]
    command = [unshare, "--map-root-user", "--mount", "sh", "-c", script, "sh", str(small), *program]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, timeout=DEADLINE_S, check=False
    )
    if "Operation not permitted" in done.stderr or "permission denied" in done.stderr:
        pytest.skip(f"no mount allowed here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["errors"] == [1, 0]
    assert report["closed"] == [True, True]
    assert report["skipped"] == [0, 0]
    assert done.stderr.count("Recording failed") == 1
    assert "No space left on device" in done.stderr
    assert f"path={small}/live_cam_" in done.stderr
    full = large / "copy.flv"
    assert 200_000 < full.stat().st_size <= 256 << 10
    assert contents(full) == _looped(source, report["tags"][0])
    assert_plays(full)
    [other] = large.glob("live_cam_*.flv")
    assert contents(other) == _looped(source, report["sent"])
