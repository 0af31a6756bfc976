"""A session over a real socket: what clients are granted, told and refused, when they are closed, what is logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.net import link as link_module
from headrace.protocol.client import Role
from headrace.protocol.messages import UserControl
from headrace.server.session import Session
from headrace.stream.log import LogLimits
from tests.helpers.log_lines import LogLines, captured_log
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops
from tests.helpers.media_bytes import (
    AAC_CONFIG,
    AUDIO,
    AVC_CONFIG,
    AVC_CONFIG_SMALL,
    CUE_POINT,
    DATA,
    METADATA,
    SET_DATA_FRAME,
    VIDEO,
    Sent,
    aac_frame,
    frames,
    inter_frame,
    keyframe,
    preamble,
    repeated,
)
from tests.helpers.rtmp_client import RefusedError, RtmpClient
from tests.helpers.server_thread import ServerThread
from tests.helpers.waiting import DEADLINE_S, eventually

Serve = Callable[..., ServerThread]


@pytest.fixture
def log() -> Iterator[LogLines]:
    with captured_log() as lines:
        yield lines


@pytest.fixture
def serve(log: LogLines) -> Iterator[Serve]:
    """Starts servers, and closes them when the test is over: what went wrong inside fails the test then."""
    servers: list[ServerThread] = []

    def start(**options: Any) -> ServerThread:
        servers.append(ServerThread(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def server(serve: Serve) -> ServerThread:
    return serve()


def sweep(server: ServerThread, session: Session, after_s: float) -> None:
    """The session's sweep as it will be when this much time has passed."""
    server.call(lambda: session.sweep(server._loop.time() + after_s))


def log_tail(server: ServerThread, name: str = "a") -> int:
    stream = server.server.streams.find("live", name)
    return stream.log.tail if stream is not None else -1


# --- publish and play


@on_both_loops
def test_what_is_published_is_played_unchanged(serve: Serve, loop_factory: LoopFactory) -> None:
    server = serve(loop_factory=loop_factory)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send(
            [
                *preamble(),
                *frames(50, start_ms=16_777_000, size=9000),  # beyond one chunk, and across 2^24
                Sent(AUDIO, 16_779_000, b""),
                Sent(DATA, 16_779_000, CUE_POINT),
                *frames(5, start_ms=(1 << 32) - 80),
            ]
        )
        assert player.collect(len(published)) == published


@on_both_loops
def test_a_message_that_is_due_is_rehearsed_and_nobody_notices(serve: Serve, loop_factory: LoopFactory) -> None:
    server = serve(loop_factory=loop_factory)
    rehearsed = server.server.rehearsal._publication.stream.log
    with RtmpClient.publish(server.port, chunk_size=4096) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send(preamble())
        give_up_s = time.monotonic() + DEADLINE_S
        while not rehearsed.tail:  # a machine that has other things to do is late for the first ones
            assert time.monotonic() < give_up_s
            number = len(published)
            published += publisher.send([Sent(VIDEO, number * 200, inter_frame(number, size=9000))])
            due_s = time.monotonic() + 0.25
            while time.monotonic() < due_s:
                time.sleep(0.01)
        published += publisher.send(frames(5, start_ms=len(published) * 200))
        assert player.collect(len(published)) == published
        assert server.metrics.messages_in == len(published)
        assert log_tail(server) == len(published)


@pytest.mark.parametrize(("in_size", "out_size"), [(128, 128), (128, 60_000), (65_536, 128), (1, 4096)])
def test_chunk_sizes_of_publisher_and_server_are_their_own_affair(serve: Serve, in_size: int, out_size: int) -> None:
    server = serve(chunk_size=out_size)
    with RtmpClient.publish(server.port, chunk_size=in_size) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send([*preamble(), *frames(10, size=3000)])
        assert player.collect(len(published)) == published


def test_the_digest_handshake_leads_to_the_same_stream(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port, digest=True), RtmpClient.play(server.port):
        assert log.of("Handshake completed", conn_id="c1")[0]["digest"] is True
        assert log.of("Handshake completed", conn_id="c2")[0]["digest"] is False


