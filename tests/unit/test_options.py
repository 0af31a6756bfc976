"""The table of flags: complete, consistent with the options, and ready for the next entry."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headrace.cli import parse_serve_options
from headrace.errors import ConfigError
from headrace.options import SERVE_FLAGS, Flag, ServeOptions, ValueKind, cores


def flag_named(name: str) -> Flag:
    return next(flag for flag in SERVE_FLAGS if flag.name == name)


def test_every_option_is_filled_by_exactly_one_flag() -> None:
    filled = [field for flag in SERVE_FLAGS for field in flag.fields]
    assert sorted(filled) == sorted(field.name for field in dataclasses.fields(ServeOptions))


def test_flag_names_are_unique_lower_case_words() -> None:
    names = [flag.name for flag in SERVE_FLAGS]
    assert len(set(names)) == len(names)
    assert all(part.isalpha() and part.islower() for name in names for part in name.split("-"))


def test_flags_of_one_group_stand_together() -> None:
    groups = [flag.group for flag in SERVE_FLAGS]
    changes = [group for previous, group in zip(["", *groups], groups, strict=False) if group != previous]
    assert len(set(changes)) == len(changes)


def test_the_defaults_of_the_flags_are_those_of_the_options() -> None:
    assert parse_serve_options([]) == ServeOptions()


def test_options_cannot_be_changed_after_they_were_checked() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServeOptions().chunk_size = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("listen", "[::1]:0", ("::1", 0)),
        ("chunk-size", "128", 128),
        ("chunk-size", "16777215", 16777215),
        ("publisher-grace", "0", 0.0),
        ("publisher-grace", "1h", 3600.0),
        ("max-lag", "100ms", 0.1),
        ("max-lag", "10m", 600.0),
        ("merge-ms", "0", 0),
        ("merge-ms", "250", 250),
        ("record-all", "true", True),
        ("record-all", "false", False),
        ("record-dir", "/srv/live recordings", Path("/srv/live recordings")),
        ("segment-duration", "off", None),
        ("segment-duration", "0", None),
        ("segment-duration", "1h30m", 5400.0),
        ("log-level", "warn", "warn"),
        ("log-format", "text", "text"),
    ],
)
def test_a_value_is_read(name: str, text: str, value: object) -> None:
    assert flag_named(name).kind.parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("chunk-size", "127", 'found "127", expected a whole number from 128 to 16777215'),
        ("chunk-size", "16777216", 'found "16777216", expected a whole number from 128 to 16777215'),
        ("chunk-size", "12x", 'found "12x", expected a whole number from 128 to 16777215'),
        ("chunk-size", "-200", 'found "-200", expected a whole number from 128 to 16777215'),
        ("chunk-size", "1_000", 'found "1_000", expected a whole number from 128 to 16777215'),
        ("chunk-size", "", 'found "", expected a whole number from 128 to 16777215'),
        (
            "publisher-grace",
            "61m",
            'found "61m", expected a duration from 0s to 1h, such as 500ms, 30s or 5m',
        ),
        ("merge-ms", "251", 'found "251", expected a whole number from 0 to 250'),
        ("max-lag", "0", 'found "0", expected a duration from 100ms to 10m, such as 500ms, 30s or 5m'),
        ("max-lag", "5sec", 'found "5sec", expected a duration from 100ms to 10m, such as 500ms, 30s or 5m'),
        ("record-all", "yes", 'found "yes", expected true or false'),
        ("record-dir", "", 'found "", expected the path of a folder'),
        ("record-dir", "a\0b", 'found "a\\x00b", expected the path of a folder'),
        ("segment-duration", "never", 'found "never", expected a duration such as 30s or 5m, or off'),
        ("log-level", "verbose", 'found "verbose", expected debug, info, warn or error'),
        ("log-format", "JSON", 'found "JSON", expected auto, json or text'),
    ],
)
def test_a_wrong_value_says_what_was_found_and_expected(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flag_named(name).kind.parse(text)
    assert str(caught.value) == message


def test_a_number_of_thousands_of_digits_is_refused_in_the_same_words() -> None:
    with pytest.raises(ConfigError, match="and 9920 more characters, expected a whole number from 128"):
        flag_named("chunk-size").kind.parse("1" * 10_000)


def test_a_repeatable_flag_with_two_fields_is_a_bug_found_at_import() -> None:
    kind = ValueKind(parse=str, expected="a word", metavar="WORD")
    with pytest.raises(AssertionError, match="pair"):
        Flag(name="pair", group="", fields=("a", "b"), kind=kind, default="none", help="", is_repeatable=True)


def test_workers_are_a_number_or_one_for_each_core() -> None:
    assert parse_serve_options([]).workers == 1
    assert parse_serve_options(["-workers", "4"]).workers == 4
    assert parse_serve_options(["-workers", "auto"]).workers == cores() >= 1
    for wrong in ("0", "257", "-1", "two", "1.5"):
        with pytest.raises(ConfigError, match=r"-workers: found .*, expected a whole number from 1 to 256, or auto"):
            parse_serve_options(["-workers", wrong])
