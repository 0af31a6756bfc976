"""AMF0 against bytes written out by hand from the specification and captured from FFmpeg 7.0.2."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol.amf0 import (
    MAX_DEPTH,
    MAX_VALUES,
    UNDEFINED,
    Date,
    EcmaArray,
    TypedObject,
    Value,
    XmlDocument,
    decode_value,
    decode_values,
    encode_value,
    encode_values,
)

Case = tuple[str, Value, str]

BOTH_WAYS: list[Case] = [
    ("number", 1.0, "00 3ff0000000000000"),
    ("negative number", -2.5, "00 c004000000000000"),
    ("infinity", math.inf, "00 7ff0000000000000"),
    ("not a number", math.nan, "00 7ff8000000000000"),
    ("true", True, "01 01"),
    ("false", False, "01 00"),
    ("string", "live", "02 0004 6c697665"),
    ("empty string", "", "02 0000"),
    ("string beyond ASCII", "é", "02 0002 c3a9"),
    ("string that is not UTF-8", "\udcff\udcfe", "02 0002 fffe"),
    ("empty object", {}, "03 000009"),
    ("object", {"a": None, "b": {"c": True}}, "03 0001 61 05 0001 62 03 0001 63 0101 000009 000009"),
    ("object with an empty name", {"": None}, "03 0000 05 000009"),
    ("null", None, "05"),
    ("undefined", UNDEFINED, "06"),
    ("ECMA array", EcmaArray({"0": False}), "08 00000001 0001 30 0100 000009"),
    ("strict array", [None, ["x"]], "0a 00000002 05 0a 00000001 0200 0178"),
    ("date", Date(1000.0, -60), "0b 408f400000000000 ffc4"),
    ("XML document", XmlDocument("<a/>"), "0f 00000004 3c612f3e"),
    ("typed object", TypedObject("C", {"a": None}), "10 0001 43 0001 61 05 000009"),
    ("bytes as AMF3", b"\x01\x02\x03", "11 0c 07 010203"),
]

DECODE_ONLY: list[Case] = [
    ("boolean other than 0 and 1", True, "01 80"),
    ("short text as a long string", "hi", "0c 00000002 6869"),
    ("unsupported", UNDEFINED, "0d"),
    ("ECMA array with count 0", EcmaArray({"a": None}), "08 00000000 0001 61 05 000009"),
    ("ECMA array with a huge count", EcmaArray({"a": None}), "08 ffffffff 0001 61 05 000009"),
    ("ECMA array without end marker", EcmaArray({"a": None}), "08 00000001 0001 61 05"),
    ("objects without end markers", {"a": {"b": None}}, "03 0001 61 03 0001 62 05"),
    ("object with a name twice", {"a": True}, "03 0001 61 0100 0001 61 0101 000009"),
    ("reference to an earlier array", [[None], [None]], "0a 00000002 0a 00000001 05 07 0001"),
    ("AMF3 integer", 1, "11 04 01"),
    ("AMF3 inside an object", {"a": [7], "b": None}, "03 0001 61 11 0903010407 0001 62 05 000009"),
    ("unknown marker in an object", {"a": True}, "03 0001 61 0101 0001 62 7f 000009"),
    ("unknown marker in an array", [True], "0a 00000003 0101 12 0101"),
    ("unknown marker deep inside", [{"a": None}], "0a 00000002 03 0001 61 05 0001 62 04 0101"),
]

# What FFmpeg 7.0.2 sends to rtmp://127.0.0.1:57943/live with `-rtmp_enhanced_codecs hvc1,av01`.
FFMPEG_CONNECT = bytes.fromhex(
    "020007636f6e6e656374003ff00000000000000300036170700200046c697665000a666f757243634c6973740a00000002020004"
    "687663310200046176303100047479706502000a6e6f6e707269766174650008666c617368566572020023464d4c452f332e3020"
    "28636f6d70617469626c653b204c61766636312e312e313030290005746355726c02001b72746d703a2f2f3132372e302e302e31"
    "3a35373934332f6c697665000009"
)
# The script tag of an FLV file by FFmpeg 7.0.2: x264, AAC, one second.
FFMPEG_ON_META_DATA = bytes.fromhex(
    "02000a6f6e4d65746144617461080000000d00086475726174696f6e003ff3333333333333000577696474680040500000000000"
    "000006686569676874004050000000000000000d766964656f646174617261746500000000000000000000096672616d65726174"
    "65004024000000000000000c766964656f636f646563696400401c000000000000000d617564696f6461746172617465004050d8"
    "8000000000000f617564696f73616d706c65726174650040e5888000000000000f617564696f73616d706c6573697a6500403000"
    "0000000000000673746572656f0100000c617564696f636f64656369640040240000000000000007656e636f64657202000c4c61"
    "766636312e312e313030000866696c6573697a650040c8318000000000000009"
)

texts = st.text(max_size=20) | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=20),
    st.just(UNDEFINED),
    texts.map(XmlDocument),
    st.builds(Date, st.floats(allow_nan=False), st.integers(-0x8000, 0x7FFF)),
)


def containers(items: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    members = st.dictionaries(texts, items, max_size=4)
    named = st.builds(TypedObject, texts, members)
    return st.one_of(st.lists(items, max_size=4), members, members.map(EcmaArray), named)


values_strategy = st.recursive(scalars, containers, max_leaves=25)
# Marker by marker, garbage goes deeper than random bytes would.
pieces = st.sampled_from([*(code for _, _, code in BOTH_WAYS + DECODE_ONLY), "00", "0a 00000003", "07 0000"])
garbage = st.lists(pieces.map(bytes.fromhex) | st.binary(max_size=4), max_size=12).map(b"".join)


@pytest.mark.parametrize(("name", "value", "code"), BOTH_WAYS + DECODE_ONLY)
def test_bytes_of_the_specification_decode_to_the_value(name: str, value: Value, code: str) -> None:
    # repr tells 1 from True, an ECMA array from an object, and is equal for NaN.
    assert repr(decode_values(bytes.fromhex(code))) == repr([value]), name


@pytest.mark.parametrize(("name", "value", "code"), BOTH_WAYS)
def test_value_encodes_to_the_bytes_of_the_specification(name: str, value: Value, code: str) -> None:
    assert encode_value(value) == bytes.fromhex(code), name


def test_int_encodes_as_a_number() -> None:
    assert encode_values(1, 0) == bytes.fromhex("003ff0000000000000 000000000000000000")


def test_text_becomes_a_long_string_above_65535_bytes() -> None:
    assert encode_value("é" * 32767 + "a").startswith(b"\x02\xff\xff")
    assert encode_value("é" * 32768).startswith(b"\x0c\x00\x01\x00\x00")
    assert decode_values(encode_value("é" * 32768)) == ["é" * 32768]


def test_undefined_is_false_and_not_none() -> None:
    assert not UNDEFINED
    assert decode_values(b"\x06\x05") == [UNDEFINED, None]
    assert repr(UNDEFINED) == "UNDEFINED"


def test_connect_of_ffmpeg_decodes_and_encodes_to_the_same_bytes() -> None:
    values = decode_values(FFMPEG_CONNECT)
    assert values == [
        "connect",
        1.0,
        {
            "app": "live",
            "fourCcList": ["hvc1", "av01"],
            "type": "nonprivate",
            "flashVer": "FMLE/3.0 (compatible; Lavf61.1.100)",
            "tcUrl": "rtmp://127.0.0.1:57943/live",
        },
    ]
    assert encode_values(*values) == FFMPEG_CONNECT


def test_on_meta_data_of_ffmpeg_decodes_and_encodes_to_the_same_bytes() -> None:
    values = decode_values(FFMPEG_ON_META_DATA)
    assert values[0] == "onMetaData"
    metadata = values[1]
    assert isinstance(metadata, EcmaArray)
    assert len(metadata) == 13
    assert (metadata["width"], metadata["stereo"], metadata["encoder"]) == (64.0, False, "Lavf61.1.100")
    assert encode_values(*values) == FFMPEG_ON_META_DATA


def test_decoding_starts_at_the_offset_and_says_where_the_value_ends() -> None:
    data = b"\xff" + FFMPEG_CONNECT
    assert decode_value(data, 1) == ("connect", 11)
    assert decode_values(memoryview(data), offset=1) == decode_values(FFMPEG_CONNECT)
    assert decode_values(data, offset=len(data)) == []
    with pytest.raises(UsageError, match=r"offset 999, expected 0\.\.171"):
        decode_values(data, offset=999)


@pytest.mark.parametrize("marker", [0x04, 0x09, 0x0E, 0x12, 0xFF])
def test_unknown_marker_ends_the_list_without_an_error(marker: int) -> None:
    assert decode_values(b"\x05\x01\x01" + bytes([marker]) + b"\x05\x05") == [None, True]
    with pytest.raises(PeerError, match=f"marker 0x{marker:02x} at offset 1"):
        decode_value(b"\x05" + bytes([marker]), 1)


def test_all_amf3_values_of_a_payload_share_their_reference_tables() -> None:
    assert decode_values(bytes.fromhex("11 06 03 61 05 11 06 00")) == ["a", None, "a"]


def test_reference_gives_a_copy_that_is_independent_of_the_original() -> None:
    first, second = decode_values(bytes.fromhex("10 0001 43 0001 61 08 00000000 000009 000009 07 0000"))
    assert repr(second) == repr(first) == "TypedObject('C', {'a': EcmaArray({})})"
    assert second is not first


BROKEN = [
    ("00 3ff0", "AMF0 number at offset 1 needs 8 bytes, 2 left"),
    ("01", "AMF0 boolean at offset 1 needs 1 bytes, 0 left"),
    ("02 0005 6c69", "AMF0 string at offset 3 needs 5 bytes, 2 left"),
    ("03 0001 61", "AMF0 marker at offset 4 needs 1 bytes, 0 left"),
    ("03 00", "AMF0 property name at offset 1 needs 2 bytes, 1 left"),
    ("07 0000", "reference 0 before offset 3, only 0 values precede it"),
    ("0a 00000001 07 0000", "reference 0 before offset 8 is to a value that contains it"),
    ("03 0001 61 07 0000 000009", "reference 0 before offset 7 is to a value that contains it"),
    ("0a ffffffff 05", "AMF0 strict array items at offset 5 needs 4294967295 bytes, 1 left"),
    ("0c ffffffff 61", "AMF0 long string at offset 5 needs 4294967295 bytes, 1 left"),
    ("0f 80000000", "AMF0 XML document at offset 5 needs 2147483648 bytes, 0 left"),
    ("11 7f", "AMF3 marker 0x7f at offset 1"),
]


@pytest.mark.parametrize(("code", "message"), BROKEN)
def test_broken_bytes_raise_an_error_that_says_what_and_where(code: str, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match=message):
            decode_values(bytes.fromhex(code))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opening", ["03 0001 61", "08 00000000 0001 61", "0a 00000001", "10 0000 0001 61"])
def test_nesting_is_refused_beyond_the_limit(opening: str) -> None:
    container = bytes.fromhex(opening)
    assert len(decode_values(container * MAX_DEPTH + b"\x05")) == 1
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(PeerError, match="nested deeper than 32"):
            decode_values(container * depth + b"\x05")


def test_nesting_counts_through_the_switch_to_amf3_and_through_references() -> None:
    outer = bytes.fromhex("0a 00000001") * MAX_DEPTH
    with pytest.raises(PeerError, match="nested deeper"):
        decode_values(outer + bytes.fromhex("11 09 03 01 01"))
    with pytest.raises(PeerError, match="nested deeper"):
        decode_values(b"\x0a\x00\x00\x00\x00" + outer + b"\x07\x00\x00")


def test_number_of_values_is_limited() -> None:
    assert len(decode_values(b"\x05" * MAX_VALUES)) == MAX_VALUES
    with pytest.raises(PeerError, match="more than 10000 AMF values"):
        decode_values(b"\x05" * (MAX_VALUES + 1))
    with pytest.raises(PeerError, match="20000 AMF0 strict array items at offset 5, expected 10000"):
        decode_values(b"\x0a" + (20_000).to_bytes(4, "big") + b"\x05" * 20_000)


def test_references_cannot_double_a_value_again_and_again() -> None:
    bomb = b"\x0a\x00\x00\x00\x02\x05\x05"
    for level in range(30):
        bomb += b"\x0a\x00\x00\x00\x02" + (b"\x07" + level.to_bytes(2, "big")) * 2
    with pytest.raises(PeerError, match="more than 10000 AMF values"):
        decode_values(bomb)


def test_references_cannot_repeat_long_texts_without_limit() -> None:
    obj = b"\x0a\x00\x00\x00\x01\x02\xff\xff" + b"x" * 0xFFFF
    assert len(decode_values(obj + b"\x07\x00\x00" * 16)) == 17
    with pytest.raises(PeerError, match="references repeat more than 1048576 bytes"):
        decode_values(obj + b"\x07\x00\x00" * 17)


def test_values_that_have_no_encoding_are_our_own_mistake() -> None:
    endless: list[Value] = []
    endless.extend([endless, endless])
    unsuitable: list[object] = [object(), (1,), {1: 2}, {"x" * 65536: 1}, "\ud800", 10**400, endless]
    unsuitable += [Date(0.0, 40_000), TypedObject("C" * 65536)]
    for value in unsuitable:
        with pytest.raises(UsageError):
            encode_value(value)  # type: ignore[arg-type]


@given(st.lists(values_strategy, max_size=4))
def test_any_values_survive_encoding_and_decoding(values: list[Value]) -> None:
    assert repr(decode_values(encode_values(*values))) == repr(values)


@given(st.binary(max_size=300) | garbage)
def test_any_bytes_give_encodable_values_or_a_peer_error(data: bytes) -> None:
    try:
        values = decode_values(data)
    except PeerError:
        return
    encoded = encode_values(*values)
    assert encode_values(*decode_values(encoded)) == encoded


@given(st.lists(values_strategy, min_size=1, max_size=4), st.data())
def test_truncated_or_damaged_values_give_values_or_a_peer_error(values: list[Value], data: st.DataObject) -> None:
    encoded = bytearray(encode_values(*values))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_values(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    except PeerError:
        pass


@pytest.mark.parametrize("payload", [FFMPEG_CONNECT, FFMPEG_ON_META_DATA])
def test_every_prefix_of_a_real_payload_gives_values_or_a_peer_error(payload: bytes) -> None:
    whole = decode_values(payload)
    for size in range(len(payload)):
        try:
            values = decode_values(payload[:size])
        except PeerError:
            continue
        assert values[:-1] == whole[: max(len(values) - 1, 0)]
