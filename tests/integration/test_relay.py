"""Restreaming: server 1 pushes to server 2 and others, each of which may fail alone and come back."""

from __future__ import annotations

import json
import signal
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.helpers.sockets import free_port
from tests.integration.clips import ClipLibrary
from tests.integration.far_ends import NGINX, Bridge, MutePort, rtmp_module, start_nginx
from tests.integration.flv_tags import read_tags
from tests.integration.harness import PATIENT, ServerProcess, Stage
from tests.integration.packets import (
    assert_from_first_keyframe,
    assert_monotonic,
    assert_suffix,
    decoding_errors,
    packets_of,
)

pytestmark = pytest.mark.integration

# Part of every stream key that server 1 is given; it must be in nothing that server 1 says.
KEY = "k3y-9f2b77"


def target(server: ServerProcess, number: int = 0) -> str:
    return f"rtmp://127.0.0.1:{server.port}/live/{KEY}-{number}"


def call(server: ServerProcess, path: str, method: str = "GET", body: object = None) -> Any:
    """One HTTP request to the server's status port; the answer must hold no key."""
    port = server.wait_for_log("HTTP listening")["addresses"][0].rpartition(":")[2]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode()
    assert KEY not in text, f"a stream key is on the page {path}"
    return json.loads(text) if text[:1] in ("{", "[") else text


def wait_for_status(server: ServerProcess, name: str, **fields: object) -> dict[str, Any]:
    """The destination's entry in /health, once it has these values."""

    def find() -> dict[str, Any] | None:
        one: dict[str, Any] = call(server, "/health")["destinations"].get(name, {})
        return one if all(one.get(key) == value for key, value in fields.items()) else None

    return server.wait_until(f"destination {name} with {fields}", find)


def assert_no_key(server: ServerProcess) -> None:
    assert KEY not in server.output, "a stream key is in the log"
    command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert KEY.encode() not in command_line, "a stream key is in the process list"


def config_file(stage: Stage, *destinations: dict[str, Any]) -> Path:
    path = stage.folder / "destinations.json"
    path.write_text(json.dumps({"destinations": list(destinations)}))
    return path


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.flv"), key=lambda path: path.stat().st_mtime)


