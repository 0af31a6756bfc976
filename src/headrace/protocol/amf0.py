"""AMF0: the values inside command and data messages.

Owns bytes <-> Python values; the value types and the caps are shared with AMF3 and come from `amf3`. Must not
know commands or metadata. Follows Adobe's AMF0 specification, December 2007 ("§").

Any bytes give values or a `PeerError`. Three tolerances, each for peers that exist:
- An unknown marker (or a reserved one: movieclip, recordset) ends the decoding without an error, because its
  length cannot be known: the values before it count, the containers around it keep what they had, and the
  rest of the payload is ignored. Only `decode_value`, asked for exactly that value, raises.
- An object or ECMA array may lack its end marker at the end of the payload (SRS accepts that too).
- An ECMA array's count is a hint: some encoders write 0, some a wrong number.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from headrace.errors import PeerError, UsageError
from headrace.protocol import amf3
from headrace.protocol.amf3 import (
    MAX_DEPTH,
    MAX_REPEATED_BYTES,
    MAX_VALUES,
    UNDEFINED,
    Date,
    EcmaArray,
    TypedObject,
    Undefined,
    Value,
    XmlDocument,
    descend_to_encode,
    encode_double,
    encode_text,
)

__all__ = [
    "MAX_DEPTH",
    "MAX_REPEATED_BYTES",
    "MAX_VALUES",
    "UNDEFINED",
    "Date",
    "EcmaArray",
    "TypedObject",
    "Undefined",
    "Value",
    "XmlDocument",
    "decode_value",
    "decode_values",
    "encode_value",
    "encode_values",
]

# §2.1. Missing on purpose: 0x04 movieclip and 0x0E recordset, reserved without a format.
NUMBER: Final = 0x00
BOOLEAN: Final = 0x01
STRING: Final = 0x02
OBJECT: Final = 0x03
NULL: Final = 0x05
UNDEFINED_MARKER: Final = 0x06
REFERENCE: Final = 0x07
ECMA_ARRAY: Final = 0x08
OBJECT_END: Final = 0x09
STRICT_ARRAY: Final = 0x0A
DATE: Final = 0x0B
LONG_STRING: Final = 0x0C
UNSUPPORTED: Final = 0x0D  # the sender had a value it could not write: undefined is all we know
XML_DOCUMENT: Final = 0x0F
TYPED_OBJECT: Final = 0x10
AVMPLUS: Final = 0x11

_SHORT_MAX: Final = 0xFFFF  # §1.3.1: a UTF-8 name or short string
_LONG_MAX: Final = 0xFFFFFFFF


class _Stop(Enum):
    """In place of a value: an unknown marker, after which nothing can be decoded."""

    UNKNOWN_MARKER = 0


def decode_values(data: bytes | memoryview, *, offset: int = 0) -> list[Value]:
    """All values to the end of the payload, or to the first unknown marker."""
    decoder = _Decoder(data, offset)
    values: list[Value] = []
    while not decoder.at_end:
        value = decoder.value(0)
        if isinstance(value, _Stop):
            break
        values.append(value)
    return values


def decode_value(data: bytes | memoryview, offset: int = 0) -> tuple[Value, int]:
    """One value and the offset after it; after an unknown marker inside the value, the end of the payload."""
    decoder = _Decoder(data, offset)
    value = decoder.value(0)
    if isinstance(value, _Stop):
        raise PeerError(f"AMF0 marker 0x{bytes(data)[offset]:02x} at offset {offset}, expected one of §2.1")
    return value, decoder.offset


class _Decoder:
    def __init__(self, data: bytes | memoryview, offset: int) -> None:
        self._reader = amf3.Reader(data, offset)
        self._objects = amf3.ReferenceTable(self._reader)
        # One for all 0x11 values of a payload, with its reference tables, as in Adobe's BlazeDS.
        self._amf3 = amf3.Decoder(self._reader)
        self._is_stopped = False

    @property
    def offset(self) -> int:
        return self._reader.offset

    @property
    def at_end(self) -> bool:
        return self._reader.offset == len(self._reader.data)

    def value(self, depth: int) -> Value | _Stop:
        reader = self._reader
        marker = reader.unsigned(1, "AMF0 marker")
        if marker == AVMPLUS:
            return self._amf3.value(depth)
        if marker == REFERENCE:
            return self._objects.resolve(reader.unsigned(2, "AMF0 reference"), depth)
        reader.count_values()
        if marker == NUMBER:
            return reader.double("AMF0 number")
        if marker == BOOLEAN:
            return reader.unsigned(1, "AMF0 boolean") != 0
        if marker == STRING:
            return self._short_text("AMF0 string")
        if marker == NULL:
            return None
        if marker in (UNDEFINED_MARKER, UNSUPPORTED):
            return UNDEFINED
        if marker == DATE:
            unix_ms = reader.double("AMF0 date")
            return Date(unix_ms, struct.unpack(">h", reader.take(2, "AMF0 date's zone"))[0])
        if marker == LONG_STRING:
            return self._long_text("AMF0 long string")
        if marker == XML_DOCUMENT:
            return XmlDocument(self._long_text("AMF0 XML document"))
        return self._container(marker, depth)

    def _short_text(self, what: str) -> str:
        return self._reader.text(self._reader.unsigned(2, what), what)

    def _long_text(self, what: str) -> str:
        return self._reader.text(self._reader.unsigned(4, what), what)

    def _container(self, marker: int, depth: int) -> Value | _Stop:
        if marker not in (OBJECT, ECMA_ARRAY, STRICT_ARRAY, TYPED_OBJECT):
            self._reader.offset = len(self._reader.data)
            self._is_stopped = True
            return _Stop.UNKNOWN_MARKER
        inside = self._reader.descend(depth)
        index = self._objects.begin()
        if marker == STRICT_ARRAY:
            value: Value = self._items(inside)
        else:
            value = self._properties(self._empty_container(marker), inside)
        self._objects.end(index, value)
        return value

    def _empty_container(self, marker: int) -> dict[str, Value]:
        if marker == TYPED_OBJECT:
            return TypedObject(self._short_text("AMF0 class name"))
        if marker == ECMA_ARRAY:
            self._reader.take(4, "AMF0 ECMA array's count")
            return EcmaArray()
        return {}

    def _properties(self, properties: dict[str, Value], depth: int) -> dict[str, Value]:
        reader = self._reader
        while not self.at_end:
            name = self._short_text("AMF0 property name")
            if not name and reader.data[reader.offset : reader.offset + 1] == b"\x09":
                reader.offset += 1
                break
            value = self.value(depth)
            if isinstance(value, _Stop):
                break
            properties[name] = value
        return properties

    def _items(self, depth: int) -> list[Value]:
        count = self._reader.unsigned(4, "AMF0 strict array's count")
        self._reader.require_items(count, 1, "AMF0 strict array items")
        items: list[Value] = []
        while len(items) < count and not self._is_stopped:
            value = self.value(depth)
            if isinstance(value, _Stop):
                break
            items.append(value)
        return items


def encode_values(*values: Value) -> bytes:
    return b"".join(map(encode_value, values))


def encode_value(value: Value) -> bytes:
    """Without references. `bytes` have no AMF0 form and go as an AMF3 byte array behind 0x11."""
    out = bytearray()
    _encode(value, 0, out)
    return bytes(out)


def _encode(value: Value, depth: int, out: bytearray) -> None:
    if value is None:
        out.append(NULL)
    elif isinstance(value, bool):
        out += bytes((BOOLEAN, value))
    elif isinstance(value, int | float):
        out.append(NUMBER)
        out += encode_double(value)
    elif isinstance(value, str):
        _encode_string(value, out)
    elif isinstance(value, dict):
        _encode_properties(value, descend_to_encode(depth), out)
    elif isinstance(value, list):
        inside = descend_to_encode(depth)
        out += struct.pack(">BI", STRICT_ARRAY, len(value))
        for item in value:
            _encode(item, inside, out)
    elif isinstance(value, Undefined):
        out.append(UNDEFINED_MARKER)
    elif isinstance(value, Date):
        out.append(DATE)
        out += encode_double(value.unix_ms) + _encode_zone(value.zone_minutes)
    elif isinstance(value, bytes):
        out.append(AVMPLUS)
        out += amf3.encode_value(value)
    else:
        raise UsageError(f"{type(value).__name__} has no AMF0 form")


def _encode_string(value: str, out: bytearray) -> None:
    text = encode_text(value)
    if len(text) > _LONG_MAX:
        raise UsageError(f"text of {len(text)} bytes, expected at most {_LONG_MAX}")
    if isinstance(value, XmlDocument):
        out += struct.pack(">BI", XML_DOCUMENT, len(text)) + text
    elif len(text) > _SHORT_MAX:
        out += struct.pack(">BI", LONG_STRING, len(text)) + text
    else:
        out += struct.pack(">BH", STRING, len(text)) + text


def _encode_properties(properties: dict[str, Value], inside: int, out: bytearray) -> None:
    if isinstance(properties, TypedObject):
        out.append(TYPED_OBJECT)
        out += _encode_name(properties.class_name)
    elif isinstance(properties, EcmaArray):
        out += struct.pack(">BI", ECMA_ARRAY, len(properties))
    else:
        out.append(OBJECT)
    for name, item in properties.items():
        out += _encode_name(name)
        _encode(item, inside, out)
    out += b"\x00\x00\x09"


def _encode_name(name: str) -> bytes:
    text = encode_text(name)
    if len(text) > _SHORT_MAX:
        raise UsageError(f"name of {len(text)} bytes, expected at most {_SHORT_MAX}")
    return struct.pack(">H", len(text)) + text


def _encode_zone(zone_minutes: int) -> bytes:
    if not -0x8000 <= zone_minutes <= 0x7FFF:
        raise UsageError(f"time zone of {zone_minutes} minutes, expected -32768..32767")
    return struct.pack(">h", zone_minutes)
