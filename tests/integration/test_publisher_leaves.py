"""A publisher that is lost, comes back, says goodbye, or finds its place taken: what players see of it."""

from __future__ import annotations

import signal
import time
from datetime import datetime
from itertools import pairwise

import pytest

from headrace.protocol.client import Role
from tests.integration.child import DEADLINE_S, Child
from tests.integration.clips import ClipLibrary
from tests.integration.harness import PATIENT, Publisher, ServerProcess, Stage
from tests.integration.packets import (
    assert_from_first_keyframe,
    assert_monotonic,
    assert_same_packets,
    assert_suffix,
    packets_of,
)
from tests.integration.raw_client import RawClient

pytestmark = pytest.mark.integration


def logged_at(record: dict[str, str]) -> float:
    return datetime.fromisoformat(record["time"]).timestamp()


def assert_refused(client: Child) -> None:
    assert client.wait() != 0, f"{client.name} was not refused"


def test_players_go_on_when_a_killed_publisher_is_back_within_the_grace(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server("-publisher-grace", "30s")
    first = stage.publish(clip, server.url(), loops=True)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    before = player.wait_for_packets(100)  # a second and a half, or more
    first.kill()
    server.wait_for_log("publisher disconnected", stream_key="live/stream")
    second = stage.publish(clip, server.url(), loops=True)
    server.wait_for_log("Publisher is back", stream_key="live/stream")
    player.wait_for_packets(len(before.packets) + 200)
    second.quit_by_signal()
    got = player.wait_ended()  # no complaint about the decoding, the timestamps or the end
    assert_monotonic(got.video, "video")
    assert_monotonic(got.audio, "audio")
    assert len(server.logged("Subscriber added")) == 1
    # The clip over and over, cut once at most, and after the cut it begins again with its first keyframe.
    digests = [packet.digest for packet in packets_of(clip.path).video]
    places = [digests.index(packet.digest) for packet in got.video]
    jumps = [after for before, after in pairwise(places) if after != (before + 1) % len(digests)]
    assert jumps in ([], [0])


def test_players_end_when_the_publisher_stays_away(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server("-publisher-grace", "2s")
    publisher = stage.publish(clips["h264_aac"], server.url(), loops=True)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    player.wait_for_packets(50)
    publisher.kill()
    lost = server.wait_for_log("publisher disconnected", stream_key="live/stream")
    player.wait_ended()
    removed = server.wait_for_log("Subscriber removed", stream_key="live/stream")
    assert 1.9 <= logged_at(removed) - logged_at(lost) < 10  # two seconds, by another clock than the log's
    # The place is free again, and nobody plays what is over.
    assert_refused(stage.play(server.url()))
    again = stage.publish(clips["h264_aac"], server.url(), loops=True)
    server.wait_for_log("publish command", count=2)
    again.quit_by_signal()
    assert not server.logged("Publish refused")


def test_a_silent_publisher_is_replaced_after_the_grace(stage: Stage, clips: ClipLibrary) -> None:
    """Its socket is open, but nothing has come for longer than the grace: a laptop that was closed."""
    server = stage.server("-publisher-grace", "1s")
    first = stage.publish(clips["h264_aac"], server.url(), loops=True)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    before = player.wait_for_packets(50)
    first.send_signal(signal.SIGSTOP)
    stage.on_close(first.kill)  # a stopped process hears nothing else
    second = _publish_until_accepted(stage, server, clips)
    player.wait_for_packets(len(before.packets) + 150)
    assert server.wait_for_log("Publisher replaced")["conn_id"] == "c1"
    second.quit_by_signal()
    got = player.wait_ended()
    assert_monotonic(got.video, "video")
    assert_monotonic(got.audio, "audio")


def _publish_until_accepted(stage: Stage, server: ServerProcess, clips: ClipLibrary) -> Publisher:
    """As an encoder does: try again after each refusal."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        refused = len(server.logged("Publish refused"))
        publisher = stage.publish(clips["h264_aac"], server.url(), loops=True)

        def answered(refused: int = refused) -> bool | None:
            is_accepted, refusals = server.logged("Publisher is back"), server.logged("Publish refused")
            return bool(is_accepted) if is_accepted or len(refusals) > refused else None

        if server.wait_until("an answer to the publisher", answered):
            return publisher
        assert_refused(publisher)
    raise AssertionError(f"refused for {DEADLINE_S:g} s")


@pytest.mark.parametrize("way", ["q", "SIGINT", "SIGTERM"])
def test_players_end_at_once_when_the_publisher_unpublishes(stage: Stage, clips: ClipLibrary, way: str) -> None:
    server = stage.server("-publisher-grace", "30s")
    publisher = stage.publish(clips["h264_aac"], server.url(), loops=True, has_input=True)
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    player.wait_for_packets(50)
    if way == "q":
        publisher.feed(b"q")
    else:
        publisher.send_signal(signal.Signals[way])
    gone = server.wait_for_log("publisher disconnected", stream_key="live/stream", reason="unpublished")
    player.wait_ended(deadline_s=15)
    removed = server.wait_for_log("Subscriber removed", stream_key="live/stream")
    assert logged_at(removed) - logged_at(gone) < 1
    publisher.wait()


def test_a_reset_connection_is_noticed_at_once_and_what_came_before_it_counts(stage: Stage, clips: ClipLibrary) -> None:
    """FFmpeg resets when it closes with an acknowledgement unread. The reset and the last bytes before it come
    together here, because the server sleeps meanwhile."""
    clip = clips["aac_only"]
    server = stage.server(*PATIENT, "-publisher-grace", "1s")
    publisher = RawClient(stage, server, Role.PUBLISH).start()
    player = RawClient(stage, server, Role.PLAY).start()
    server.send_signal(signal.SIGSTOP)
    try:
        publisher.send_tags(clip.tags)
        publisher.reset()
    finally:
        server.send_signal(signal.SIGCONT)
    # Without it, only the next ping would tell: that is 15 s later.
    server.wait_for_log("publisher disconnected", deadline_s=8)
    assert player.receive_all() == clip.tags


def test_a_large_publication_ends_with_its_last_frame(stage: Stage, clips: ClipLibrary) -> None:
    """FFmpeg names no acknowledgement window when it publishes, so it is owed none. One that it has not read when it
    closes makes the kernel reset the connection and drop what was still to be sent: up to megabytes, and the goodbye.
    """
    clip = clips["h264_heavy"]
    server = stage.server(*PATIENT)
    keys = [f"live/stream{number}" for number in range(6)]
    publishers = [stage.feed(clip, server.url(key)) for key in keys]
    for publisher in publishers:
        publisher.feed_rest()
    ends = {key: server.wait_for_log("publisher disconnected", stream_key=key) for key in keys}
    assert {key: line["reason"] for key, line in ends.items()} == dict.fromkeys(keys, "unpublished")
    sent = sum(len(tag.payload) for tag in clip.tags)
    received = [line["received_bytes"] for line in server.logged("Connection closed")]
    assert all(count > sent for count in received)


def test_a_second_publisher_is_refused_and_the_first_not_disturbed(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    first = stage.feed(clip, server.url())
    server.wait_for_log("publish command")
    player = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added")
    second = stage.publish(clips["h264_small"], server.url())
    assert_refused(second)
    assert server.wait_for_log("Publish refused", stream_key="live/stream")["code"] == "NetStream.Publish.BadName"
    first.finish()
    assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))


def test_the_second_publisher_is_told_why(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    first = stage.feed(clips["h264_aac"], server.url())
    server.wait_for_log("publish command")
    second = RawClient(stage, server, Role.PUBLISH)
    second.receive_until(lambda: second.is_closed, "close")
    assert second.refusal is not None
    assert second.refusal.code == "NetStream.Publish.BadName"
    first.finish()


def test_the_same_name_in_another_app_is_another_stream(stage: Stage, clips: ClipLibrary) -> None:
    server = stage.server(*PATIENT)
    publishers = {key: stage.feed(clips[name], server.url(key)) for key, name in _SAME_NAME.items()}
    for key in publishers:
        server.wait_for_log("publish command", stream_key=key)
    players = {key: stage.play(server.url(key)) for key in publishers}
    server.wait_for_log("Subscriber added", count=2)
    for key, publisher in publishers.items():
        publisher.finish()
        assert_from_first_keyframe(players[key].wait_ended(), packets_of(clips[_SAME_NAME[key]].path))


_SAME_NAME = {"live/stream": "h264_aac", "other/stream": "h264_small"}


def test_playing_a_stream_that_does_not_exist_fails(stage: Stage) -> None:
    server = stage.server()
    player = stage.play(server.url("live/nobody"))
    assert_refused(player)
    refused = server.wait_for_log("Play refused", stream_key="live/nobody")
    assert refused["code"] == "NetStream.Play.StreamNotFound"


def test_a_stream_can_be_published_again_at_once(stage: Stage, clips: ClipLibrary) -> None:
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT)
    for number in (1, 2):
        publisher = stage.feed(clip, server.url())
        server.wait_for_log("publish command", count=number)
        player = stage.play(server.url())
        server.wait_for_log("Subscriber added", count=number)
        publisher.finish()
        # The second time nothing of the first is left: the same clip, with its own timestamps.
        assert_from_first_keyframe(player.wait_ended(), packets_of(clip.path))
    assert not server.logged("Publisher is back")


def test_a_publisher_may_come_back_with_its_clock_running_on(stage: Stage, clips: ClipLibrary) -> None:
    """An encoder that kept encoding through a short outage: its timestamps say so, and stay as they are."""
    clip = clips["h264_aac"]
    server = stage.server(*PATIENT, "-publisher-grace", "30s")
    keyframes = [index for index, tag in enumerate(clip.tags) if tag.is_keyframe]
    headers = [tag for tag in clip.tags[: keyframes[0] + 1] if not tag.is_frame]
    first = RawClient(stage, server, Role.PUBLISH).start()
    player = stage.play(server.url(), decode=True)
    server.wait_for_log("Subscriber added")
    first.send_tags(clip.tags[: keyframes[1]])
    first.close()
    server.wait_for_log("publisher disconnected")
    second = RawClient(stage, server, Role.PUBLISH).start()
    second.send_tags([*headers, *clip.tags[keyframes[2] :]])
    second.finish()
    got, sent = player.wait_ended(), packets_of(clip.path)
    assert_same_packets(got.video, [*sent.video[:25], *sent.video[50:]], "video")
    hole = next(index for index, packet in enumerate(got.audio) if packet != sent.audio[index])
    assert_suffix(got.audio[hole:], sent.audio, "audio after the outage")
