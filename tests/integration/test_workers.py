"""Several workers behind one port: every player gets every packet, one view over all, and one that dies is replaced."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.protocol.client import Role
from tests.helpers.event_contract import assert_keeps_the_contract
from tests.integration.child import DEADLINE_S, Child
from tests.integration.clips import ClipLibrary
from tests.integration.harness import PATIENT, Player, ServerProcess, Stage
from tests.integration.packets import assert_from_first_keyframe, assert_monotonic, packets_of
from tests.integration.raw_client import RawClient
from tests.integration.test_edge import metric, origin_of, page, refusal_of
from tests.integration.test_relay import call

pytestmark = pytest.mark.integration

TWO = ("-workers", "2", "-http-status", ":0")


def only_stream(server: ServerProcess) -> dict[str, Any]:
    (stream,) = page(server, "/streams")["streams"]
    found: dict[str, Any] = stream
    return found


def wait_published(server: ServerProcess, key: str = "live/stream") -> dict[str, Any]:
    """The stream, once its publisher has been granted it: who asks before may be told that it is not there."""

    def find() -> dict[str, Any] | None:
        streams = page(server, "/streams")["streams"]
        return next((one for one in streams if one["key"] == key and one["publisher"] is not None), None)

    return server.wait_until(f"{key} to be published", find)


def worker_pid(server: ServerProcess, number: int) -> int:
    pid: int = server.logged("Worker started", worker=number)[-1]["pid"]
    return pid


def workers_of(server: ServerProcess, message: str) -> set[int]:
    return {line["worker"] for line in server.logged(message)}


def test_players_on_both_workers_get_what_was_published_and_the_pages_show_one_server(
    stage: Stage, clips: ClipLibrary
) -> None:
    clip = clips["h264_b_frames"]
    folder = stage.folder / "recordings"
    server = stage.server(*PATIENT, *TWO, "-record-all", "-record-dir", folder)
    publisher = stage.feed(clip, server.url())
    wait_published(server)
    players = [stage.play(server.url(), decode=index < 2) for index in range(4)]
    server.wait_for_log("Subscriber added", count=4)
    assert workers_of(server, "Subscriber added") == {0, 1}
    server.wait_for_log("Recording started")
    stream = only_stream(server)
    assert (stream["viewers"], stream["origin"], len(stream["recorders"])) == (4, None, 1)
    assert stream["worker"] in (0, 1)
    for name, value in (
        ("headrace_streams", 1),
        ("headrace_publishers", 1),
        ("headrace_subscribers", 4),
        ("headrace_connections", 5),
        ("headrace_plays_started_total", 4),
        ("headrace_publishes_started_total", 1),
        ("headrace_recordings", 1),
        ("headrace_pulled_bytes_total", 0),
        ("headrace_worker_up", 2),
    ):
        assert metric(server, name) == value, name
    publisher.finish()
    sent = packets_of(clip.path)
    for player in players:
        assert_from_first_keyframe(player.wait_ended(), sent)
    server.wait_for_log("Recording finished")
    (recording,) = folder.glob("*.flv")
    assert_from_first_keyframe(packets_of(recording), sent)
    received, relayed = (
        metric(server, "headrace_received_messages_total"),
        metric(server, "headrace_relayed_messages_total"),
    )
    assert relayed <= 4 * received, "what goes from worker to worker is counted as sent to players"
    server.stop()
    assert len(server.logged("Shutting down")) == 3


def test_a_second_publisher_is_refused_on_either_worker_and_the_first_may_come_back_on_either(
    stage: Stage, clips: ClipLibrary
) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*TWO, "-publisher-grace", "30s")
    first = stage.publish(clip, server.url(), loops=True)
    wait_published(server)
    players = [stage.play(server.url(), decode=True) for _ in range(2)]
    for player in players:
        player.wait_for_packets(50)
    for _ in range(2):  # they are given to one worker and the other
        assert refusal_of(RawClient(stage, server, Role.PUBLISH)).code == "NetStream.Publish.BadName"
    server.wait_until("refusals by both", lambda: workers_of(server, "Publish refused") == {0, 1} or None)
    publisher: Child = first
    for count in (1, 2):
        publisher.kill()
        server.wait_for_log("publisher disconnected", count=count)
        if count == 2:  # so that one of the two comes to the worker that does not have the stream
            RawClient(stage, server, Role.PLAY, name="none")
        publisher = stage.publish(clip, server.url(), loops=True)
        server.wait_for_log("Publisher is back", count=count)
        (stream,) = page(server, "/streams")["streams"]
        assert stream["publisher"]["remote"].startswith("127.0.0.1:")
    came_back = [(line["conn_id"], line["worker"]) for line in server.logged("Publisher is back")]
    assert any(not conn_id.startswith(f"w{worker}-") for conn_id, worker in came_back), "none came by the other worker"
    before = [len(player.packets.packets) for player in players]
    for player, count in zip(players, before, strict=True):
        player.wait_for_packets(count + 100)
    assert metric(server, "headrace_publishers") == 1
    publisher.send_signal(signal.SIGINT)
    for player in players:
        got = player.wait_ended()
        assert_monotonic(got.video, "video")
        assert_monotonic(got.audio, "audio")
    assert len(server.logged("Subscriber added")) == 2


def test_a_worker_that_is_killed_is_replaced_while_the_other_goes_on(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*TWO, "-publisher-grace", "30s")
    server.expected_errors.add("Worker ended")
    publisher = stage.publish(clip, server.url(), loops=True)
    owner: int = wait_published(server)["worker"]
    players = watch_on_each(stage, server)

    # The one without the publisher: the stream goes on for its other player.
    os.kill(worker_pid(server, 1 - owner), signal.SIGKILL)
    server.wait_for_log("Worker ended", worker=1 - owner, status=-9)
    server.wait_for_log("Worker started", worker=1 - owner, count=2)
    before = len(players[owner].packets.packets)
    players[owner].wait_for_packets(before + 50)
    players[1 - owner].wait()
    server.wait_until("both workers up", lambda: metric(server, "headrace_worker_up") == 2 or None)
    assert metric(server, "headrace_worker_restarts_total") == 1
    # The new one serves players as the old one did.
    late = watch_on_each(stage, server)
    assert only_stream(server)["viewers"] == 3

    # The one with the publisher: players of the other are kept, and go on when the publisher is back.
    os.kill(worker_pid(server, owner), signal.SIGKILL)
    server.wait_for_log("Worker ended", worker=owner, status=-9)
    publisher.wait()
    late[owner].wait()
    players[owner].wait()
    before = len(late[1 - owner].packets.packets)
    again = stage.publish(clip, server.url(), loops=True)
    late[1 - owner].wait_for_packets(before + 100)
    again.send_signal(signal.SIGINT)
    got = late[1 - owner].wait_ended()
    assert_monotonic(got.video, "video")
    assert_monotonic(got.audio, "audio")


def watch_on_each(stage: Stage, server: ServerProcess) -> dict[int, Player]:
    """A player on each worker, by its number, that has had some media."""
    found: dict[int, Player] = {}
    for _ in range(2):
        count = len(server.logged("Subscriber added")) + 1
        player = stage.play(server.url(), decode=True)
        found[server.wait_for_log("Subscriber added", count=count)["worker"]] = player
    assert found.keys() == {0, 1}
    for player in found.values():
        player.wait_for_packets(50)
    return found


def test_an_edge_with_workers_pulls_a_stream_once(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    origin = stage.server(*PATIENT)
    edge = stage.server(*PATIENT, *TWO, *origin_of(origin))
    publisher = stage.feed(clip, origin.url())
    origin.wait_for_log("publish command")
    players = [stage.play(edge.url()) for _ in range(4)]
    edge.wait_for_log("Subscriber added", count=4)
    assert workers_of(edge, "Subscriber added") == {0, 1}
    assert len(origin.logged("Subscriber added")) == 1
    stream = only_stream(edge)
    assert (stream["viewers"], stream["publisher"]) == (4, None)
    assert stream["origin"]["url"] == f"rtmp://127.0.0.1:{origin.port}/live?****"
    assert metric(edge, "headrace_pulls_started_total") == 1
    publisher.finish()
    for player in players:
        assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    assert not edge.logged("Play refused")


def test_a_destination_with_one_key_is_fed_by_one_worker_at_a_time(stage: Stage, clips: ClipLibrary) -> None:
    """Two streams, one on each worker, and a far end that takes one publisher under its key."""
    clip = clips["h264_aac"]
    far = stage.server(*PATIENT)
    server = stage.server(*PATIENT, *TWO)
    body = {"name": "far", "url": f"rtmp://127.0.0.1:{far.port}/live", "stream_key": "one-key"}
    assert call(server, "/api/destinations", "POST", body)["status"] == "disconnected"
    publishers = {}
    for name in ("one", "two"):
        publishers[name] = stage.feed(clip, server.url(f"live/{name}"))
        server.wait_for_log("publish command", stream_key=f"live/{name}")
    assert workers_of(server, "publish command") == {0, 1}
    server.wait_for_log("Destination connected")
    first: str = server.logged("Destination connected")[0]["stream_key"].removeprefix("live/")
    second = "two" if first == "one" else "one"

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = call(server, "/health")["destinations"]["far"]
        return found

    waits = [f"live/{second}"]
    server.wait_until("a turn", lambda: [one["stream"] for one in shown()["waiting"]] == waits or None)
    assert (shown()["status"], list(shown()["streams"])) == ("connected", [f"live/{first}"])
    publishers[first].finish()
    server.wait_for_log("Destination connected", count=2)
    server.wait_until("the other stream", lambda: list(shown()["streams"]) == [f"live/{second}"] or None)
    publishers[second].finish()
    far.wait_for_log("publisher disconnected", count=2)
    assert not far.logged("Publish refused")
    health = call(server, "/health")
    assert (health["total_destinations"], health["total_messages_dropped"]) == (1, 0)
    assert call(server, f"/api/streams/live/{second}/publisher", "DELETE")["code"] == "not_found"


def test_a_publisher_is_dropped_whichever_worker_has_it(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*TWO)
    publisher = stage.publish(clips["h264_aac"], server.url(), loops=True)
    server.wait_for_log("Codec detected")
    assert call(server, "/api/streams/live/stream/publisher", "DELETE") == ""
    server.wait_for_log("Publisher dropped", stream_key="live/stream")
    publisher.wait()


def test_the_event_log_of_two_workers_is_that_of_one_server(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT, *TWO)
    publisher = stage.feed(clips["h264_aac"], server.url())
    wait_published(server)
    players = [stage.play(server.url()) for _ in range(4)]
    server.wait_for_log("Subscriber added", count=4)
    publisher.finish()
    for player in players:
        player.wait_ended()
    server.stop()
    folder = next(stage.folder.glob("server-*-data")) / "events"
    lines = [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    for line in lines:
        assert_keeps_the_contract(line)
    assert len({line["node"] for line in lines}) == 1
    boots = {line["boot"] for line in lines}
    assert len(boots) == 2
    for boot in boots:
        assert sorted(line["seq"] for line in lines if line["boot"] == boot) == list(
            range(1, sum(line["boot"] == boot for line in lines) + 1)
        )
    (started,) = [line for line in lines if line["type"] == "publish_started"]
    assert started["origin"] is None
    for kind, count in (("publish_stopped", 1), ("stream_ended", 1), ("play_started", 4), ("play_stopped", 4)):
        found = [line for line in lines if line["type"] == kind]
        assert len(found) == count, kind
        assert {line["stream_id"] for line in found} == {started["stream_id"]}
    assert {line["boot"] for line in lines if line["type"] == "play_started"} == boots
    assert {line["boot"] for line in lines if line["type"] == "publisher_sample"} == {started["boot"]}
    assert sum(line["type"] == "connection_opened" for line in lines) == 5


def test_workers_end_with_their_parent_even_when_that_is_killed(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*TWO)
    pids = [worker_pid(server, number) for number in (0, 1)]
    server.kill()
    server.wait()
    end_s = time.monotonic() + DEADLINE_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end_s, "a worker lives on without its parent"
        time.sleep(0.05)
