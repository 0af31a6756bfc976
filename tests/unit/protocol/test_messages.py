"""Control messages and aggregates against bytes written out from RTMP 1.0, sections 5.4, 6.2 and 7.1."""

from __future__ import annotations

import tracemalloc

import pytest

from headrace.errors import PeerError
from headrace.protocol import messages
from headrace.protocol.messages import BandwidthLimit, Message, MessageType, UserControl, split_aggregate

CONTROL: list[tuple[str, Message, int, str]] = [
    ("set chunk size", messages.set_chunk_size(4096), 1, "00001000"),
    ("acknowledgement", messages.acknowledgement(2_500_000), 3, "002625a0"),
    ("acknowledgement before the wrap", messages.acknowledgement(0xFFFFFFFF), 3, "ffffffff"),
    ("acknowledgement after the wrap", messages.acknowledgement(0x1_0000_0005), 3, "00000005"),
    ("window size", messages.window_acknowledgement_size(2_500_000), 5, "002625a0"),
    ("hard bandwidth", messages.set_peer_bandwidth(1, BandwidthLimit.HARD), 6, "00000001 00"),
    ("soft bandwidth", messages.set_peer_bandwidth(1, BandwidthLimit.SOFT), 6, "00000001 01"),
    ("dynamic bandwidth", messages.set_peer_bandwidth(2_500_000, BandwidthLimit.DYNAMIC), 6, "002625a0 02"),
    ("stream begin", messages.user_control(UserControl.STREAM_BEGIN, 1), 4, "0000 00000001"),
    ("stream end", messages.user_control(UserControl.STREAM_EOF, 2), 4, "0001 00000002"),
    ("buffer length", messages.user_control(UserControl.SET_BUFFER_LENGTH, 1, 3000), 4, "0003 00000001 00000bb8"),
    ("ping", messages.user_control(UserControl.PING_REQUEST, 0xFFFFFFFF), 4, "0006 ffffffff"),
    ("ping with a time past the wrap", messages.user_control(UserControl.PING_REQUEST, 1 << 32), 4, "0006 00000000"),
]

# Sub-message: type, 24-bit length, the lower 24 bits of the time, its upper 8, a stream id; after it, its size.
AUDIO_AT_1000 = "08 000002 0003e8 00 000000 af01 0000000d"
VIDEO_AT_1040 = "09 000003 000410 00 000000 270100 0000000e"

AGGREGATES: list[tuple[str, int, str, list[tuple[int, int, str]]]] = [
    ("nothing", 5, "", []),
    ("one message gets the aggregate's time", 7, AUDIO_AT_1000, [(8, 7, "af01")]),
    ("the distance is kept", 7, AUDIO_AT_1000 + VIDEO_AT_1040, [(8, 7, "af01"), (9, 47, "270100")]),
    ("a step back is kept", 100, VIDEO_AT_1040 + AUDIO_AT_1000, [(9, 100, "270100"), (8, 60, "af01")]),
    ("time wraps", 0xFFFFFFF0, AUDIO_AT_1000 + VIDEO_AT_1040, [(8, 0xFFFFFFF0, "af01"), (9, 24, "270100")]),
    (
        "the upper byte of the time counts",
        0,
        "08 000000 ffffff 00 000000 0000000b 08 000000 000001 01 000000 0000000b",
        [(8, 0, ""), (8, 2, "")],
    ),
    ("a missing last size is forgiven", 0, "08 000002 000000 00 000000 af01", [(8, 0, "af01")]),
    ("the size after a message is not judged", 0, "08 000001 000000 00 000000 af ffffffff", [(8, 0, "af")]),
    ("the filter bit is no part of the type", 0, "28 000000 000000 00 000000 0000000b", [(8, 0, "")]),
    ("the sub-message's stream id is ignored", 0, "08 000000 000000 00 000009 0000000b", [(8, 0, "")]),
    ("a data message", 0, "12 000001 000000 00 000000 05 0000000c", [(18, 0, "05")]),
    (
        "an aggregate inside is left out, its time still counts as the first",
        50,
        "16 000000 000064 00 000000 0000000b 08 000000 000078 00 000000 0000000b",
        [(8, 70, "")],
    ),
]

BROKEN_AGGREGATES = [
    ("cut header", AUDIO_AT_1000 + "08 000002 000000 00 0000", "header at 17 is cut: 10 bytes, expected 11"),
    ("one byte", "08", "header at 0 is cut: 1 bytes, expected 11"),
    ("body too short", "08 000003 000000 00 000000 af01", "at 0 claims 3 bytes, only 2 are left"),
    ("no body", "09 ffffff 000000 00 000000", "at 0 claims 16777215 bytes, only 0 are left"),
]


