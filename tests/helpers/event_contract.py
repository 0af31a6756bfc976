"""Lines of the event log against the contract of their types, whoever wrote them."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from headrace.telemetry.events import EVENT_TYPES, FIELD_NAMES, SCHEMA_VERSION, field_types


def assert_keeps_the_contract(line: dict[str, Any]) -> None:
    assert list(line) == ["v", "node", "boot", "seq", "time_ms", "type", *FIELD_NAMES[line["type"]]]
    assert line["v"] == SCHEMA_VERSION
    for name, hint in field_types(EVENT_TYPES[line["type"]]).items():
        allowed = [dict] if get_origin(hint) is dict else list(get_args(hint) or (hint,))
        # A float of 30.0 is written as 30.0, an integer as 30: readers may rely on either.
        assert type(line[name]) in allowed, f"{line['type']}.{name} is {line[name]!r}, expected {hint}"
