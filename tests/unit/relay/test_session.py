"""One connection to a destination: the flow as encoders do it, and every way a far end can break it off."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme

from headrace.relay import session as session_module
from headrace.relay.failure import MAX_SAID_CHARACTERS, ErrorClass, RelayError
from headrace.relay.session import DestinationSession, RedirectedError, open_session
from headrace.relay.target import Target, parse_target
from tests.helpers.far_end import (
    CONNECT_RESULT,
    FarEnd,
    Script,
    Visit,
    grants,
    hangs_after_connect,
    hangs_after_create_stream,
    hangs_after_handshake,
    hangs_in_handshake,
    reconnect_request,
    refuses,
    refuses_connect,
    swallows,
    then_closes,
)
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.waiting import DEADLINE_S, eventually_async
from tests.unit.protocol.wire import BIG_CHUNKS, NULL, amf_object, command, control, message, number, status, string

KEY = "abcd-efgh-1234-5678"
AUTHORITY = trustme.CA()


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


def server_context(*names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert(*names).configure_cert(context)
    return context


def target_at(far_end: FarEnd, *, app: str = "live", scheme: str = "rtmp", host: str = "127.0.0.1") -> Target:
    return parse_target(f"{scheme}://{host}:{far_end.port}/{app}", KEY)


async def opened(target: Target) -> tuple[DestinationSession, int]:
    assert target.name is not None
    tls = client_context() if target.is_tls else None
    return await open_session(target, target.name, chunk_size=60_000, tls=tls)


async def failure_of(target: Target) -> RelayError:
    """Why no session can be had. No secret is told."""
    with pytest.raises(RelayError) as caught:
        await opened(target)
    assert KEY not in f"{caught.value!r} {caught.value}"
    return caught.value


def fails(loop_factory: LoopFactory, script: Script) -> RelayError:
    async def test() -> RelayError:
        async with FarEnd(script) as far_end:
            error = await failure_of(target_at(far_end))
            await eventually_async(lambda: far_end.last.is_over, "the far end to see the connection closed")
            return error

    return run(loop_factory, test)


# --- the flow


@on_both_loops
def test_the_flow_is_that_of_an_encoder(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end:
            session, message_stream_id = await opened(target_at(far_end))
            assert message_stream_id == 1
            session.finish()
            assert await session.ended is None
            (visit,) = far_end.visits
            await eventually_async(lambda: visit.is_over, "the goodbye to arrive")
            assert [(one.name, one.message_stream_id) for one in visit.commands] == [
                ("connect", 0),
                ("releaseStream", 0),
                ("FCPublish", 0),
                ("createStream", 0),
                ("publish", 1),
                ("FCUnpublish", 0),
                ("deleteStream", 0),
            ]
            connect, release, fc_publish, _, publish, fc_unpublish, delete = visit.commands
            assert connect.object["app"] == "live"
            assert connect.object["tcUrl"] == f"rtmp://127.0.0.1:{far_end.port}/live"
            assert release.text(0) == fc_publish.text(0) == publish.text(0) == fc_unpublish.text(0) == KEY
            assert publish.text(1) == "live"
            assert delete.number(0, 0) == 1

    run(loop_factory, test)


@on_both_loops
def test_keys_with_question_marks_and_tokens_of_the_application_go_out_as_they_are(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end:
            target = parse_target(f"rtmp://127.0.0.1:{far_end.port}/live/eu?t=1&u=2", "FB-1?s=a/b&c=d%20e")
            session, _ = await opened(target)
            session.finish()
            connect, publish = far_end.last.commands[0], far_end.last.commands[4]
            assert connect.object["app"] == "live/eu?t=1&u=2"
            assert connect.object["tcUrl"] == f"rtmp://127.0.0.1:{far_end.port}/live/eu?t=1&u=2"
            assert publish.text(0) == "FB-1?s=a/b&c=d%20e"

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("stream", [2, 7, 65536])
def test_any_message_stream_id_is_taken_up(loop_factory: LoopFactory, stream: int) -> None:
    async def grants_other(visit: Visit) -> None:
        await visit.grant(stream)

    async def test() -> None:
        async with FarEnd(grants_other) as far_end:
            session, message_stream_id = await opened(target_at(far_end))
            assert message_stream_id == stream
            session.finish()
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last.commands[4].message_stream_id == stream
            assert far_end.last.commands[-1].number(0, 0) == stream

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("size", [1, 31, 65536, 0x7FFFFFFF])
def test_a_far_end_may_use_any_chunk_size(loop_factory: LoopFactory, size: int) -> None:
    async def cuts_its_answers(visit: Visit) -> None:
        await visit.shake_hands()
        await visit.expect("connect")
        visit.say(control(1, f"{size:08x}"), cut(CONNECT_RESULT, size))
        await visit.expect("createStream")
        visit.say(cut(command("_result", 4, NULL, number(1)), size))
        await visit.expect("publish")
        visit.say(cut(status(1, "status", "NetStream.Publish.Start", "go"), size))

    async def test() -> None:
        async with FarEnd(cuts_its_answers) as far_end:
            session, _ = await opened(target_at(far_end))
            session.finish()

    run(loop_factory, test)


def cut(whole: bytes, size: int) -> bytes:
    """A message in one chunk (12 bytes of header), cut into chunks of `size`: format 3 headers between them."""
    payload = whole[12:]
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    return whole[:12] + bytes((0xC0 | whole[0],)).join(pieces)


@on_both_loops
def test_our_chunk_size_is_announced_before_the_first_command(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end:
            target = target_at(far_end)
            session, _ = await open_session(target, KEY, chunk_size=128, tls=None)
            session.finish()
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last._chunks.chunk_size == 128
            # A window, so that the far end acknowledges no more often than it has to.
            assert [(one.type_id, one.payload) for one in far_end.last.others] == [(5, (2_500_000).to_bytes(4, "big"))]

    run(loop_factory, test)


@on_both_loops
def test_pings_are_answered_and_bytes_acknowledged(loop_factory: LoopFactory) -> None:
    async def pings_and_sends(visit: Visit) -> None:
        await visit.grant()
        visit.say(control(5, "00000400"))  # acknowledge every kilobyte
        visit.say(control(4, "00060badcafe"))
        while len(visit.others) < 2:
            await visit.next_message()
        visit.say(message(18, b"\x02\x00\x01x" + bytes(2000), on=4, stream=1))

    async def test() -> None:
        async with FarEnd(pings_and_sends) as far_end:
            session, _ = await opened(target_at(far_end))
            await eventually_async(lambda: len(far_end.last.others) >= 3, "both answers")
            ping, acknowledgement = far_end.last.others[1:3]
            assert (ping.type_id, ping.payload) == (4, bytes.fromhex("00070badcafe"))
            assert acknowledgement.type_id == 3
            assert int.from_bytes(acknowledgement.payload, "big") > 2000
            assert not session.ended.done()
            session.finish()

    run(loop_factory, test)


@on_both_loops
def test_courtesies_that_a_far_end_does_not_know_are_no_refusal(loop_factory: LoopFactory) -> None:
    async def knows_no_fc_publish(visit: Visit) -> None:
        await visit.accept_connect()
        unknown = amf_object(level=string("error"), code=string("NetConnection.Call.Failed"))
        visit.say(command("_error", 2, NULL, unknown), command("_error", 3, NULL, unknown))
        await visit.expect("createStream")
        visit.say(command("_result", 4, NULL, number(1)))
        await visit.expect("publish")
        visit.say(status(1, "status", "NetStream.Play.Whatever", "not yet"))
        visit.say(status(1, "status", "NetStream.Publish.Start", "go"))

    async def test() -> None:
        async with FarEnd(knows_no_fc_publish) as far_end:
            session, _ = await opened(target_at(far_end))
            session.finish()

    run(loop_factory, test)


@on_both_loops
def test_over_tls_the_flow_is_the_same(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants, tls=server_context("localhost")) as far_end:
            session, _ = await opened(target_at(far_end, scheme="rtmps", host="localhost"))
            assert far_end.last.commands[0].object["tcUrl"] == f"rtmps://localhost:{far_end.port}/live"
            session.finish()
            assert await session.ended is None
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last.commands[-1].name == "deleteStream"

    run(loop_factory, test)


# --- no connection


@on_both_loops
@pytest.mark.parametrize(
    ("url", "error_class"),
    [
        ("rtmp://127.0.0.1:1/live", ErrorClass.REFUSED),
        ("rtmp://nonexistent.invalid/live", ErrorClass.DNS),
        ("rtmp://a..b/live", ErrorClass.DNS),
        (f"rtmp://{'x' * 64}.example/live", ErrorClass.DNS),
        ("rtmps://nonexistent.invalid/live", ErrorClass.DNS),
        ("rtmps://127.0.0.1:1/live", ErrorClass.REFUSED),
    ],
)
def test_a_host_that_cannot_be_reached_is_told_by_its_class(
    loop_factory: LoopFactory, url: str, error_class: ErrorClass
) -> None:
    async def test() -> None:
        assert (await failure_of(parse_target(url, KEY))).error_class is error_class

    run(loop_factory, test)


@on_both_loops
def test_no_connection_in_time_is_a_timeout(loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: Any, **options: Any) -> Any:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    monkeypatch.setattr(session_module, "dial", never)

    async def test() -> None:
        error = await failure_of(parse_target("rtmp://host/live", KEY))
        assert error.error_class is ErrorClass.TIMEOUT
        assert str(error) == "no connection within 10 s"

    run(loop_factory, test)


@on_both_loops
def test_a_certificate_for_another_host_is_an_error_of_tls(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants, tls=server_context("other.example")) as far_end:
            error = await failure_of(target_at(far_end, scheme="rtmps", host="localhost"))
            assert error.error_class is ErrorClass.TLS
            assert str(error).startswith("certificate not accepted: Hostname mismatch")

    run(loop_factory, test)


@on_both_loops
def test_a_certificate_that_nobody_vouches_for_is_an_error_of_tls(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants, tls=server_context("localhost")) as far_end:
            target = target_at(far_end, scheme="rtmps", host="localhost")
            with pytest.raises(RelayError, match="certificate not accepted") as caught:
                await open_session(target, KEY, chunk_size=128, tls=ssl.create_default_context())
            assert caught.value.error_class is ErrorClass.TLS

    run(loop_factory, test)


async def answers_like_a_web_server(visit: Visit) -> None:
    await visit.reader.read(1)
    visit.say(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await swallows(visit)


@on_both_loops
def test_a_plain_server_behind_an_rtmps_address_is_an_error_of_tls(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(answers_like_a_web_server) as far_end:
            error = await failure_of(target_at(far_end, scheme="rtmps", host="localhost"))
            assert error.error_class is ErrorClass.TLS
            assert str(error).startswith("TLS failed: ")

    run(loop_factory, test)


# --- broken off


async def does_nothing(visit: Visit) -> None:
    await visit.reader.readexactly(1537)


async def half_a_handshake(visit: Visit) -> None:
    hello = await visit.reader.readexactly(1537)
    visit.say(b"\x03", hello[:1000])


async def takes_connect(visit: Visit) -> None:
    await visit.shake_hands()
    await visit.expect("connect")


async def takes_create_stream(visit: Visit) -> None:
    await visit.accept_connect()
    await visit.expect("createStream")


async def takes_publish(visit: Visit) -> None:
    await visit.create_stream()
    await visit.expect("publish")


@on_both_loops
@pytest.mark.parametrize(
    ("step", "error_class", "during"),
    [
        (does_nothing, ErrorClass.HANDSHAKE, "handshake"),
        (half_a_handshake, ErrorClass.HANDSHAKE, "handshake"),
        (takes_connect, ErrorClass.REJECTED, "connect"),
        (takes_create_stream, ErrorClass.REJECTED, "createStream"),
        (takes_publish, ErrorClass.REJECTED, "start"),
    ],
)
def test_a_far_end_that_closes_is_told_by_how_far_it_had_come(
    loop_factory: LoopFactory, step: Callable[[Visit], Awaitable[None]], error_class: ErrorClass, during: str
) -> None:
    error = fails(loop_factory, then_closes(step))
    assert error.error_class is error_class
    assert str(error).startswith(f"connection ended during {during}: ")
    assert ("stream key is wrong" in str(error)) == (during == "start")


@on_both_loops
@pytest.mark.parametrize(
    ("script", "constant", "what"),
    [
        (swallows, "HANDSHAKE_S", "answer to the handshake"),
        (hangs_in_handshake, "HANDSHAKE_S", "answer to the handshake"),
        (hangs_after_handshake, "PUBLISH_S", "permission to publish"),
        (hangs_after_connect, "PUBLISH_S", "permission to publish"),
        (hangs_after_create_stream, "PUBLISH_S", "permission to publish"),
    ],
)
def test_a_far_end_that_hangs_is_left_at_the_deadline_of_its_step(
    loop_factory: LoopFactory, script: Script, constant: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, constant, 0.1)
    error = fails(loop_factory, script)
    assert error.error_class is ErrorClass.TIMEOUT
    assert str(error) == f"no {what} within 0.1 s"


@on_both_loops
@pytest.mark.parametrize(
    ("script", "error_class", "message"),
    [
        (
            refuses("NetStream.Publish.BadName", f"stream {KEY} is already published"),
            ErrorClass.REJECTED,
            "refused during start: NetStream.Publish.BadName: stream **** is already published",
        ),
        (
            refuses_connect("NetConnection.Connect.Rejected", "[ code=403 need auth; authmod=adobe ]"),
            ErrorClass.AUTH,
            "refused during connect: NetConnection.Connect.Rejected: [ code=403 need auth; authmod=adobe ]",
        ),
        (
            refuses_connect("NetConnection.Connect.InvalidApp", f"no app at rtmp://h/live/{KEY}"),
            ErrorClass.REJECTED,
            "refused during connect: NetConnection.Connect.InvalidApp: no app at rtmp://h/live/****",
        ),
        (
            refuses(f"NetStream.{KEY}", ""),
            ErrorClass.REJECTED,
            "refused during start: NetStream.****",
        ),
    ],
)
def test_a_refusal_is_told_with_its_words_and_without_the_key(
    loop_factory: LoopFactory, script: Script, error_class: ErrorClass, message: str
) -> None:
    error = fails(loop_factory, script)
    assert (error.error_class, str(error)) == (error_class, message)


async def refuses_create_stream(visit: Visit) -> None:
    await visit.accept_connect()
    await visit.expect("createStream")
    visit.say(command("_error", 4, NULL, NULL))


async def sends_close(visit: Visit) -> None:
    await visit.accept_connect()
    visit.say(command("close", 0, NULL))


async def refuses_at_length(visit: Visit) -> None:
    await takes_publish(visit)
    visit.say(status(1, "error", "NetStream.Publish.BadName", "long " * 10_000))


@on_both_loops
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (refuses_create_stream, "refused during createStream: NetConnection.Call.Failed"),
        (sends_close, "refused during createStream: close: the server sent a close command"),
        (refuses_at_length, "refused during start: NetStream.Publish.BadName: long long "),
    ],
)
def test_any_other_refusal_is_a_rejection_too(loop_factory: LoopFactory, script: Script, message: str) -> None:
    error = fails(loop_factory, script)
    assert error.error_class is ErrorClass.REJECTED
    assert str(error).startswith(message)
    assert len(str(error)) < MAX_SAID_CHARACTERS + 50


async def answers_create_stream_with_words(visit: Visit) -> None:
    await visit.accept_connect()
    await visit.expect("createStream")
    visit.say(command("_result", 4, NULL, string(f"{KEY} " * 3_000)))


async def announces_chunks_of_nothing(visit: Visit) -> None:
    await visit.shake_hands()
    visit.say(control(1, "00000000"))


@on_both_loops
@pytest.mark.parametrize(
    ("script", "error_class"),
    [
        (answers_like_a_web_server, ErrorClass.HANDSHAKE),
        (announces_chunks_of_nothing, ErrorClass.RESET),
        (answers_create_stream_with_words, ErrorClass.RESET),
    ],
)
def test_bytes_that_break_the_protocol_are_an_error_of_the_far_end(
    loop_factory: LoopFactory, script: Script, error_class: ErrorClass
) -> None:
    error = fails(loop_factory, script)
    assert error.error_class is error_class
    assert str(error).startswith("broke the protocol: ")
    assert len(str(error)) < MAX_SAID_CHARACTERS + 50


@on_both_loops
@pytest.mark.parametrize("script", [swallows, hangs_after_connect])
def test_calling_it_off_closes_the_connection(loop_factory: LoopFactory, script: Script) -> None:
    async def test() -> None:
        async with FarEnd(script) as far_end:
            opening = asyncio.get_running_loop().create_task(opened(target_at(far_end)))
            await far_end.until_visits(1)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await eventually_async(lambda: far_end.last.is_over, "the far end to see the connection closed")

    run(loop_factory, test)


# --- after publishing has begun


async def ends(session: DestinationSession) -> RelayError | None:
    async with asyncio.timeout(DEADLINE_S):
        return await session.ended


@on_both_loops
@pytest.mark.parametrize("is_reset", [False, True], ids=["closes", "resets"])
def test_a_connection_that_is_lost_in_the_middle_is_a_reset(loop_factory: LoopFactory, is_reset: bool) -> None:
    async def leaves(visit: Visit) -> None:
        await visit.grant()
        visit.reset() if is_reset else visit.close()

    async def test() -> None:
        async with FarEnd(leaves) as far_end:
            session, _ = await opened(target_at(far_end))
            error = await ends(session)
            assert error is not None
            assert error.error_class is ErrorClass.RESET
            assert str(error).startswith("connection ended during running: ")

    run(loop_factory, test)


@on_both_loops
def test_a_stream_that_is_stopped_over_there_is_a_reset(loop_factory: LoopFactory) -> None:
    async def stops_it(visit: Visit) -> None:
        await visit.grant()
        visit.say(status(1, "error", "NetStream.Publish.Denied", f"{KEY} was kicked"))

    async def test() -> None:
        async with FarEnd(stops_it) as far_end:
            session, _ = await opened(target_at(far_end))
            error = await ends(session)
            assert error is not None
            assert error.error_class is ErrorClass.RESET
            assert str(error) == "refused during running: NetStream.Publish.Denied: **** was kicked"

    run(loop_factory, test)


@on_both_loops
def test_the_first_error_is_the_one_that_is_told(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end:
            session, _ = await opened(target_at(far_end))
            first = RelayError(ErrorClass.STALLED, "took no bytes")
            session.fail(first)
            session.fail(RelayError(ErrorClass.RESET, "later"))
            session.finish()
            session.link_lost("again")
            assert await ends(session) is first

    run(loop_factory, test)


@on_both_loops
def test_a_goodbye_is_said_once(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(grants) as far_end:
            session, _ = await opened(target_at(far_end))
            session.detach()  # nothing was attached: nothing to do
            session.finish()
            session.finish()
            assert await ends(session) is None
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert [one.name for one in far_end.last.commands[5:]] == ["FCUnpublish", "deleteStream"]

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("tc_url", [None, "rtmp://elsewhere/live"])
def test_a_request_to_reconnect_is_answered_by_a_goodbye(loop_factory: LoopFactory, tc_url: str | None) -> None:
    async def sends_away(visit: Visit) -> None:
        await visit.grant()
        visit.ask_to_reconnect(tc_url)

    async def test() -> None:
        async with FarEnd(sends_away) as far_end:
            session, _ = await opened(target_at(far_end))
            assert await ends(session) is None
            assert session.reconnect_url == (tc_url or "")
            await eventually_async(lambda: far_end.last.is_over, "the goodbye to arrive")
            assert far_end.last.commands[-1].name == "deleteStream"

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("is_after_connect", [False, True])
def test_a_request_to_reconnect_before_publishing_says_where_to_go(
    loop_factory: LoopFactory, is_after_connect: bool
) -> None:
    async def sends_away(visit: Visit) -> None:
        await visit.shake_hands()
        await visit.expect("connect")
        visit.say(BIG_CHUNKS, CONNECT_RESULT if is_after_connect else b"")
        visit.say(reconnect_request("rtmp://elsewhere/live"))

    error = fails(loop_factory, sends_away)
    assert isinstance(error, RedirectedError)
    assert error.reconnect_url == "rtmp://elsewhere/live"
    assert error.target.name == KEY
