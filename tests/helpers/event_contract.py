"""Lines of the event log against the contract of their types, whoever wrote them."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args, get_origin

from headrace.telemetry.events import EVENT_TYPES, FIELD_NAMES, SCHEMA_VERSION, field_types


def assert_keeps_the_contract(line: dict[str, Any]) -> None:
    assert list(line) == ["v", "node", "boot", "seq", "time_ms", "type", *FIELD_NAMES[line["type"]]]
    assert line["v"] == SCHEMA_VERSION
    for name, allowed in _allowed(line["type"]).items():
        # A float of 30.0 is written as 30.0, an integer as 30: readers may rely on either.
        assert type(line[name]) in allowed, f"{line['type']}.{name} is {line[name]!r}, expected {allowed}"


@cache
def _allowed(kind: str) -> dict[str, tuple[type, ...]]:
    hints = field_types(EVENT_TYPES[kind])
    return {name: (dict,) if get_origin(hint) is dict else get_args(hint) or (hint,) for name, hint in hints.items()}
