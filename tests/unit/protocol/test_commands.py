"""Commands against bytes written out by hand (RTMP 1.0, section 7.2; AMF0, section 2)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.errors import PeerError
from headrace.protocol.amf0 import UNDEFINED, EcmaArray
from headrace.protocol.commands import Command, decode_command, encode_command, on_status, split_query, status
from headrace.protocol.messages import Message

CREATE_STREAM = "02 000c 63726561746553747265616d 00 4010000000000000 05"
PLAY = "02 0004 706c6179 00 4014000000000000 05 02 0003 63616d 00 c09f400000000000"

DECODES: list[tuple[str, int, str, Command]] = [
    ("createStream of FFmpeg", 20, CREATE_STREAM, Command("createStream", 4.0, 1, None, ())),
    ("play of FFmpeg", 20, PLAY, Command("play", 5.0, 1, None, ("cam", -2000.0))),
    (
        "a name alone, as FFmpeg's onFCPublish",
        20,
        "02 000b 6f6e46435075626c697368",
        Command("onFCPublish", 0, 1, None, ()),
    ),
    ("no command object", 20, "02 0001 78 00 3ff0000000000000", Command("x", 1.0, 1, None, ())),
    ("an object", 20, "02 0001 78 00 0000000000000000 03 0001 61 0101 000009", Command("x", 0.0, 1, {"a": True}, ())),
    (
        "an ECMA array for an object",
        20,
        "02 0001 78 00 0000000000000000 08 00000000 0001 61 05 000009",
        Command("x", 0.0, 1, EcmaArray(a=None), ()),
    ),
    ("type 17: one byte before AMF0", 17, "00" + CREATE_STREAM, Command("createStream", 4.0, 1, None, ())),
    ("type 17: that byte is not judged", 17, "03" + CREATE_STREAM, Command("createStream", 4.0, 1, None, ())),
    ("type 17: a value in AMF3", 17, "00 02 0001 78 11 0407 11 01", Command("x", 7.0, 1, None, ())),
    ("a long string for a name", 20, "0c 00000001 78", Command("x", 0.0, 1, None, ())),
    ("an unknown marker ends the values", 20, PLAY + "ff 0000", Command("play", 5.0, 1, None, ("cam", -2000.0))),
    ("an empty name", 20, "02 0000", Command("", 0.0, 1, None, ())),
]

FAULTS: list[tuple[str, int, str, str]] = [
    ("nothing", 20, "", "command begins with nothing, expected its name as a string"),
    ("nothing in type 17", 17, "", "command begins with nothing"),
    ("one byte in type 17", 17, "00", "command begins with nothing"),
    ("a number first", 20, "00 3ff0000000000000", "command begins with float, expected its name as a string"),
    ("null first", 20, "05", "command begins with NoneType"),
    ("null as transaction", 20, "02 0001 78 05", "command 'x' has NoneType as transaction id, expected a number"),
    ("true as transaction", 20, "02 0001 78 0101", "command 'x' has bool as transaction id"),
    ("text as transaction", 20, "02 0001 78 02 0001 31", "command 'x' has str as transaction id"),
    ("a cut string", 20, "02 0005 78", "AMF0 string"),
    ("a cut number", 20, "02 0001 78 00 3ff0", "AMF0 number"),
]


@pytest.mark.parametrize(("type_id", "payload", "expected"), [pytest.param(*row[1:], id=row[0]) for row in DECODES])
def test_a_command_is_decoded(type_id: int, payload: str, expected: Command) -> None:
    decoded = decode_command(Message(type_id, 0, 1, bytes.fromhex(payload)))
    assert decoded == expected
    assert type(decoded.transaction_id) is float
    assert type(decoded.object) is type(expected.object)


@pytest.mark.parametrize(("type_id", "payload", "complaint"), [pytest.param(*row[1:], id=row[0]) for row in FAULTS])
def test_what_is_no_command_is_an_error(type_id: int, payload: str, complaint: str) -> None:
    with pytest.raises(PeerError, match=complaint):
        decode_command(Message(type_id, 0, 0, bytes.fromhex(payload)))


def test_an_error_shows_a_bounded_part_of_a_long_name() -> None:
    payload = b"\x02\xff\xff" + b"n" * 0xFFFF + b"\x05"
    with pytest.raises(PeerError) as raised:
        decode_command(Message(20, 0, 0, payload))
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize(
    ("value", "text", "number", "flag"),
    [
        ("cam", "cam", 9.0, True),
        (1.5, "", 1.5, True),
        (0.0, "", 0.0, False),
        (7, "", 7.0, True),
        (True, "", 9.0, True),
        (False, "", 9.0, False),
        (None, "", 9.0, True),
        (UNDEFINED, "", 9.0, True),
        (math.nan, "", 9.0, True),
        (math.inf, "", 9.0, True),
        ({"a": 1}, "", 9.0, True),
        ([], "", 9.0, True),
    ],
)
def test_an_argument_of_another_type_reads_as_the_default(value: Any, text: str, number: float, flag: bool) -> None:
    command = Command("x", 0.0, 0, None, (value,))
    assert command.argument(0) is value
    assert command.text(0) == text
    assert command.number(0, 9.0) == number
    assert command.flag(0, True) is flag


def test_a_missing_argument_reads_as_the_default() -> None:
    command = Command("x", 0.0, 0, None, ())
    assert command.argument(0) is None
    assert command.text(3) == ""
    assert command.number(0, -2.0) == -2.0
    assert command.flag(0, True) is True
    assert command.flag(0, False) is False


def test_a_command_is_encoded_as_type_20_at_time_0() -> None:
    expected = bytes.fromhex("02 0007 5f726573756c74 00 4010000000000000 05 00 3ff0000000000000")
    assert encode_command("_result", 4, None, 1.0) == Message(20, 0, 0, expected)


def test_a_transaction_id_is_echoed_as_the_number_it_was() -> None:
    assert encode_command("x", 0.1).payload == bytes.fromhex("02 0001 78 00 3fb999999999999a")


def test_a_status_is_an_onstatus_with_null_and_its_object() -> None:
    expected = (
        "02 0008 6f6e537461747573 00 0000000000000000 05 03"
        "0005 6c6576656c 02 0006 737461747573"
        "0004 636f6465 02 0014 4e657453747265616d2e506c61792e5265736574"
        "000b 6465736372697074696f6e 02 0002 6f6b 000009"
    )
    built = on_status(1, "status", "NetStream.Play.Reset", "ok")
    assert built == Message(20, 0, 1, bytes.fromhex(expected))


def test_a_status_object_keeps_what_is_added_to_it() -> None:
    assert status("status", "c", "d", capsEx=1.0) == {"level": "status", "code": "c", "description": "d", "capsEx": 1.0}


@pytest.mark.parametrize(
    ("text", "public", "query"),
    [
        ("cam", "cam", ""),
        ("cam?token=abc", "cam", "token=abc"),
        ("cam?a=1?b=2", "cam", "a=1?b=2"),
        ("cam?", "cam", ""),
        ("?key", "", "key"),
        ("", "", ""),
        ("cam=1&b", "cam=1&b", ""),
    ],
)
def test_the_query_is_split_off_at_the_first_question_mark(text: str, public: str, query: str) -> None:
    assert split_query(text) == (public, query)