def test_a_player_behind_two_servers_gets_what_was_published(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_b_frames"]
    second = stage.server(*PATIENT)
    first = stage.server(*PATIENT, "-relay-to", target(second))
    publisher = stage.feed(clip, first.url())
    second.wait_for_log("publish command")
    player = stage.play(second.url(f"live/{KEY}-0"), decode=True)
    second.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    second.wait_for_log("publisher disconnected", reason="unpublished")
    assert_no_key(first)


@pytest.mark.parametrize("name", ["aac_only", "h264_only", "hevc_aac"])
def test_every_kind_of_stream_arrives_whole(stage: Stage, clips: ClipLibrary, name: str) -> None:
    clip = clips[name]
    folder = stage.folder / "recordings"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", folder)
    first = stage.server(*PATIENT, "-relay-to", f"rtmp://127.0.0.1:{second.port}/live")
    options = ("-rtmp_enhanced_codecs", "hvc1") if name == "hevc_aac" else ()
    publisher = stage.feed(clip, first.url("live/camera"), *options)
    first.wait_for_log("Destination connected")
    second.wait_for_log("publish command", stream_key="live/camera")  # the source's own name
    publisher.finish()
    second.wait_for_log("Recording finished")
    got, sent = packets_of(recordings(folder)[0]), packets_of(clip.path)
    if sent.video:
        assert_from_first_keyframe(got, sent)
    else:
        assert_suffix(got.audio, sent.audio, "audio")


def test_three_destinations_get_identical_recordings_and_an_unreachable_one_costs_nobody_anything(
    stage: Stage, clips: ClipLibrary
) -> None:
    clip = clips["h264_aac"]
    folder = stage.folder / "recordings"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", folder)
    targets = ",".join(target(second, number) for number in range(3))
    dead = f"rtmp://127.0.0.1:{free_port()}/live/{KEY}"
    lost = f"rtmp://no-such-host.invalid/live/{KEY}"
    first = stage.server(*PATIENT, "-relay-to", dead, "-relay-to", targets, "-relay-to", lost, "-http-status", ":0")
    publisher = stage.feed(clip, first.url())
    first.wait_for_log("Destination connected", count=3)
    player = stage.play(first.url())
    first.wait_for_log("Subscriber added")
    first.wait_for_log("Destination failed", error_class="refused")
    first.wait_for_log("Destination failed", error_class="dns")
    health = call(first, "/health")
    assert health["total_destinations"] == 5
    assert health["connected_destinations"] == 3
    publisher.finish()
    second.wait_for_log("Recording finished", count=3)
    sent = packets_of(clip.path)
    for path in recordings(folder):
        assert_from_first_keyframe(packets_of(path), sent)
    contents = {path.read_bytes() for path in recordings(folder)}
    assert len(contents) == 1, "the three recordings differ"
    assert_from_first_keyframe(player.wait_ended(), sent)
    assert_no_key(first)


def test_a_destination_that_is_killed_and_restarted_catches_up(stage: Stage, clips: ClipLibrary) -> None:
    here, there = stage.folder / "here", stage.folder / "there"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", there)
    port = second.port
    retry = {"initial_s": 0.2, "max_s": 0.5}
    config = config_file(stage, {"name": "far", "url": target(second), "retry": retry})
    first = stage.server("-relay-config", config, "-record-all", "-record-dir", here, "-http-status", ":0")
    publisher = stage.publish(clips["h264_aac"], first.url(), loops=True)
    second.wait_for_log("Recording started")
    first.wait_until("3 s of media", lambda: call(first, "/health")["total_messages_sent"] > 200 or None)
    second.kill()
    first.wait_for_log("Destination failed", error_class="reset")
    first.wait_for_log("Destination failed", error_class="refused", count=3)
    again = stage.server(*PATIENT, "-record-all", "-record-dir", there, listen=f"127.0.0.1:{port}")
    again.wait_for_log("publish command")
    sent = call(first, "/health")["total_messages_sent"]
    first.wait_until("more media", lambda: call(first, "/health")["total_messages_sent"] > sent + 150 or None)
    publisher.quit_by_signal()
    again.wait_for_log("Recording finished")
    first.wait_for_log("Recording finished")

    before, after = recordings(there)
    whole = packets_of(recordings(here)[0])
    assert not decoding_errors(after), "the destination's second recording does not decode"
    got, had = packets_of(after), packets_of(before)
    assert_suffix(got.video, whole.video, "video after the outage")
    assert_suffix(got.audio, whole.audio, "audio after the outage")
    assert_monotonic([*had.video, *got.video], "video across the outage")
    keyframes = [tag.timestamp_ms for tag in read_tags(recordings(here)[0]) if tag.is_keyframe]
    stopped_ms = had.video[-1].dts_ms or 0
    # Some of what was sent last died with the far end; from there it goes on, not from the time it came back.
    resumed_ms = got.video[0].dts_ms or 0
    assert resumed_ms in keyframes
    assert resumed_ms - stopped_ms <= 2000, f"stopped at {stopped_ms} ms, went on at {resumed_ms} ms"
    status = call(first, "/health")["destinations"]["far"]
    assert status["reconnect_count"] == 1
    assert_no_key(first)


def test_destinations_that_never_speak_or_stop_reading_delay_nobody(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    folder = stage.folder / "recordings"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", folder)
    mute, bridge = MutePort(stage), Bridge(stage, second.port)
    config = config_file(
        stage,
        {"name": "mute", "url": f"rtmp://127.0.0.1:{mute.port}/live", "stream_key": KEY},
        {"name": "deaf", "url": f"rtmp://127.0.0.1:{bridge.port}/live", "stream_key": f"{KEY}-deaf"},
        {"name": "well", "url": f"rtmp://127.0.0.1:{second.port}/live", "stream_key": f"{KEY}-well"},
    )
    first = stage.server(*PATIENT, "-relay-config", config, "-http-status", ":0")
    publisher = stage.feed(clip, first.url())
    first.wait_for_log("Destination connected", count=2)
    player = stage.play(first.url())
    first.wait_for_log("Subscriber added")
    bridge.freeze()
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    second.wait_for_log("Recording finished")
    well = next(path for path in recordings(folder) if "-well_" in path.name)
    assert_from_first_keyframe(packets_of(well), packets_of(clip.path))
    assert call(first, "/destinations").keys() == {"mute", "deaf", "well"}
    bridge.thaw()


def test_a_stalled_destination_says_which_side_is_slow_and_comes_back(stage: Stage, clips: ClipLibrary) -> None:
    second = stage.server(*PATIENT)
    bridge = Bridge(stage, second.port)
    config = config_file(
        stage, {"name": "far", "url": f"rtmp://127.0.0.1:{bridge.port}/live/{KEY}", "retry": {"initial_s": 0.2}}
    )
    first = stage.server("-relay-config", config, "-http-status", ":0")
    stage.publish(clips["h264_heavy"], first.url(), loops=True)
    wait_for_status(first, "far", status="connected", flowing=True)
    bridge.freeze()
    stalled = wait_for_status(first, "far", status="connected", flowing=False)
    assert stalled["slow_side"].startswith("destination:")
    assert stalled["queue_age_s"] > 1
    failed = first.wait_for_log("Destination failed", error_class="stalled")
    assert failed["destination"] == "far"
    bridge.thaw()
    back = wait_for_status(first, "far", status="connected", flowing=True)
    assert back["reconnect_count"] >= 1


def test_a_silent_publisher_is_named_as_the_slow_side(stage: Stage, clips: ClipLibrary) -> None:
    second = stage.server()
    config = config_file(stage, {"name": "far", "url": target(second)})
    first = stage.server("-relay-config", config, "-http-status", ":0")
    stage.feed(clips["h264_aac"], first.url())  # its opening, and then nothing
    silent = wait_for_status(first, "far", status="connected", flowing=False)
    assert silent["slow_side"].startswith("publisher:")


def test_a_busy_key_is_retried_slowly_and_never_shown(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    second = stage.server()
    stage.publish(clip, second.url(f"live/{KEY}-0"), loops=True)
    second.wait_for_log("publish command")
    config = config_file(stage, {"name": "busy", "url": target(second), "retry": {"initial_s": 0.1, "max_s": 30}})
    first = stage.server("-relay-config", config, "-http-status", ":0")
    stage.publish(clip, first.url(), loops=True)
    refused = first.wait_for_log("Destination failed", error_class="rejected")
    assert "NetStream.Publish.BadName" in refused["error"]
    assert refused["retry_in_s"] > 20
    waiting = wait_for_status(first, "busy", status="waiting")
    assert waiting["retry_in_s"] > 20
    assert_no_key(first)


def test_destinations_come_and_go_by_the_api_while_the_stream_runs(stage: Stage, clips: ClipLibrary) -> None:
    second = stage.server(*PATIENT)
    first = stage.server("-relay-to", target(second, 0), "-http-status", ":0")
    stage.publish(clips["h264_aac"], first.url(), loops=True)
    second.wait_for_log("publish command", stream_key=f"live/{KEY}-0")

    added = call(first, "/api/destinations", "POST", {"name": "later", "url": target(second, 1)})
    assert added["name"] == "later"
    second.wait_for_log("Codec detected", stream_key=f"live/{KEY}-1")
    wait_for_status(first, "later", status="connected", flowing=True)

    assert call(first, "/api/destinations/later", "PATCH", {"enabled": False})["enabled"] is False
    second.wait_for_log("publisher disconnected", stream_key=f"live/{KEY}-1", reason="unpublished")
    wait_for_status(first, "later", status="disconnected")
    call(first, "/api/destinations/later", "PATCH", {"enabled": True})
    second.wait_for_log("publish command", stream_key=f"live/{KEY}-1", count=2)
    call(first, "/api/destinations/later", "DELETE")
    second.wait_for_log("publisher disconnected", stream_key=f"live/{KEY}-1", count=2, reason="unpublished")
    assert list(call(first, "/destinations")) == [f"rtmp://127.0.0.1:{second.port}/live/****"]
    assert call(first, "/api/destinations/later", "DELETE")["code"] == "not_found"

    # The other one was never touched.
    assert len(second.logged("publish command", stream_key=f"live/{KEY}-0")) == 1
    only = next(iter(call(first, "/health")["destinations"].values()))
    assert only["status"] == "connected"
    assert only["reconnect_count"] == 0
    assert_no_key(first)


def test_a_publisher_can_be_dropped_by_the_api(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server("-http-status", ":0")
    publisher = stage.publish(clips["h264_aac"], server.url(), loops=True)
    server.wait_for_log("Codec detected")
    stream = call(server, "/streams")["streams"][0]
    assert stream["key"] == "live/stream"
    assert stream["codecs"]["video"] == "h264"
    call(server, "/api/streams/live/stream/publisher", "DELETE")
    publisher.wait()
    assert call(server, "/streams") == {"streams": []}


def test_a_reload_keeps_what_did_not_change(stage: Stage, clips: ClipLibrary) -> None:
    second = stage.server()
    stays = {"name": "stays", "url": target(second, 0)}
    config = config_file(stage, stays, {"name": "goes", "url": target(second, 1)})
    first = stage.server("-relay-config", config, "-http-status", ":0")
    first.expected_errors.add("Reload failed")
    stage.publish(clips["h264_aac"], first.url(), loops=True)
    first.wait_for_log("Destination connected", count=2)

    config_file(stage, stays, {"name": "comes", "url": target(second, 2)})
    first.send_signal(signal.SIGHUP)
    first.wait_for_log("Reloaded")
    second.wait_for_log("publish command", stream_key=f"live/{KEY}-2")
    second.wait_for_log("publisher disconnected", stream_key=f"live/{KEY}-1", reason="unpublished")
    wait_for_status(first, "comes", status="connected")
    assert set(call(first, "/destinations")) == {"stays", "comes"}
    assert len(second.logged("publish command", stream_key=f"live/{KEY}-0")) == 1

    config.write_text('{"destinations": [}')
    first.send_signal(signal.SIGHUP)
    failed = first.wait_for_log("Reload failed")
    assert "line 1" in failed["error"]
    assert set(call(first, "/destinations")) == {"stays", "comes"}
    assert_no_key(first)


def test_nginx_takes_the_stream_as_it_is(stage: Stage, clips: ClipLibrary) -> None:
    if NGINX is None or rtmp_module() is None:
        pytest.skip("nginx with its RTMP module is not on this machine (Debian: nginx libnginx-mod-rtmp)")
    clip = clips["h264_aac"]
    folder = stage.folder / "nginx-recordings"
    port = start_nginx(stage, folder)
    first = stage.server(*PATIENT, "-relay-to", f"rtmp://127.0.0.1:{port}/live/{KEY}", "-http-status", ":0")
    publisher = stage.feed(clip, first.url())
    first.wait_for_log("Destination connected")
    player = stage.play(f"rtmp://127.0.0.1:{port}/live/{KEY}")
    publisher.finish()
    sent = packets_of(clip.path)

    def recorded() -> list[Path] | None:
        found = recordings(folder)
        return found if found and len(packets_of(found[0]).video) == len(sent.video) else None

    got = packets_of(first.wait_until("nginx to have recorded everything", recorded)[0])
    # nginx counts timestamps from 0 in its recordings: what is compared is the media itself.
    for ours, theirs in ((got.video, sent.video), (got.audio, sent.audio[-len(got.audio) :])):
        assert [(packet.size, packet.digest) for packet in ours] == [(packet.size, packet.digest) for packet in theirs]
    assert len(sent.audio) - len(got.audio) <= 3, "sound from before the first keyframe only"
    player.close()
    assert_no_key(first)


def test_a_tls_destination_is_verified_and_served(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    folder = stage.folder / "recordings"
    second = stage.server(*PATIENT, "-record-all", "-record-dir", folder)
    authority, stranger = trustme.CA(), trustme.CA()
    roots = stage.folder / "roots.pem"
    authority.cert_pem.write_to_path(roots)
    bridges = []
    for issuer in (authority, stranger):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issuer.issue_cert("localhost").configure_cert(context)
        bridges.append(Bridge(stage, second.port, context))
    urls = ",".join(f"rtmps://localhost:{bridge.port}/live/{KEY}-{bridge.port}" for bridge in bridges)
    first = stage.server(*PATIENT, "-relay-to", urls, "-http-status", ":0", env={"SSL_CERT_FILE": str(roots)})
    publisher = stage.feed(clip, first.url())
    first.wait_for_log("Destination connected")
    failed = first.wait_for_log("Destination failed", error_class="tls")
    assert "certificate" in failed["error"]
    publisher.finish()
    second.wait_for_log("Recording finished")
    assert_from_first_keyframe(packets_of(recordings(folder)[0]), packets_of(clip.path))
    assert len(recordings(folder)) == 1, "a destination with a foreign certificate was served"
    assert_no_key(first)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ('{"destinations": [{"url": "rtmp://h/a", "nmae": "x"}]}', '"nmae"'),
        ('{"destinations": [{"url": "http://h/a"}]}', "rtmp://"),
        ('{"destinations": [{"url": "rtmp://h/a/k"}, {"url": "rtmp://h/a/k"}]}', "destinations[1]"),
    ],
)
def test_a_bad_file_is_one_line_and_nothing_is_started(stage: Stage, text: str, words: str) -> None:
    path = stage.folder / "destinations.json"
    path.write_text(text)
    command = [sys.executable, "-m", "headrace", "serve", "-listen", "127.0.0.1:0", "-relay-config", str(path)]
    child = stage.run("server", *command)
    assert child.wait() == 2
    assert len(child.output.strip().splitlines()) == 1
    assert str(path) in child.output
    assert words in child.output
