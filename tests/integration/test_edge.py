"""Edges: streams pulled from an origin when somebody asks, and what players see when origins fail."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from headrace.protocol.client import Refused, Role
from tests.helpers.sockets import free_port
from tests.integration.clips import ClipLibrary
from tests.integration.far_ends import MutePort
from tests.integration.harness import PATIENT, SECRET, ServerProcess, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_monotonic, packets_of
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


def origin_of(server: ServerProcess) -> tuple[str, str]:
    """The flag that makes another server an edge of this one; its token must be in no line of any of them."""
    return "-origin", f"rtmp://127.0.0.1:{server.port}?token={SECRET}"


def page(server: ServerProcess, path: str) -> Any:
    port = server.wait_for_log("HTTP listening")["addresses"][0].rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        text = response.read().decode()
    assert SECRET not in text, f"a token is on the page {path}"
    return json.loads(text) if text[:1] in ("{", "[") else text


def metric(server: ServerProcess, name: str) -> float:
    """The sum over its labels."""
    samples = [line.rpartition(" ") for line in page(server, "/metrics").splitlines() if not line.startswith("#")]
    found = [float(value) for labelled, _, value in samples if labelled.partition("{")[0] == name]
    assert found, f"no metric {name}"
    return sum(found)


def refusal_of(client: RawClient) -> Refused:
    client.receive_until(lambda: client.refusal is not None, "a refusal")
    assert client.refusal is not None
    return client.refusal


def watch(stage: Stage, server: ServerProcess) -> RawClient:
    """A player that has had some media."""
    player = RawClient(stage, server, Role.PLAY).start()
    player.receive_until(lambda: len(player.tags) > 20, "media")
    return player


def test_a_chain_of_two_edges_brings_every_packet_once_and_lets_go_when_nobody_watches(
    stage: Stage, clips: ClipLibrary
) -> None:
    clip = clips["h264_b_frames"]
    origin = stage.server(*PATIENT)
    quick = ("-origin-linger", "1s", "-http-status", ":0", "-record-all", "-record-dir", stage.folder / "recordings")
    middle = stage.server(*PATIENT, *quick, *origin_of(origin))
    last = stage.server(*PATIENT, *quick, *origin_of(middle))
    publisher = stage.feed(clip, origin.url())
    origin.wait_for_log("publish command")
    assert not origin.logged("play command"), "pulled before anybody asked"

    players = [stage.play(last.url(), decode=index == 0) for index in range(3)]
    last.wait_for_log("Subscriber added", count=3)
    near = stage.play(middle.url())
    middle.wait_for_log("Subscriber added", count=2)  # the other is the last edge
    assert len(origin.logged("Subscriber added")) == 1
    (stream,) = page(last, "/streams")["streams"]
    assert stream["publisher"] is None
    assert stream["origin"]["url"] == f"rtmp://127.0.0.1:{middle.port}/live?****"
    assert stream["origin"]["state"] == "connected"
    assert (stream["viewers"], stream["recorders"]) == (3, [])
    assert metric(last, "headrace_publishers") == 0
    assert metric(last, "headrace_pulled_bytes_total") > 0
    assert metric(last, "headrace_received_bytes_total") == 0

    publisher.finish()
    sent = packets_of(clip.path)
    for player in [*players, near]:
        assert_from_first_keyframe(player.wait_ended(), sent)  # ended at the origin: ended everywhere
    assert len(last.logged("Pull connecting")) == len(middle.logged("Pull connecting")) == 1
    assert not list((stage.folder / "recordings").glob("*")), "an edge recorded what it pulled"


def test_what_is_pulled_is_recorded_and_pushed_only_where_the_edge_is_told_so(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    folder = stage.folder / "recordings"
    origin, far = stage.server(*PATIENT), stage.server(*PATIENT)
    own_flags = ("-record-all", "-record-dir", folder, "-relay-to", f"rtmp://127.0.0.1:{far.port}/live")
    edge = stage.server(*PATIENT, *own_flags, "-pulled-streams", "all", *origin_of(origin))
    publisher = stage.feed(clip, origin.url())
    origin.wait_for_log("publish command")
    player = stage.play(edge.url())
    edge.wait_for_log("Subscriber added")
    far.wait_for_log("publish command", stream_key="live/stream")
    publisher.finish()
    sent = packets_of(clip.path)
    assert_from_first_keyframe(player.wait_ended(), sent)
    edge.wait_for_log("Recording finished")
    (recording,) = folder.glob("*.flv")
    assert_from_first_keyframe(packets_of(recording), sent)


def test_a_pull_ends_some_time_after_the_last_reader_and_begins_again_with_the_next(
    stage: Stage, clips: ClipLibrary
) -> None:
    origin = stage.server()
    edge = stage.server("-origin-linger", "500ms", *origin_of(origin))
    publisher = stage.publish(clips["h264_aac"], origin.url(), loops=True)
    origin.wait_for_log("publish command")
    for count in (1, 2):
        watch(stage, edge).finish()
        edge.wait_for_log("Pull ended", reason="nobody watches", count=count)
        origin.wait_for_log("Subscriber removed", count=count)
    publisher.quit_by_signal()


def test_players_go_on_when_the_origin_is_killed_and_back_within_the_grace(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    origin = stage.server()
    port = origin.port
    edge = stage.server("-publisher-grace", "30s", "-http-status", ":0", *origin_of(origin))
    publisher = stage.publish(clip, origin.url(), loops=True)
    origin.wait_for_log("publish command")
    player = stage.play(edge.url(), decode=True)
    before = player.wait_for_packets(100)
    origin.kill()
    edge.wait_for_log("Pull failed", error_class="reset")
    edge.wait_for_log("Pull failed", error_class="refused")
    publisher.wait()
    (stream,) = page(edge, "/streams")["streams"]
    assert stream["state"] == "grace"
    again = stage.server(listen=f"127.0.0.1:{port}")
    publisher = stage.publish(clip, again.url(), loops=True)
    again.wait_for_log("publish command")
    edge.wait_for_log("Pull connected", count=2)
    player.wait_for_packets(len(before.packets) + 150)
    publisher.quit_by_signal()
    got = player.wait_ended()  # no complaint about the decoding, the timestamps or the end
    assert_monotonic(got.video, "video")
    assert_monotonic(got.audio, "audio")
    assert len(edge.logged("Subscriber added")) == 1


def test_players_end_when_the_origin_stays_away(stage: Stage, clips: ClipLibrary) -> None:
    origin = stage.server()
    edge = stage.server("-publisher-grace", "1s", *origin_of(origin))
    publisher = stage.publish(clips["h264_aac"], origin.url(), loops=True)
    origin.wait_for_log("publish command")
    player = stage.play(edge.url())
    player.wait_for_packets(50)
    origin.kill()
    player.wait_ended()
    edge.wait_for_log("Pull ended", reason="publisher did not come back within the grace period")
    publisher.wait()
    # Nobody is kept waiting for an origin that is known to be away.
    assert refusal_of(RawClient(stage, edge, Role.PLAY)).code == "NetStream.Play.StreamNotFound"


def test_a_stream_that_no_origin_has_is_refused_and_origins_are_asked_in_their_order(
    stage: Stage, clips: ClipLibrary
) -> None:
    mute = MutePort(stage)
    origin = stage.server(*PATIENT)
    dead, silent = f"rtmp://127.0.0.1:{free_port()}", f"rtmp://127.0.0.1:{mute.port}"
    edge = stage.server(*PATIENT, "-origin", f"{dead},{silent}", *origin_of(origin))
    refusal_of(RawClient(stage, edge, Role.PLAY, name="missing"))
    origin.wait_for_log("Play refused", stream_key="live/missing")
    edge.wait_for_log("Pull failed", count=3)
    failed = [line["error_class"] for line in edge.logged("Pull failed")]
    assert failed == ["refused", "timeout", "rejected"]

    clip = clips["h264_aac"]
    publisher = stage.feed(clip, origin.url())
    origin.wait_for_log("publish command")
    player = stage.play(edge.url())
    edge.wait_for_log("Subscriber added")
    publisher.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))


def test_edges_that_point_at_themselves_and_at_each_other_end_and_do_not_spin(stage: Stage) -> None:
    port = free_port()
    own = stage.server("-origin", f"rtmp://127.0.0.1:{port}", listen=f"127.0.0.1:{port}")
    other_port = free_port()
    one = stage.server("-origin", f"rtmp://127.0.0.1:{other_port}")
    other = stage.server(*origin_of(one), listen=f"127.0.0.1:{other_port}")
    for number, server in enumerate((own, one, other)):
        refusal = refusal_of(RawClient(stage, server, Role.PLAY, name=f"stream{number}"))
        assert refusal.code == "NetStream.Play.StreamNotFound"
        assert "circle" not in refusal.description  # it asked for a stream, and that is not there
    for server, count in ((own, 1), (one, 2), (other, 2)):
        server.wait_for_log("Pull ended", count=count)
        assert len(server.logged("Pull connecting")) == count
    assert own.logged("Play refused")[0]["reason"].endswith("the request went in a circle.")


def test_a_circle_of_edges_that_lost_its_origin_does_not_feed_itself(stage: Stage, clips: ClipLibrary) -> None:
    """Each pulls from the origin, and from the other should that fail: the stream must end, not go round."""
    origin = stage.server()
    other_port = free_port()
    flags = ("-publisher-grace", "2s")
    one = stage.server(*flags, *origin_of(origin), "-origin", f"rtmp://127.0.0.1:{other_port}")
    other = stage.server(*flags, *origin_of(one), listen=f"127.0.0.1:{other_port}")
    publisher = stage.publish(clips["h264_aac"], origin.url(), loops=True)
    origin.wait_for_log("publish command")
    players = [stage.play(server.url()) for server in (one, other)]
    for player in players:
        player.wait_for_packets(50)
    origin.kill()
    for player in players:
        player.wait_ended()
    publisher.wait()
    assert other.wait_for_log("Play refused")["reason"].endswith("the request went in a circle.")


def test_a_publisher_is_refused_while_a_pull_is_watched_and_granted_when_nobody_does(
    stage: Stage, clips: ClipLibrary
) -> None:
    clip = clips["h264_aac"]
    origin = stage.server()
    edge = stage.server("-origin-linger", "60s", *origin_of(origin))
    publisher = stage.publish(clip, origin.url(), loops=True)
    origin.wait_for_log("publish command")
    player = watch(stage, edge)
    assert refusal_of(RawClient(stage, edge, Role.PUBLISH)).code == "NetStream.Publish.BadName"
    player.finish()
    edge.wait_for_log("Subscriber removed")
    RawClient(stage, edge, Role.PUBLISH).start()
    edge.wait_for_log("Pull ended", reason="published here")
    origin.wait_for_log("Subscriber removed")
    publisher.quit_by_signal()
