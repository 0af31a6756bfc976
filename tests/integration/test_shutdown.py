"""How the server starts and ends: signals, a port in use, a wrong flag."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.flv_tags import read_tags
from tests.integration.harness import PATIENT, SERVE, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_monotonic, decoding_errors, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_sessions_and_recordings_within_five_seconds(
    stage: Stage, clips: ClipLibrary, tmp_path: Path, number: signal.Signals
) -> None:
    server = stage.server("-record-all", "-record-dir", tmp_path / "recordings")
    keys = ["live/one", "live/two"]
    publishers = [stage.publish(clips["h264_aac"], server.url(key), loops=True) for key in keys]
    for key in keys:
        server.wait_for_log("publish command", stream_key=key)
    players = [stage.play(server.url(key), decode=True) for key in keys]
    for player in players:
        player.wait_for_packets(60)
    elapsed_s = server.stop(number)
    assert elapsed_s < 5, f"{elapsed_s:.1f} s"
    for player in players:
        got = player.wait_ended(deadline_s=15)  # told that the stream is over, not cut off
        assert_monotonic(got.video, "video")
    for publisher in publishers:
        assert publisher.wait() != 0
    files = sorted((tmp_path / "recordings").iterdir())
    assert sorted(Path(line["path"]) for line in server.logged("Recording finished")) == files
    assert len(files) == 2
    for file, player in zip(files, players, strict=True):
        assert not decoding_errors(file)
        # Everything that the player got is on the disk.
        assert packets_of(file).video[-1] == player.packets.video[-1]
    assert [record["msg"] for record in server.records][-1] == "Stopped"


def test_peers_that_do_not_listen_cannot_hold_the_server_up(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    stalled = [RawClient(stage, server, Role.PLAY, receive_buffer_bytes=4096).start() for _ in range(3)]
    publisher.send_tags(clips["h264_heavy"].tags)
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    for stranger in strangers:
        stage.on_close(stranger.close)
    strangers[0].sendall(b"\x03" + bytes(100))  # half a handshake
    server.wait_for_log("Connection accepted", count=7)
    elapsed_s = server.stop()
    assert elapsed_s < 5, f"{elapsed_s:.1f} s"
    assert not any(player.has_ended for player in stalled)


def test_a_port_in_use_is_one_line_and_exit_status_1(stage: Stage) -> None:
    first = stage.server()
    second = stage.run("second server", *SERVE, "-listen", f"127.0.0.1:{first.port}")
    assert second.wait() == 1
    assert second.stdout == []
    (line,) = second.stderr
    assert f"127.0.0.1:{first.port}" in line
    assert "in use" in line
    assert first.is_running


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-publisher-grace", "soon"], ["publisher-grace", "soon"]),
        (["--chunk-size", "12"], ["chunk-size", "12", "128"]),
        (["-no-such-flag"], ["no-such-flag"]),
        (["-record-dir"], ["record-dir"]),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_status_2(stage: Stage, flags: list[str], words: list[str]) -> None:
    server = stage.run("server", *SERVE, *flags)
    assert server.wait() == 2
    assert server.stdout == []
    (line,) = server.stderr
    assert all(word in line for word in words), line


def test_all_addresses_are_served_in_both_families(stage: Stage, clips: ClipLibrary) -> None:
    """The default of -listen, with a port that the system picks."""
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT, listen=":0")
    publisher = stage.feed(clip, f"rtmp://127.0.0.1:{server.port}/live/stream")
    server.wait_for_log("publish command")
    player = stage.play(f"rtmp://[::1]:{server.port}/live/stream")
    server.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    remotes = [record["remote"] for record in server.logged("Connection accepted")]
    assert [remote.rpartition(":")[0] for remote in remotes] == ["127.0.0.1", "[::1]"]


def test_a_recording_of_a_stream_in_its_grace_is_closed_too(stage: Stage, clips: ClipLibrary, tmp_path: Path) -> None:
    server = stage.server(*PATIENT, "-publisher-grace", "60s", "-record-all", "-record-dir", tmp_path / "recordings")
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    publisher.send_tags(clips["h264_aac"].tags)
    publisher.close()
    server.wait_for_log("publisher disconnected")
    assert server.stop() < 5
    (path,) = [Path(line["path"]) for line in server.logged("Recording finished")]
    assert read_tags(path) == clips["h264_aac"].tags
