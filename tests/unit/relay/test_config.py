"""Destinations as users write them: every key, every way to get one wrong, and no secret in any message."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.relay.config import (
    DestinationConfig,
    change_destination,
    check_unique,
    from_urls,
    load_file,
    read_destination,
)
from headrace.relay.failure import RetryPolicy
from headrace.relay.target import parse_target

KEY = "abcd-efgh-1234-5678"
YOUTUBE = {"name": "YouTube Live", "url": "rtmp://a.rtmp.youtube.com/live2", "stream_key": KEY}


def read(item: Any) -> DestinationConfig:
    return read_destination(item, {}, "here")


def write(folder: Path, document: Any) -> Path:
    path = folder / "relay.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")
    return path


def error_of(path: Path, **environ: str) -> str:
    """What is wrong with the file, without its path, which every message must begin with."""
    with pytest.raises(ConfigError) as caught:
        load_file(path, environ)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert KEY not in message
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


# --- flags


def test_every_address_of_the_flags_is_a_destination_named_by_what_is_shown_of_it() -> None:
    configs = from_urls(["rtmp://a/live", f"rtmp://b/live/{KEY}, rtmps://c/live/x"])
    assert [config.name for config in configs] == ["rtmp://a/live", "rtmp://b/live/****", "rtmps://c/live/****"]
    assert configs[1].target == parse_target(f"rtmp://b/live/{KEY}")
    assert all(config.enabled and config.match == "*" and config.retry == RetryPolicy() for config in configs)


def test_addresses_that_look_the_same_when_redacted_are_numbered() -> None:
    configs = from_urls(["rtmp://a/live/one,rtmp://a/live/two", "rtmp://a/live/three"])
    assert [config.name for config in configs] == [
        "rtmp://a/live/****",
        "rtmp://a/live/**** #2",
        "rtmp://a/live/**** #3",
    ]


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ([f"rtmp://a/live/{KEY}", f"rtmp://a:1935/live/{KEY}"], "rtmp://a/live/**** is given twice"),
        (["rtmp://a/live,"], "found an empty address, expected rtmp://host/app/key"),
        ([" , rtmp://a/live"], "found an empty address, expected rtmp://host/app/key"),
        ([f"srt://a/live/{KEY}"], "found srt, expected an address that begins with rtmp:// or rtmps://"),
    ],
)
def test_wrong_flags_are_one_line_without_the_key(urls: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_urls(urls)
    assert str(caught.value) == message


# --- the file


def test_a_file_with_every_key_is_read(tmp_path: Path) -> None:
    everything = {
        **YOUTUBE,
        "enabled": False,
        "max_retries": 5,
        "metadata": {"team": "sport", "floor": 3, "is_paid": True},
        "match": "live/*",
        "backup_url": "rtmp://b.rtmp.youtube.com/live2?backup=1",
        "retry": {"initial_s": 2, "max_s": 60.5, "jitter": 0},
        "start": "when_published",
    }
    (config,) = load_file(write(tmp_path, {"destinations": [everything]}), {})
    assert config == DestinationConfig(
        name="YouTube Live",
        target=parse_target("rtmp://a.rtmp.youtube.com/live2", KEY),
        enabled=False,
        match="live/*",
        backup=parse_target("rtmp://b.rtmp.youtube.com/live2?backup=1", KEY),
        retry=RetryPolicy(initial_s=2.0, max_s=60.5, jitter=0.0, max_retries=5),
        metadata=(("team", "sport"), ("floor", "3"), ("is_paid", "True")),
    )


def test_only_the_address_is_needed() -> None:
    config = read({"url": "rtmp://a/live"})
    assert config == DestinationConfig(name="rtmp://a/live", target=parse_target("rtmp://a/live"))
    assert config.retry == RetryPolicy(initial_s=1.0, max_s=30.0, jitter=0.2, max_retries=0)
    assert (config.enabled, config.match, config.backup, config.metadata) == (True, "*", None, ())


def test_a_file_without_destinations_is_an_empty_list(tmp_path: Path) -> None:
    assert load_file(write(tmp_path, {"destinations": []}), {}) == []


def test_no_config_shows_its_key_when_printed(tmp_path: Path) -> None:
    item = {**YOUTUBE, "backup_url": "rtmp://b.rtmp.youtube.com/live2"}
    (config,) = load_file(write(tmp_path, {"destinations": [item]}), {})
    assert KEY not in repr(config) + str(config)
    assert KEY not in repr(from_urls([f"rtmp://a/live/{KEY}"]))


def test_variables_of_the_environment_stand_in_for_keys(tmp_path: Path) -> None:
    item = {
        "name": "${PLACE} one",
        "url": "rtmp://${PLACE}.example/${APP}",
        "stream_key": "${KEY_1}",
        "metadata": {"note": "at ${PLACE}", "$": "$5 and ${", "n": 1},
    }
    (config,) = load_file(
        write(tmp_path, {"destinations": [item]}), {"PLACE": "eu", "APP": "live", "KEY_1": f"{KEY}?x=${{PLACE}}"}
    )
    assert config.name == "eu one"
    # What a variable holds is not looked into again.
    assert config.target == parse_target("rtmp://eu.example/live", f"{KEY}?x=${{PLACE}}")
    assert dict(config.metadata) == {"note": "at eu", "$": "$5 and ${", "n": "1"}


def test_a_variable_that_is_not_set_is_named_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, {"destinations": [{**YOUTUBE, "stream_key": "${YOUTUBE_KEY}"}]})
    assert error_of(path) == "destinations[0].stream_key: the environment variable YOUTUBE_KEY is not set"


def test_a_variable_that_is_set_to_nothing_does_not_send_the_stream_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path, {"destinations": [{**YOUTUBE, "stream_key": "${YOUTUBE_KEY}"}]})
    expected = "destinations[0].url: found an empty stream key, expected a key, or none at all"
    assert error_of(path, YOUTUBE_KEY="") == expected


def test_an_api_call_cannot_read_our_environment() -> None:
    config = read_destination({"url": "rtmp://a/live", "stream_key": "${HOME}"}, None, "destination")
    assert config.target.name == "${HOME}"


# --- what can be wrong with one destination

LONG = "9" * 5000
WRONG = [
    ({}, "here.url: found nothing, expected rtmp://host/app"),
    ([], "here: found a list, expected an object"),
    ("rtmp://a/live", "here: found a text, expected an object"),
    (None, "here: found nothing, expected an object"),
    ({"url": 5}, "here.url: found a number, expected a text"),
    ({"url": None}, "here.url: found nothing, expected rtmp://host/app"),
    (
        {"url": f"http://a/live/{KEY}"},
        "here.url: found http, expected an address that begins with rtmp:// or rtmps://",
    ),
    (
        {**YOUTUBE, "key": KEY},
        'here: unknown key "key", expected one of name, url, stream_key, enabled, max_retries, metadata, match, '
        "backup_url, retry, start",
    ),
    ({**YOUTUBE, "stream_key": {"a": KEY}}, "here.stream_key: found an object, expected a text"),
    ({**YOUTUBE, "name": 7}, "here.name: found a number, expected a text"),
    ({**YOUTUBE, "name": "  "}, "here.name: found an empty name"),
    ({**YOUTUBE, "name": "\ud800"}, "here.name: found characters that are no Unicode text"),
    ({**YOUTUBE, "match": "\udfff*"}, "here.match: found characters that are no Unicode text"),
    ({**YOUTUBE, "enabled": "yes"}, "here.enabled: found a text, expected true or false"),
    ({**YOUTUBE, "enabled": 1}, "here.enabled: found a number, expected true or false"),
    ({**YOUTUBE, "enabled": None}, "here.enabled: found nothing, expected true or false"),
    ({**YOUTUBE, "max_retries": -1}, "here.max_retries: found a number, expected a whole number, 0 is for ever"),
    ({**YOUTUBE, "max_retries": 1.5}, "here.max_retries: found a number, expected a whole number, 0 is for ever"),
    (
        {**YOUTUBE, "max_retries": True},
        "here.max_retries: found true or false, expected a whole number, 0 is for ever",
    ),
    ({**YOUTUBE, "metadata": ["a"]}, "here.metadata: found a list, expected an object of plain values"),
    ({**YOUTUBE, "metadata": {"a": {}}}, "here.metadata: found an object, expected an object of plain values"),
    ({**YOUTUBE, "metadata": {"a": "\ud800"}}, "here.metadata: found characters that are no Unicode text"),
    ({**YOUTUBE, "metadata": {"\ud800": 1}}, "here.metadata: found characters that are no Unicode text"),
    ({**YOUTUBE, "retry": None}, "here.retry: found nothing, expected an object"),
    (
        {**YOUTUBE, "retry": {"min_s": 1}},
        'here.retry: unknown key "min_s", expected one of initial_s, max_s, jitter',
    ),
    ({**YOUTUBE, "retry": {"initial_s": 0}}, "here.retry.initial_s: found 0, expected a number from 0.01 to 3600"),
    ({**YOUTUBE, "retry": {"max_s": 0.5}}, "here.retry.max_s: found 0.5, expected a number from 1 to 3600"),
    ({**YOUTUBE, "retry": {"max_s": 1e9}}, "here.retry.max_s: found 1000000000.0, expected a number from 1 to 3600"),
    ({**YOUTUBE, "retry": {"jitter": 1.1}}, "here.retry.jitter: found 1.1, expected a number from 0 to 1"),
    ({**YOUTUBE, "retry": {"jitter": "0"}}, "here.retry.jitter: found a text, expected a number from 0 to 1"),
    (
        {**YOUTUBE, "retry": {"jitter": True}},
        "here.retry.jitter: found true or false, expected a number from 0 to 1",
    ),
    (
        {**YOUTUBE, "retry": {"jitter": float("nan")}},
        "here.retry.jitter: found nan, expected a number from 0 to 1",
    ),
    ({**YOUTUBE, "start": "always"}, 'here.start: found "always", expected when_published'),
    (
        {**YOUTUBE, "backup_url": f"rtmp:/b/{KEY}"},
        "here.backup_url: found an address without a host, expected rtmp://host/app/key",
    ),
    (
        {"url": "rtmp://a/live", "backup_url": f"rtmp://b/live/{KEY}"},
        "here.backup_url: one address has a stream name and the other has none",
    ),
    ({**YOUTUBE, f"\x1b[31m{LONG}": 1}, 'here: unknown key "\\x1b[31m' + "9" * 75 + '" and 4925 more characters, '),
]


@pytest.mark.parametrize(("item", "message"), WRONG)
def test_a_wrong_destination_is_one_line_that_names_the_key(item: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(item)
    found = str(caught.value)
    assert found.startswith(message) if message.endswith(", ") else found == message
    assert KEY not in found


# --- what can be wrong with a file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"destinations": [\n  {"url": }\n]}', "line 2, column 11: Expecting value"),
        ("", "line 1, column 1: Expecting value"),
        ('{"destinations": []} {}', "line 1, column 22: Extra data"),
        ("[]", "the file: found a list, expected an object"),
        ("{}", '"destinations": found nothing, expected a list'),
        ('{"destinations": {}}', '"destinations": found an object, expected a list'),
        ('{"destination": []}', 'the file: unknown key "destination", expected one of destinations'),
        ('{"destinations": [5]}', "destinations[0]: found a number, expected an object"),
        ('{"destinations": [], "destinations": []}', 'key "destinations" is given twice in one object'),
        (
            '{"destinations": [{"url": "rtmp://a/b", "url": "rtmp://a/c"}]}',
            'key "url" is given twice in one object',
        ),
        ("[" * 100_000, "nested too deeply, expected a list of destinations"),
        (LONG, "found a number of thousands of digits, expected a list of destinations"),
        ("\ufeff{}", "line 1, column 1: Unexpected UTF-8 BOM (decode using utf-8-sig)"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_and_place(text: str, message: str, tmp_path: Path) -> None:
    assert error_of(write(tmp_path, text)) == message


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            {"name": "YouTube Live", "url": "rtmp://b/live"},
            'destinations[1].name: "YouTube Live" is used by another destination',
        ),
        (
            {**YOUTUBE, "name": "again"},
            'destinations[1].url: the same address and key as destination "YouTube Live"',
        ),
        (
            {"name": "again", "url": f"rtmp://a.rtmp.youtube.com:1935/live2/{KEY}"},
            'destinations[1].url: the same address and key as destination "YouTube Live"',
        ),
    ],
)
def test_a_duplicate_is_refused(second: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert error_of(write(tmp_path, {"destinations": [YOUTUBE, second]})) == message


def test_one_address_may_serve_different_streams_under_two_names() -> None:
    one, two = read({**YOUTUBE, "match": "live/a"}), read({**YOUTUBE, "name": "other", "match": "live/b"})
    check_unique(two, [one], "here")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert error_of(tmp_path / "absent.json") == "cannot be read: No such file or directory"
    assert error_of(tmp_path) == "cannot be read: Is a directory"
    (tmp_path / "relay.json").write_bytes(b'{"destinations": [{"name": "\xff"}]}')
    assert error_of(tmp_path / "relay.json") == "byte 28 is not UTF-8"
    (tmp_path / "relay.json").write_bytes(b" " * ((4 << 20) + 1))
    assert error_of(tmp_path / "relay.json") == "found more than 4194304 bytes, expected a list of destinations"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["name", "url", "stream_key", "enabled", "max_retries", "metadata", "match", "backup_url", "retry", "start"]


@given(JSON | st.dictionaries(st.sampled_from(KEYS), JSON | st.just("rtmp://a/live"), min_size=1))
def test_any_json_is_a_destination_or_one_printable_line(item: Any) -> None:
    message = ""
    try:
        config = read(item)
        f"{config.name} {config.match} {config.metadata}".encode()  # pages and metrics can carry it
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()


# --- matching and changing


@pytest.mark.parametrize(
    ("match", "matching", "others"),
    [
        ("*", ["live/cam", "a/b/c", "Live/Cam"], []),
        ("live/*", ["live/cam", "live/a/b"], ["Live/cam", "lives/cam", "live"]),
        ("live/cam?", ["live/cam1"], ["live/cam", "live/cam10"]),
        ("*/main", ["live/main", "x/main"], ["live/mains"]),
        ("live/[ab]", ["live/a"], ["live/c"]),
    ],
)
def test_match_is_a_glob_on_app_and_name(match: str, matching: list[str], others: list[str]) -> None:
    config = read({**YOUTUBE, "match": match})
    assert all(config.matches(key) for key in matching)
    assert not any(config.matches(key) for key in others)


def test_a_change_of_single_keys_leaves_the_others_alone() -> None:
    config = read({**YOUTUBE, "match": "live/*", "retry": {"initial_s": 2}, "metadata": {"a": 1}})
    changed = change_destination(config, {"enabled": False}, "here")
    assert changed == dataclasses.replace(config, enabled=False)
    assert change_destination(changed, {"enabled": True}, "here") == config
    assert change_destination(config, {}, "here") == config


def test_a_key_can_be_changed_and_taken_away() -> None:
    config = read(YOUTUBE)
    assert change_destination(config, {"stream_key": "other"}, "here").target.name == "other"
    assert change_destination(config, {"stream_key": None}, "here").target.name is None


def test_a_destination_of_a_flag_can_be_changed_and_keeps_its_name() -> None:
    _, config = from_urls(["rtmp://a/live/one", "rtmp://a/live/two"])
    changed = change_destination(config, {"match": "live/*"}, "here")
    assert changed == dataclasses.replace(config, match="live/*")
    assert changed.name == "rtmp://a/live/**** #2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "new"}, 'here: unknown key "name", expected one of url, stream_key'),
        ([], "here: found a list, expected an object"),
        ({"url": "rtmp://a"}, "here.url: found an address without an application"),
        ({"url": None}, "here.url: found nothing"),
        ({"enabled": "no"}, "here.enabled: found a text"),
    ],
)
def test_a_wrong_change_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        change_destination(read(YOUTUBE), changes, "here")
    assert str(caught.value).startswith(message)


def test_two_equal_configs_are_the_same_destination_however_they_were_written() -> None:
    one = read({"name": "a", "url": f"rtmp://a/live/{KEY}", "retry": {}, "start": "when_published"})
    two = read({"name": "a", "url": "rtmp://a:1935/live", "stream_key": KEY, "enabled": True})
    assert one == two
    assert hash(one) == hash(two)
    assert one.source != two.source
