"""One pull after another: how it begins, what breaks it off, what its waiters are told, and that it ends."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from headrace.edge import origin as origin_module
from headrace.edge import session as session_module
from headrace.errors import StreamError
from headrace.stream.registry import Stream, StreamState
from headrace.telemetry.events import PublishStarted, PublishStopped, StreamEnded
from tests.helpers.far_end import (
    FarEnd,
    Script,
    Visit,
    hangs_after_connect,
    hangs_in_handshake,
    refuses_connect,
    then_closes,
)
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.media_bytes import AUDIO, CUE_POINT, DATA, Sent, aac_frame
from tests.helpers.origin import LogCapture, Publisher
from tests.helpers.waiting import eventually_async
from tests.unit.edge.origins import LATER, OPENING, Edge, dead_address, grant_play, lacks, say_media, serves
from tests.unit.protocol.wire import NULL, amf_object, command, message, status, string


async def refusal(found: asyncio.Future[Stream]) -> StreamError:
    with pytest.raises(StreamError) as caught:
        await found
    return caught.value


@on_both_loops
def test_many_who_ask_at_once_cause_one_pull_and_get_the_origins_messages_unchanged(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin) as edge:
            asked = [edge.ask() for _ in range(20)]
            streams = await asyncio.gather(*asked)
            assert len(set(streams)) == len(origin.visits) == 1
            say_media(origin.last, LATER)
            await edge.until_payloads(streams[0], [*OPENING, *LATER])
            entries = streams[0].log.entries(0, streams[0].log.tail)
            assert [Sent(one.type_id, one.timestamp_ms, one.payload) for one in entries] == [*OPENING, *LATER]
            assert edge.server.find("live", "cam") is streams[0]
            assert streams[0].is_pulled
            assert edge.pulls.snapshot()["messages_in"] == len(OPENING) + len(LATER)
            assert edge.server.snapshot()["publishers"] == edge.server.metrics.messages_in == 0

    run(loop_factory, test)


@on_both_loops
def test_the_origin_is_asked_for_the_same_stream_and_told_through_whom(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin) as edge:
            await edge.ask("cam", ("0a", "0b"))
            connect = next(one for one in origin.last.commands if one.name == "connect")
            assert connect.object["app"] == "live"
            assert connect.object["headraceVia"] == f"0a,0b,{edge.server.id}"
            play = next(one for one in origin.last.commands if one.name == "play")
            assert play.arguments == ("cam", -2000.0)

    run(loop_factory, test)


@on_both_loops
def test_what_comes_together_is_told_once_and_has_waited_at_the_origin(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin) as edge:
            stream = await edge.ask()
            await edge.until_payloads(stream, OPENING)
            tails: list[int] = []

            class Told:
                def stream_appended(self) -> None:
                    tails.append(stream.log.tail)

                def stream_ended(self, reason: str) -> None:
                    pass

            stream.add_listener(Told())
            assert stream.publisher is not None
            far = [message(one.type_id, one.payload, on=4, stream=1, time=one.timestamp_ms) for one in LATER]
            origin.last.say(b"".join(far))  # in one packet
            await eventually_async(lambda: tails, "the messages")
            assert tails == [len(OPENING) + len(LATER)]
            media_ms = [one.timestamp_ms for one in LATER]
            assert stream.publisher.rest(0.0) == pytest.approx((media_ms[-1] - media_ms[0]) / 1000)
            say_media(origin.last, [Sent(AUDIO, 400, aac_frame())])
            await eventually_async(lambda: len(tails) > 1, "one more")
            assert stream.publisher.rest(0.0) == 0, "it came alone"

    run(loop_factory, test)


@on_both_loops
def test_the_end_at_the_origin_is_the_end_here(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin, grace_s=60.0) as edge:
            stream = await edge.ask()
            origin.last.say(status(1, "status", "NetStream.Play.UnpublishNotify", "over"))
            await eventually_async(lambda: stream.state is StreamState.ENDED, "the end")
            assert edge.pulls.snapshot()["active"] == 0
            assert edge.pulls.snapshot()["failures"] == {}
            kinds = [type(event) for event in edge.events if isinstance(event, PublishStarted | PublishStopped)]
            assert kinds == [PublishStarted, PublishStopped]
            started = next(event for event in edge.events if isinstance(event, PublishStarted))
            assert started.origin == f"rtmp://127.0.0.1:{origin.port}/live"
            assert [event.stream_id for event in edge.events if isinstance(event, StreamEnded)] == [started.stream_id]

    run(loop_factory, test)


@on_both_loops
def test_a_stream_that_the_origin_does_not_have_is_not_found_and_not_asked_for_again_at_once(
    loop_factory: LoopFactory,
) -> None:
    async def test() -> None:
        async with FarEnd(lacks()) as origin, Edge(origin) as edge:
            first, second = edge.ask(), edge.ask()
            for found in (first, second):
                error = await refusal(found)
                assert (error.code, error.description) == ("NetStream.Play.StreamNotFound", 'No stream "cam".')
            with pytest.raises(StreamError, match='No stream "cam"'):
                edge.ask()
            assert len(origin.visits) == 1
            counted = edge.pulls.snapshot()
            assert (counted["failures"], counted["refused"]) == ({"rejected": 1}, {"missing": 1})
            await refusal(edge.ask("other"))  # which may well be there
            assert len(origin.visits) == 2

    run(loop_factory, test)


@on_both_loops
def test_an_origin_that_cannot_be_reached_is_left_alone_for_a_while(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        origin = FarEnd(serves(*OPENING))  # bound, and not listening
        async with Edge(origin) as edge:
            error = await refusal(edge.ask())
            assert error.description == 'No stream "cam": no origin can be reached.'
            for name in ("cam", "other"):
                with pytest.raises(StreamError, match="no origin can be reached"):
                    edge.ask(name)
            assert edge.pulls.snapshot()["failures"] == {"refused": 1}
            assert edge.pulls.snapshot()["refused"] == {"unreachable": 2}
            async with origin:
                await eventually_async(lambda: _can_be_asked(edge), "the end of its rest")
                await edge.ask("third")

    run(loop_factory, test)


def _can_be_asked(edge: Edge) -> bool:
    try:
        edge.ask("probe").cancel()
    except StreamError:
        return False
    return True


@on_both_loops
def test_origins_are_asked_in_their_order(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        empty, full = FarEnd(lacks()), FarEnd(serves(*OPENING))
        async with empty, full, Edge(dead_address(), empty, full) as edge:
            stream = await edge.ask()
            assert len(empty.visits) == len(full.visits) == 1
            (_, facts) = edge.server.describe_streams()[0]
            assert facts["origin"]["url"] == f"rtmp://127.0.0.1:{full.port}/live"
            assert facts["origin"]["state"] == "connected"
            assert edge.pulls.snapshot()["failures"] == {"refused": 1, "rejected": 1}
            assert stream.publisher is not None

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize(
    ("script", "failures", "text"),
    [
        (hangs_in_handshake, {"timeout": 1}, "no origin can be reached"),
        (hangs_after_connect, {"rejected": 1}, ""),
        (grant_play, {"rejected": 1}, ""),  # as servers do that wait for a publisher
        (then_closes(hangs_after_connect), {"rejected": 1}, ""),
        (refuses_connect("NetConnection.Connect.Rejected", "no such app"), {"rejected": 1}, ""),
    ],
)
def test_nobody_waits_for_ever(loop_factory: LoopFactory, script: Script, failures: dict[str, int], text: str) -> None:
    async def test() -> None:
        async with FarEnd(script) as origin, Edge(origin, answer_s=1.0) as edge:
            error = await refusal(edge.ask())
            assert error.code == "NetStream.Play.StreamNotFound"
            assert text in error.description
            assert edge.pulls.snapshot()["failures"] == failures
            await eventually_async(lambda: origin.last.is_over, "the connection to be closed")
            assert len(edge.server.streams) == edge.pulls.snapshot()["active"] == 0

    run(loop_factory, test)


@on_both_loops
def test_what_a_server_says_to_its_players_in_data_messages_is_not_the_streams(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        access = Sent(DATA, 0, b"\x02\x00\x11|RtmpSampleAccess\x01\x01\x01\x01")
        begun = Sent(DATA, 0, b"\x02\x00\x08onStatus\x03\x00\x04code\x02\x00\x14NetStream.Data.Start\x00\x00\x09")
        cue = Sent(DATA, 40, CUE_POINT)
        async with FarEnd(serves(access, begun)) as origin, Edge(origin) as edge:
            found = edge.ask()
            await origin.until_visits(1)
            await asyncio.sleep(0.1)
            assert not found.done()
            say_media(origin.last, [*OPENING, access, cue])
            await edge.until_payloads(await found, [*OPENING, cue])

    run(loop_factory, test)


@on_both_loops
def test_a_lost_origin_puts_the_stream_into_its_grace_period_and_its_return_goes_on(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING), lacks(), serves(*OPENING)) as origin, Edge(origin) as edge:
            viewer_stream = await edge.ask()
            origin.last.reset()
            await origin.until_visits(3)
            await edge.until_payloads(viewer_stream, [*OPENING, *OPENING])
            entries = viewer_stream.log.entries(0, viewer_stream.log.tail)
            times = [one.timestamp_ms for one in entries if one.type_id == AUDIO]
            assert times == sorted(times)  # it counts from 0 again, and players see no step back
            assert viewer_stream.state is StreamState.LIVE
            counted = edge.pulls.snapshot()
            assert counted["reconnects"] == 1
            assert counted["failures"] == {"reset": 1, "rejected": 1}
            started = [event for event in edge.events if isinstance(event, PublishStarted)]
            assert [event.resumed for event in started] == [False, True]
            assert edge.offered == [viewer_stream]

    run(loop_factory, test)


@on_both_loops
def test_a_lost_origin_that_stays_away_ends_the_stream_after_the_grace(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING), lacks()) as origin, Edge(origin, grace_s=0.3) as edge:
            stream = await edge.ask()
            origin.last.close()
            await eventually_async(lambda: stream.state is StreamState.ENDED, "the end")
            assert edge.pulls.snapshot()["active"] == 0
            visits = len(origin.visits)
            await asyncio.sleep(0.2)  # in which it would come eight times
            # One may have been on its way when the stream ended.
            assert len(origin.visits) <= visits + 1, "it goes on asking for what nobody wants"

    run(loop_factory, test)


@on_both_loops
def test_an_origin_that_falls_silent_is_asked_and_then_left(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "PING_AFTER_S", 0.1)
    monkeypatch.setattr(session_module, "SILENT_S", 1.5)

    async def test() -> None:
        async with FarEnd(serves(*OPENING), lacks()) as origin, Edge(origin, grace_s=0.1) as edge:
            stream = await edge.ask()
            await edge.watch()
            await eventually_async(lambda: stream.state is StreamState.ENDED, "the end")
            assert edge.pulls.snapshot()["failures"]["timeout"] == 1
            assert any(one.payload[:2] == b"\x00\x06" for one in origin.visits[0].others), "it was never asked"

    run(loop_factory, test)


@on_both_loops
def test_a_pull_is_let_go_when_the_last_reader_has_left_for_some_time(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin, linger_s=0.5) as edge:
            viewer = await edge.watch()
            await viewer.until_media(len(OPENING) - 4)
            await asyncio.sleep(2.2)  # longer than a tick and the time it lingers
            assert edge.pulls.snapshot()["active"] == 1
            await viewer.close()
            await eventually_async(lambda: edge.pulls.snapshot()["active"] == 0, "the pull to end")
            await eventually_async(lambda: origin.last.is_over, "the connection to end")
            assert [one.name for one in origin.last.commands][-1] == "deleteStream"
            assert len(edge.server.streams) == 0

    run(loop_factory, test)


@on_both_loops
def test_a_pull_that_nobody_waits_for_any_more_is_let_go(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(hangs_after_connect) as origin, Edge(origin, linger_s=0.0, answer_s=60.0) as edge:
            found = edge.ask()
            await origin.until_visits(1)
            assert edge.pulls.snapshot()["waiting_players"] == 1
            found.cancel()
            await eventually_async(lambda: edge.pulls.snapshot()["active"] == 0, "the pull to end")
            await eventually_async(lambda: origin.last.is_over, "the connection to end")

    run(loop_factory, test)


@on_both_loops
def test_a_publisher_here_is_what_was_looked_for(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(hangs_after_connect) as origin, Edge(origin) as edge:
            found = edge.ask()
            await origin.until_visits(1)
            stream = edge.server.publish("live", "cam", Publisher())  # type: ignore[arg-type]
            assert await found is stream
            assert not stream.is_pulled
            assert edge.pulls.snapshot()["active"] == 0
            await eventually_async(lambda: origin.last.is_over, "the connection to end")

    run(loop_factory, test)


@on_both_loops
def test_a_publisher_here_is_refused_while_somebody_watches_and_granted_otherwise(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin) as edge:
            viewer = await edge.watch()
            await viewer.until_media(1)
            with pytest.raises(StreamError, match="cam is already being published"):
                edge.server.publish("live", "cam", Publisher())  # type: ignore[arg-type]
            copy = edge.server.streams.find("live", "cam")
            await viewer.close()
            await eventually_async(lambda: edge.server.metrics.subscribers == 0, "the viewer to leave")
            stream = edge.server.publish("live", "cam", Publisher())  # type: ignore[arg-type]
            assert stream is not copy
            assert not stream.is_pulled
            assert edge.server.snapshot()["publishers"] == 1

    run(loop_factory, test)


@on_both_loops
def test_a_publisher_here_takes_a_stream_whose_origin_is_lost_and_its_readers_stay(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING), lacks()) as origin, Edge(origin, grace_s=60.0) as edge:
            viewer = await edge.watch()
            await viewer.until_media(1)
            origin.last.reset()
            await origin.until_visits(2)
            copy = edge.server.streams.find("live", "cam")
            stream = edge.server.publish("live", "cam", Publisher())  # type: ignore[arg-type]
            assert stream is copy
            assert not stream.is_pulled
            assert edge.offered == [stream, stream]  # once as a copy, once as what is published here
            assert edge.pulls.snapshot()["active"] == 0
            assert edge.server.fanout(stream).viewers == 1

    run(loop_factory, test)


@on_both_loops
def test_a_request_that_went_in_a_circle_is_refused(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(_serves_from("0a,0b")) as origin, Edge(origin) as edge:
            with pytest.raises(StreamError, match="the request went in a circle"):
                edge.ask(via=("0c", edge.server.id))
            assert not origin.visits
            stream = await edge.ask(via=("0c",))
            assert stream.path == ("0a", "0b")
            assert edge.server.find("live", "cam", ("0c",)) is stream
            with pytest.raises(StreamError, match="the request went in a circle"):
                edge.server.find("live", "cam", ("0b",))

    run(loop_factory, test)


@on_both_loops
def test_servers_behind_us_come_again_when_the_way_of_the_stream_changes_and_players_stay(
    loop_factory: LoopFactory,
) -> None:
    async def test() -> None:
        same, other = _serves_from("0a"), _serves_from("0b")
        async with FarEnd(same, same, other) as origin, Edge(origin) as edge:
            player, server = await edge.watch(), await edge.watch("0c")
            for viewer in (player, server):
                await viewer.until_media(1)
            for visits, is_changed in ((2, False), (3, True)):
                origin.last.reset()
                await origin.until_visits(visits)
                await player.until_media(visits * len(OPENING) - 4)
                assert server.is_over is is_changed
                assert not player.is_over

    run(loop_factory, test)


@on_both_loops
def test_an_origin_over_tls_is_pulled_from_if_its_certificate_is_good(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(origin_module, "_tls_context", lambda: trusting)

    def of(name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(name).configure_cert(context)
        return context

    async def test() -> None:
        good = FarEnd(serves(*OPENING), tls=of("localhost"))
        bad = FarEnd(serves(*OPENING), tls=of("elsewhere.example"))
        async with good, bad, Edge(*(f"rtmps://localhost:{one.port}" for one in (bad, good))) as edge:
            await edge.until_payloads(await edge.ask(), OPENING)
            assert edge.pulls.snapshot()["failures"] == {"tls": 1}

    run(loop_factory, test)


@on_both_loops
def test_a_stream_that_comes_from_ourselves_is_not_taken(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        path: list[str] = []

        async def script(visit: Visit) -> None:
            await _serves_from(",".join(path))(visit)

        async with FarEnd(script) as origin, Edge(origin) as edge:
            path += ["0a", edge.server.id]
            await refusal(edge.ask())
            assert len(edge.server.streams) == 0

    run(loop_factory, test)


def _serves_from(path: str) -> Script:
    async def script(visit: Visit) -> None:
        await visit.create_stream()
        await visit.expect("play")
        info = amf_object(level=string("status"), code=string("NetStream.Play.Start"), headracePath=string(path))
        visit.say(command("onStatus", 0, NULL, info, stream=1))
        say_media(visit, OPENING)

    return script


@on_both_loops
def test_a_player_that_leaves_while_it_waits_leaves_nothing_behind(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(hangs_after_connect) as origin, Edge(origin) as edge:
            viewer = await edge.watch()
            await eventually_async(lambda: edge.pulls.snapshot()["waiting_players"] == 1, "the player to wait")
            await viewer.close()
            await eventually_async(lambda: edge.pulls.snapshot()["waiting_players"] == 0, "the player to be gone")
            assert edge.server.metrics.plays_refused == edge.server.metrics.plays_started == 0

    run(loop_factory, test)


@on_both_loops
def test_names_that_strangers_make_up_cannot_open_connections_without_end(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(hangs_after_connect) as origin, Edge(origin, max_opening=3) as edge:
            asked = [edge.ask(f"made-up-{number}") for number in range(3)]
            with pytest.raises(StreamError, match='No stream "made-up-3"'):
                edge.ask("made-up-3")
            asked.append(edge.ask("made-up-1"))  # one that is being looked for costs nothing more
            assert edge.pulls.snapshot()["refused"] == {"too_many": 1}
            await origin.until_visits(3)
            for found in asked:
                found.cancel()

    run(loop_factory, test)


def test_a_token_of_an_origin_is_in_no_line() -> None:
    log = LogCapture()

    async def test() -> None:
        secret = "t0ken-5a17"

        async def quotes(visit: Visit) -> None:
            await visit.create_stream()
            await visit.expect("play")
            visit.say(status(1, "error", "NetStream.Play.Failed", f"no access with token={secret}"))

        async with FarEnd(quotes) as origin, Edge(f"rtmp://127.0.0.1:{origin.port}/far?token={secret}") as edge:
            await refusal(edge.ask())
            connect = next(one for one in origin.last.commands if one.name == "connect")
            assert connect.object["app"] == f"far?token={secret}"
            (line,) = log.lines("Pull failed")
            assert line["url"] == f"rtmp://127.0.0.1:{origin.port}/far?****"
            assert secret not in log.text

    try:
        run(asyncio.SelectorEventLoop, test)
    finally:
        log.close()


def test_what_is_sent_after_a_stop_is_not_appended() -> None:
    async def test() -> None:
        async with FarEnd(serves(*OPENING)) as origin, Edge(origin) as edge:
            stream = await edge.ask()
            edge.server.streams.end_all("over")
            say_media(origin.last, [Sent(AUDIO, 200, aac_frame(99))])
            await eventually_async(lambda: origin.last.is_over, "the connection to end")
            assert stream.log.tail == len(OPENING)

    run(asyncio.SelectorEventLoop, test)
