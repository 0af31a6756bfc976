"""AMF3 against bytes written out by hand from the specification."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError, UsageError
from headrace.protocol.amf3 import (
    MAX_DEPTH,
    MAX_VALUES,
    UNDEFINED,
    Date,
    EcmaArray,
    TypedObject,
    Value,
    XmlDocument,
    decode_value,
    encode_value,
)

Case = tuple[str, Value, str]

ARRAY_COLLECTION = "0a 07 43" + b"flex.messaging.io.ArrayCollection".hex()
OBJECT_PROXY = "0a 07 3b" + b"flex.messaging.io.ObjectProxy".hex()

BOTH_WAYS: list[Case] = [
    ("undefined", UNDEFINED, "00"),
    ("null", None, "01"),
    ("false", False, "02"),
    ("true", True, "03"),
    ("integer 0", 0, "04 00"),
    ("largest integer of one byte", 127, "04 7f"),
    ("smallest integer of two bytes", 128, "04 8100"),
    ("largest integer of two bytes", 16383, "04 ff7f"),
    ("smallest integer of three bytes", 16384, "04 818000"),
    ("largest integer of three bytes", 2097151, "04 ffff7f"),
    ("smallest integer of four bytes", 2097152, "04 80c08000"),
    ("largest integer", 268435455, "04 bfffffff"),
    ("smallest integer", -268435456, "04 c0808000"),
    ("minus one", -1, "04 ffffffff"),
    ("double", 1.0, "05 3ff0000000000000"),
    ("not a number", math.nan, "05 7ff8000000000000"),
    ("string", "live", "06 09 6c697665"),
    ("empty string", "", "06 01"),
    ("string that is not UTF-8", "\udcff", "06 03 ff"),
    ("date", Date(1000.0), "08 01 408f400000000000"),
    ("empty array", [], "09 01 01"),
    ("array", [1, [None]], "09 05 01 04 01 09 03 01 01"),
    ("associative array", EcmaArray({"k": True}), "09 01 03 6b 03 01"),
    ("empty object", {}, "0a 0b 01 01"),
    ("object", {"a": 1, "b": {}}, "0a 0b 01 03 61 04 01 03 62 0a 0b 01 01 01"),
    ("object of a class", TypedObject("C", {"a": None}), "0a 0b 03 43 03 61 01 01"),
    ("XML", XmlDocument("<a/>"), "0b 09 3c612f3e"),
    ("byte array", b"\x01\x02\x03", "0c 07 010203"),
]

DECODE_ONLY: list[Case] = [
    ("XML document of ActionScript 2", XmlDocument("<a/>"), "07 09 3c612f3e"),
    ("string by reference", ["a", "a"], "09 05 01 06 03 61 06 00"),
    ("empty string takes no reference", ["", "a", "a"], "09 07 01 06 01 06 03 61 06 00"),
    ("name by reference", [{"a": 1}, "a"], "09 05 01 0a 0b 01 03 61 04 01 01 06 00"),
    ("array by reference", [[7], [7]], "09 05 01 09 03 01 04 07 09 02"),
    ("date by reference", [Date(0.0), Date(0.0)], "09 05 01 08 01 0000000000000000 08 02"),
    ("byte array by reference", [b"x", b"x"], "09 05 01 0c 03 78 0c 02"),
    ("array with both parts", EcmaArray({"k": True, "0": 5}), "09 03 03 6b 03 01 04 05"),
    ("sealed members", TypedObject("C", {"a": 1, "b": 2}), "0a 23 03 43 03 61 03 62 04 01 04 02"),
    (
        "sealed and dynamic members",
        TypedObject("C", {"a": 1, "b": 2}),
        "0a 1b 03 43 03 61 04 01 03 62 04 02 01",
    ),
    (
        "traits by reference",
        [TypedObject("C", {"a": 1}), TypedObject("C", {"a": 2})],
        "09 05 01 0a 13 03 43 03 61 04 01 0a 01 04 02",
    ),
    ("vector of int", [1, -1], "0d 05 00 00000001 ffffffff"),
    ("vector of uint", [1, 4294967295], "0e 05 00 00000001 ffffffff"),
    ("vector of double", [1.0], "0f 03 01 3ff0000000000000"),
    ("vector of objects", ["a"], "10 03 00 01 06 03 61"),
    ("vector by reference", [[1], [1]], "09 05 01 0d 03 00 00000001 0d 02"),
    ("dictionary", [["k", 1], [[], 2]], "11 05 00 06 03 6b 04 01 09 01 01 04 02"),
    ("ArrayCollection", [1], ARRAY_COLLECTION + "09 03 01 04 01"),
    ("ObjectProxy", {}, OBJECT_PROXY + "0a 0b 01 01"),
    ("ArrayCollection by reference", [[1], [1]], "09 05 01" + ARRAY_COLLECTION + "09 03 01 04 01 0a 02"),
]

texts = st.text(max_size=20) | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
names = texts.filter(bool)
scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 28), (1 << 28) - 1),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=200),
    st.just(UNDEFINED),
    texts.map(XmlDocument),
    st.builds(Date, st.floats(allow_nan=False)),
)


def containers(items: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    members = st.dictionaries(names, items, max_size=4)
    array = st.dictionaries(names, items, min_size=1, max_size=4).map(EcmaArray)
    return st.one_of(st.lists(items, max_size=4), members, array, st.builds(TypedObject, names, members))


values_strategy = st.recursive(scalars, containers, max_leaves=25)
pieces = st.sampled_from([*(code for _, _, code in BOTH_WAYS + DECODE_ONLY), "09 07 01", "09 00", "0a 01"])
garbage = st.lists(pieces.map(bytes.fromhex) | st.binary(max_size=4), max_size=12).map(b"".join)


@pytest.mark.parametrize(("name", "value", "code"), BOTH_WAYS + DECODE_ONLY)
def test_bytes_of_the_specification_decode_to_the_value(name: str, value: Value, code: str) -> None:
    data = bytes.fromhex(code)
    # repr tells 1 from True and 1.0, an associative array from an object, and is equal for NaN.
    assert repr(decode_value(data)) == repr((value, len(data))), name


@pytest.mark.parametrize(("name", "value", "code"), BOTH_WAYS)
def test_value_encodes_to_the_bytes_of_the_specification(name: str, value: Value, code: str) -> None:
    assert encode_value(value) == bytes.fromhex(code), name


def test_int_beyond_29_bits_encodes_as_a_double() -> None:
    assert encode_value(1 << 28) == bytes.fromhex("05 41b0000000000000")
    assert encode_value(-(1 << 28) - 1) == bytes.fromhex("05 c1b0000001000000")


def test_decoding_starts_at_the_offset() -> None:
    assert decode_value(memoryview(b"\xff\x04\x05\xff"), 1) == (5, 3)


BROKEN = [
    ("", "AMF3 marker at offset 0 needs 1 bytes, 0 left"),
    ("12", r"AMF3 marker 0x12 at offset 0, expected 0x00\.\.0x11"),
    ("04 8080", "AMF3 integer at offset 3 needs 1 bytes, 0 left"),
    ("06 09 6c", "AMF3 string at offset 2 needs 4 bytes, 1 left"),
    ("06 00", "AMF3 string reference 0 before offset 2, 0 are known"),
    ("06 ffffffff", "AMF3 string at offset 5 needs 268435455 bytes"),
    ("0c ffffffff", "AMF3 byte array at offset 5 needs 268435455 bytes"),
    ("09 ffffffff 01", "AMF3 array items at offset 6 needs 268435455 bytes"),
    ("09 00", "reference 0 before offset 2, only 0 values precede it"),
    ("09 03 01 09 00", "reference 0 before offset 5 is to a value that contains it"),
    ("0a 0b 01 03 61 0a 00 01", "reference 0 before offset 7 is to a value that contains it"),
    ("0a 01", "traits reference 0 before offset 2, 0 known"),
    ("0a fffffffb 01", "AMF3 sealed names at offset 6 needs 33554431 bytes"),
    ("0d ffffffff 00", "AMF3 vector items at offset 6 needs 1073741820 bytes"),
    ("0f ffffffff 00", "AMF3 vector items at offset 6 needs 2147483640 bytes"),
    ("10 ffffffff 00 01", "AMF3 vector items at offset 7 needs 268435455 bytes"),
    ("11 ffffffff 00", "AMF3 dictionary entries at offset 6 needs 536870910 bytes"),
    ("0a 07 07 612e42", "externalizable class 'a.B' before offset 6"),
]


@pytest.mark.parametrize(("code", "message"), BROKEN)
def test_broken_bytes_raise_an_error_that_says_what_and_where(code: str, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match=message):
            decode_value(bytes.fromhex(code))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opening", ["09 03 01", "0a 0b 01 03 61", "10 03 00 01", ARRAY_COLLECTION])
def test_nesting_is_refused_beyond_the_limit(opening: str) -> None:
    container = bytes.fromhex(opening)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(PeerError, match="nested deeper than 32"):
            decode_value(container * depth + b"\x01")


def test_nesting_up_to_the_limit_is_accepted() -> None:
    assert decode_value(bytes.fromhex("09 03 01") * MAX_DEPTH + b"\x01")[1] == 3 * MAX_DEPTH + 1


def test_dictionary_counts_as_two_levels_because_it_becomes_pairs() -> None:
    dictionary = bytes.fromhex("11 03 00 01")
    value, _ = decode_value(dictionary * (MAX_DEPTH // 2) + b"\x01")
    assert decode_value(encode_value(value))[0] == value
    with pytest.raises(PeerError, match="nested deeper"):
        decode_value(dictionary * (MAX_DEPTH // 2 + 1) + b"\x01")


def test_number_of_values_is_limited_before_any_item_is_decoded() -> None:
    too_many = MAX_VALUES + 1
    header = bytes([too_many << 1 >> 14 | 0x80, too_many << 1 >> 7 & 0x7F | 0x80, too_many << 1 & 0x7F | 1])
    for code in (b"\x09" + header + b"\x01", b"\x0d" + header + b"\x00", b"\x11" + header + b"\x00"):
        with pytest.raises(PeerError, match=r"10001 AMF3 .* expected 10000 values in all"):
            decode_value(code + b"\x01" * (4 * too_many))


def test_members_without_an_announced_count_are_limited_too() -> None:
    with pytest.raises(PeerError, match="more than 10000 AMF values"):
        decode_value(b"\x0a\x0b\x01" + b"\x03a\x01" * MAX_VALUES + b"\x01")


def test_object_references_cannot_double_a_value_again_and_again() -> None:
    bomb = b"\x09\x3d\x01" + b"\x09\x05\x01\x01\x01"
    for level in range(1, 30):
        bomb += b"\x09\x05\x01" + bytes([0x09, level << 1]) * 2
    with pytest.raises(PeerError, match="more than 10000 AMF values"):
        decode_value(bomb)


def test_string_references_cannot_repeat_a_long_text_without_limit() -> None:
    text = encode_value("x" * 100_000)
    assert len(encode_value(decode_value(b"\x09\x17\x01" + text + b"\x06\x00" * 10)[0])) > 1_000_000
    with pytest.raises(PeerError, match="references repeat more than 1048576 bytes"):
        decode_value(b"\x09\x19\x01" + text + b"\x06\x00" * 11)


def test_traits_references_cannot_repeat_a_long_name_without_limit() -> None:
    name = encode_value("n" * 200_000)[1:]
    with pytest.raises(PeerError, match="references repeat more than 1048576 bytes"):
        decode_value(b"\x09\x0f\x01" + b"\x0a\x13\x01" + name + b"\x01" + b"\x0a\x01\x01" * 6)


def test_values_that_have_no_encoding_are_our_own_mistake() -> None:
    endless: list[Value] = []
    endless.extend([endless, endless])
    for value in (object(), (1,), {1: 2}, {"": 1}, "\ud800", 10**400, endless):
        with pytest.raises(UsageError):
            encode_value(value)  # type: ignore[arg-type]


@given(values_strategy)
def test_any_value_survives_encoding_and_decoding(value: Value) -> None:
    encoded = encode_value(value)
    assert repr(decode_value(encoded)) == repr((value, len(encoded)))


@given(st.binary(max_size=300) | garbage)
def test_any_bytes_give_a_value_or_a_peer_error(data: bytes) -> None:
    try:
        value, end = decode_value(data)
    except PeerError:
        return
    assert 0 < end <= len(data)
    assert repr(value)


@given(values_strategy, st.data())
def test_truncated_value_is_always_a_peer_error(value: Value, data: st.DataObject) -> None:
    encoded = encode_value(value)
    with pytest.raises(PeerError):
        decode_value(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(values_strategy, st.data())
def test_damaged_value_gives_a_value_or_a_peer_error(value: Value, data: st.DataObject) -> None:
    encoded = bytearray(encode_value(value))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_value(bytes(encoded))
    except PeerError:
        pass
