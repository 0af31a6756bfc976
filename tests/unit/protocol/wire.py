"""RTMP bytes for the protocol tests, put together from the specification alone.

Nothing here uses headrace's encoders, so what these tests expect cannot agree with them by accident. Every message is
one chunk of format 0, which is what our own side sends; other formats are written out where they are tested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SEEDS = Path(__file__).resolve().parents[2] / "fuzz" / "seeds"

# AMF0 (section 2 of its specification).
NULL = b"\x05"
UNDEFINED = b"\x06"
TRUE = b"\x01\x01"
FALSE = b"\x01\x00"


def number(value: float) -> bytes:
    return b"\x00" + struct.pack(">d", value)


def string(text: str) -> bytes:
    return b"\x02" + name(text)


def name(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def properties(**values: bytes) -> bytes:
    return b"".join(name(key) + value for key, value in values.items()) + b"\x00\x00\x09"


def amf_object(**values: bytes) -> bytes:
    return b"\x03" + properties(**values)


def ecma_array(**values: bytes) -> bytes:
    return b"\x08" + struct.pack(">I", len(values)) + properties(**values)


# Chunks (RTMP 1.0, section 5.3.1) and messages in them.
def message(type_id: int, payload: bytes, *, on: int, stream: int = 0, time: int = 0) -> bytes:
    """One chunk of format 0 on chunk stream `on` (2..63); the chunk size in force must hold all of it."""
    header = bytes((on,)) + time.to_bytes(3, "big") + len(payload).to_bytes(3, "big")
    return header + bytes((type_id,)) + stream.to_bytes(4, "little") + payload


def control(type_id: int, payload: str) -> bytes:
    return message(type_id, bytes.fromhex(payload), on=2)


def command(word: str, transaction: float, *values: bytes, stream: int = 0, on: int | None = None) -> bytes:
    """By default on the chunk stream our own side uses: 3 for the connection, 5 for a message stream."""
    payload = string(word) + number(transaction) + b"".join(values)
    return message(20, payload, on=on or (5 if stream else 3), stream=stream)


def status(stream: int, level: str, code: str, description: str) -> bytes:
    info = amf_object(level=string(level), code=string(code), description=string(description))
    return command("onStatus", 0, NULL, info, stream=stream)


# The client's half of a simple handshake, and a chunk size that lets every later message be one chunk.
SIMPLE_HANDSHAKE = b"\x03" + bytes(1536) + bytes(1536)
BIG_CHUNKS = control(1, "00100000")


def seed(target: str, file: str) -> bytes:
    return (SEEDS / target / file).read_bytes()


# How long an example takes is the machine's business: a busy one must not fail a test of bytes.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# Cuts of a byte stream.
def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data cut at these places; a place beyond the end counts as the end, a repeated one gives an empty piece."""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return (data[start:stop] for start, stop in pairwise(places))


def one_by_one(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def cuts_of(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size), max_size=12)
