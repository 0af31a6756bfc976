"""The client's side of a connection: against answers written out by hand, recorded from FFmpeg's own server
(7.0.2, `-listen 1`), and against our server, back to back in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol.client import (
    ClientConnection,
    ClientEvent,
    ClientHandshakeCompleted,
    ClientState,
    Connected,
    Ended,
    ReconnectRequested,
    Refused,
    Role,
    Started,
    StatusReceived,
)
from headrace.protocol.events import ConnectRequested, Event, PlayRequested, PlayStopped, PublishRequested, Unpublished
from headrace.protocol.messages import Message
from headrace.protocol.server import ServerConnection
from tests.unit.protocol.wire import (
    BIG_CHUNKS,
    FALSE,
    NULL,
    TRUE,
    UNDEFINED,
    amf_object,
    command,
    control,
    cuts_of,
    message,
    number,
    one_by_one,
    patient,
    pieces,
    seed,
    status,
    string,
)

NONCE = bytes(1528)
SERVER_HANDSHAKE = b"\x03" + bytes(1536) + bytes(1536)
CONNECT_RESULT = command("_result", 1, NULL, amf_object(code=string("NetConnection.Connect.Success")))
CREATE_RESULT = command("_result", 4, NULL, number(1))
PUBLISH_START = status(1, "status", "NetStream.Publish.Start", "go")
PLAY_START = status(1, "status", "NetStream.Play.Start", "go")

PUBLISHERS_CONNECT = command(
    "connect",
    1,
    amf_object(
        app=string("live"),
        type=string("nonprivate"),
        flashVer=string("FMLE/3.0 (compatible; Headrace)"),
        tcUrl=string("rtmp://localhost/live"),
        capsEx=number(1),
    ),
)


def new_client(
    role: Role, *, chunk_size: int = 60_000, digest: bool = False, name: str = "cam?key=1"
) -> ClientConnection:
    return ClientConnection(
        role=role,
        app="live",
        tc_url="rtmp://localhost/live",
        name=name,
        nonce=NONCE,
        epoch_ms=0,
        chunk_size=chunk_size,
        digest=digest,
    )


def receive(client: ClientConnection, *data: bytes) -> list[ClientEvent | Message]:
    return [event for part in data for event in client.receive_data(part)]


def after(role: Role, *answers: bytes) -> ClientConnection:
    """A client past its handshake and these answers; what it said is read already."""
    client = new_client(role)
    receive(client, SERVER_HANDSHAKE + BIG_CHUNKS, *answers)
    client.data_to_send()
    return client


def error(transaction: float, *values: bytes) -> bytes:
    return command("_error", transaction, *values)


def info(**texts: str) -> bytes:
    return amf_object(**{key: string(text) for key, text in texts.items()})


# --- the flow, step by step


def test_the_client_opens_with_its_half_of_the_handshake() -> None:
    client = new_client(Role.PUBLISH)
    assert client.data_to_send() == b"\x03" + bytes(1536)
    assert client.state is ClientState.HANDSHAKE
    assert receive(client, SERVER_HANDSHAKE[:-1]) == []
    assert client.data_to_send() == b""


def test_a_publisher_says_what_encoders_say() -> None:
    client = new_client(Role.PUBLISH)
    client.data_to_send()
    assert receive(client, SERVER_HANDSHAKE) == [ClientHandshakeCompleted()]
    assert client.data_to_send() == bytes(1536) + control(1, "0000ea60") + PUBLISHERS_CONNECT
    states = [client.state]

    assert receive(client, CONNECT_RESULT) == [Connected({"code": "NetConnection.Connect.Success"})]
    assert client.data_to_send() == (
        control(5, "002625a0")
        + command("releaseStream", 2, NULL, string("cam?key=1"))
        + command("FCPublish", 3, NULL, string("cam?key=1"))
        + command("createStream", 4, NULL)
    )
    states.append(client.state)

    assert receive(client, CREATE_RESULT) == []
    assert client.data_to_send() == command("publish", 5, NULL, string("cam?key=1"), string("live"), stream=1)
    states.append(client.state)

    assert receive(client, PUBLISH_START) == [Started(1)]
    states.append(client.state)
    assert client.message_stream_id == 1

    client.finish()
    assert client.data_to_send() == (
        command("FCUnpublish", 6, NULL, string("cam?key=1")) + command("deleteStream", 7, NULL, number(1))
    )
    assert [*states, client.state] == [
        ClientState.CONNECT,
        ClientState.CREATE_STREAM,
        ClientState.START,
        ClientState.RUNNING,
        ClientState.OVER,
    ]


def test_a_player_says_what_players_say() -> None:
    client = new_client(Role.PLAY)
    client.data_to_send()
    receive(client, SERVER_HANDSHAKE)
    properties = amf_object(
        app=string("live"),
        type=string("nonprivate"),
        flashVer=string("FMLE/3.0 (compatible; Headrace)"),
        tcUrl=string("rtmp://localhost/live"),
        capsEx=number(1),
        fpad=FALSE,
        capabilities=number(15),
        audioCodecs=number(4071),
        videoCodecs=number(252),
    )
    assert client.data_to_send() == bytes(1536) + control(1, "0000ea60") + command("connect", 1, properties)
    receive(client, CONNECT_RESULT)
    assert client.data_to_send() == control(5, "002625a0") + command("createStream", 4, NULL)
    receive(client, command("_result", 4, NULL, number(7)))
    assert client.data_to_send() == command("play", 5, NULL, string("cam?key=1"), number(-2000), stream=7)

    reset = status(7, "status", "NetStream.Play.Reset", "reset")
    begin = control(4, "0000 00000007")
    assert receive(client, begin + reset + status(7, "status", "NetStream.Play.Start", "go")) == [
        StatusReceived("status", "NetStream.Play.Reset", "reset"),
        Started(7),
    ]
    client.finish()
    assert client.data_to_send() == command("deleteStream", 7, NULL, number(7))


def test_long_commands_are_split_in_our_chunk_size() -> None:
    client = new_client(Role.PUBLISH, chunk_size=64)
    client.data_to_send()
    receive(client, SERVER_HANDSHAKE)
    header, payload = PUBLISHERS_CONNECT[:12], PUBLISHERS_CONNECT[12:]
    chunks = payload[:64] + b"\xc3" + payload[64:128] + b"\xc3" + payload[128:]
    assert client.data_to_send() == bytes(1536) + control(1, "00000040") + header + chunks


@pytest.mark.parametrize("role", list(Role))
def test_finish_says_nothing_before_a_stream_was_asked_for(role: Role) -> None:
    for client in (new_client(role), after(role), after(role, CONNECT_RESULT)):
        client.data_to_send()
        client.finish()
        assert client.data_to_send() == b""


def test_finish_is_said_once() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT)
    client.finish()
    assert client.data_to_send().endswith(command("deleteStream", 7, NULL, number(1)))
    client.finish()
    assert client.data_to_send() == b""


@pytest.mark.parametrize("value", [NULL, UNDEFINED, string("x"), number(1)])
def test_a_result_of_connect_without_properties_is_good_enough(value: bytes) -> None:
    assert receive(after(Role.PLAY), command("_result", 1, NULL, value)) == [Connected({})]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (number(0), "0.0"),
        (number(0.5), "0.5"),
        (number(-1), "-1.0"),
        (number(2**32), "4294967296.0"),
        (number(math.nan), "nan"),
        (string("1"), "'1'"),
        (TRUE, "True"),
        (NULL, "None"),
        (b"", "None"),
    ],
    ids="0 0.5 -1 2^32 NaN text true null nothing".split(),
)
def test_a_created_stream_must_have_a_number(value: bytes, shown: str) -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT)
    with pytest.raises(PeerError, match=f"createStream answered with {shown}, expected a stream id"):
        receive(client, command("_result", 4, NULL, value))


def test_the_largest_stream_number_is_taken() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, command("_result", 4, NULL, number(0xFFFFFFFF)))
    assert client.message_stream_id == 0xFFFFFFFF


@pytest.mark.parametrize("transaction", [0, 2, 3, 4, 5, 99])
def test_a_result_that_was_not_waited_for_is_ignored(transaction: float) -> None:
    client = after(Role.PUBLISH)
    assert receive(client, command("_result", transaction, NULL, number(1))) == []
    assert client.data_to_send() == b""
    assert client.state is ClientState.CONNECT


def test_a_second_result_of_the_same_step_is_ignored() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT)
    assert receive(client, CONNECT_RESULT) == []
    receive(client, CREATE_RESULT)
    client.data_to_send()
    assert receive(client, CREATE_RESULT + CONNECT_RESULT) == []
    assert client.data_to_send() == b""


def test_a_start_that_was_not_asked_for_is_only_a_status() -> None:
    expected = [StatusReceived("status", "NetStream.Publish.Start", "go")]
    assert receive(after(Role.PUBLISH, CONNECT_RESULT), PUBLISH_START) == expected
    assert receive(after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT, PUBLISH_START), PUBLISH_START) == expected
    assert receive(after(Role.PLAY, CONNECT_RESULT, CREATE_RESULT), PUBLISH_START) == expected


# --- refusals

STEPS: list[tuple[ClientState, float, list[bytes]]] = [
    (ClientState.CONNECT, 1, []),
    (ClientState.CREATE_STREAM, 4, [CONNECT_RESULT]),
    (ClientState.START, 5, [CONNECT_RESULT, CREATE_RESULT]),
]


@pytest.mark.parametrize(("during", "transaction", "before"), STEPS, ids=[step.value for step, _, _ in STEPS])
def test_an_error_is_a_refusal_of_the_step_it_answers(
    during: ClientState, transaction: float, before: list[bytes]
) -> None:
    client = after(Role.PUBLISH, *before)
    answer = error(transaction, NULL, info(level="error", code="NetConnection.Connect.Rejected", description="no"))
    assert receive(client, answer) == [Refused(during, "NetConnection.Connect.Rejected", "no")]
    assert client.state is ClientState.OVER
    assert receive(client, CONNECT_RESULT + CREATE_RESULT) == []


@pytest.mark.parametrize(
    ("values", "code", "description"),
    [
        ([NULL, info(code="C", description="d")], "C", "d"),
        ([NULL, info(level="error", code="C")], "C", "error"),
        ([info(level="error", code="C", description="d")], "C", "d"),  # some servers put it in the first place
        ([info(code="A"), info(code="C")], "C", ""),
        ([NULL, info(level="error")], "NetConnection.Call.Failed", "error"),
        ([NULL, string("nope")], "NetConnection.Call.Failed", ""),
        ([NULL], "NetConnection.Call.Failed", ""),
        ([], "NetConnection.Call.Failed", ""),
        ([NULL, amf_object(code=number(403), description=NULL)], "403.0", ""),
    ],
)
def test_an_error_without_a_code_still_has_one(values: list[bytes], code: str, description: str) -> None:
    assert receive(after(Role.PUBLISH), error(1, *values)) == [Refused(ClientState.CONNECT, code, description)]


@pytest.mark.parametrize("transaction", [0, 2, 3, 6, 7])
def test_an_error_to_a_courtesy_is_ignored(transaction: float) -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT)
    assert receive(client, error(transaction, NULL, info(code="NetConnection.Call.Failed"))) == []
    assert client.state is ClientState.CREATE_STREAM


@pytest.mark.parametrize(
    ("role", "code"),
    [(Role.PUBLISH, "NetStream.Publish.BadName"), (Role.PLAY, "NetStream.Play.StreamNotFound")],
)
def test_a_status_of_level_error_is_a_refusal(role: Role, code: str) -> None:
    client = after(role, CONNECT_RESULT, CREATE_RESULT)
    assert receive(client, status(1, "error", code, "no")) == [Refused(ClientState.START, code, "no")]
    assert client.state is ClientState.OVER


def test_an_error_while_running_is_told_as_such() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT, PUBLISH_START)
    assert receive(client, status(1, "error", "NetStream.Publish.Denied", "")) == [
        Refused(ClientState.RUNNING, "NetStream.Publish.Denied", "")
    ]


@pytest.mark.parametrize(("during", "before"), [(step, before) for step, _, before in STEPS])
def test_a_close_command_is_a_refusal_at_any_step(during: ClientState, before: list[bytes]) -> None:
    expected = [Refused(during, "close", "the server sent a close command")]
    assert receive(after(Role.PUBLISH, *before), command("close", 0, NULL)) == expected


@pytest.mark.parametrize("code", ["UnpublishNotify", "Stop", "Complete"])
def test_the_end_of_a_played_stream_is_reported(code: str) -> None:
    client = after(Role.PLAY, CONNECT_RESULT, CREATE_RESULT, PLAY_START)
    assert receive(client, status(1, "status", f"NetStream.Play.{code}", "")) == [Ended(f"NetStream.Play.{code}")]
    assert client.state is ClientState.OVER
    client.finish()
    assert client.data_to_send() == b""


@pytest.mark.parametrize(
    ("extra", "tc_url"),
    [
        ({}, ""),
        ({"tcUrl": string("rtmp://other/live")}, "rtmp://other/live"),
        ({"tcUrl": NULL}, ""),
        ({"tcUrl": number(1)}, ""),
    ],
)
def test_a_reconnect_request_changes_nothing_but_is_reported(extra: dict[str, bytes], tc_url: str) -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT, PUBLISH_START)
    request = amf_object(
        level=string("status"),
        code=string("NetConnection.Connect.ReconnectRequest"),
        description=string("maintenance"),
        **extra,
    )
    assert receive(client, command("onStatus", 0, NULL, request)) == [ReconnectRequested(tc_url, "maintenance")]
    assert client.state is ClientState.RUNNING


def test_a_reconnect_request_may_stand_in_the_command_objects_place() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT)
    request = info(code="NetConnection.Connect.ReconnectRequest", tcUrl="rtmp://other")
    assert receive(client, command("onStatus", 0, request)) == [ReconnectRequested("rtmp://other", "")]


@pytest.mark.parametrize("values", [[], [NULL], [NULL, NULL], [NULL, string("text")]])
def test_a_status_without_an_object_is_an_empty_one(values: list[bytes]) -> None:
    assert receive(after(Role.PLAY), command("onStatus", 0, *values)) == [StatusReceived("", "", "")]


@pytest.mark.parametrize("word", ["onBWDone", "onFCPublish", "FCUnpublish", "deleteStream", "nonsense", ""])
def test_what_a_server_calls_and_we_do_not_know_is_ignored(word: str) -> None:
    client = after(Role.PLAY, CONNECT_RESULT)
    assert receive(client, command(word, 0, NULL, number(8192))) == []
    assert client.data_to_send() == b""


def test_an_answer_of_type_17_is_an_answer() -> None:
    payload = b"\x00" + string("_result") + number(1) + NULL
    assert receive(after(Role.PLAY), message(17, payload, on=3)) == [Connected({})]


def test_a_broken_answer_is_an_error() -> None:
    with pytest.raises(PeerError, match="command begins with float"):
        receive(after(Role.PLAY), message(20, number(1), on=3))


def test_what_is_not_rtmp_is_an_error() -> None:
    with pytest.raises(PeerError, match="handshake answer begins with byte 0x48"):
        receive(new_client(Role.PLAY), b"HTTP/1.1 400 Bad Request\r\n")


# --- media and control


def test_a_player_gets_media_and_control_messages_are_dealt_with() -> None:
    client = after(Role.PLAY, CONNECT_RESULT, CREATE_RESULT, PLAY_START)
    sent = (
        message(18, b"\x05", on=5, stream=1)
        + control(4, "0006 00000009")
        + message(9, b"\x17", on=6, stream=1, time=40)
    )
    sent += message(8, bytes(300_000), on=4, stream=1)
    assert receive(client, sent) == [
        Message(18, 0, 1, b"\x05"),
        Message(9, 40, 1, b"\x17"),
        Message(8, 0, 1, bytes(300_000)),
    ]
    assert client.data_to_send() == control(4, "0007 00000009")


def test_a_player_takes_media_on_stream_0_as_ffmpegs_server_sends_it() -> None:
    client = after(Role.PLAY, CONNECT_RESULT, CREATE_RESULT, PLAY_START)
    assert receive(client, message(9, b"\x17", on=6)) == [Message(9, 0, 0, b"\x17")]
    assert receive(client, message(9, b"\x17", on=6, stream=2)) == []
    assert client.ignored_media_messages == 1


def test_a_publisher_wants_no_media() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT, PUBLISH_START)
    assert receive(client, message(9, b"\x17", on=6, stream=1) + message(9, b"\x17", on=6)) == []
    assert client.ignored_media_messages == 2
    with pytest.raises(PeerError, match="message of 300000 bytes, expected at most 262144"):
        receive(client, message(9, bytes(300_000), on=6, stream=1))


def test_media_is_sent_in_chunks_of_our_size() -> None:
    client = after(Role.PUBLISH, CONNECT_RESULT, CREATE_RESULT, PUBLISH_START)
    client.set_out_chunk_size(4)
    assert client.data_to_send() == control(1, "00000004")
    client.send_message(Message(9, 40, 1, b"abcdef"), 6)
    assert client.data_to_send() == bytes.fromhex("06 000028 000006 09 01000000 61626364 c6 6566")


def test_the_chunk_size_cannot_change_during_the_handshake() -> None:
    with pytest.raises(UsageError, match="the chunk size cannot change during the handshake"):
        new_client(Role.PUBLISH).set_out_chunk_size(4096)


# --- FFmpeg as a server


def test_ffmpegs_server_takes_our_publication() -> None:
    client = new_client(Role.PUBLISH)
    assert receive(client, seed("client_connection", "ffmpeg_answers_publish.bin")) == [
        ClientHandshakeCompleted(),
        Connected(
            {
                "level": "status",
                "code": "NetConnection.Connect.Success",
                "description": "Connection succeeded.",
                "objectEncoding": 0.0,
            }
        ),
        Started(1),
    ]


def test_ffmpegs_server_plays_to_us() -> None:
    client = new_client(Role.PLAY)
    events = receive(client, seed("client_connection", "ffmpeg_answers_play.bin"))
    media = [event for event in events if isinstance(event, Message)]
    assert [type(event) for event in events[:3]] == [ClientHandshakeCompleted, Connected, Started]
    assert [(event.type_id, event.timestamp_ms, len(event.payload)) for event in media[:4]] == [
        (18, 0, 199),
        (9, 0, 42),
        (9, 0, 874),
        (9, 100, 342),
    ]
    assert len(media) == len(events) - 3 == 13
    assert client.ignored_media_messages == 0


# --- our server, back to back


class Pair:
    """A client and a server whose bytes reach each other at once; the server grants what is not called `busy`."""

    def __init__(self, role: Role, name: str = "cam?key=1", *, digest: bool = False) -> None:
        self.client = new_client(role, digest=digest, name=name)
        self.server = ServerConnection(nonce=NONCE, epoch_ms=0)
        self.seen_by_server: list[Event | Message] = []
        self.seen_by_client: list[ClientEvent | Message] = []

    def run(self) -> None:
        while True:
            to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
            if not to_server and not to_client:
                return
            for event in self.server.receive_data(to_server):
                self.seen_by_server.append(event)
                self._answer(event)
            self.seen_by_client += self.client.receive_data(to_client)

    def _answer(self, event: Event | Message) -> None:
        match event:
            case ConnectRequested():
                self.server.accept_connect()
            case PublishRequested(stream, "busy"):
                self.server.reject_publish(stream, "NetStream.Publish.BadName", "taken")
            case PublishRequested(stream):
                self.server.accept_publish(stream)
            case PlayRequested(stream, "busy"):
                self.server.reject_play(stream, "NetStream.Play.StreamNotFound", "nobody")
            case PlayRequested(stream):
                self.server.accept_play(stream)


@pytest.mark.parametrize("digest", [False, True])
def test_our_client_publishes_to_our_server(digest: bool) -> None:
    pair = Pair(Role.PUBLISH, digest=digest)
    pair.run()
    assert pair.client.state is ClientState.RUNNING
    assert PublishRequested(1, "cam", "key=1", "live") in pair.seen_by_server
    frame = Message(9, 0x01000000, pair.client.message_stream_id, bytes(range(256)) * 1000)
    pair.client.send_message(frame, 6)
    pair.run()
    assert pair.seen_by_server[-1] == frame
    pair.client.finish()
    pair.run()
    assert pair.seen_by_server[-1] == Unpublished(1)
    assert pair.seen_by_client[-1] == StatusReceived(
        "status", "NetStream.Unpublish.Success", "The stream was unpublished."
    )


def test_our_client_plays_from_our_server_until_the_end() -> None:
    pair = Pair(Role.PLAY)
    pair.run()
    assert pair.seen_by_client[-2:] == [
        StatusReceived("status", "NetStream.Play.Reset", "Playing and resetting cam."),
        Started(1),
    ]
    pair.server.send_ping(5)
    pair.server.end_play(1)
    pair.run()
    assert pair.seen_by_client[-1] == Ended("NetStream.Play.UnpublishNotify")


def test_our_client_stops_playing_from_our_server() -> None:
    pair = Pair(Role.PLAY)
    pair.run()
    pair.client.finish()
    pair.run()
    assert pair.seen_by_server[-1] == PlayStopped(1)


@pytest.mark.parametrize(
    ("role", "code", "description"),
    [
        (Role.PUBLISH, "NetStream.Publish.BadName", "taken"),
        (Role.PLAY, "NetStream.Play.StreamNotFound", "nobody"),
    ],
)
def test_our_server_refuses_our_client(role: Role, code: str, description: str) -> None:
    pair = Pair(role, "busy")
    pair.run()
    assert pair.seen_by_client[-1] == Refused(ClientState.START, code, description)


def test_our_server_refuses_the_connection_of_our_client() -> None:
    client, server = new_client(Role.PUBLISH), ServerConnection(nonce=NONCE, epoch_ms=0)
    list(server.receive_data(client.data_to_send()))
    receive(client, server.data_to_send())
    assert len(list(server.receive_data(client.data_to_send()))) == 2
    server.reject_connect("not here")
    assert receive(client, server.data_to_send()) == [
        Refused(ClientState.CONNECT, "NetConnection.Connect.Rejected", "not here")
    ]


# --- properties


def outcome(role: Role, parts: Iterable[bytes]) -> tuple[list[str], str, bytes, ClientState]:
    """What is seen of a client: events, fault, bytes, state. As text, for a NaN equals nothing."""
    client = new_client(role)
    reported: list[str] = []
    fault = ""
    try:
        for part in parts:
            reported.extend(
                repr(event._key() if isinstance(event, Message) else event) for event in client.receive_data(part)
            )
    except PeerError as raised:
        fault = str(raised)
    return reported, fault, client.data_to_send(), client.state


CAPTURES = {
    Role.PUBLISH: seed("client_connection", "ffmpeg_answers_publish.bin"),
    Role.PLAY: seed("client_connection", "ffmpeg_answers_play.bin"),
}


@pytest.mark.parametrize("role", list(Role))
def test_bytes_one_by_one_give_the_same_events_and_commands(role: Role) -> None:
    assert outcome(role, one_by_one(CAPTURES[role])) == outcome(role, [CAPTURES[role]])


@settings(patient, max_examples=60)
@given(st.sampled_from(list(Role)), st.data())
def test_any_split_of_a_capture_gives_the_same_events_and_commands(role: Role, data: st.DataObject) -> None:
    wire = CAPTURES[role]
    assert outcome(role, pieces(wire, data.draw(cuts_of(len(wire))))) == outcome(role, [wire])


values = st.one_of(
    st.sampled_from([NULL, TRUE, amf_object(), info(level="error"), info(code="NetStream.Play.Stop"), b"\x7f"]),
    st.sampled_from([0.0, 1.0, 0.5, math.nan, math.inf]).map(number),
    st.text(max_size=5).map(string),
)
answers = st.one_of(
    st.sampled_from([CONNECT_RESULT, CREATE_RESULT, PUBLISH_START, PLAY_START]),
    st.builds(
        lambda word, transaction, given, stream: command(word, transaction, *given, stream=stream),
        st.sampled_from(["_result", "_error", "onStatus", "close", "onBWDone"]),
        st.sampled_from([0.0, 1.0, 4.0, 5.0]),
        st.lists(values, max_size=3),
        st.integers(0, 1),
    ),
    st.builds(
        lambda type_id, payload, stream: message(type_id, payload, on=6, stream=stream),
        st.sampled_from([0, 2, 3, 4, 6, 8, 9, 15, 17, 18, 20, 22]),
        st.binary(max_size=20),
        st.integers(0, 2),
    ),
    st.binary(max_size=6),
)


@settings(patient, max_examples=150)
@given(st.sampled_from(list(Role)), st.lists(answers, max_size=10).map(b"".join), st.booleans(), st.data())
def test_noise_gives_events_or_a_peer_error_and_the_same_in_any_split(
    role: Role, noise: bytes, is_handshaken: bool, data: st.DataObject
) -> None:
    wire = (SERVER_HANDSHAKE + BIG_CHUNKS if is_handshaken else b"") + noise
    expected = outcome(role, [wire])
    assert outcome(role, pieces(wire, data.draw(cuts_of(len(wire))))) == expected
