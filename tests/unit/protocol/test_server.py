"""The server's side of a connection: what real clients send, and every byte they get back.

Expected bytes are put together by `wire`, not by our encoders. FFmpeg's sessions are recorded (7.0.2); OBS's is
written out after its librtmp: chunk size first, then commands in chunks of format 1 on chunk stream 3.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, PeerError, UsageError
from headrace.protocol.events import (
    CommandIgnored,
    ConnectRequested,
    Event,
    HandshakeCompleted,
    PauseChanged,
    PlayRequested,
    PlayStopped,
    PublishRequested,
    ReceiveChanged,
    SeekAnswered,
    StreamCreated,
    Unpublished,
)
from headrace.protocol.messages import Message
from headrace.protocol.server import ServerConnection
from tests.unit.protocol.wire import (
    BIG_CHUNKS,
    FALSE,
    NULL,
    SIMPLE_HANDSHAKE,
    TRUE,
    UNDEFINED,
    amf_object,
    command,
    control,
    cuts_of,
    ecma_array,
    message,
    number,
    one_by_one,
    patient,
    pieces,
    seed,
    status,
    string,
)

NONCE = bytes(range(255)) * 5 + bytes(253)
CONNECT = command("connect", 1, amf_object(app=string("live"), tcUrl=string("rtmp://localhost/live")))

# What the owner of these connections refuses; everything else is granted.
BUSY = "busy"
ABSENT = "absent"


def drive(server: ServerConnection, data: bytes) -> list[Event | Message]:
    """Feed bytes, answer requests as they come, and return what was reported."""
    reported: list[Event | Message] = []
    for event in server.receive_data(data):
        reported.append(event)
        match event:
            case ConnectRequested():
                server.accept_connect()
            case PublishRequested(stream, name) if name == BUSY:
                server.reject_publish(stream, "NetStream.Publish.BadName", "busy is published already.")
            case PublishRequested(stream):
                server.accept_publish(stream)
            case PlayRequested(stream, name) if name == ABSENT:
                server.reject_play(stream, "NetStream.Play.StreamNotFound", "No stream absent.")
            case PlayRequested(stream):
                server.accept_play(stream)
    return reported


def new_server(chunk_size: int = 60_000) -> ServerConnection:
    return ServerConnection(nonce=NONCE, epoch_ms=0, chunk_size=chunk_size)


def opened(chunk_size: int = 60_000) -> ServerConnection:
    server = new_server(chunk_size)
    drive(server, SIMPLE_HANDSHAKE + BIG_CHUNKS)
    server.data_to_send()
    return server


def connected() -> ServerConnection:
    server = opened()
    drive(server, CONNECT)
    server.data_to_send()
    return server


def after(*sent: bytes) -> ServerConnection:
    """A connection with stream 1, after these further commands; what it answered is read already."""
    server = connected()
    drive(server, command("createStream", 2, NULL) + b"".join(sent))
    server.data_to_send()
    return server


PUBLISH = command("publish", 3, NULL, string("cam"), string("live"), stream=1)
PLAY = command("play", 3, NULL, string("cam"), stream=1)

STREAM_BEGIN_1 = control(4, "0000 00000001")
PUBLISH_START = status(1, "status", "NetStream.Publish.Start", "cam is now published.")
PLAY_RESET = status(1, "status", "NetStream.Play.Reset", "Playing and resetting cam.")
PLAY_START = status(1, "status", "NetStream.Play.Start", "Started playing cam.")
UNPUBLISHED = status(1, "status", "NetStream.Unpublish.Success", "The stream was unpublished.")


def burst(transaction: float = 1, encoding: float = 0) -> bytes:
    server_facts = amf_object(fmsVer=string("FMS/3,0,1,123"), capabilities=number(31))
    can_forward = b"\x03\x00\x01*" + number(4) + b"\x00\x00\x09"
    info = amf_object(
        level=string("status"),
        code=string("NetConnection.Connect.Success"),
        description=string("Connection succeeded."),
        objectEncoding=number(encoding),
        capsEx=number(15),
        videoFourCcInfoMap=can_forward,
        audioFourCcInfoMap=can_forward,
    )
    return (
        control(5, "002625a0")
        + control(6, "002625a0 02")
        + control(1, "0000ea60")
        + command("_result", transaction, server_facts, info)
    )


def result(transaction: float, value: bytes) -> bytes:
    return command("_result", transaction, NULL, value)


# --- handshake and connect


def test_the_handshake_is_answered_and_reported() -> None:
    server = new_server()
    assert drive(server, SIMPLE_HANDSHAKE[:1537]) == []
    assert len(server.data_to_send()) == 3073
    assert drive(server, SIMPLE_HANDSHAKE[1537:]) == [HandshakeCompleted(is_digest=False)]
    assert server.data_to_send() == b""


def test_the_burst_after_connect_is_window_bandwidth_chunk_size_and_result() -> None:
    server = opened()
    drive(server, CONNECT)
    sent = server.data_to_send()
    assert sent == burst()
    assert sent.startswith(
        bytes.fromhex(
            "02 000000 000004 05 00000000 002625a0"
            "02 000000 000005 06 00000000 002625a0 02"
            "02 000000 000004 01 00000000 0000ea60"
            "03 000000 000117 14 00000000 02 0007 5f726573756c74 00 3ff0000000000000 03"
        )
    )


def test_the_result_of_connect_is_already_in_our_chunk_size() -> None:
    server = opened(chunk_size=128)
    drive(server, CONNECT)
    sent = server.data_to_send()
    whole = burst()[len(control(5, "002625a0") + control(6, "002625a0 02") + control(1, "0000ea60")) :]
    header, payload = whole[:12], whole[12:]
    assert sent[49:] == header + payload[:128] + b"\xc3" + payload[128:256] + b"\xc3" + payload[256:]


CONNECTS: list[tuple[str, bytes, ConnectRequested]] = [
    (
        "FFmpeg's properties",
        amf_object(app=string("live"), flashVer=string("FMLE/3.0"), tcUrl=string("rtmp://h/live")),
        ConnectRequested("live", "", "rtmp://h/live", "FMLE/3.0", {}),
    ),
    (
        "lower-case names",
        amf_object(app=string("a"), tcurl=string("t"), flashver=string("v")),
        ConnectRequested("a", "", "t", "v", {}),
    ),
    ("an ECMA array", ecma_array(app=string("a"), tcUrl=string("t")), ConnectRequested("a", "", "t", "", {})),
    ("a query string", amf_object(app=string("live?token=x?y=1")), ConnectRequested("live", "token=x?y=1", "", "", {})),
    ("slashes around", amf_object(app=string("/live/")), ConnectRequested("live", "", "", "", {})),
    ("a slash inside", amf_object(app=string("live/a")), ConnectRequested("live/a", "", "", "", {})),
    ("a slash before the query", amf_object(app=string("live/?k=/")), ConnectRequested("live", "k=/", "", "", {})),
    ("a number for the app", amf_object(app=number(1)), ConnectRequested("", "", "", "", {})),
    ("null for the object", NULL, ConnectRequested("", "", "", "", {})),
    ("no object", b"", ConnectRequested("", "", "", "", {})),
    ("text for the object", string("live"), ConnectRequested("", "", "", "", {})),
]


@pytest.mark.parametrize(("properties", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CONNECTS])
def test_connect_is_reported_with_its_query_apart(properties: bytes, expected: ConnectRequested) -> None:
    server = opened()
    (event,) = drive(server, command("connect", 1, properties))
    assert isinstance(event, ConnectRequested)
    assert (event.app, event.query, event.tc_url, event.flash_version) == (
        expected.app,
        expected.query,
        expected.tc_url,
        expected.flash_version,
    )
    assert server.data_to_send() == burst()


def test_enhanced_rtmp_properties_are_passed_on_and_answered() -> None:
    fourccs = b"\x0a\x00\x00\x00\x02" + string("hvc1") + string("av01")
    properties = amf_object(
        app=string("live"),
        fourCcList=fourccs,
        videoFourCcInfoMap=amf_object(hvc1=number(1), av01=number(7)),
        capsEx=number(3),
    )
    server = opened()
    (event,) = drive(server, command("connect", 1, properties))
    assert isinstance(event, ConnectRequested)
    assert event.properties == {
        "app": "live",
        "fourCcList": ["hvc1", "av01"],
        "videoFourCcInfoMap": {"hvc1": 1.0, "av01": 7.0},
        "capsEx": 3.0,
    }
    assert server.data_to_send() == burst()


@pytest.mark.parametrize(
    ("asked", "answered"),
    [(number(0), 0), (number(3), 3), (number(math.nan), 0), (number(math.inf), 0), (string("3"), 0), (NULL, 0)],
    ids=["0", "3", "NaN", "infinity", "text", "null"],
)
def test_the_object_encoding_is_echoed_if_it_is_a_number(asked: bytes, answered: float) -> None:
    server = opened()
    drive(server, command("connect", 1, amf_object(app=string("live"), objectEncoding=asked)))
    assert server.data_to_send() == burst(encoding=answered)


@pytest.mark.parametrize("transaction", [1.0, 2.5, 1e300])
def test_the_transaction_of_connect_is_echoed(transaction: float) -> None:
    server = opened()
    drive(server, command("connect", transaction, NULL))
    assert server.data_to_send() == burst(transaction)


def test_a_refused_connect_is_an_error_with_its_code() -> None:
    server = opened()
    assert len(list(server.receive_data(CONNECT))) == 1
    server.reject_connect("No application of this name is served here.")
    info = amf_object(
        level=string("error"),
        code=string("NetConnection.Connect.Rejected"),
        description=string("No application of this name is served here."),
    )
    # Before our Set Chunk Size the chunks are 128 bytes.
    sent = command("_error", 1, NULL, info)
    assert server.data_to_send() == sent[: 12 + 128] + b"\xc3" + sent[12 + 128 :]
    with pytest.raises(PeerError, match="command 'createStream' before connect was accepted"):
        drive(server, command("createStream", 2, NULL))


@pytest.mark.parametrize("word", ["createStream", "publish", "play", "deleteStream", "FCUnpublish", "hello"])
def test_a_command_before_connect_is_an_error(word: str) -> None:
    with pytest.raises(PeerError, match=f"command '{word}' before connect was accepted"):
        drive(opened(), command(word, 1, NULL))


def test_a_second_connect_is_an_error() -> None:
    with pytest.raises(PeerError, match="connect came twice on one connection"):
        drive(connected(), CONNECT)


def test_an_answer_to_no_connect_is_our_own_mistake() -> None:
    for server in (opened(), connected()):
        with pytest.raises(UsageError, match="no connect command waits for an answer"):
            server.accept_connect()
        with pytest.raises(UsageError, match="no connect command waits for an answer"):
            server.reject_connect("late")


# --- whole sessions of real clients


def test_ffmpeg_publishes() -> None:
    server = new_server()
    reported = drive(server, seed("server_connection", "ffmpeg_publish.bin"))
    media = [event for event in reported if isinstance(event, Message)]
    assert [event for event in reported if not isinstance(event, Message)] == [
        HandshakeCompleted(is_digest=True),
        ConnectRequested(
            app="live",
            query="",
            tc_url="rtmp://127.0.0.1:28761/live",
            flash_version="FMLE/3.0 (compatible; Lavf61.1.100)",
            properties={
                "app": "live",
                "type": "nonprivate",
                "flashVer": "FMLE/3.0 (compatible; Lavf61.1.100)",
                "tcUrl": "rtmp://127.0.0.1:28761/live",
            },
        ),
        StreamCreated(1),
        PublishRequested(1, "cam", "token=abc", "live"),
        Unpublished(1),
    ]
    assert reported[-1] == Unpublished(1)
    assert [(event.type_id, event.timestamp_ms) for event in media[:6]] == [
        (18, 0),
        (9, 0),
        (8, 0),
        (8, 0),
        (9, 128),
        (8, 128),
    ]
    assert (media[1].payload[:2].hex(), media[2].payload.hex()) == ("1700", "af00158856e500")
    assert len(media) == 23
    assert media[-1] == Message(9, 1028, 1, bytes.fromhex("1702000000"))
    assert server.ignored_media_messages == 0
    info = amf_object(
        level=string("status"), code=string("NetStream.Publish.Start"), description=string("FCPublish accepted")
    )
    assert server.data_to_send()[3073:] == (
        burst()
        + result(2, UNDEFINED)
        + result(3, UNDEFINED)
        + command("onFCPublish", 0, NULL, info)
        + result(4, number(1))
        + STREAM_BEGIN_1
        + PUBLISH_START
        + result(6, UNDEFINED)
        + UNPUBLISHED
    )


def test_ffmpeg_plays() -> None:
    server = new_server()
    reported = drive(server, seed("server_connection", "ffmpeg_play.bin"))
    assert [type(event) for event in reported[:2]] == [HandshakeCompleted, ConnectRequested]
    assert reported[2:] == [StreamCreated(1), PlayRequested(1, "cam", "", -2000.0), PlayStopped(1)]
    assert server.data_to_send()[3073:] == (
        burst() + result(2, number(1)) + result(3, number(0)) + STREAM_BEGIN_1 + PLAY_RESET + PLAY_START
    )


def medium(payload: bytes, type_id: int = 20, on: int = 3) -> bytes:
    """A chunk of format 1 without a delta: what librtmp calls a medium header."""
    return bytes((0x40 | on,)) + b"\0\0\0" + len(payload).to_bytes(3, "big") + bytes((type_id,)) + payload


def called(word: str, transaction: float, *values: bytes) -> bytes:
    return string(word) + number(transaction) + NULL + b"".join(values)


KEY = string("live_1?bandwidthtest=true")
OBS_CONNECT = amf_object(
    app=string("app"),
    type=string("nonprivate"),
    flashVer=string("FMLE/3.0 (compatible; FMSc/1.0)"),
    swfUrl=string("rtmp://localhost/app"),
    tcUrl=string("rtmp://localhost/app"),
)
OBS_METADATA = string("@setDataFrame") + string("onMetaData") + ecma_array(width=number(1920))
OBS_FRAME = bytes.fromhex("1701000000") + bytes(range(250)) * 20
OBS_SESSION = (
    SIMPLE_HANDSHAKE
    + control(1, "00001000")
    + command("connect", 1, OBS_CONNECT)
    + medium(called("releaseStream", 2, KEY))
    + medium(called("FCPublish", 3, KEY))
    + medium(called("createStream", 4))
    + command("publish", 5, NULL, KEY, string("live"), stream=1, on=4)
    + message(18, OBS_METADATA, on=4, stream=1)
    + message(8, bytes.fromhex("af00 1190"), on=4, stream=1)
    + message(9, bytes.fromhex("1700000000 0164001fff"), on=4, stream=1)
    + bytes.fromhex("44 000021 00138d 09") + OBS_FRAME[:4096] + b"\xc4" + OBS_FRAME[4096:]
    + bytes.fromhex("44 000002 000004 08 af012110")
    + medium(called("FCUnpublish", 6, KEY))
    + medium(called("deleteStream", 7, number(1)))
)  # fmt: skip


def test_obs_publishes() -> None:
    server = new_server()
    reported = drive(server, OBS_SESSION)
    assert reported[0] == HandshakeCompleted(is_digest=False)
    assert reported[2:] == [
        StreamCreated(1),
        PublishRequested(1, "live_1", "bandwidthtest=true", "live"),
        Message(18, 0, 1, OBS_METADATA),
        Message(8, 0, 1, bytes.fromhex("af001190")),
        Message(9, 0, 1, bytes.fromhex("17000000000164001fff")),
        Message(9, 33, 1, OBS_FRAME),
        Message(8, 35, 1, bytes.fromhex("af012110")),
        Unpublished(1),
    ]
    assert server.in_chunk_size == 4096


# --- createStream


def test_create_stream_answers_null_and_the_number() -> None:
    server = connected()
    assert drive(server, command("createStream", 4, NULL)) == [StreamCreated(1)]
    assert server.data_to_send() == bytes.fromhex(
        "03 000000 00001d 14 00000000 02 0007 5f726573756c74 00 4010000000000000 05 00 3ff0000000000000"
    )


@pytest.mark.parametrize("transaction", [2.0, 4.25, -1.0, math.inf])
def test_a_transaction_id_is_echoed_exactly(transaction: float) -> None:
    server = connected()
    drive(server, command("createStream", transaction, NULL))
    assert server.data_to_send() == result(transaction, number(1))


def test_transaction_zero_asks_for_no_answer() -> None:
    server = connected()
    assert drive(server, command("createStream", 0, NULL)) == [StreamCreated(1)]
    assert server.data_to_send() == b""


def test_streams_are_numbered_from_1_and_a_deleted_number_is_given_again() -> None:
    server = connected()
    create = command("createStream", 2, NULL)
    assert drive(server, create * 3) == [StreamCreated(1), StreamCreated(2), StreamCreated(3)]
    server.data_to_send()
    assert drive(server, command("deleteStream", 0, NULL, number(2)) + create * 2) == [
        StreamCreated(2),
        StreamCreated(4),
    ]
    assert server.data_to_send() == result(2, number(2)) + result(2, number(4))


def test_a_seventeenth_stream_is_an_error() -> None:
    server = connected()
    create = command("createStream", 2, NULL)
    assert len(drive(server, create * 16)) == 16
    with pytest.raises(PeerError, match="createStream number 17, expected at most 16"):
        drive(server, create)


# --- publish


def test_publish_is_answered_with_stream_begin_and_start() -> None:
    server = after()
    assert drive(server, PUBLISH) == [PublishRequested(1, "cam", "", "live")]
    assert server.data_to_send() == STREAM_BEGIN_1 + PUBLISH_START


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([string("cam?token=a?b"), string("record")], PublishRequested(1, "cam", "token=a?b", "record")),
        ([string("cam")], PublishRequested(1, "cam", "", "live")),
        ([string("cam"), NULL], PublishRequested(1, "cam", "", "live")),
        ([], PublishRequested(1, "", "", "live")),
        ([number(5)], PublishRequested(1, "", "", "live")),
    ],
)
def test_publish_is_reported_with_its_query_apart(values: list[bytes], expected: PublishRequested) -> None:
    assert drive(after(), command("publish", 3, NULL, *values, stream=1)) == [expected]


def test_a_refused_publish_is_told_its_code_and_may_ask_again() -> None:
    server = after()
    assert drive(server, command("publish", 3, NULL, string(BUSY), stream=1)) == [PublishRequested(1, BUSY, "", "live")]
    assert server.data_to_send() == status(1, "error", "NetStream.Publish.BadName", "busy is published already.")
    assert drive(server, message(8, b"\xaf\x01", on=4, stream=1)) == []
    assert server.ignored_media_messages == 1
    assert drive(server, PUBLISH) == [PublishRequested(1, "cam", "", "live")]


def test_two_streams_of_one_connection_are_published_side_by_side() -> None:
    server = after(command("createStream", 3, NULL))
    reported = drive(server, PUBLISH + command("publish", 4, NULL, string("two"), stream=2))
    assert reported == [PublishRequested(1, "cam", "", "live"), PublishRequested(2, "two", "", "live")]
    media = message(8, b"a", on=4, stream=1) + message(8, b"b", on=6, stream=2)
    assert drive(server, media) == [Message(8, 0, 1, b"a"), Message(8, 0, 2, b"b")]
    assert drive(server, command("closeStream", 0, NULL, stream=1)) == [Unpublished(1)]
    assert drive(server, media) == [Message(8, 0, 2, b"b")]


OUT_OF_ORDER: list[tuple[str, list[bytes], bytes, str]] = [
    ("publish twice", [PUBLISH], PUBLISH, "publish on message stream 1 while it is publishing"),
    ("play while publishing", [PUBLISH], PLAY, "play on message stream 1 while it is publishing"),
    ("publish while playing", [PLAY], PUBLISH, "publish on message stream 1 while it is playing"),
    (
        "publish on a stream nobody created",
        [],
        command("publish", 3, NULL, string("cam"), stream=2),
        "publish on message stream 2, which was not created",
    ),
    (
        "publish on a stream that was closed and never created",
        [command("closeStream", 0, NULL, stream=2), command("deleteStream", 0, NULL, number(2))],
        command("publish", 3, NULL, string("cam"), stream=2),
        "publish on message stream 2, which was not created",
    ),
    (
        "play on a stream that was closed and never created",
        [command("closeStream", 0, NULL, stream=2)],
        command("play", 3, NULL, string("cam"), stream=2),
        "play on message stream 2, which was not created",
    ),
    (
        "play on the connection's own stream",
        [],
        command("play", 3, NULL, string("cam")),
        "play on message stream 0, which was not created",
    ),
    (
        "publish on a deleted stream",
        [command("deleteStream", 0, NULL, number(1))],
        PUBLISH,
        "publish on message stream 1, which was not created",
    ),
]


@pytest.mark.parametrize(("before", "sent", "complaint"), [pytest.param(*row[1:], id=row[0]) for row in OUT_OF_ORDER])
def test_a_command_out_of_order_is_an_error(before: list[bytes], sent: bytes, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        drive(after(*before), sent)


@pytest.mark.parametrize("word", ["accept_publish", "accept_play"])
def test_an_answer_that_nobody_waits_for_is_an_error(word: str) -> None:
    accept: Callable[[int], None] = getattr(after(), word)
    for stream in (1, 2):
        with pytest.raises(HeadraceError, match=f"{word} on message stream {stream}"):
            accept(stream)


@pytest.mark.parametrize(
    ("request_", "withdrawn"), [(PUBLISH, Unpublished(1)), (PLAY, PlayStopped(1))], ids=["publish", "play"]
)
def test_a_stream_that_was_closed_while_it_waited_reports_that_its_wish_is_withdrawn(
    request_: bytes, withdrawn: Unpublished | PlayStopped
) -> None:
    server = after()
    requests = list(server.receive_data(request_))
    assert len(requests) == 1
    server.data_to_send()
    assert drive(server, command("closeStream", 0, NULL, stream=1)) == [withdrawn]
    assert server.data_to_send() == b""  # nothing was granted, and nothing ends
    assert drive(server, request_) == requests


def test_a_second_play_while_the_first_waits_takes_its_place() -> None:
    server = after()
    first = list(server.receive_data(PLAY))
    assert list(server.receive_data(PLAY)) == [PlayStopped(1), *first]
    server.accept_play(1)
    assert server.data_to_send().endswith(PLAY_START)


def test_a_start_may_say_more_to_whoever_understands_it() -> None:
    server = after()
    assert list(server.receive_data(PLAY)) == [PlayRequested(1, "cam", "", -2.0)]
    server.accept_play(1, {"headracePath": "a1,b2"})
    assert server.data_to_send().endswith(b"\x00\x0cheadracePath" + string("a1,b2") + b"\x00\x00\x09")


# --- play


def test_play_is_answered_with_stream_begin_reset_and_start() -> None:
    server = after()
    assert drive(server, PLAY) == [PlayRequested(1, "cam", "", -2.0)]
    assert server.data_to_send() == STREAM_BEGIN_1 + PLAY_RESET + PLAY_START


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([string("cam?t=1"), number(-1)], PlayRequested(1, "cam", "t=1", -1.0)),
        ([string("cam"), number(math.nan)], PlayRequested(1, "cam", "", -2.0)),
        ([string("cam"), number(10), number(5), TRUE], PlayRequested(1, "cam", "", 10.0)),
        ([FALSE], PlayRequested(1, "", "", -2.0)),
    ],
)
def test_play_is_reported_with_its_query_apart(values: list[bytes], expected: PlayRequested) -> None:
    assert drive(after(), command("play", 3, NULL, *values, stream=1)) == [expected]


def test_play_of_an_absent_stream_is_told_and_may_ask_again() -> None:
    server = after()
    assert drive(server, command("play", 3, NULL, string(ABSENT), stream=1)) == [PlayRequested(1, ABSENT, "", -2.0)]
    assert server.data_to_send() == status(1, "error", "NetStream.Play.StreamNotFound", "No stream absent.")
    assert drive(server, PLAY) == [PlayRequested(1, "cam", "", -2.0)]


def test_a_second_play_on_a_stream_ends_the_first() -> None:
    server = after(PLAY)
    again = command("play", 4, NULL, string("other"), stream=1)
    assert drive(server, again) == [PlayStopped(1), PlayRequested(1, "other", "", -2.0)]
    assert server.data_to_send() == (
        STREAM_BEGIN_1
        + status(1, "status", "NetStream.Play.Reset", "Playing and resetting other.")
        + status(1, "status", "NetStream.Play.Start", "Started playing other.")
    )


@pytest.mark.parametrize("word", ["pause", "pauseRaw"])
def test_pause_and_unpause_are_confirmed(word: str) -> None:
    server = after(PLAY)
    assert drive(server, command(word, 0, NULL, TRUE, number(1000), stream=1)) == [PauseChanged(1, True)]
    assert server.data_to_send() == status(1, "status", "NetStream.Pause.Notify", "Pause at the live edge.")
    assert drive(server, command(word, 0, NULL, FALSE, number(1000), stream=1)) == [PauseChanged(1, False)]
    assert server.data_to_send() == status(1, "status", "NetStream.Unpause.Notify", "Unpause at the live edge.")


def test_librtmps_pause_inherits_the_stream_of_its_play() -> None:
    server = after(command("play", 3, NULL, string("cam"), stream=1, on=8))
    assert drive(server, medium(called("pause", 4, TRUE, number(40)), on=8)) == [PauseChanged(1, True)]


def test_receive_audio_and_video_are_reported() -> None:
    server = after(PLAY)
    assert drive(server, command("receiveAudio", 0, NULL, FALSE, stream=1)) == [ReceiveChanged(1, audio=False)]
    assert drive(server, command("receiveVideo", 0, NULL, TRUE, stream=1)) == [ReceiveChanged(1, video=True)]
    assert drive(server, command("receiveVideo", 0, NULL, number(0), stream=1)) == [ReceiveChanged(1, video=False)]
    assert drive(server, command("receiveAudio", 0, NULL, stream=1)) == [ReceiveChanged(1, audio=True)]
    assert server.data_to_send() == b""


def test_seek_is_answered_and_changes_nothing() -> None:
    server = after(PLAY)
    assert drive(server, command("seek", 0, NULL, number(5000), stream=1)) == [SeekAnswered(1, 5000.0)]
    notice = status(1, "status", "NetStream.Seek.Notify", "A live stream stays at its live edge.")
    assert server.data_to_send() == notice
    assert drive(server, command("seek", 0, NULL, stream=1)) == [SeekAnswered(1, 0.0)]


@pytest.mark.parametrize("word", ["pause", "pauseRaw", "seek", "receiveAudio", "receiveVideo"])
@pytest.mark.parametrize("before", [b"", PUBLISH], ids=["idle", "publishing"])
def test_what_is_for_players_means_nothing_to_others(word: str, before: bytes) -> None:
    server = after(before)
    assert drive(server, command(word, 0, NULL, TRUE, stream=1) + command(word, 0, NULL, TRUE, stream=9)) == []
    assert server.data_to_send() == b""


def test_the_end_of_a_stream_is_told_to_its_player_once() -> None:
    server = after(PLAY)
    server.end_play(1)
    assert server.data_to_send() == (
        control(4, "0001 00000001") + status(1, "status", "NetStream.Play.UnpublishNotify", "cam is now unpublished.")
    )
    server.end_play(1)
    server.end_play(7)
    assert server.data_to_send() == b""
    assert drive(server, command("closeStream", 0, NULL, stream=1)) == []
    assert drive(server, PLAY) == [PlayRequested(1, "cam", "", -2.0)]


# --- courtesies


COURTESIES: list[tuple[str, list[bytes], bytes]] = [
    ("releaseStream", [string("cam")], result(9, UNDEFINED)),
    ("_checkbw", [], result(9, UNDEFINED)),
    ("checkBandwidth", [], result(9, UNDEFINED)),
    ("getStreamLength", [string("cam")], result(9, number(0))),
    (
        "FCPublish",
        [string("cam")],
        result(9, UNDEFINED)
        + command(
            "onFCPublish",
            0,
            NULL,
            amf_object(
                level=string("status"), code=string("NetStream.Publish.Start"), description=string("FCPublish accepted")
            ),
        ),
    ),
    (
        "FCSubscribe",
        [string("cam")],
        result(9, UNDEFINED)
        + command(
            "onFCSubscribe",
            0,
            NULL,
            amf_object(
                level=string("status"), code=string("NetStream.Play.Start"), description=string("FCSubscribe accepted")
            ),
        ),
    ),
    ("FCUnpublish", [string("cam")], result(9, UNDEFINED)),
]


@pytest.mark.parametrize(("word", "values", "answer"), COURTESIES, ids=[row[0] for row in COURTESIES])
def test_a_courtesy_is_answered_and_reports_nothing(word: str, values: list[bytes], answer: bytes) -> None:
    server = connected()
    assert drive(server, command(word, 9, NULL, *values)) == []
    assert server.data_to_send() == answer


@pytest.mark.parametrize("word", ["play2", "onStatus", "_result", "getMovLen", "Connect", "é", ""])
def test_an_unknown_command_is_reported_and_not_answered(word: str) -> None:
    server = connected()
    assert drive(server, command(word, 9, NULL)) == [CommandIgnored(word)]
    assert server.data_to_send() == b""


# --- the end of a stream

DELETE_1 = command("deleteStream", 7, NULL, number(1))
ENDINGS: list[tuple[str, bytes]] = [
    ("closeStream", command("closeStream", 0, NULL, stream=1)),
    ("deleteStream with its number", DELETE_1),
    ("deleteStream without one, on the stream", command("deleteStream", 7, NULL, stream=1)),
    ("deleteStream with null, on the stream", command("deleteStream", 7, NULL, NULL, stream=1)),
    ("deleteStream and a second one", DELETE_1 + DELETE_1),
    ("closeStream and deleteStream", command("closeStream", 0, NULL, stream=1) + DELETE_1),
]


@pytest.mark.parametrize("sent", [row[1] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_a_publisher_that_ends_its_stream_is_reported_once(sent: bytes) -> None:
    server = after(PUBLISH)
    assert drive(server, sent) == [Unpublished(1)]
    assert server.data_to_send() == UNPUBLISHED
    assert drive(server, message(8, b"\xaf\x01", on=4, stream=1)) == []
    assert server.ignored_media_messages == 1


@pytest.mark.parametrize("sent", [row[1] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_a_player_that_ends_its_stream_is_reported_once(sent: bytes) -> None:
    server = after(PLAY)
    assert drive(server, sent) == [PlayStopped(1)]
    assert server.data_to_send() == b""


@pytest.mark.parametrize("sent", [row[1] for row in ENDINGS], ids=[row[0] for row in ENDINGS])
def test_the_end_of_an_idle_stream_is_no_event(sent: bytes) -> None:
    server = after()
    assert drive(server, sent) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize("argument", [number(2), number(0), number(-1), number(1e300)], ids="2 0 -1 1e300".split())
def test_deleting_another_stream_leaves_this_one(argument: bytes) -> None:
    server = after(PUBLISH)
    assert drive(server, command("deleteStream", 7, NULL, argument)) == []
    assert drive(server, message(8, b"\xaf\x01", on=4, stream=1)) == [Message(8, 0, 1, b"\xaf\x01")]


def test_a_closed_stream_can_be_published_and_played_again() -> None:
    server = after(PUBLISH, command("closeStream", 0, NULL, stream=1))
    assert drive(server, PLAY) == [PlayRequested(1, "cam", "", -2.0)]
    assert drive(server, command("closeStream", 0, NULL, stream=1)) == [PlayStopped(1)]
    assert drive(server, PUBLISH) == [PublishRequested(1, "cam", "", "live")]


@pytest.mark.parametrize("key", ["cam", "cam?token=abc"])
def test_fcunpublish_ends_the_stream_of_that_name(key: str) -> None:
    server = after(PUBLISH)
    assert drive(server, command("FCUnpublish", 6, NULL, string(key))) == [Unpublished(1)]
    assert server.data_to_send() == result(6, UNDEFINED) + UNPUBLISHED
    assert drive(server, DELETE_1) == []


@pytest.mark.parametrize("values", [[string("other")], [], [NULL]])
def test_fcunpublish_of_another_name_ends_nothing(values: list[bytes]) -> None:
    server = after(PUBLISH)
    assert drive(server, command("FCUnpublish", 6, NULL, *values)) == []
    assert server.data_to_send() == result(6, UNDEFINED)


def test_fcunpublish_does_not_end_a_player() -> None:
    assert drive(after(PLAY), command("FCUnpublish", 6, NULL, string("cam"))) == []


# --- media


def test_media_of_a_published_stream_passes_unchanged() -> None:
    server = after(PUBLISH)
    sent = message(8, b"", on=4, stream=1, time=5) + message(9, b"\x27\x01", on=6, stream=1, time=7)
    sent += message(18, b"\x02\x00\x01x", on=4, stream=1, time=9)
    assert drive(server, sent) == [
        Message(8, 5, 1, b""),
        Message(9, 7, 1, b"\x27\x01"),
        Message(18, 9, 1, b"\x02\x00\x01x"),
    ]


def test_data_of_type_15_passes_as_type_18_without_its_first_byte() -> None:
    server = after(PUBLISH)
    sent = message(15, b"\x00\x02\x00\x01x", on=4, stream=1, time=9) + message(15, b"", on=4, stream=1)
    assert drive(server, sent) == [Message(18, 9, 1, b"\x02\x00\x01x"), Message(18, 0, 1, b"")]


AGGREGATE = bytes.fromhex(
    "08 000002 0003e8 00 000000 af01 0000000d"
    "14 000001 0003e8 00 000000 05 0000000c"  # a command has no place in an aggregate
    "09 000003 000410 00 000000 270100 0000000e"
    "12 000001 000412 00 000000 05 0000000c"
)


def test_an_aggregate_is_split_and_rebased() -> None:
    server = after(PUBLISH)
    assert drive(server, message(22, AGGREGATE, on=6, stream=1, time=5000)) == [
        Message(8, 5000, 1, b"\xaf\x01"),
        Message(9, 5040, 1, b"\x27\x01\x00"),
        Message(18, 5042, 1, b"\x05"),
    ]


def test_a_broken_aggregate_is_an_error() -> None:
    with pytest.raises(PeerError, match="aggregate sub-message header at 0 is cut"):
        drive(after(PUBLISH), message(22, b"\x08", on=6, stream=1))


@pytest.mark.parametrize(
    ("sent", "count"),
    [
        (message(8, b"\xaf\x01", on=4, stream=1), 1),
        (message(9, b"\x27\x01", on=6, stream=1), 1),
        (message(18, b"\x05", on=4, stream=1), 1),
        (message(15, b"\x00\x05", on=4, stream=1), 1),
        (message(22, AGGREGATE, on=6, stream=1), 3),
        (message(8, b"\xaf\x01", on=4, stream=0), 1),
        (message(8, b"\xaf\x01", on=4, stream=2), 1),
    ],
    ids=["audio", "video", "data", "AMF3 data", "aggregate", "audio on stream 0", "audio on stream 2"],
)
@pytest.mark.parametrize("before", [b"", PLAY], ids=["idle", "playing"])
def test_media_on_a_stream_that_is_not_published_is_counted_and_dropped(before: bytes, sent: bytes, count: int) -> None:
    server = after(before)
    assert drive(server, sent) == []
    assert server.ignored_media_messages == count


def test_a_command_of_type_17_is_a_command() -> None:
    server = connected()
    payload = b"\x00" + string("createStream") + number(2) + NULL
    assert drive(server, message(17, payload, on=3)) == [StreamCreated(1)]
    assert server.data_to_send() == result(2, number(1))


def test_a_large_message_is_refused_until_publishing_was_granted() -> None:
    large = message(9, bytes(300_000), on=6, stream=1)
    with pytest.raises(PeerError, match="message of 300000 bytes, expected at most 262144"):
        drive(after(), large)
    server = after(PUBLISH)
    assert len(drive(server, large)) == 1


def test_a_large_message_may_come_in_the_same_bytes_as_its_publish() -> None:
    reported = drive(after(), PUBLISH + message(9, bytes(300_000), on=6, stream=1))
    assert reported == [PublishRequested(1, "cam", "", "live"), Message(9, 0, 1, bytes(300_000))]


# --- control messages


def test_a_window_is_full_at_its_last_byte_and_counts_from_the_handshake() -> None:
    server = opened()  # 16 bytes: BIG_CHUNKS
    drive(server, control(5, "00000064") + control(3, "00000001") * 4)
    assert server.received_bytes == 96
    for byte in one_by_one(control(3, "00000001")[:4]):
        assert server.data_to_send() == b""
        drive(server, byte)
    assert server.data_to_send() == control(3, "00000064")
    drive(server, control(3, "00000001")[4:] + control(3, "00000001") * 5)
    assert (server.received_bytes, server.data_to_send()) == (192, b"")
    drive(server, control(3, "00000001"))
    assert server.data_to_send() == control(3, "000000d0")


def test_acknowledgements_are_sent_once_per_window_of_the_peer() -> None:
    server = after(PUBLISH, control(5, "000003e8"))
    start = server.received_bytes
    media = message(8, bytes(388), on=4, stream=1)  # 400 bytes with its header
    for _ in range(2):
        drive(server, media)
    assert server.data_to_send() == b""
    drive(server, media)
    total = start + 1200
    assert server.received_bytes == total
    assert server.data_to_send() == control(3, f"{total:08x}")
    drive(server, media * 2)
    assert server.data_to_send() == b""
    drive(server, media * 20)  # several windows in one piece are acknowledged at once
    assert server.data_to_send() == control(3, f"{total + 8800:08x}")


def test_a_peer_that_names_no_window_is_sent_no_acknowledgement() -> None:
    server = after(PUBLISH)
    piece = message(9, bytes(99_988), on=6, stream=1)
    for _ in range(100):
        drive(server, piece)
    assert server.data_to_send() == b""


def test_the_acknowledged_count_wraps_at_32_bits() -> None:
    server = after(PUBLISH, control(5, "00000064"))
    server.data_to_send()
    # Four gigabytes ago: there is no shorter way to the wrap.
    server._received_bytes = server._acknowledged_bytes = 0xFFFFFFF0
    drive(server, message(8, bytes(88), on=4, stream=1))
    assert server.data_to_send() == control(3, "00000054")
    drive(server, message(8, bytes(88), on=4, stream=1))
    assert server.data_to_send() == control(3, "000000b8")


def test_a_window_of_zero_changes_nothing() -> None:
    server = after(control(5, "00000000"))
    drive(server, command("releaseStream", 0, NULL))
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    ("request_", "answer"),
    [("0006 00001234", "0007 00001234"), ("0006 00001234 ffff", "0007 00001234"), ("0006", "0007")],
)
def test_a_ping_is_answered_with_its_own_time(request_: str, answer: str) -> None:
    server = opened()
    assert drive(server, control(4, request_)) == []
    assert server.data_to_send() == control(4, answer)


def test_a_ping_is_sent() -> None:
    server = connected()
    server.send_ping(0x01020304)
    assert server.data_to_send() == control(4, "0006 01020304")


@pytest.mark.parametrize("event", [0, 1, 2, 3, 4, 7, 26, 27, 31, 32, 0xFFFF])
@pytest.mark.parametrize("body", ["", "00000001", "00000001 00000bb8"])
def test_every_other_user_control_event_is_tolerated(event: int, body: str) -> None:
    server = connected()
    assert drive(server, control(4, f"{event:04x}" + body)) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    ("type_id", "payload"),
    [(3, "00000001"), (3, ""), (6, "002625a0 02"), (6, ""), (7, "00"), (16, "00"), (19, "05"), (99, "ff"), (255, "")],
)
def test_messages_that_tell_a_server_nothing_are_passed_over(type_id: int, payload: str) -> None:
    server = connected()
    assert drive(server, control(type_id, payload)) == []
    assert server.data_to_send() == b""


@pytest.mark.parametrize(
    ("type_id", "payload", "complaint"),
    [
        (4, "00", "user control message has 1 bytes, expected at least 2"),
        (5, "000000", "control message type 5 has 3 bytes, expected 4"),
        (1, "00000000", "chunk size 0, expected 1"),
        (20, "05", "command begins with NoneType, expected its name"),
    ],
)
def test_a_broken_control_message_is_an_error(type_id: int, payload: str, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        drive(connected(), control(type_id, payload))


# --- properties


def outcome(parts: Iterable[bytes]) -> tuple[list[str], str, bytes]:
    """What is seen of a connection: its events, its fault, its bytes. As text, for a NaN equals nothing."""
    server = new_server()
    reported: list[str] = []
    fault = ""
    try:
        for part in parts:
            for event in server.receive_data(part):
                reported.append(repr(event._key() if isinstance(event, Message) else event))
                match event:
                    case ConnectRequested():
                        server.accept_connect()
                    case PublishRequested(stream):
                        server.accept_publish(stream)
                    case PlayRequested(stream):
                        server.accept_play(stream)
    except PeerError as error:
        fault = str(error)
    return reported, fault, server.data_to_send()


SESSIONS = {
    "ffmpeg publishes": seed("server_connection", "ffmpeg_publish.bin"),
    "ffmpeg publishes with extended timestamps": seed("server_connection", "ffmpeg_publish_extended_timestamps.bin"),
    "ffmpeg plays": seed("server_connection", "ffmpeg_play.bin"),
    "obs publishes": OBS_SESSION,
}


@pytest.mark.parametrize("session", SESSIONS)
def test_bytes_one_by_one_give_the_same_events_and_answers(session: str) -> None:
    data = SESSIONS[session]
    assert outcome(one_by_one(data)) == outcome([data])


@settings(patient, max_examples=60)
@given(st.sampled_from(sorted(SESSIONS)), st.data())
def test_any_split_of_a_session_gives_the_same_events_and_answers(session: str, data: st.DataObject) -> None:
    wire = SESSIONS[session]
    assert outcome(pieces(wire, data.draw(cuts_of(len(wire))))) == outcome([wire])


texts = st.sampled_from(["cam", "cam?k=1", "", "é", "x" * 300])
values = st.one_of(
    st.sampled_from([NULL, UNDEFINED, TRUE, FALSE, amf_object(), b"\x11\x04\x01", b"\x7f"]),
    st.floats(allow_nan=True).map(number),
    st.sampled_from([0.0, 1.0, 2.0]).map(number),
    texts.map(string),
)
words = st.sampled_from(
    "connect createStream publish play play2 deleteStream closeStream releaseStream FCPublish FCUnpublish FCSubscribe "
    "getStreamLength pause pauseRaw seek receiveAudio receiveVideo _checkbw nonsense".split()
)
commands = st.builds(
    lambda word, transaction, given, stream: command(word, transaction, *given, stream=stream),
    words,
    st.sampled_from([0.0, 1.0, 2.5]),
    st.lists(values, max_size=4),
    st.integers(0, 2),
)
other_messages = st.builds(
    lambda type_id, payload, stream, time: message(type_id, payload, on=6, stream=stream, time=time),
    # Without 5, a window: how often we acknowledge depends on how the bytes come, and may.
    st.sampled_from([0, 1, 2, 3, 4, 6, 8, 9, 15, 16, 17, 18, 19, 20, 22, 77]),
    st.one_of(st.binary(max_size=30), st.just(AGGREGATE), st.just(bytes.fromhex("00000080"))),
    st.integers(0, 2),
    st.integers(0, 0xFFFFFE),
)
noise = st.lists(st.one_of(commands, commands, other_messages, st.binary(max_size=6)), max_size=12).map(b"".join)
beginnings = st.sampled_from(
    [
        b"",
        SIMPLE_HANDSHAKE,
        SIMPLE_HANDSHAKE + BIG_CHUNKS + CONNECT,
        SIMPLE_HANDSHAKE + BIG_CHUNKS + CONNECT + command("createStream", 2, NULL) + PUBLISH,
        SIMPLE_HANDSHAKE + BIG_CHUNKS + CONNECT + command("createStream", 2, NULL) + PLAY,
    ]
)


@settings(patient, max_examples=200)
@given(beginnings, noise, st.data())
def test_noise_gives_events_or_a_peer_error_and_the_same_in_any_split(
    beginning: bytes, after_it: bytes, data: st.DataObject
) -> None:
    wire = beginning + after_it
    expected = outcome([wire])
    assert outcome(pieces(wire, data.draw(cuts_of(len(wire))))) == expected


def test_a_peer_that_only_talks_takes_no_memory() -> None:
    server = connected()
    chatter = command("nonsense", 0, NULL, string("x" * 400)) * 20 + message(9, bytes(5000), on=6, stream=1)
    chatter += command("createStream", 0, NULL) + PUBLISH + command("deleteStream", 0, NULL, number(1))
    drive(server, chatter)
    server.data_to_send()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            drive(server, chatter)
            server.data_to_send()
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now - before < 20_000
