"""What an operator reads: the lines of a session, and the secrets that are in none of them."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from headrace.protocol.client import Role
from tests.integration.clips import ClipLibrary
from tests.integration.harness import PATIENT, SECRET, SERVE, ServerProcess, Stage
from tests.integration.packets import assert_from_first_keyframe, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration

_OPENING = ["Connection accepted", "Handshake completed", "connect command", "createStream"]


def messages_of(server: ServerProcess, conn_id: str) -> list[str]:
    return [record["msg"] for record in server.records if record.get("conn_id") == conn_id]


def test_a_session_is_told_line_by_line(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    publisher = stage.feed(clips["h264_aac"], server.url())
    server.wait_for_log("Codec detected")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    publisher.finish()
    player.wait_ended()
    server.wait_for_log("Connection closed", count=2)
    published = ["publish command", "Codec detected", "publisher disconnected"]
    assert messages_of(server, "c1") == [*_OPENING, *published, "Connection closed"]
    played = ["play command", "Subscriber added", "Subscriber removed"]
    assert messages_of(server, "c2") == [*_OPENING, *played, "Connection closed"]
    for record in server.records:
        if record["msg"] in (*published, *played):
            assert record["stream_key"] == "live/stream", record
    assert server.logged("Connection accepted", conn_id="c1")[0]["remote"].startswith("127.0.0.1:")


def test_the_codecs_of_a_stream_are_described(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    publisher = stage.feed(clips["h264_aac"], server.url())
    detected = server.wait_for_log("Codec detected", stream_key="live/stream", conn_id="c1")
    publisher.finish()
    picture = {"video": "h264", "video_profile": "Constrained Baseline", "video_level": "3.0"}
    size = {"width": 640, "height": 360, "frame_rate": 25.0}
    sound = {"audio": "aac", "audio_profile": "LC", "sample_rate": 44100, "channels": 1}
    assert detected | picture | size | sound == detected


def test_no_token_is_in_any_line_or_file_name(stage: Stage, clips: ClipLibrary, tmp_path: Path) -> None:
    """In the app, in the name, in tcUrl and in refused requests: a query is its sender's secret."""
    recordings = tmp_path / "recordings"
    server = stage.server(*PATIENT, "-log-level", "debug", "-record-all", "-record-dir", recordings)
    key = f"live?auth={SECRET}/stream"
    publisher = stage.feed(clips["h264_aac"], server.url(key))
    server.wait_for_log("publish command", stream_key="live/stream")
    player = stage.play(server.url(key))
    server.wait_for_log("Subscriber added", stream_key="live/stream")
    assert stage.publish(clips["h264_aac"], server.url(key)).wait() != 0
    assert stage.play(server.url("live/nobody")).wait() != 0
    refused = RawClient(stage, server, Role.PUBLISH)
    refused.receive_until(lambda: refused.refusal is not None, "refusal")
    publisher.finish()
    player.wait_ended()
    server.stop()
    assert SECRET not in server.output
    assert {path.name.split("_2")[0] for path in recordings.iterdir()} == {"live_stream"}


def test_lines_for_a_person_hold_no_token_either(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.run("server", *SERVE, "-listen", "127.0.0.1:0", "-log-format", "text", "-log-level", "debug")
    port = server.wait_until("port", lambda: re.search(r"Listening .*127\.0\.0\.1:(\d+)", server.output))[1]
    url = f"rtmp://127.0.0.1:{port}/live?auth={SECRET}/stream?token={SECRET}"
    publisher = stage.feed(clips["h264_aac"], url)
    server.wait_until("publish command", lambda: "publish command" in server.output or None)
    player = stage.play(url + "&more")
    server.wait_until("Subscriber added", lambda: "Subscriber added" in server.output or None)
    publisher.finish()
    player.wait_ended()
    server.close()
    assert server.status == 0
    assert SECRET not in server.output
    assert "\x1b" not in server.output, "colours, and nobody sees them"
    assert re.search(r"INFO +publish command +conn_id=c1 stream_key=live/stream", server.output)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\u202eleft", "x" * 4096])
def test_a_name_from_the_wire_cannot_forge_a_line(stage: Stage, name: str) -> None:
    server = stage.server()
    RawClient(stage, server, Role.PUBLISH, name).start().finish()
    line = server.wait_for_log("publish command")
    assert line["stream_key"].startswith(f"live/{name}"[:500])
    assert server.output.isascii()
    assert max(len(text) for text in server.stderr) < 2000


def test_a_stranger_that_speaks_no_rtmp_disturbs_nobody(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    publisher = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url())
    server.wait_for_log("Subscriber added")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert browser.recv(100) == b"", "a stranger gets no answer"
    server.wait_for_log("Protocol error", conn_id="c3")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
