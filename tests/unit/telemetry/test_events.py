"""The contract with the pipeline: names and types that may not change unnoticed, and lines that give events back."""

from __future__ import annotations

import itertools
import json
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.telemetry import events
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import EVENT_TYPES, FIELD_NAMES, SCHEMA_VERSION, Event, field_types
from headrace.telemetry.identity import Identity

_STREAM = {"stream": "str", "stream_id": "str"}
_PLAY = {"conn": "str", "viewer": "str", **_STREAM}
_HANDED = {"frames": "int", "keyframes": "int", "media_ms": "int?", "max_gap_ms": "int"}
_RECORDING = {"path": "str", **_STREAM}

# What readers of each schema version rely on. Whoever takes something away or gives it another type raises
# SCHEMA_VERSION and writes a new entry; a new optional field or type is added to the entry that is there.
CONTRACTS: dict[int, dict[str, dict[str, str]]] = {
    1: {
        "server_started": {"version": "str"},
        "server_stopped": {"events_lost_total": "int"},
        "connection_opened": {"conn": "str", "viewer": "str"},
        "connection_closed": {
            "conn": "str",
            "reason": "str",
            "duration_ms": "int",
            "bytes_in_total": "int",
            "bytes_out_total": "int",
        },
        "publish_started": {"conn": "str", **_STREAM, "resumed": "bool", "position": "int", "origin": "str?"},
        "publish_refused": {"conn": "str", "viewer": "str", "stream": "str", "reason": "str"},
        "publish_stopped": {"conn": "str", **_STREAM, "reason": "str", "position": "int"},
        "stream_ended": {**_STREAM, "reason": "str", "position": "int"},
        "play_started": _PLAY,
        "play_stopped": {
            **_PLAY,
            "reason": "str",
            "duration_ms": "int",
            "first_keyframe_ms": "int?",
            "messages_total": "int",
            "bytes_total": "int",
        },
        "play_refused": {"conn": "str", "viewer": "str", "stream": "str", "reason": "str"},
        "codec_detected": {
            **_STREAM,
            "video": "str?",
            "video_profile": "str?",
            "video_level": "str?",
            "width": "int?",
            "height": "int?",
            "frame_rate": "float?",
            "audio": "str?",
            "audio_profile": "str?",
            "sample_rate": "int?",
            "channels": "int?",
        },
        "metadata": {
            **_STREAM,
            "encoder": "str?",
            "declared_width": "float?",
            "declared_height": "float?",
            "declared_frame_rate": "float?",
            "declared_video_kbps": "float?",
            "declared_audio_kbps": "float?",
        },
        "destination_state": {
            "destination": "str",
            "url": "str",
            **_STREAM,
            "state": "str",
            "attempt": "int",
            "error": "str?",
            "error_class": "str?",
            "feed": "str?",
            "is_backup": "bool",
        },
        "recording_opened": {**_RECORDING, "position": "int?", "frame_position": "int?"},
        "recording_closed": {
            **_RECORDING,
            "bytes_total": "int",
            "tags_total": "int",
            "duration_ms": "int",
            "error": "str?",
        },
        "publisher_sample": {
            "conn": "str",
            **_STREAM,
            "interval_ms": "int",
            "video_bytes": "int",
            "audio_bytes": "int",
            "messages": "int",
            "frames": "int",
            "keyframes": "int",
            "media_ms": "int",
            "timestamp_ms": "int",
            "video_ms": "int?",
            "audio_ms": "int?",
            "max_gap_ms": "int",
            "backward_steps": "int",
            "position": "int",
            "keyframe_interval_max_ms": "int?",
        },
        "subscriber_sample": {
            **_PLAY,
            "interval_ms": "int",
            "bytes": "int",
            "messages": "int",
            "dropped": "map of int",
            "queue_age_ms": "int",
            "blocked": "bool",
            "position": "int",
            **_HANDED,
            "first_keyframe_ms": "int?",
        },
        "destination_sample": {
            "destination": "str",
            **_STREAM,
            "interval_ms": "int",
            "state": "str",
            "flowing": "bool",
            "bytes": "int",
            "messages": "int",
            "dropped": "map of int",
            "queue_age_ms": "int",
            "position": "int",
            "feed": "str?",
            **_HANDED,
        },
        "delivery": {
            "reader": "str",
            "name": "str",
            **_STREAM,
            "start": "int",
            "stop": "int",
            "outcome": "str",
            "reason": "str?",
            "feed": "str?",
        },
    }
}
Contract = Mapping[str, Mapping[str, str]]

ENVELOPE = ["v", "node", "boot", "seq", "time_ms", "type"]
_PLAIN = {str: "str", int: "int", float: "float", bool: "bool"}