def test_a_late_player_gets_headers_and_the_newest_keyframe_at_once(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([*preamble(), *frames(25, gop=10)])
        server.wait_until(lambda: log_tail(server) == 53, "all of it in the log")
        with RtmpClient.play(server.port) as player:
            assert player.collect(13) == [*repeated(800), *list(frames(25, gop=10))[40:]]


def test_metadata_reaches_players_without_the_word_that_was_for_the_server(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.send([Sent(DATA, 0, SET_DATA_FRAME + METADATA), Sent(DATA, 0, b"\x02\x00\x0f@clearDataFrame")])
        publisher.send([Sent(AUDIO, 0, aac_frame())])
        assert player.collect(2) == [Sent(DATA, 0, METADATA), Sent(AUDIO, 0, aac_frame())]
        assert server.metrics.messages_in == 3


def test_play_of_a_stream_that_is_not_there_is_refused_and_may_be_tried_again(server: ServerThread) -> None:
    player = RtmpClient(server.port, Role.PLAY, name="later")
    player.wait_status("NetStream.Play.StreamNotFound")
    with player, RtmpClient.publish(server.port, "later") as publisher:
        player.command("play", "later")
        player.wait_status("NetStream.Play.Start")
        publisher.send(preamble())
        player.protocol.media_ids.add(1)
        assert player.collect(3) == preamble()
    assert server.metrics.plays_refused == 1
    assert server.metrics.plays_started == 1


def test_a_player_is_told_stream_begin_reset_and_start_before_any_media(server: ServerThread) -> None:
    with RtmpClient.publish(server.port), RtmpClient.play(server.port) as player:
        assert player.wait_user_control(UserControl.STREAM_BEGIN) == 1
        assert player.statuses == ["NetStream.Play.Reset"]
        assert player.messages == []


@on_both_loops
def test_a_second_publisher_gets_bad_name_and_is_closed_and_the_first_goes_on(
    serve: Serve, loop_factory: LoopFactory
) -> None:
    server = serve(loop_factory=loop_factory)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        second = RtmpClient(server.port, Role.PUBLISH)
        second.wait_closed()
        assert second.statuses == ["NetStream.Publish.BadName"]
        publisher.send(preamble())
        assert player.collect(3) == preamble()
    assert server.metrics.publishes_refused == 1
    assert server.metrics.publishes_started == 1


def test_a_publisher_without_a_name_is_refused(server: ServerThread) -> None:
    with pytest.raises(RefusedError) as refused:
        RtmpClient.publish(server.port, "")
    assert refused.value.code == "NetStream.Publish.BadName"


def test_a_refused_publisher_that_keeps_talking_still_reads_why(server: ServerThread) -> None:
    with RtmpClient.publish(server.port):
        second = RtmpClient(server.port, Role.PUBLISH)
        second.wait_for(lambda: second.protocol.message_stream_id, "createStream")
        second.send(frames(200, size=2000))  # an encoder that does not wait for the answer
        second.wait_status("NetStream.Publish.BadName")
        second.wait_closed()
    assert log_tail(server) <= 0


def test_a_player_of_two_streams_gets_each_on_its_own_message_stream(server: ServerThread) -> None:
    with (
        RtmpClient.publish(server.port, "a") as one,
        RtmpClient.publish(server.port, "b") as other,
        RtmpClient.play(server.port, "a") as player,
    ):
        player.command("createStream", transaction_id=50, message_stream_id=0)
        player.protocol.media_ids.add(2)
        player.command("play", "b", message_stream_id=2)
        player.wait_status("NetStream.Play.Start")
        one.send([Sent(AUDIO, 0, aac_frame(1))])
        other.send([Sent(AUDIO, 0, aac_frame(2))])
        player.collect(2)
        assert {(one.message_stream_id, one.payload) for one in player.messages} == {
            (1, aac_frame(1)),
            (2, aac_frame(2)),
        }
        assert server.metrics.subscribers == 2


def test_a_player_that_plays_another_stream_on_the_same_message_stream_leaves_the_first(server: ServerThread) -> None:
    with (
        RtmpClient.publish(server.port, "a") as one,
        RtmpClient.publish(server.port, "b") as other,
        RtmpClient.play(server.port, "a") as player,
    ):
        player.command("play", "b")
        player.wait_status("NetStream.Play.Start")
        one.send([Sent(AUDIO, 0, aac_frame(1))])
        server.wait_until(lambda: log_tail(server, "a") == 1, "the frame that is not for this player")
        other.send([Sent(AUDIO, 0, aac_frame(2))])
        assert player.collect(1) == [Sent(AUDIO, 0, aac_frame(2))]
        assert server.metrics.subscribers == 1
        assert server.metrics.plays_started == 2


# --- the end of a stream


@on_both_loops
@pytest.mark.parametrize("way", ["finish", "closeStream", "deleteStream", "FCUnpublish"])
def test_an_unpublish_ends_the_stream_at_once(serve: Serve, loop_factory: LoopFactory, way: str) -> None:
    server = serve(loop_factory=loop_factory)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send([*preamble(), *frames(10)])
        if way == "finish":
            publisher.finish()
        else:
            arguments: dict[str, list[Any]] = {"closeStream": [], "deleteStream": [1.0], "FCUnpublish": ["a"]}
            publisher.command(way, *arguments[way])
        player.wait_status("NetStream.Play.UnpublishNotify")
        assert player.received == published  # all of it came before the end
        assert player.wait_user_control(UserControl.STREAM_EOF) == 1
        publisher.wait_status("NetStream.Unpublish.Success")
        assert server.snapshot()["streams"] == 0
        assert server.metrics.subscribers == 0
        with pytest.raises(RefusedError):
            RtmpClient.play(server.port)


def test_a_publisher_may_publish_again_on_its_connection(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.command("closeStream")
        publisher.command("publish", "b", "live")
        publisher.wait_status("NetStream.Publish.Start")
        with RtmpClient.play(server.port, "b") as player:
            publisher.send(preamble())
            assert player.collect(3) == preamble()


@on_both_loops
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_publisher_lost_and_back_within_the_grace_goes_on_with_the_same_players(
    serve: Serve, loop_factory: LoopFactory, log: LogLines, way: str
) -> None:
    server = serve(loop_factory=loop_factory, grace_s=60.0)
    with RtmpClient.publish(server.port) as publisher:
        player = RtmpClient.play(server.port)
        before = publisher.send([*preamble(), *frames(10, start_ms=5000)])
        player.collect(len(before))
        getattr(publisher, way)()
    log.wait("publisher disconnected", conn_id="c1")
    with RtmpClient.publish(server.port) as back, player:
        log.wait("Publisher is back", conn_id="c3", stream_key="live/a")
        after = back.send([*preamble(), *frames(10, first_number=10)])
        received = player.collect(len(before) + len(after))
        assert [sent.payload for sent in received] == [sent.payload for sent in before + after]
        stamps = [sent.timestamp_ms for sent in received[3:] if sent.type_id != DATA]  # metadata is always at 0
        assert stamps == sorted(stamps)
        assert stamps[-20] > stamps[-21]  # the first frame of the return, and the last before
        assert "NetStream.Play.UnpublishNotify" not in player.statuses
        assert UserControl.STREAM_EOF not in dict(player.user_controls)


@on_both_loops
def test_a_publisher_that_does_not_come_back_ends_the_stream_when_the_grace_is_over(
    serve: Serve, loop_factory: LoopFactory, log: LogLines
) -> None:
    server = serve(loop_factory=loop_factory, grace_s=0.3)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send([*preamble(), *frames(3)])
        player.collect(len(published))
        started_s = time.monotonic()
        publisher.reset()
        player.wait_status("NetStream.Play.UnpublishNotify")
        assert time.monotonic() - started_s >= 0.3
        assert player.wait_user_control(UserControl.STREAM_EOF) == 1
    assert log.wait("Stream ended")["stream_key"] == "live/a"
    assert server.snapshot()["streams"] == 0


def test_without_a_grace_a_lost_publisher_ends_the_stream_at_once(serve: Serve) -> None:
    server = serve(grace_s=0.0)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.reset()
        player.wait_status("NetStream.Play.UnpublishNotify")


def test_a_player_may_join_during_the_grace_and_gets_the_last_picture(serve: Serve, log: LogLines) -> None:
    server = serve(grace_s=60.0)
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([*preamble(), *frames(5)])
        server.wait_until(lambda: log_tail(server) == 13, "all of it in the log")
    log.wait("publisher disconnected")
    with RtmpClient.play(server.port) as player:
        assert player.collect(13) == [*repeated(0), *frames(5)]


def test_a_silent_publisher_is_replaced_and_its_connection_closed(serve: Serve, log: LogLines) -> None:
    server = serve(grace_s=5.0)
    with RtmpClient.publish(server.port) as silent, RtmpClient.play(server.port) as player:
        before = silent.send([*preamble(), *frames(2, start_ms=1000)])
        player.collect(len(before))
        session = server.session("c1")
        server.call(lambda: setattr(session, "last_received_s", server._loop.time() - 10))
        with RtmpClient.publish(server.port) as newcomer:
            silent.wait_closed()
            log.wait("Publisher replaced", conn_id="c1")
            newcomer.send(frames(1, first_number=7))
            video, audio = player.collect(len(before) + 2)[-2:]
            assert video.payload == keyframe(7, 120)
            assert 11_040 <= video.timestamp_ms == audio.timestamp_ms < 60_000
            assert server.snapshot()["publishers"] == 1
    assert log.wait("publisher disconnected", conn_id="c1")["reason"] == "replaced by a new publisher"


def test_what_a_displaced_publisher_sends_in_the_same_turn_does_not_mix_with_the_new_one(serve: Serve) -> None:
    server = serve(grace_s=5.0)
    with RtmpClient.publish(server.port) as silent, RtmpClient.publish(server.port, "other"):
        silent.send(preamble())
        server.wait_until(lambda: log_tail(server) == 3, "the preamble in the log")
        old, new = server.session("c1"), server.session("c2")
        frame = bytes.fromhex("04 000000 000003 08 01000000 af0121")

        def displace_and_receive() -> int:
            old.last_received_s = server._loop.time() - 10
            server.server.publish("live", "a", new)
            old.data_received(frame)  # its socket was readable in the same turn
            return log_tail(server)

        assert server.call(displace_and_receive) == 3


# --- what a player may wish


def test_a_paused_player_gets_nothing_until_it_goes_on_at_the_newest_keyframe(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.send([*preamble(), *frames(5)])
        player.collect(13)
        player.command("pause", True, 0.0)
        player.wait_status("NetStream.Pause.Notify")
        publisher.send(frames(25, start_ms=200, first_number=100))
        server.wait_until(lambda: log_tail(server) == 63, "all of it in the log")
        player.read_available()
        assert len(player.messages) == 13
        player.command("pause", False, 0.0)
        player.wait_status("NetStream.Unpause.Notify")
        received = player.collect(13 + 3 + 10)
        assert received[13:17] == [*repeated(1000), Sent(VIDEO, 1000, keyframe(120, 120))]
    assert server.metrics.messages_dropped == {"paused": 40}


def test_a_paused_player_is_told_when_its_stream_ends(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.send([*preamble(), *frames(5)])
        player.collect(13)
        player.command("pause", True, 0.0)
        player.wait_status("NetStream.Pause.Notify")
        publisher.send(frames(5, start_ms=200))
        publisher.finish()
        player.wait_status("NetStream.Play.UnpublishNotify")
        assert len(player.messages) == 13


def test_a_player_may_have_video_or_audio_alone(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.send(preamble())
        player.collect(3)
        player.command("receiveAudio", False)
        player.command("receiveVideo", True)
        player.command("seek", 1000.0)  # answered after the two
        player.wait_status("NetStream.Seek.Notify")
        publisher.send(frames(3))
        assert [sent.type_id for sent in player.collect(6)[3:]] == [VIDEO] * 3
        player.command("receiveAudio", True)
        player.command("receiveVideo", False)
        player.command("seek", 2000.0)
        player.wait_for(lambda: player.statuses.count("NetStream.Seek.Notify") == 2, "the second answer")
        publisher.send(frames(3, start_ms=120))
        assert [sent.type_id for sent in player.collect(9)[6:]] == [AUDIO] * 3


def test_a_player_that_stops_is_no_longer_served_but_stays_connected(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        publisher.send(preamble())
        player.collect(3)
        player.command("closeStream")
        assert log.wait("Subscriber removed", conn_id="c2")["reason"] == "stopped by player"
        publisher.send(frames(3))
        server.wait_until(lambda: log_tail(server) == 9, "all of it in the log")
        player.command("play", "a")
        player.wait_status("NetStream.Play.Start")
        assert player.collect(3 + 9)[3:] == [*repeated(0), *frames(3)]
        assert server.metrics.subscribers == 1


def test_wishes_about_streams_that_are_not_played_change_nothing(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher:
        for name, value in (("pause", True), ("receiveAudio", False), ("receiveVideo", False), ("seek", 1.0)):
            publisher.command(name, value)
        publisher.command("somethingElse", 1.0)
        with RtmpClient.play(server.port) as player:
            publisher.send(preamble())
            assert player.collect(3) == preamble()


@on_both_loops
def test_a_stalled_player_skips_to_a_keyframe_and_the_others_lose_nothing(
    serve: Serve, loop_factory: LoopFactory, log: LogLines
) -> None:
    server = serve(loop_factory=loop_factory, max_lag_s=1.0, limits=LogLimits(retain_s=30.0))
    with (
        RtmpClient.publish(server.port) as publisher,
        RtmpClient.play(server.port) as healthy,
        RtmpClient.play(server.port, receive_buffer_bytes=8 << 10) as stalled,
    ):
        published = publisher.send(preamble())
        for number in range(40):  # 4 MB, far more than kernel and link hold for one player
            published += publisher.send(
                frames(10, start_ms=400 * number, first_number=10 * number, size=10_000, has_audio=False)
            )
            healthy.collect(len(published))
        assert healthy.received == published
        last = Sent(VIDEO, 16_000, keyframe(400))
        publisher.send([last])
        received = stalled.collect_until(last.payload)
        dropped = server.metrics.messages_dropped["lag"]
        assert dropped > 100
        again = sum(sent.payload == METADATA for sent in received) - 1
        assert again >= 1
        assert len(received) == len(published) + 1 - dropped + 3 * again
        for index, sent in enumerate(received[3:], 3):
            if sent.payload == METADATA:
                assert received[index + 3].payload[0] == 0x17  # the headers, then a keyframe
    removed = log.wait("Subscriber removed", conn_id="c3")
    assert removed["skipped"] == {"lag": dropped}
    assert removed["messages"] == len(received)


# --- deadlines


def test_a_connection_that_does_not_shake_hands_is_closed(server: ServerThread, log: LogLines) -> None:
    client = RtmpClient(server.port, Role.PLAY)
    session = server.session("c1")
    sweep(server, session, 5.0)
    assert not server.metrics.connections_closed
    sweep(server, session, 10.1)
    client.wait_closed()
    assert server.metrics.connections_closed == {"handshake": 1}
    assert server.metrics.handshakes_failed == 1
    assert log.of("Deadline passed", conn_id="c1")[0]["deadline"] == "handshake"


def test_a_connection_that_neither_publishes_nor_plays_is_closed(server: ServerThread, log: LogLines) -> None:
    client = RtmpClient(server.port, Role.PLAY)
    client.wait_status("NetStream.Play.StreamNotFound")
    session = server.session("c1")
    sweep(server, session, 20.0)
    assert not server.metrics.connections_closed
    sweep(server, session, 30.5)
    client.wait_closed()
    assert server.metrics.connections_closed == {"idle": 1}
    assert log.of("Connection closed", conn_id="c1")[0]["reason"] == "neither publishing nor playing for 30 s"


def test_publishers_and_players_are_not_idle_until_they_stop(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        sessions = [server.session("c1"), server.session("c2")]
        for session in sessions:
            sweep(server, session, 45.0)
        assert not any(session.link.is_closed for session in sessions)
        publisher.finish()
        player.wait_status("NetStream.Play.UnpublishNotify")
        for session in sessions:
            sweep(server, session, 31.0)
        publisher.wait_closed()
        player.wait_closed()
    assert server.metrics.connections_closed == {"idle": 2}


def test_a_player_that_takes_no_bytes_is_closed(server: ServerThread) -> None:
    with (
        RtmpClient.publish(server.port) as publisher,
        RtmpClient.play(server.port, receive_buffer_bytes=8 << 10),
    ):
        session = server.session("c2")
        publisher.send([*preamble(), *frames(60, size=20_000)])
        server.wait_until(lambda: session.link.is_blocked, "the player's link to block")
        server.wait_until(lambda: log_tail(server) == 123, "all of it in the log")
        sweep(server, session, 20.0)
        assert not server.metrics.connections_closed
        sweep(server, session, 31.0)
        assert server.metrics.connections_closed == {"stalled": 1}
        assert session.link.is_closed
        server.wait_until(lambda: server.metrics.subscribers == 0, "the player to be gone")


def test_a_quiet_client_is_asked_once_in_a_while_and_lives_as_long_as_it_answers(server: ServerThread) -> None:
    with RtmpClient.publish(server.port), RtmpClient.play(server.port) as player:
        session = server.session("c2")
        sweep(server, session, 8.0)
        player.read_available()
        assert UserControl.PING_REQUEST not in dict(player.user_controls)
        heard_s = session.last_received_s
        sweep(server, session, 16.0)
        player.wait_user_control(UserControl.PING_REQUEST)
        server.wait_until(lambda: session.last_received_s > heard_s, "the answer")
        assert not session.link.is_closed


def test_a_client_that_does_not_answer_is_asked_again_and_then_closed(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.protocol.answers_pings = False
        session = server.session("c1")
        for after_s in (16.0, 20.0, 32.0, 48.0):
            sweep(server, session, after_s)
        publisher.wait_for(lambda: len(publisher.user_controls) >= 4, "three pings after Stream Begin")
        assert [event for event, _ in publisher.user_controls[1:]] == [UserControl.PING_REQUEST] * 3
        sweep(server, session, 61.0)
        publisher.wait_closed()
    assert server.metrics.connections_closed == {"silent": 1}
    assert server.snapshot()["streams"] == 1  # its stream waits for it to come back


def test_a_closing_connection_that_waits_for_its_peer_is_not_taken_for_stalled(server: ServerThread) -> None:
    with RtmpClient.publish(server.port):
        second = RtmpClient(server.port, Role.PUBLISH)
        second.wait_status("NetStream.Publish.BadName")
        session = server.session("c2")
        sweep(server, session, 1.0)
        assert not session.link.is_closed
        assert not server.metrics.connections_closed
        second.close()
        server.wait_until(lambda: session.link.is_closed, "the end")


# --- peers that break the rules


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\x00"])
def test_what_is_no_rtmp_is_closed_and_counted_as_a_failed_handshake(
    server: ServerThread, log: LogLines, data: bytes
) -> None:
    client = RtmpClient(server.port, Role.PLAY)
    client.protocol.data_to_send()  # instead of the handshake
    client.send_raw(data)
    client.wait_closed()
    line = log.wait("Protocol error", conn_id="c1")
    assert "expected RTMP version 3" in line["error"]
    server.wait_until(lambda: not server.server._sessions, "the end")
    assert (server.metrics.handshakes_failed, server.metrics.peer_errors) == (1, 1)


def test_a_connection_closed_before_its_handshake_counts_as_failed(server: ServerThread) -> None:
    RtmpClient(server.port, Role.PLAY).close()
    eventually(lambda: server.metrics.handshakes_failed == 1, "the failed handshake")
    assert server.metrics.peer_errors == 0


def test_a_publisher_that_breaks_the_protocol_is_closed_and_its_stream_waits(
    server: ServerThread, log: LogLines
) -> None:
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        published = publisher.send([*preamble(), *frames(3)])
        publisher.send_raw(b"\xff" * 100)  # format 3 on a chunk stream that was never opened
        publisher.wait_closed()
        assert player.collect(len(published)) == published
        log.wait("publisher disconnected", conn_id="c1")
        assert server.metrics.peer_errors == 1
        assert server.metrics.handshakes_failed == 0
        assert server.snapshot()["streams"] == 1
        with RtmpClient.publish(server.port) as back:
            back.send([Sent(AUDIO, 0, aac_frame(99))])
            player.collect_until(aac_frame(99))


def test_a_command_before_connect_is_closed(server: ServerThread, log: LogLines) -> None:
    client = RtmpClient(server.port, Role.PLAY)
    client.protocol._send_connect = lambda: client.protocol.send_command(_create_stream())  # type: ignore[method-assign]
    client.wait_closed()
    assert "before connect" in log.wait("Protocol error")["error"]


def _create_stream() -> Any:
    from headrace.protocol.commands import encode_command

    return encode_command("createStream", 2, None)


def test_media_of_somebody_who_does_not_publish_goes_nowhere(server: ServerThread) -> None:
    with RtmpClient.publish(server.port), RtmpClient.play(server.port) as intruder:
        intruder.send(preamble())
        intruder.command("seek", 0.0)
        intruder.wait_status("NetStream.Seek.Notify")
        assert log_tail(server) == 0
        assert server.metrics.messages_in == 0


def test_after_the_end_was_decided_nothing_the_peer_sends_is_listened_to(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LINGER_S", 60.0)
    with RtmpClient.publish(server.port) as publisher:
        session = server.session("c1")
        publisher.send(preamble())
        server.wait_until(lambda: log_tail(server) == 3, "the preamble in the log")
        server.call(lambda: session.close("enough"))
        publisher.send(frames(5))
        publisher.send_raw(b"\xff" * 100)
        publisher.wait_closed()
        server.wait_until(lambda: session.link.is_closed, "the end")
        assert log_tail(server) == 3
        assert server.metrics.peer_errors == 0


# --- log lines


PUBLISHER_LINES = [
    "Connection accepted",
    "Handshake completed",
    "connect command",
    "createStream",
    "publish command",
    "Codec detected",
    "publisher disconnected",
    "Connection closed",
]
PLAYER_LINES = [
    "Connection accepted",
    "Handshake completed",
    "connect command",
    "createStream",
    "play command",
    "Subscriber added",
    "Subscriber removed",
    "Connection closed",
]


def test_each_step_of_a_session_is_logged_in_order_with_its_connection_and_stream(
    server: ServerThread, log: LogLines
) -> None:
    with RtmpClient.publish(server.port) as publisher:
        with RtmpClient.play(server.port) as player:
            publisher.send([*preamble(), *frames(3)])
            player.collect(9)
        log.wait("Connection closed", conn_id="c2")
    log.wait("Connection closed", conn_id="c1")
    assert log.messages("c1") == PUBLISHER_LINES
    assert log.messages("c2") == PLAYER_LINES
    for message in ("publish command", "play command", "Subscriber added", "Codec detected", "publisher disconnected"):
        assert [line["stream_key"] for line in log.of(message)] == ["live/a"]
    assert log.of("Connection accepted")[0]["remote"] == f"127.0.0.1:{publisher.local[1]}"
    assert log.of("connect command")[0]["app"] == "live"
    assert log.of("Subscriber added")[0]["subscribers"] == 1
    assert log.of("Subscriber removed")[0] | {"messages": 9, "skipped": {}} == log.of("Subscriber removed")[0]


def test_tokens_and_query_strings_appear_in_no_line(serve: Serve, log: LogLines) -> None:
    server = serve(grace_s=60.0)
    secrets = {"app": "live?token=s3cret", "name": "a?key=hush&sig=shh"}
    with (
        RtmpClient.publish(server.port, **secrets) as publisher,
        RtmpClient.play(server.port, app="live?viewer=s3cret", name="a?key=hush") as player,
    ):
        publisher.send(preamble())
        assert player.collect(3) == preamble()
        with pytest.raises(RefusedError):
            RtmpClient.publish(server.port, **secrets)
        with pytest.raises(RefusedError):
            RtmpClient.play(server.port, name="none?key=hush")
        publisher.command("publish", "b?key=hush", "live")  # out of order: a protocol error
        publisher.wait_closed()
        log.wait("publisher disconnected")
        with RtmpClient.publish(server.port, **secrets):
            log.wait("Publisher is back")
        player.finish()
        log.wait("Subscriber removed")
    server.close()
    assert log.of("publish command", stream_key="live/a")
    assert log.of("Publish refused", stream_key="live/a")
    assert log.of("Play refused", stream_key="live/none")
    assert log.of("Protocol error")
    for secret in ("s3cret", "hush", "shh", "token", "key=", "sig", "?"):
        assert secret not in log.text


def test_the_codecs_are_told_by_the_sweep_and_again_after_a_change(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([*preamble(), *frames(3)])
        server.wait_until(lambda: log_tail(server) == 9, "all of it in the log")
        session = server.session("c1")
        sweep(server, session, 1.0)
        sweep(server, session, 2.0)
        (line,) = log.of("Codec detected", conn_id="c1", stream_key="live/a")
        assert (line["video"], line["width"], line["height"], line["audio"]) == ("h264", 1280, 720, "aac")
        assert (line["video_profile"], line["video_level"], line["frame_rate"]) == ("High", "3.1", 30.0)
        assert (line["sample_rate"], line["channels"]) == (48000, 2)
        publisher.send([Sent(VIDEO, 200, AVC_CONFIG_SMALL), Sent(VIDEO, 200, keyframe(3))])
        server.wait_until(lambda: log_tail(server) == 11, "the new picture in the log")
        sweep(server, session, 3.0)
        assert log.of("Codec detected")[1]["width"] == 640


def test_a_publication_shorter_than_a_sweep_has_its_codecs_told_all_the_same(
    server: ServerThread, log: LogLines
) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([Sent(VIDEO, 0, AVC_CONFIG), Sent(VIDEO, 0, keyframe())])
        publisher.finish()
        log.wait("publisher disconnected")
    (line,) = log.of("Codec detected")
    assert (line["video"], line["audio"], line["conn_id"]) == ("h264", None, "c1")


def test_every_thirty_seconds_there_is_a_line_about_the_media(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([*preamble(), *frames(50, gop=25)])
        server.wait_until(lambda: log_tail(server) == 103, "all of it in the log")
        session = server.session("c1")
        sweep(server, session, 20.0)
        assert log.of("Media report") == []
        sweep(server, session, 30.5)
        (line,) = log.of("Media report", conn_id="c1", stream_key="live/a")
        assert line["keyframe_interval_s"] == 1.0
        assert 1.5 < line["frame_rate"] < 1.7
        assert line["video_kbps"] > 0


def test_an_unknown_command_is_noted_for_whoever_debugs(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.command("onStatusPlease", 1.0)
        assert log.wait("Command ignored")["command"] == "onStatusPlease"


def test_a_peer_cannot_write_lines_of_its_own_into_the_log(server: ServerThread, log: LogLines) -> None:
    with RtmpClient.publish(server.port, 'a\n{"level":"error"}', app="live\r\nx"):
        log.wait("publish command")
    log.wait("Connection closed")
    assert all("msg" in line for line in log.all)


# --- numbers


def test_the_metrics_of_a_server_add_up(server: ServerThread) -> None:
    with (
        RtmpClient.publish(server.port, "a") as one,
        RtmpClient.publish(server.port, "b") as other,
        RtmpClient.play(server.port, "a") as first,
        RtmpClient.play(server.port, "a") as second,
    ):
        sent = one.send([*preamble(), *frames(20)]) + other.send([*preamble(), *frames(5)])
        first.collect(43)
        second.collect(43)
        server.wait_until(lambda: log_tail(server, "b") == 13, "all of the other stream")
        with pytest.raises(RefusedError):
            RtmpClient.play(server.port, "c")
        server.wait_until(lambda: len(server.server._sessions) == 4, "the refused player to leave")
        snapshot = server.snapshot()
        sent_bytes = sum(session.link.sent_bytes for session in (server.session("c3"), server.session("c4")))
    assert snapshot["streams"] == 2
    assert snapshot["publishers"] == 2
    assert snapshot["subscribers"] == 2
    assert snapshot["connections"] == 4
    assert snapshot["connections_accepted"] == 5
    assert snapshot["connections_refused"] == 0
    assert snapshot["handshakes_failed"] == 0
    assert snapshot["plays_started"] == 2
    assert snapshot["plays_refused"] == 1
    assert snapshot["publishes_started"] == 2
    assert snapshot["messages_in"] == len(sent) == 56
    assert snapshot["bytes_in"] == sum(len(message.payload) for message in sent)
    assert snapshot["messages_relayed"] == 86
    assert sum(len(payload) for payload in first.payloads) * 2 < snapshot["bytes_relayed"] < sent_bytes
    assert snapshot["messages_dropped"] == {}


@pytest.mark.parametrize("loop", LOOP_FACTORIES)
def test_ten_streams_at_once_do_not_meet(serve: Serve, loop: str) -> None:
    server = serve(loop_factory=LOOP_FACTORIES[loop])
    publishers = [RtmpClient.publish(server.port, f"s{number}") for number in range(10)]
    players = [RtmpClient.play(server.port, f"s{number}") for number in range(10)]
    sent: list[list[Sent]] = [[] for _ in range(10)]
    for turn in range(5):
        for number, publisher in enumerate(publishers):
            sent[number] += publisher.send(
                [
                    Sent(VIDEO, 40 * turn, inter_frame(1000 * number + turn) if turn else keyframe(1000 * number)),
                    Sent(AUDIO, 40 * turn, aac_frame(1000 * number + turn)),
                ]
            )
    for number, player in enumerate(players):
        assert player.collect(10) == sent[number]
    for client in publishers + players:
        client.close()


def test_headers_of_sound_alone_reach_a_late_listener(server: ServerThread) -> None:
    with RtmpClient.publish(server.port) as publisher:
        publisher.send([Sent(AUDIO, 0, AAC_CONFIG), *frames(10, has_video=False)])
        server.wait_until(lambda: log_tail(server) == 11, "all of it in the log")
        with RtmpClient.play(server.port) as player:
            assert player.collect(1) == [Sent(AUDIO, 360, AAC_CONFIG)]
            publisher.send(frames(1, start_ms=400, first_number=10, has_video=False))
            assert player.collect(2)[1] == Sent(AUDIO, 400, aac_frame(10))
