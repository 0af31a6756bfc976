"""What readers get of a publisher's data messages, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.amf0 import EcmaArray
from headrace.protocol.chunks import MAX_MESSAGE_BYTES, ChunkReader
from headrace.protocol.metadata import decode_metadata, reader_form
from tests.unit.protocol.wire import patient, seed

SET = "02 000d 40736574446174614672616d65"  # @setDataFrame
CLEAR = "02 000f 40636c656172446174614672616d65"  # @clearDataFrame
META = "02 000a 6f6e4d65746144617461"  # onMetaData
ECMA = "08 00000001 0005 7769647468 00 4094000000000000 000009"  # {"width": 1280}
OBJECT = "03 0005 7769647468 00 4094000000000000 000009"
CUE_POINT = "02 000a 6f6e437565506f696e74 03 000009"

FORMS: list[tuple[str, str, str]] = [
    ("the server's word is stripped", SET + META + ECMA, META + ECMA),
    ("without it nothing changes", META + ECMA, META + ECMA),
    ("an object becomes an array with its count", SET + META + OBJECT, META + ECMA),
    ("an object without the server's word too", META + OBJECT, META + ECMA),
    ("an empty object", META + "03 000009", META + "08 00000000 000009"),
    ("a wrong count of an array is the encoder's own", META + "08 00000063 000009", META + "08 00000063 000009"),
    ("what follows the object stays", SET + META + OBJECT + "0101", META + ECMA + "0101"),
    ("an object without its end", META + "03 0001 61 05", META + "08 00000001 0001 61 05"),
    ("an object we cannot read counts 0, its bytes stay", META + "03 0005 77", META + "08 00000000 0005 77"),
    ("an object in a cue point is not metadata", SET + CUE_POINT, CUE_POINT),
    ("another message", CUE_POINT, CUE_POINT),
    ("the word alone", SET, ""),
    ("a name without a value", SET + META, META),
    ("null for a value", META + "05", META + "05"),
    (
        "a name that only begins like it",
        "02 000b 6f6e4d6574614461746158 03 000009",
        "02 000b 6f6e4d6574614461746158 03 000009",
    ),
    ("the word in the second place", META + SET, META + SET),
    ("nothing", "", ""),
    ("a cut word", SET[:-2], SET[:-2]),
    ("garbage", "ff fe fd", "ff fe fd"),
]


@pytest.mark.parametrize(("payload", "expected"), [pytest.param(*row[1:], id=row[0]) for row in FORMS])
def test_readers_get_a_data_message_in_their_form(payload: str, expected: str) -> None:
    assert reader_form(bytes.fromhex(payload)) == bytes.fromhex(expected)


@pytest.mark.parametrize("rest", ["", META, META + ECMA, "ff"])
def test_a_cleared_data_frame_reaches_nobody(rest: str) -> None:
    assert reader_form(bytes.fromhex(CLEAR + rest)) is None


def test_ffmpegs_metadata_loses_its_first_sixteen_bytes() -> None:
    capture = seed("server_connection", "ffmpeg_publish.bin")[3073:]
    sent = next(message.payload for message in ChunkReader().receive(capture) if message.type_id == 18)
    assert sent.startswith(bytes.fromhex(SET))
    assert reader_form(sent) == sent[16:]
    properties = decode_metadata(sent[16:])
    assert isinstance(properties, EcmaArray)
    assert (properties["width"], properties["height"], properties["framerate"]) == (64.0, 48.0, 10.0)


@pytest.mark.parametrize(
    ("payload", "properties"),
    [
        (META + ECMA, {"width": 1280.0}),
        (META + OBJECT, {"width": 1280.0}),
        (META, {}),
        (META + "05", {}),
        (META + "0a 00000000", {}),
        (META + "03 0005 77", {}),
        (SET + META + ECMA, {}),
        (CUE_POINT, {}),
        ("", {}),
    ],
)
def test_metadata_that_cannot_be_read_is_empty(payload: str, properties: dict[str, float]) -> None:
    assert decode_metadata(bytes.fromhex(payload)) == properties


def test_an_object_at_the_limit_of_a_message_stays_what_it_is() -> None:
    # One property that fills the message up to the last byte: four more for a count would not fit.
    start = bytes.fromhex(META + "03 0001 61 0c")
    text = MAX_MESSAGE_BYTES - len(start) - 4 - 3
    largest = start + text.to_bytes(4, "big") + b"x" * text + b"\0\0\x09"
    assert len(largest) == MAX_MESSAGE_BYTES
    assert reader_form(largest) == largest
    assert reader_form(largest[:-4]) == bytes.fromhex(META + "08 00000000") + largest[14:-4]


@patient
@given(st.binary(max_size=60), st.sampled_from(["", SET, CLEAR, META, SET + META, META + "03", SET + META + "03"]))
def test_garbage_passes_with_nothing_lost_but_the_servers_word(garbage: bytes, start: str) -> None:
    payload = bytes.fromhex(start) + garbage
    form = reader_form(payload)
    if payload.startswith(bytes.fromhex(CLEAR)):
        assert form is None
        return
    assert form is not None
    stripped = payload.removeprefix(bytes.fromhex(SET))
    if form != stripped:
        at = len(bytes.fromhex(META))
        assert (form[:at], form[at], form[at + 5 :]) == (stripped[:at], 8, stripped[at + 1 :])
        assert stripped[at] == 3
