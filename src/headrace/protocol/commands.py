"""Command messages (RTMP 1.0, section 7.2): a name, a transaction id and AMF values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import PeerError
from headrace.protocol import amf0
from headrace.protocol.messages import Message, MessageType


@dataclass(frozen=True, slots=True)
class Command:
    """One decoded command. Missing arguments read as None: encoders leave off what they do not need."""

    name: str
    transaction_id: float
    message_stream_id: int
    object: Any
    arguments: tuple[Any, ...]

    def argument(self, index: int) -> Any:
        return self.arguments[index] if index < len(self.arguments) else None

    def text(self, index: int) -> str:
        """A string argument, or "" where something else stands."""
        value = self.argument(index)
        return value if isinstance(value, str) else ""

    def number(self, index: int, default: float) -> float:
        """A finite number argument, or the default where something else stands."""
        value = self.argument(index)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return default
        return float(value)

    def flag(self, index: int, default: bool) -> bool:
        """A boolean argument; some players send a number."""
        value = self.argument(index)
        return bool(value) if isinstance(value, bool | int | float) else default


def decode_command(message: Message) -> Command:
    # Type 17 (and 15) is AMF0 behind one byte; AMF3 values inside it carry their own switch marker.
    skip = 1 if message.type_id == MessageType.COMMAND_AMF3 else 0
    values = amf0.decode_values(message.payload, offset=min(skip, len(message.payload)))
    if not values or not isinstance(values[0], str):
        found = type(values[0]).__name__ if values else "nothing"
        raise PeerError(f"command begins with {found}, expected its name as a string")
    transaction_id = values[1] if len(values) > 1 else 0.0
    if isinstance(transaction_id, bool) or not isinstance(transaction_id, int | float):
        raise PeerError(
            f"command {values[0][:40]!r} has {type(transaction_id).__name__} as transaction id, expected a number"
        )
    return Command(
        name=values[0],
        transaction_id=float(transaction_id),
        message_stream_id=message.message_stream_id,
        object=values[2] if len(values) > 2 else None,
        arguments=tuple(values[3:]),
    )


def encode_command(name: str, transaction_id: float, *values: Any, message_stream_id: int = 0) -> Message:
    payload = amf0.encode_values(name, float(transaction_id), *values)
    return Message(int(MessageType.COMMAND), 0, message_stream_id, payload)


def status(level: str, code: str, description: str, **more: Any) -> Mapping[str, Any]:
    """The information object of onStatus, `_result` and `_error` (section 7.2.2)."""
    return {"level": level, "code": code, "description": description, **more}


def on_status(
    message_stream_id: int, level: str, code: str, description: str, more: Mapping[str, Any] | None = None
) -> Message:
    info = status(level, code, description, **(more or {}))
    return encode_command("onStatus", 0, None, info, message_stream_id=message_stream_id)


def split_query(name: str) -> tuple[str, str]:
    """`name?query` in two. The query may carry a token, so it is kept apart from the public name from here on."""
    public, _, query = name.partition("?")
    return public, query
