"""Clients that are not FFmpeg: rtmpdump (librtmp, as in OBS) and GStreamer, where the machine has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.clips import ClipLibrary
from tests.integration.harness import PATIENT, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_same_packets, decoding_errors, packets_of

pytestmark = pytest.mark.integration


def tool(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed here (Debian's package {package})")
    return path


def gstreamer(*elements: str) -> str:
    """The launcher, if it knows all the elements."""
    launch, inspect = tool("gst-launch-1.0", "gstreamer1.0-tools"), tool("gst-inspect-1.0", "gstreamer1.0-tools")
    for element in elements:
        if subprocess.run([inspect, element], capture_output=True, timeout=60, check=False).returncode != 0:
            pytest.skip(f"GStreamer has no {element} here (gstreamer1.0-plugins-good and -bad)")
    return launch


@pytest.mark.parametrize("chunk_size", ["128", "60000"])
@pytest.mark.parametrize("offset_ms", [0, 0xFFFFFF - 2000])
def test_rtmpdump_receives_what_was_published(
    stage: Stage, clips: ClipLibrary, tmp_path: Path, chunk_size: str, offset_ms: int
) -> None:
    rtmpdump = tool("rtmpdump", "rtmpdump")
    clip, target = clips["h264_b_frames"], tmp_path / "dumped.flv"
    server = stage.server(*PATIENT, "-chunk-size", chunk_size)
    publisher = stage.feed(clip, server.url(), "-output_ts_offset", f"{offset_ms}ms")
    server.wait_for_log("publish command")
    player = stage.run("rtmpdump", rtmpdump, "--live", "-r", server.url(), "-o", target)
    server.wait_for_log("Subscriber added")
    publisher.finish()
    # It goes by the publisher's unpublish notice; its exit status for a live stream's end differs between versions.
    player.wait()
    assert_from_first_keyframe(packets_of(target), packets_of(clip.path).moved(offset_ms))
    assert not decoding_errors(target)


def test_gstreamer_receives_what_was_published(stage: Stage, clips: ClipLibrary, tmp_path: Path) -> None:
    launch = gstreamer("rtmp2src", "filesink")
    clip, target = clips["h264_aac"], tmp_path / "received.flv"
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    pipeline = ["rtmp2src", f"location={server.url()}", "!", "filesink", f"location={target}"]
    player = stage.run("gstreamer", launch, *pipeline)
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert player.wait() == 0, player.output
    # It ends as soon as it hears of the end, and does not always write its last packets.
    got, sent = packets_of(target), packets_of(clip.path)
    for track in ("video", "audio"):
        start = sent.of(track).index(got.of(track)[0])
        missing = len(sent.of(track)) - start - len(got.of(track))
        assert start <= 2
        assert 0 <= missing <= 3
        assert_same_packets(got.of(track), sent.of(track)[start : len(sent.of(track)) - missing], track)


def test_gstreamer_publishes_and_ffmpeg_plays(stage: Stage, clips: ClipLibrary) -> None:
    launch = gstreamer("rtmp2sink", "filesrc")
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT, "-publisher-grace", "1s")
    pipeline = ["filesrc", f"location={clip.path}", "!", "flvdemux", "name=d", "flvmux", "name=m", "streamable=true"]
    tracks = ["d.video", "!", "queue", "!", "h264parse", "!", "m.video", "d.audio", "!", "queue", "!", "aacparse"]
    sink = ["!", "m.audio", "m.src", "!", "rtmp2sink", f"location={server.url()}", "sync=true"]
    publisher = stage.run("gstreamer", launch, *pipeline, *tracks, *sink)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    player.wait_ended()
    publisher.wait()
    # Its own muxer, with its own timestamps: the frames are the same, from a keyframe to the last one.
    sent = [packet.digest for packet in packets_of(clip.path).video]
    got = [packet.digest for packet in player.packets.video]
    start = sent.index(got[0])
    assert start % 25 == 0
    assert got == sent[start:]