def spelled(hint: Any) -> str:
    """A type as the contract spells it; only what a table can hold has a spelling."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in (types.UnionType, Union) and type(None) in get_args(hint):
        [other] = [one for one in get_args(hint) if one is not type(None)]
        return f"{_PLAIN[other]}?"
    assert hint == dict[str, int], f"{hint} has no place in a table"
    return "map of int"


def contract_now() -> dict[str, dict[str, str]]:
    return {
        name: {field: spelled(hint) for field, hint in field_types(kind).items()} for name, kind in EVENT_TYPES.items()
    }


def broken_promises(promised: Contract, found: Contract) -> list[str]:
    """What a reader of the promised contract would miss or misread."""
    return [
        f"{name}.{field} was {spelling}, is {found.get(name, {}).get(field, 'gone')}"
        for name, fields in promised.items()
        for field, spelling in fields.items()
        if found.get(name, {}).get(field) != spelling
    ]


# --- the contract


def test_nothing_that_readers_rely_on_has_changed_without_a_new_schema_version() -> None:
    assert SCHEMA_VERSION in CONTRACTS, "a new schema version needs its entry here"
    assert broken_promises(CONTRACTS[SCHEMA_VERSION], contract_now()) == []


def test_whatever_is_new_is_written_down_here_and_may_be_missing_in_old_lines() -> None:
    promised = CONTRACTS[SCHEMA_VERSION]
    new = {
        f"{name}.{field}" for name, fields in contract_now().items() for field in fields.keys() - promised.get(name, {})
    }
    assert not new, "add them to the contract above; each must have a default, as old lines lack it"


# Fields that came after the first lines of this version were written.
_ADDED = {
    "destination_state": ("feed", "is_backup"),
    "recording_opened": ("position", "frame_position"),
    "publisher_sample": ("keyframe_interval_max_ms",),
    "subscriber_sample": (*_HANDED, "first_keyframe_ms"),
    "destination_sample": ("feed", *_HANDED),
    "delivery": ("feed",),
}


@pytest.mark.parametrize("name", _ADDED)
def test_a_line_from_before_a_field_was_added_still_gives_its_event(name: str) -> None:
    kind = EVENT_TYPES[name]
    values: dict[str, Any] = {"str": "", "int": 0, "float": 0.0, "bool": False, "map of int": {}}
    line = {field: values[spelled(hint).removesuffix("?")] for field, hint in field_types(kind).items()}
    old = kind(**{field: value for field, value in line.items() if field not in _ADDED[name]})
    assert all(not getattr(old, field) for field in _ADDED[name]), "nothing is claimed of what was not told"


@pytest.mark.parametrize(
    "now",
    [
        {"delivery": {"begin": "int", "stop": "int"}},
        {"delivery": {"stop": "int"}},
        {"delivery": {"start": "str", "stop": "int"}},
        {"delivery": {"start": "int?", "stop": "int"}},
        {"deliveries": {"start": "int", "stop": "int"}},
        {},
    ],
    ids=["renamed", "removed", "another type", "may be null", "event renamed", "event removed"],
)
def test_the_check_of_the_contract_notices_what_breaks_it(now: Contract) -> None:
    assert broken_promises({"delivery": {"start": "int", "stop": "int"}}, now)


def test_the_check_of_the_contract_allows_what_is_added() -> None:
    now = {"delivery": {"start": "int", "stop": "int", "late": "int?"}, "another": {}}
    assert not broken_promises({"delivery": {"start": "int", "stop": "int"}}, now)


def test_every_event_class_is_in_the_table_under_its_own_name() -> None:
    classes = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    }
    assert set(EVENT_TYPES.values()) == classes
    assert all(name == kind.type for name, kind in EVENT_TYPES.items())
    assert len({kind.type for kind in classes}) == len(classes)


def test_no_field_hides_one_of_the_envelope() -> None:
    assert not {field for fields in FIELD_NAMES.values() for field in fields} & set(ENVELOPE)


def test_events_cannot_be_changed_after_the_fact() -> None:
    event = events.ServerStarted(version="1")
    with pytest.raises(AttributeError, match="immutable"):
        event.version = "2"  # type: ignore[misc]


# --- the lines

_INTEGERS = st.integers(-(2**63), 2**63 - 1)  # what a table's long can hold
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "int": _INTEGERS,
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "map of int": st.dictionaries(st.text(), _INTEGERS, max_size=3),
}


def _strategy(kind: type[Event]) -> st.SearchStrategy[Event]:
    fields = {}
    for name, hint in field_types(kind).items():
        spelling = spelled(hint)
        value = _VALUES[spelling.removesuffix("?")]
        fields[name] = st.none() | value if spelling.endswith("?") else value
    return st.builds(kind, **fields)


def _written(folder: Path, emitted: list[Event]) -> list[dict[str, Any]]:
    log = EventLog(folder, Identity("node-1", bytes(32)), wall_time=lambda: 1_772_366_400.5)
    for event in emitted:
        log.emit(event)
    assert log.close(10)
    [path] = folder.rglob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["boot"] for line in lines} == {log.boot}
    return lines


_folders = itertools.count()


@pytest.mark.parametrize("name", EVENT_TYPES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_line_gives_its_event_back(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind = EVENT_TYPES[name]
    emitted = data.draw(st.lists(_strategy(kind), min_size=1, max_size=5))
    lines = _written(tmp_path_factory.getbasetemp() / f"round-trip-{name}-{next(_folders)}", emitted)
    assert [EVENT_TYPES[line["type"]](**{key: line[key] for key in FIELD_NAMES[name]}) for line in lines] == emitted
    for seq, line in enumerate(lines, 1):
        assert list(line) == [*ENVELOPE, *FIELD_NAMES[name]]
        assert (line["v"], line["node"], line["seq"]) == (SCHEMA_VERSION, "node-1", seq)
        assert line["time_ms"] == 1_772_366_400_500
        # A count must not become 1.0 and a flag not 1: readers have a type for each.
        for field, spelling in contract_now()[name].items():
            allowed = {"map of int": "dict"}.get(spelling, spelling)
            assert type(line[field]).__name__ in (allowed.removesuffix("?"), "NoneType" if "?" in allowed else "")