@pytest.mark.parametrize(("built", "type_id", "payload"), [pytest.param(*row[1:], id=row[0]) for row in CONTROL])
def test_a_control_message_has_its_type_and_payload_and_nothing_else(
    built: Message, type_id: int, payload: str
) -> None:
    assert built == Message(type_id, 0, 0, bytes.fromhex(payload))
    assert type(built.type_id) is int


def test_types_and_events_have_the_numbers_of_the_specification() -> None:
    assert [int(type_id) for type_id in MessageType] == [1, 2, 3, 4, 5, 6, 8, 9, 15, 16, 17, 18, 19, 20, 22]
    assert (messages.AUDIO, messages.VIDEO, messages.DATA, messages.AGGREGATE) == (8, 9, 18, 22)
    assert [int(event) for event in UserControl] == [0, 1, 2, 3, 4, 6, 7]


@pytest.mark.parametrize("type_id", [1, 2, 3, 5])
def test_a_number_is_read_from_its_four_bytes(type_id: int) -> None:
    assert messages.decode_u32(Message(type_id, 0, 0, bytes.fromhex("fedcba98"))) == 0xFEDCBA98
    assert messages.decode_u32(Message(type_id, 0, 0, bytes.fromhex("00000001 ffff"))) == 1


def test_a_number_of_three_bytes_is_an_error() -> None:
    with pytest.raises(PeerError, match="control message type 5 has 3 bytes, expected 4"):
        messages.decode_u32(Message(MessageType.WINDOW_ACKNOWLEDGEMENT_SIZE, 0, 0, b"\0\0\1"))


@pytest.mark.parametrize(
    ("payload", "event", "body"),
    [("0006 00001234", 6, "00001234"), ("0003 00000001 00000bb8", 3, "0000000100000bb8"), ("001f", 31, "")],
)
def test_a_user_control_message_is_its_event_and_the_rest(payload: str, event: int, body: str) -> None:
    assert messages.decode_user_control(Message(4, 0, 0, bytes.fromhex(payload))) == (event, bytes.fromhex(body))


@pytest.mark.parametrize("payload", [b"", b"\0"])
def test_a_user_control_message_without_an_event_is_an_error(payload: bytes) -> None:
    with pytest.raises(PeerError, match=f"user control message has {len(payload)} bytes, expected at least 2"):
        messages.decode_user_control(Message(4, 0, 0, payload))


def test_messages_are_equal_when_all_their_parts_are() -> None:
    one = Message(8, 40, 1, b"\xaf\x01")
    assert one == Message(8, 40, 1, b"\xaf\x01")
    assert len({one, Message(8, 40, 1, b"\xaf\x01")}) == 1
    assert one not in (Message(9, 40, 1, b"\xaf\x01"), Message(8, 41, 1, b"\xaf\x01"))
    assert one not in (Message(8, 40, 2, b"\xaf\x01"), Message(8, 40, 1, b"\xaf"))
    assert one != (8, 40, 1, b"\xaf\x01")


def test_a_message_shows_its_size_and_not_its_payload() -> None:
    assert repr(Message(9, 40, 1, b"secret")) == "Message(type_id=9, timestamp_ms=40, message_stream_id=1, 6 bytes)"


@pytest.mark.parametrize(("time", "payload", "parts"), [pytest.param(*row[1:], id=row[0]) for row in AGGREGATES])
def test_an_aggregate_is_split(time: int, payload: str, parts: list[tuple[int, int, str]]) -> None:
    expected = [Message(type_id, at, 3, bytes.fromhex(body)) for type_id, at, body in parts]
    assert list(split_aggregate(Message(22, time, 3, bytes.fromhex(payload)))) == expected


@pytest.mark.parametrize(("payload", "complaint"), [pytest.param(*row[1:], id=row[0]) for row in BROKEN_AGGREGATES])
def test_a_broken_aggregate_is_an_error_that_says_where(payload: str, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        list(split_aggregate(Message(22, 0, 1, bytes.fromhex(payload))))


def test_an_aggregate_of_many_empty_messages_takes_no_memory() -> None:
    whole = Message(22, 0, 1, bytes.fromhex("08 000000 000000 00 000000 0000000b") * 20_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in split_aggregate(whole)) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
