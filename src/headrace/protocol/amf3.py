"""AMF3, and what both AMF versions share: the value types, the bounded reader, the reference table.

AMF0 may switch a value to AMF3 (marker 0x11), never the other way, so the shared parts live here and `amf0`
re-exports them. Must not know messages or commands. Follows Adobe's AMF3 specification, January 2013 ("§").

Decoding is total: any bytes give a value or a `PeerError`. A reference becomes a copy and is charged like the
original, so a decoded value is always a tree: no cycles, no aliases, nothing larger than the caps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from headrace.errors import PeerError, UsageError

MAX_DEPTH: Final = 32  # real commands nest three deep; 32 keeps Python's own stack far away
MAX_VALUES: Final = 10_000  # a long keyframe index in onMetaData has some thousands; a command has twenty
MAX_REPEATED_BYTES: Final = 1 << 20  # text reached again through references; real clients repeat a few names

_U29_MAX: Final = (1 << 29) - 1  # §1.3.1
_LENGTH_MAX: Final = (1 << 28) - 1  # a U29 whose low bit says "inline"
# Flex classes that are externalizable but write exactly one ordinary value (BlazeDS does the same).
_ONE_VALUE_CLASSES: Final = frozenset({"flex.messaging.io.ArrayCollection", "flex.messaging.io.ObjectProxy"})

Value: TypeAlias = "bool | int | float | str | bytes | Undefined | Date | list[Value] | dict[str, Value] | None"


class Undefined(Enum):
    """ActionScript's undefined: false like None, and distinct from it."""

    UNDEFINED = "UNDEFINED"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined.UNDEFINED


@dataclass(frozen=True, slots=True)
class Date:
    """A moment. The zone is reserved in AMF0 (should be 0) and absent in AMF3."""

    unix_ms: float
    zone_minutes: int = 0


class XmlDocument(str):
    """XML text, not parsed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"XmlDocument({super().__repr__()})"


class EcmaArray(dict[str, "Value"]):
    """An associative array: a dict that goes back on the wire as an array."""

    def __repr__(self) -> str:
        return f"EcmaArray({super().__repr__()})"


class TypedObject(dict[str, "Value"]):
    """An object of a named class."""

    def __init__(self, class_name: str, properties: dict[str, Value] | None = None) -> None:
        super().__init__(properties or {})
        self.class_name = class_name

    def __repr__(self) -> str:
        return f"TypedObject({self.class_name!r}, {super().__repr__()})"


class Reader:
    """The position in one payload and what decoding it may still cost."""

    def __init__(self, data: bytes | memoryview, offset: int) -> None:
        self.data = bytes(data)
        if not 0 <= offset <= len(self.data):
            raise UsageError(f"offset {offset}, expected 0..{len(self.data)}")
        self.offset = offset
        self.values = 0
        self.repeated_bytes = 0

    def require(self, size: int, what: str) -> None:
        left = len(self.data) - self.offset
        if size > left:
            raise PeerError(f"{what} at offset {self.offset} needs {size} bytes, {left} left")

    def require_items(self, count: int, item_bytes: int, what: str) -> None:
        """Refuse an announced count before a single item is decoded or a list made for it."""
        self.require(count * item_bytes, what)
        if self.values + count > MAX_VALUES:
            raise PeerError(f"{count} {what} at offset {self.offset}, expected {MAX_VALUES} values in all")

    def take(self, size: int, what: str) -> bytes:
        self.require(size, what)
        start, self.offset = self.offset, self.offset + size
        return self.data[start : self.offset]

    def unsigned(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "big")

    def double(self, what: str) -> float:
        number: float = struct.unpack(">d", self.take(8, what))[0]
        return number

    def text(self, size: int, what: str) -> str:
        # Encoders on Windows send their own code page: the escapes turn back into the same bytes.
        return self.take(size, what).decode("utf-8", "surrogateescape")

    def count_values(self, count: int = 1) -> None:
        self.values += count
        if self.values > MAX_VALUES:
            raise PeerError(f"more than {MAX_VALUES} AMF values before offset {self.offset}")

    def count_repeated(self, size: int) -> None:
        self.repeated_bytes += size
        if self.repeated_bytes > MAX_REPEATED_BYTES:
            raise PeerError(f"references repeat more than {MAX_REPEATED_BYTES} bytes at offset {self.offset}")

    def descend(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise PeerError(f"AMF nested deeper than {MAX_DEPTH} at offset {self.offset}")
        return depth + 1

    def repeat(self, value: Value, depth: int) -> Value:
        """A copy, charged value by value: a bomb of references fails after MAX_VALUES steps."""
        self.count_values()
        if isinstance(value, str | bytes):
            self.count_repeated(len(value))
            return value
        if isinstance(value, list):
            inside = self.descend(depth)
            return [self.repeat(item, inside) for item in value]
        if not isinstance(value, dict):
            return value
        inside = self.descend(depth)
        copy: dict[str, Value] = EcmaArray() if isinstance(value, EcmaArray) else {}
        if isinstance(value, TypedObject):
            self.count_repeated(len(value.class_name))
            copy = TypedObject(value.class_name)
        for key, item in value.items():
            self.count_repeated(len(key))
            copy[key] = self.repeat(item, inside)
        return copy


class ReferenceTable:
    """Complex values in the order they began; one that has not ended cannot be referred to."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._begun = 0
        self._ended: dict[int, Value] = {}

    def begin(self) -> int:
        self._begun += 1
        return self._begun - 1

    def end(self, index: int, value: Value) -> None:
        self._ended[index] = value

    def resolve(self, index: int, depth: int) -> Value:
        at = self._reader.offset
        if index >= self._begun:
            raise PeerError(f"AMF reference {index} before offset {at}, only {self._begun} values precede it")
        if index not in self._ended:
            raise PeerError(f"AMF reference {index} before offset {at} is to a value that contains it")
        return self._reader.repeat(self._ended[index], depth)


