"""Values of rows as JSON has them, and as text. Times are UTC, spelled as in ISO 8601."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """What `json` can write. A number that JSON has no word for, such as infinity, is null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else text(key): plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(own) for own in value]
    if isinstance(value, Decimal):
        return plain(int(value) if value.is_finite() and value == value.to_integral_value() else float(value))
    return _spelled(value)


def text(value: Any) -> str:
    """The same on its own, for a cell. Null is empty here; lists and structs are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set):
        return as_json(value)
    return _spelled(value)


def as_json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _spelled(value: Any) -> str:
    if isinstance(value, datetime):
        # Without a zone it is in that of the session, which is UTC.
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
        return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return str(value)


def _duration(value: timedelta) -> str:
    """ISO 8601, in seconds alone: `PT90.5S`."""
    seconds, rest = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    return f"{'-' if value < timedelta() else ''}PT{seconds}{fraction}S"
