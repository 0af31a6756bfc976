"""The server as a whole: it listens, refuses what is too much, sweeps its sessions and closes in good order."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.net.listener import ListenError
from headrace.protocol.client import Role
from headrace.protocol.messages import UserControl
from headrace.server import server as server_module
from headrace.server.deadlines import Deadlines
from headrace.server.server import Server
from headrace.stream.registry import Stream
from headrace.telemetry.metrics import ServerMetrics
from tests.helpers.log_lines import LogLines, captured_log
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops, run
from tests.helpers.media_bytes import AUDIO, Sent, aac_frame, frames, preamble
from tests.helpers.rtmp_client import RefusedError, RtmpClient
from tests.helpers.server_thread import ServerThread
from tests.helpers.sockets import open_descriptors
from tests.helpers.waiting import DEADLINE_S, eventually

Serve = Callable[..., ServerThread]


@pytest.fixture
def log() -> Iterator[LogLines]:
    with captured_log() as lines:
        yield lines


@pytest.fixture
def serve(log: LogLines) -> Iterator[Serve]:
    servers: list[ServerThread] = []

    def start(**options: Any) -> ServerThread:
        servers.append(ServerThread(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


# --- listening


def test_a_server_says_where_it_listens(serve: Serve) -> None:
    server = serve()
    assert server.addresses == [f"127.0.0.1:{server.port}"]
    assert server.port > 0


def test_a_server_on_every_address_takes_ipv4_clients_and_names_them_so(serve: Serve, log: LogLines) -> None:
    server = serve(host=None)
    with RtmpClient.publish(server.port) as publisher:
        assert log.of("Connection accepted")[0]["remote"] == f"127.0.0.1:{publisher.local[1]}"


def test_a_port_in_use_is_an_error_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def listen() -> None:
            Server().listen("127.0.0.1", port)

        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            run(LOOP_FACTORIES["asyncio"], listen)


def test_a_server_that_never_listened_can_be_closed() -> None:
    async def close() -> None:
        await Server().close()

    run(LOOP_FACTORIES["asyncio"], close)


# --- limits


def test_one_connection_too_many_is_refused_and_counted(serve: Serve, log: LogLines) -> None:
    server = serve(max_connections=2)
    with RtmpClient.publish(server.port), RtmpClient.play(server.port) as player:
        third = RtmpClient(server.port, Role.PLAY)
        third.wait_closed()
        assert third.events == []
        assert (server.metrics.connections_accepted, server.metrics.connections_refused) == (2, 1)
        assert log.of("Connection refused")[0]["reason"] == "2 are open"
        assert server.metrics.handshakes_failed == 0
        player.close()
        server.wait_until(lambda: len(server.server._sessions) == 1, "the player to leave")
        with RtmpClient.play(server.port):
            assert server.metrics.connections_accepted == 3


def test_a_failure_to_accept_is_counted_and_logged(serve: Serve, log: LogLines) -> None:
    server = serve()
    server.call(lambda: server.server._accept_failed(OSError(24, "Too many open files")))
    assert server.metrics.connections_refused == 1
    assert log.of("Accept failed")[0]["error"] == "Too many open files"


def test_connections_are_numbered_and_a_number_is_not_used_again(serve: Serve, log: LogLines) -> None:
    server = serve()
    for _ in range(3):
        RtmpClient(server.port, Role.PLAY).close()
    eventually(lambda: len(log.of("Connection closed")) == 3, "all to be closed")
    assert [line["conn_id"] for line in log.of("Connection accepted")] == ["c1", "c2", "c3"]


@on_both_loops
def test_many_connections_leave_no_descriptor_and_no_stream_behind(serve: Serve, loop_factory: LoopFactory) -> None:
    server = serve(loop_factory=loop_factory, grace_s=0.0)
    before = open_descriptors()
    for number in range(20):
        with RtmpClient.publish(server.port, f"s{number}") as publisher, RtmpClient.play(server.port, f"s{number}"):
            publisher.send(preamble())
    eventually(lambda: len(open_descriptors() - before) == 0, "every descriptor to be given back")

    def remains() -> tuple[int, int, int]:
        gc.collect()
        return len(server.server._sessions), len(server.server.streams), len(server.server._fanouts)

    server.wait_until(lambda: remains() == (0, 0, 0), "nothing to remain")


# --- the sweep and the clock


def test_short_deadlines_close_whoever_keeps_the_server_waiting(serve: Serve) -> None:
    # A machine that stands still for so long makes everybody silent.
    deadlines = Deadlines(handshake_s=0.2, idle_s=0.2, stalled_s=0.2, ping_after_s=0.1, silent_s=8.0)
    server = serve(deadlines=deadlines, grace_s=60.0)
    publisher = RtmpClient.publish(server.port)
    stalled = RtmpClient.play(server.port, receive_buffer_bytes=8 << 10)
    publisher.send([*preamble(), *frames(60, size=20_000)])
    mute = RtmpClient(server.port, Role.PLAY)
    idle = RtmpClient(server.port, Role.PLAY, name="none")
    idle.wait_status("NetStream.Play.StreamNotFound")
    answering = RtmpClient.play(server.port)
    silent = RtmpClient.play(server.port)
    silent.protocol.answers_pings = False

    give_up_s = time.monotonic() + DEADLINE_S
    while server.metrics.connections_closed.total() < 4:
        assert time.monotonic() < give_up_s, server.metrics.connections_closed
        publisher.send([Sent(AUDIO, 2400, aac_frame())])
        for client in (answering, silent, publisher):
            client.read_available()
        time.sleep(0.005)  # whoever plays megabytes acknowledges them, and is not silent then
    # Of the two that read, one answers: pings keep it alive.
    assert server.metrics.connections_closed == {"handshake": 1, "idle": 1, "stalled": 1, "silent": 1}
    for client in (mute, idle, stalled, silent):
        client.wait_closed()
    assert (UserControl.PING_REQUEST in dict(answering.user_controls)) is True
    assert not answering.is_closed
    for client in (publisher, answering):
        client.close()


def test_a_mistake_in_one_sweep_does_not_end_the_sweeps(monkeypatch: pytest.MonkeyPatch, log: LogLines) -> None:
    monkeypatch.setattr(server_module, "_SWEEP_S", 0.01)
    server = ServerThread()
    sweeps = 0

    class Broken:
        conn_id = "broken"

        def sweep(self, now_s: float) -> None:
            nonlocal sweeps
            sweeps += 1
            raise RuntimeError("a mistake")

    broken: Any = Broken()
    server.call(lambda: server.server._sessions.add(broken))
    eventually(lambda: sweeps >= 3, "three sweeps")
    server.call(lambda: server.server._sessions.remove(broken))
    with pytest.raises(AssertionError, match="a mistake"):
        server.close()


def test_the_gauges_follow_what_is_there(serve: Serve) -> None:
    server = serve(grace_s=60.0)
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port):
        eventually(lambda: server.metrics.publishers == 1, "the sweep to count")  # without anybody asking
        assert (server.metrics.streams, server.metrics.connections) == (1, 2)
        publisher.reset()
        server.wait_until(lambda: len(server.server._sessions) == 1, "the publisher to be gone")
        snapshot = server.snapshot()
        assert (snapshot["streams"], snapshot["publishers"], snapshot["connections"]) == (1, 0, 1)


# --- hooks and control


def test_whoever_wants_to_know_is_told_of_each_new_stream_once(serve: Serve, log: LogLines) -> None:
    streams: list[Stream] = []
    server = serve(on_stream=streams.append, grace_s=60.0)
    with RtmpClient.publish(server.port, "a"):
        assert [stream.key for stream in streams] == ["live/a"]
    log.wait("publisher disconnected")
    with RtmpClient.publish(server.port, "a") as publisher:  # resumed: the same stream
        assert len(streams) == 1
        publisher.finish()
        publisher.wait_status("NetStream.Unpublish.Success")
    with RtmpClient.publish(server.port, "a"):
        assert len(streams) == 2


def test_metrics_that_were_given_are_used(serve: Serve) -> None:
    metrics = ServerMetrics()
    with RtmpClient.publish(serve(metrics=metrics).port):
        assert metrics.publishes_started == 1


def test_a_publisher_can_be_dropped_and_its_stream_ends(serve: Serve, log: LogLines) -> None:
    server = serve()
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        assert server.call(lambda: server.server.drop_publisher("live/none")) is False
        assert server.call(lambda: server.server.drop_publisher("live/a")) is True
        player.wait_status("NetStream.Play.UnpublishNotify")
        publisher.wait_closed()
        assert log.wait("Publisher dropped")["stream_key"] == "live/a"
        assert server.call(lambda: server.server.drop_publisher("live/a")) is False


def test_a_stream_whose_publisher_is_away_has_nobody_to_drop(serve: Serve, log: LogLines) -> None:
    server = serve(grace_s=60.0)
    with RtmpClient.publish(server.port):
        pass
    log.wait("publisher disconnected")
    assert server.call(lambda: server.server.drop_publisher("live/a")) is False
    ((stream, facts),) = server.call(server.server.describe_streams)
    assert (stream.key, facts["state"], facts["publisher"]) == ("live/a", "grace", None)


def test_a_stream_is_described_with_its_publisher_codecs_and_viewers(serve: Serve) -> None:
    server = serve()
    with RtmpClient.publish(server.port) as publisher, RtmpClient.play(server.port) as player:
        sent = publisher.send([*preamble(), *frames(3)])
        player.collect(9)
        ((_, facts),) = server.call(server.server.describe_streams)
    assert facts["key"] == "live/a"
    assert facts["state"] == "live"
    assert facts["viewers"] == 1
    assert facts["messages_in"] == 9
    assert facts["bytes_in"] == sum(len(message.payload) for message in sent)
    assert facts["publisher"] == {"conn_id": "c1", "remote": f"127.0.0.1:{publisher.local[1]}"}
    assert facts["codecs"]["width"] == 1280


# --- closing


@on_both_loops
def test_closing_tells_every_player_of_the_end_and_accepts_nobody(
    serve: Serve, loop_factory: LoopFactory, log: LogLines
) -> None:
    server = serve(loop_factory=loop_factory)
    with (
        RtmpClient.publish(server.port) as publisher,
        RtmpClient.play(server.port) as player,
        RtmpClient(server.port, Role.PLAY) as mute,
    ):
        published = publisher.send([*preamble(), *frames(10)])
        player.collect(len(published))
        server.begin_close()
        player.wait_closed()
        assert player.statuses[-1] == "NetStream.Play.UnpublishNotify"
        assert (UserControl.STREAM_EOF, 1) in player.user_controls
        publisher.wait_closed()
        mute.wait_closed()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            RtmpClient(server.port, Role.PLAY)
    assert {line["reason"] for line in log.of("Connection closed")} == {"server shutdown"}
    assert (server.metrics.streams, server.metrics.connections, server.metrics.subscribers) == (0, 0, 0)


@on_both_loops
def test_a_player_that_is_behind_when_the_server_closes_gets_the_rest_and_the_end(
    serve: Serve, loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_GOODBYE_S", 2 * DEADLINE_S)  # it is not this that closes the player
    server = serve(loop_factory=loop_factory, max_lag_s=60.0)
    with (
        RtmpClient.publish(server.port) as publisher,
        RtmpClient.play(server.port, receive_buffer_bytes=32 << 10) as player,
    ):
        published = publisher.send([*preamble(), *frames(60, size=20_000)])
        stream = server.server.streams.find("live", "a")
        assert stream is not None
        log = stream.log
        server.wait_until(lambda: log.tail == len(published), "all of it in the log")
        session = server.session("c2")
        server.wait_until(lambda: session.link.is_blocked, "the player to be behind")
        server.begin_close()
        player.wait_status("NetStream.Play.UnpublishNotify")
        player.wait_closed()
        assert player.received == published
        publisher.wait_closed()


def test_players_that_take_nothing_do_not_hold_up_the_end(serve: Serve) -> None:
    server = serve()
    with (
        RtmpClient.publish(server.port) as publisher,
        RtmpClient.play(server.port, receive_buffer_bytes=8 << 10),
    ):
        publisher.send([*preamble(), *frames(60, size=20_000)])
        session = server.session("c2")
        server.wait_until(lambda: session.link.is_blocked, "the player to be behind")
        started_s = time.monotonic()
        server.close()
        assert time.monotonic() - started_s < 4.5  # the process has 5 s in all
        assert session.link.is_closed


def test_a_publish_while_the_server_closes_is_denied(serve: Serve) -> None:
    server = serve()
    publisher = RtmpClient(server.port, Role.PUBLISH)
    publisher.shake_hands()
    server.call(lambda: setattr(server.server, "_is_closing", True))
    with pytest.raises(RefusedError) as refused:
        publisher.start()
    assert refused.value.code == "NetStream.Publish.Denied"
    assert server.metrics.publishes_refused == 1


def test_a_connection_that_comes_while_the_server_closes_is_refused(serve: Serve) -> None:
    server = serve()
    server.call(lambda: setattr(server.server, "_is_closing", True))
    RtmpClient(server.port, Role.PLAY).wait_closed()
    assert server.metrics.connections_refused == 1


def test_closing_cancels_the_timers() -> None:
    async def body() -> None:
        server = Server()
        server.listen("127.0.0.1", 0)
        await server.close()
        assert all(timer.cancelled() for timer in server._timers)
        assert len(asyncio.all_tasks()) == 1

    run(LOOP_FACTORIES["asyncio"], body)