class _Traits(NamedTuple):
    class_name: str
    sealed_names: tuple[str, ...] = ()
    is_dynamic: bool = False
    is_externalizable: bool = False


class Decoder:
    """The three reference tables of one message (§2.2); `amf0` keeps one for all its 0x11 values."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._strings: list[str] = []
        self._traits: list[_Traits] = []
        self._objects = ReferenceTable(reader)

    def value(self, depth: int) -> Value:
        reader = self._reader
        marker = reader.unsigned(1, "AMF3 marker")
        if marker in _REFERABLE:
            return self._referable(_REFERABLE[marker], depth)
        reader.count_values()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker == 0x04:
            number = self._u29("AMF3 integer")
            return number - (1 << 29) if number >> 28 else number  # the 29th bit is the sign
        if marker == 0x05:
            return reader.double("AMF3 double")
        if marker == 0x06:
            return self._string("AMF3 string")
        raise PeerError(f"AMF3 marker 0x{marker:02x} at offset {reader.offset - 1}, expected 0x00..0x11")

    def _u29(self, what: str) -> int:
        number = 0
        for _ in range(3):
            byte = self._reader.unsigned(1, what)
            number = number << 7 | byte & 0x7F
            if byte < 0x80:
                return number
        return number << 8 | self._reader.unsigned(1, what)  # the fourth byte gives all eight bits

    def _string(self, what: str) -> str:
        header = self._u29(what)
        if header & 1:
            text = self._reader.text(header >> 1, what)
            if text:  # §1.3.2: the empty string is never sent by reference
                self._strings.append(text)
            return text
        index, known = header >> 1, len(self._strings)
        if index >= known:
            raise PeerError(f"{what} reference {index} before offset {self._reader.offset}, {known} are known")
        self._reader.count_repeated(len(self._strings[index]))
        return self._strings[index]

    def _referable(self, decode: _Decode, depth: int) -> Value:
        header = self._u29("AMF3 header")
        if not header & 1:
            return self._objects.resolve(header >> 1, depth)
        self._reader.count_values()
        index = self._objects.begin()
        value = decode(self, header >> 1, depth)
        self._objects.end(index, value)
        return value

    def _xml(self, size: int, depth: int) -> Value:
        return XmlDocument(self._reader.text(size, "AMF3 XML"))

    def _date(self, size: int, depth: int) -> Value:
        return Date(self._reader.double("AMF3 date"))

    def _byte_array(self, size: int, depth: int) -> Value:
        return self._reader.take(size, "AMF3 byte array")

    def _members(self, into: dict[str, Value], depth: int) -> None:
        while name := self._string("AMF3 member name"):
            into[name] = self.value(depth)

    def _array(self, count: int, depth: int) -> Value:
        inside = self._reader.descend(depth)
        named = EcmaArray()
        self._members(named, inside)
        self._reader.require_items(count, 1, "AMF3 array items")
        items = [self.value(inside) for _ in range(count)]
        if not named:
            return items
        named.update((str(position), item) for position, item in enumerate(items))
        return named

    def _object(self, header: int, depth: int) -> Value:
        inside = self._reader.descend(depth)
        traits = self._object_traits(header)
        if traits.is_externalizable:
            if traits.class_name not in _ONE_VALUE_CLASSES:
                name, at = traits.class_name[:80], self._reader.offset
                raise PeerError(f"externalizable class {name!r} before offset {at}, its format is private")
            return self.value(inside)
        members: dict[str, Value] = TypedObject(traits.class_name) if traits.class_name else {}
        for name in traits.sealed_names:
            members[name] = self.value(inside)
        if traits.is_dynamic:
            self._members(members, inside)
        return members

    def _object_traits(self, header: int) -> _Traits:
        if not header & 1:
            index, known = header >> 1, len(self._traits)
            if index >= known:
                raise PeerError(f"traits reference {index} before offset {self._reader.offset}, {known} known")
            traits = self._traits[index]
            self._reader.count_repeated(len(traits.class_name) + sum(map(len, traits.sealed_names)))
            return traits
        class_name = self._string("AMF3 class name")
        if header & 2:
            traits = _Traits(class_name, is_externalizable=True)
        else:
            count = header >> 3
            self._reader.require_items(count, 1, "AMF3 sealed names")
            names = tuple(self._string("AMF3 sealed name") for _ in range(count))
            traits = _Traits(class_name, names, is_dynamic=bool(header & 4))
        self._traits.append(traits)
        return traits

    def _vector(self, item_format: str, count: int, depth: int) -> Value:
        self._reader.descend(depth)
        self._reader.take(1, "AMF3 vector's fixed flag")
        item_bytes = struct.calcsize(">" + item_format)
        self._reader.require_items(count, item_bytes, "AMF3 vector items")
        self._reader.count_values(count)
        return list(struct.unpack(f">{count}{item_format}", self._reader.take(count * item_bytes, "AMF3 vector")))

    def _object_vector(self, count: int, depth: int) -> Value:
        inside = self._reader.descend(depth)
        self._reader.take(1, "AMF3 vector's fixed flag")
        self._string("AMF3 vector's class name")
        self._reader.require_items(count, 1, "AMF3 vector items")
        return [self.value(inside) for _ in range(count)]

    def _dictionary(self, count: int, depth: int) -> Value:
        """Keys may be any value, objects too: a list of [key, value] pairs loses nothing."""
        pair_depth = self._reader.descend(depth)
        inside = self._reader.descend(pair_depth)
        self._reader.take(1, "AMF3 dictionary's weak flag")
        self._reader.require_items(count, 2, "AMF3 dictionary entries")
        pairs: list[Value] = []
        for _ in range(count):
            self._reader.count_values()
            pairs.append([self.value(inside), self.value(inside)])
        return pairs


_Decode: TypeAlias = Callable[[Decoder, int, int], Value]
_CONSTANTS: Final[dict[int, Value]] = {0x00: UNDEFINED, 0x01: None, 0x02: False, 0x03: True}
_REFERABLE: Final[dict[int, _Decode]] = {
    0x07: Decoder._xml,
    0x08: Decoder._date,
    0x09: Decoder._array,
    0x0A: Decoder._object,
    0x0B: Decoder._xml,
    0x0C: Decoder._byte_array,
    0x0D: lambda decoder, count, depth: decoder._vector("i", count, depth),
    0x0E: lambda decoder, count, depth: decoder._vector("I", count, depth),
    0x0F: lambda decoder, count, depth: decoder._vector("d", count, depth),
    0x10: Decoder._object_vector,
    0x11: Decoder._dictionary,
}


def decode_value(data: bytes | memoryview, offset: int = 0) -> tuple[Value, int]:
    """One AMF3 value and the offset after it."""
    reader = Reader(data, offset)
    value = Decoder(reader).value(0)
    return value, reader.offset


def encode_value(value: Value) -> bytes:
    """Without references; an int beyond 29 bits becomes a double, a date loses its zone."""
    out = bytearray()
    _encode(value, 0, out)
    return bytes(out)


def encode_double(number: float) -> bytes:
    try:
        return struct.pack(">d", float(number))
    except OverflowError:
        raise UsageError("an int too large for a double, expected at most 1.8e308") from None


def encode_text(text: str) -> bytes:
    if not isinstance(text, str):
        raise UsageError(f"{type(text).__name__} as a name or text, expected str")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"lone surrogate at character {error.start}, expected UTF-8 text") from None


def descend_to_encode(depth: int) -> int:
    """Also what stops a list that contains itself."""
    if depth >= MAX_DEPTH:
        raise UsageError(f"value nested deeper than {MAX_DEPTH}")
    return depth + 1


def _encode(value: Value, depth: int, out: bytearray) -> None:
    if value is None or isinstance(value, bool | Undefined):
        out.append({UNDEFINED: 0x00, None: 0x01, False: 0x02, True: 0x03}[value])
    elif isinstance(value, int) and -(1 << 28) <= value < 1 << 28:
        out += b"\x04" + _encode_u29(value & _U29_MAX)
    elif isinstance(value, int | float):
        out += b"\x05" + encode_double(value)
    elif isinstance(value, str):
        out.append(0x0B if isinstance(value, XmlDocument) else 0x06)
        out += _with_length(encode_text(value))
    elif isinstance(value, bytes):
        out += b"\x0c" + _with_length(value)
    elif isinstance(value, Date):
        out += b"\x08\x01" + encode_double(value.unix_ms)
    elif isinstance(value, list):
        out += b"\x09" + _encode_u29(len(value) << 1 | 1) + b"\x01"
        inside = descend_to_encode(depth)
        for item in value:
            _encode(item, inside, out)
    elif isinstance(value, dict):
        _encode_members(value, descend_to_encode(depth), out)
    else:
        raise UsageError(f"{type(value).__name__} has no AMF3 form")


def _encode_members(members: dict[str, Value], inside: int, out: bytearray) -> None:
    if isinstance(members, EcmaArray):
        out += b"\x09\x01"  # an array with no dense part
    else:
        class_name = members.class_name if isinstance(members, TypedObject) else ""
        out += b"\x0a\x0b" + _with_length(encode_text(class_name))  # inline traits, dynamic, none sealed
    for name, item in members.items():
        if name == "":
            raise UsageError("an empty member name, which AMF3 reads as the end of the object")
        out += _with_length(encode_text(name))
        _encode(item, inside, out)
    out.append(0x01)


def _with_length(body: bytes) -> bytes:
    if len(body) > _LENGTH_MAX:
        raise UsageError(f"{len(body)} bytes, expected at most {_LENGTH_MAX}")
    return _encode_u29(len(body) << 1 | 1) + body


def _encode_u29(number: int) -> bytes:
    if number < 1 << 7:
        return bytes((number,))
    if number < 1 << 14:
        return bytes((number >> 7 | 0x80, number & 0x7F))
    if number < 1 << 21:
        return bytes((number >> 14 | 0x80, number >> 7 & 0x7F | 0x80, number & 0x7F))
    return bytes((number >> 22 | 0x80, number >> 15 & 0x7F | 0x80, number >> 8 & 0x7F | 0x80, number & 0xFF))
