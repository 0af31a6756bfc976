"""Data messages of a publisher, in the form readers expect (RTMP 1.0, section 7.1.2, and Adobe's live encoders).

An encoder sends `@setDataFrame onMetaData {…}`: the first word is for the server, the rest for readers. Everything
but that word, and the marker of the metadata's container, passes byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import PeerError
from headrace.protocol import amf0
from headrace.protocol.chunks import MAX_MESSAGE_BYTES

_SET_DATA_FRAME = b"\x02\x00\x0d@setDataFrame"
_CLEAR_DATA_FRAME = b"\x02\x00\x0f@clearDataFrame"
_ON_META_DATA = b"\x02\x00\x0aonMetaData"
_OBJECT = 0x03
_ECMA_ARRAY = b"\x08"
_COUNT_BYTES = 4


def reader_form(payload: bytes) -> bytes | None:
    """What readers get of a publisher's data message; None if it was for the server only."""
    if payload.startswith(_CLEAR_DATA_FRAME):
        return None
    if payload.startswith(_SET_DATA_FRAME):
        payload = payload[len(_SET_DATA_FRAME) :]
    body = len(_ON_META_DATA)
    if payload.startswith(_ON_META_DATA) and len(payload) > body and payload[body] == _OBJECT:
        if len(payload) + _COUNT_BYTES > MAX_MESSAGE_BYTES:
            return payload  # no room for a count: the longer message could be neither sent nor recorded
        # Players know metadata as an ECMA array; both have the same properties and end, the array a count before.
        count = len(decode_metadata(payload))
        return payload[:body] + _ECMA_ARRAY + count.to_bytes(_COUNT_BYTES, "big") + payload[body + 1 :]
    return payload


def decode_metadata(payload: bytes) -> Mapping[str, Any]:
    """The properties of an onMetaData message; empty if they cannot be read, since media does not depend on them."""
    if not payload.startswith(_ON_META_DATA):
        return {}
    try:
        values = amf0.decode_values(payload, offset=len(_ON_META_DATA))
    except PeerError:
        return {}
    return values[0] if values and isinstance(values[0], dict) else {}
