"""Recordings beside the relay: equal to what was sent and played, whole after a crash, harmless to the relay."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.flv_tags import SCRIPT, VIDEO, FlvTag, encode_file, media_tags, read_tags
from tests.integration.harness import PATIENT, ServerProcess, Stage
from tests.integration.packets import (
    assert_from_first_keyframe,
    assert_suffix,
    assert_whole,
    decoding_errors,
    packets_of,
)
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "recordings"


def record(folder: Path) -> tuple[str | Path, ...]:
    return (*PATIENT, "-record-all", "-record-dir", folder)


def finished(server: ServerProcess, count: int = 1) -> list[Path]:
    """The paths of the first recordings that were closed, once there are so many."""
    server.wait_for_log("Recording finished", count=count)
    return [Path(line["path"]) for line in server.logged("Recording finished")]


def frames(tags: list[FlvTag]) -> list[FlvTag]:
    return [tag for tag in tags if tag.is_frame]


@pytest.mark.parametrize("clip_name", ["h264_aac", "h264_b_frames", "hevc_aac", "av1_aac", "aac_only"])
def test_a_recording_equals_what_was_sent_and_what_was_played(
    stage: Stage, clips: ClipLibrary, folder: Path, clip_name: str
) -> None:
    clip = clips[clip_name]
    server = stage.server(*record(folder))
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    played = player.wait_ended()
    (path,) = finished(server)
    assert re.fullmatch(r"live_stream_\d{8}_\d{6}\.flv", path.name)
    recorded = packets_of(path)
    assert_whole(recorded, packets_of(clip.path))
    for track in recorded.tracks:
        assert_suffix(played.of(track), recorded.of(track), f"played {track}")
    assert read_tags(path)[0].type_id == SCRIPT, "onMetaData is not the first tag"
    assert not decoding_errors(path)


def test_a_recording_has_every_byte_and_timestamp_of_the_wire(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    clip = clips["h264_b_frames"]
    server = stage.server(*record(folder))
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    player = RawClient(stage, server, Role.PLAY).start()
    publisher.send_tags(clip.tags)
    publisher.finish()
    (path,) = finished(server)
    assert read_tags(path) == clip.tags
    assert player.receive_all() == clip.tags


@pytest.mark.parametrize("clip_name", ["h264_nine_seconds", "aac_nine_seconds"])
def test_a_file_pushed_faster_than_real_time_is_recorded_whole(
    stage: Stage, clips: ClipLibrary, folder: Path, clip_name: str
) -> None:
    """With the flags as they are: nine seconds in a fraction of one, more than the lag that is allowed a player."""
    clip = clips[clip_name]
    server = stage.server("-record-all", "-record-dir", folder)
    stage.feed(clip, server.url()).finish()
    server.wait_for_log("publisher disconnected", reason="unpublished")
    server.stop()
    (path,) = folder.iterdir()
    assert_whole(packets_of(path), packets_of(clip.path))


def test_segments_play_by_themselves_and_make_up_the_whole(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    clip = clips["h264_nine_seconds"]
    server = stage.server(*record(folder), "-segment-duration", "2s")
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    publisher.finish()
    paths = finished(server, count=5)
    assert [re.sub(r".*_seg", "seg", path.name) for path in paths] == [f"seg{number:03d}.flv" for number in range(1, 6)]
    segments = [read_tags(path) for path in paths]
    assert sorted(frames([tag for segment in segments for tag in segment])) == sorted(frames(clip.tags))
    for path, segment in zip(paths, segments, strict=True):
        assert segment[0].type_id == SCRIPT
        first = next(tag for tag in segment if tag.type_id == VIDEO and tag.is_frame)
        assert first.is_keyframe
        assert not decoding_errors(path)
        packets = packets_of(path)
        assert packets.tracks == packets_of(clip.path).tracks
    starts = [next(tag.timestamp_ms for tag in segment if tag.is_keyframe) for segment in segments]
    assert [after - before for before, after in pairwise(starts)] == [2000] * 4


def test_a_recording_plays_to_its_last_whole_tag_after_kill_9(
    stage: Stage, clips: ClipLibrary, folder: Path, tmp_path: Path
) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*record(folder))
    publisher = stage.publish(clip, server.url(), loops=True)
    started = server.wait_for_log("Recording started")
    player = stage.play(server.url())
    player.wait_for_packets(100)
    server.kill()
    publisher.close()
    path = Path(started["path"])
    tags = read_tags(path)
    # Nothing is lost but the last fraction of a second: the player got little more than the disk.
    played_ms = max(packet.dts_ms or 0 for packet in player.packets.packets)
    assert tags[-1].timestamp_ms > played_ms - 2000
    sent = [tag.payload for tag in media_tags(clip.tags) if not tag.is_end_of_sequence]
    recorded = [tag.payload for tag in media_tags(tags)]
    assert recorded[:100] == sent[:100]
    whole = tmp_path / "whole.flv"
    whole.write_bytes(encode_file(tags))
    assert packets_of(path).packets == packets_of(whole).packets
    assert not decoding_errors(whole)


HOSTILE_NAMES = {
    "escaped slash": "..%2f..%2fescaped",
    "parent": "../../../escaped",
    "absolute": "/escaped",
    "backslashes": "..\\..\\escaped",
    "dots": "..",
    "dot": ".",
    "hidden": ".hidden",
    "NUL": "a\0b",
    "newline": "a\nb\r\x1b[31m",
    "option": "-rf",
    "4 KB": "x" * 4096,
    "spaces": "  ",
    "right to left": "\u202egpj.exe",
    "percent": "%s%n%00",
}


@pytest.mark.parametrize("place", ["name", "app"])
def test_no_name_from_the_wire_leaves_the_folder(stage: Stage, clips: ClipLibrary, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "a" / "b" / "recordings"
    server = stage.server(*record(folder))
    tags = clips["h264_aac"].tags[:40]
    for name in HOSTILE_NAMES.values():
        app, stream_name = ("live", name) if place == "name" else (name, "stream")
        publisher = RawClient(stage, server, Role.PUBLISH, stream_name, app=app).start()
        publisher.send_tags(tags)
        publisher.finish()
    finished(server, count=len(HOSTILE_NAMES))
    data = tmp_path / "server-0-data"  # the event log's
    written = [path for path in tmp_path.rglob("*") if path.is_file() and data not in path.parents]
    assert len(written) == len(HOSTILE_NAMES)
    for path in written:
        assert path.parent == folder
        assert re.fullmatch(r"[\w.-]+_\d{8}_\d{6}(-\d+)?\.flv", path.name), path.name
        assert not path.name.startswith((".", "-"))
        assert len(path.name.encode()) <= 255
        assert frames(read_tags(path)) == frames(tags)
    assert not any("escaped" in name for name in os.listdir("/"))


def test_a_new_resolution_starts_a_new_file(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    large, small = clips["h264_aac"], clips["h264_small"]
    later = [tag.at(tag.timestamp_ms + 4000) for tag in small.tags]
    server = stage.server(*record(folder))
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    player = RawClient(stage, server, Role.PLAY).start()
    publisher.send_tags([*large.tags, *later])
    publisher.finish()
    paths = finished(server, count=2)
    assert ["dimensions 640x360" in packets_of(path).tracks["video"] for path in paths] == [True, False]
    assert ["dimensions 320x180" in packets_of(path).tracks["video"] for path in paths] == [False, True]
    assert not any(decoding_errors(path) for path in paths)
    assert frames(read_tags(paths[0])) == frames(large.tags)
    assert frames(read_tags(paths[1])) == frames(later)
    assert player.receive_all() == [*large.tags, *later], "the players get both in one session"


def test_a_publisher_that_comes_back_goes_on_in_the_same_file(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*record(folder), "-publisher-grace", "30s")
    for number in (1, 2):
        publisher = RawClient(stage, server, Role.PUBLISH).start()
        publisher.send_tags(clip.tags)
        if number == 1:
            publisher.close()
            server.wait_for_log("publisher disconnected")
        else:
            publisher.finish()
    (path,) = finished(server)
    tags = frames(read_tags(path))
    assert [tag.payload for tag in tags] == [tag.payload for tag in frames(clip.tags)] * 2
    assert [tag.timestamp_ms for tag in tags] == sorted(tag.timestamp_ms for tag in tags)
    assert not decoding_errors(path)


def test_a_folder_that_cannot_be_written_does_not_stop_the_relay(
    stage: Stage, clips: ClipLibrary, tmp_path: Path
) -> None:
    obstacle = tmp_path / "file"
    obstacle.write_text("not a folder")
    clip = clips["h264_aac"]
    server = stage.server(*record(obstacle / "recordings"))
    server.expected_errors.add("Recording failed")
    publisher = stage.feed(clip, server.url())
    failed = server.wait_for_log("Recording failed", stream_key="live/stream")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    assert "directory" in failed["error"].lower()
    assert obstacle.read_text() == "not a folder"


def test_a_write_error_stops_the_recording_and_not_the_relay(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    """The largest file that the server may write is smaller than the stream."""
    clip = clips["h264_aac"]
    limit_bytes = clip.path.stat().st_size // 2
    server = stage.server(*record(folder))
    server.expected_errors.add("Recording failed")
    _soft, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit_bytes, hard))
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("Recording started")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    _assert_failed_at_a_whole_tag(server, clip.tags)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))  # coverage has a file to write too


def test_a_full_disk_stops_the_recording_and_not_the_relay(stage: Stage, clips: ClipLibrary, folder: Path) -> None:
    clip = clips["h264_aac"]
    _mount_small_disk(stage, folder, clip.path.stat().st_size // 2)
    server = stage.server(*record(folder))
    server.expected_errors.add("Recording failed")
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("Recording started")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    failed = _assert_failed_at_a_whole_tag(server, clip.tags)
    assert "space" in failed["error"].lower()


def _assert_failed_at_a_whole_tag(server: ServerProcess, sent: list[FlvTag]) -> dict[str, str]:
    failed = server.wait_for_log("Recording failed", stream_key="live/stream")
    path = Path(failed["path"])
    recorded = frames(read_tags(path))
    assert len(encode_file(read_tags(path))) == path.stat().st_size, "a cut tag is left at the end of the file"
    assert sorted(recorded)[:50] == sorted(frames(sent)[: len(recorded)])[:50]
    assert 0 < len(recorded) < len(frames(sent))
    assert not decoding_errors(path)
    return failed


def _mount_small_disk(stage: Stage, folder: Path, size_bytes: int) -> None:
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("only root can mount a small disk")
    command: list[str | Path] = [mount, "-t", "tmpfs", "-o", f"size={size_bytes // 4096 * 4096}", "tmpfs", folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    # Lazily: the server, which is ended later, may still hold the file.
    stage.on_close(lambda: _run(unmount, "-l", folder))


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=30)
