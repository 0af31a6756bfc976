"""Durations, addresses and quoting: what is read, what is refused, and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.units import (
    MAX_DURATION_S,
    format_duration,
    parse_duration,
    parse_listen,
    printable,
    quoted,
)

DURATIONS = [
    ("0", 0.0),
    ("0s", 0.0),
    ("5", 5.0),
    ("2.5", 2.5),
    (".5", 0.5),
    ("30s", 30.0),
    ("5m", 300.0),
    ("1h", 3600.0),
    ("1h30m", 5400.0),
    ("1.5h", 5400.0),
    ("500ms", 0.5),
    ("1s500ms", 1.5),
    ("1h2m3s4ms", 3723.004),
    ("1.1s", 1.1),
    ("1s100ms", 1.1),
    (" 5s ", 5.0),
    ("8760h", MAX_DURATION_S),
]


@pytest.mark.parametrize(("text", "duration_s"), DURATIONS)
def test_a_duration_is_read_as_seconds(text: str, duration_s: float) -> None:
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    "text",
    ["", " ", "5 s", "5s\n5s", *"s 5x -5s +5s 1m1h 1s1s 5S 1e3 inf nan 5. .s ٥s off".split()],
)
def test_anything_else_is_refused_as_a_duration(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text)
    expected = "expected a duration such as 500ms, 30s, 5m or 1h30m"
    assert str(caught.value) == f"found {quoted(text.strip())}, {expected}"


@pytest.mark.parametrize("text", ["8761h", "9" * 60, "9" * 60 + "h"])
def test_a_duration_beyond_a_year_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_duration(text)
    assert str(caught.value) == f'found "{text}", expected at most 8760h'


def test_an_endless_number_is_refused_without_being_read() -> None:
    with pytest.raises(ConfigError, match="and 999920 more characters, expected a duration"):
        parse_duration("9" * 1_000_000)


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.5, "500ms"),
        (5, "5s"),
        (65.25, "1m5s250ms"),
        (5400, "1h30m"),
        (59.9999, "1m"),
        (-1.5, "-1s500ms"),
    ],
)
def test_a_duration_is_written_in_its_largest_units(duration_s: float, text: str) -> None:
    assert format_duration(duration_s) == text


@given(st.integers(min_value=0, max_value=int(MAX_DURATION_S) * 1000))
def test_a_written_duration_reads_back_to_the_millisecond(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms / 1000)) == duration_ms / 1000


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":1935", (None, 1935)),
        (":0", (None, 0)),
        (":65535", (None, 65535)),
        ("0.0.0.0:1935", ("0.0.0.0", 1935)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:1935", ("localhost", 1935)),
        ("my-host.example.:80", ("my-host.example.", 80)),
        ("[::]:1935", ("::", 1935)),
        ("[::1]:1935", ("::1", 1935)),
        ("[fe80::1%eth0]:1935", ("fe80::1%eth0", 1935)),
        (" :1935 ", (None, 1935)),
    ],
)
def test_an_address_is_read_as_host_and_port(text: str, address: tuple[str | None, int]) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1935",
            'found "1935", expected host:port such as :1935, 127.0.0.1:1935, [::1]:1935 or localhost:1935',
        ),
        ("", 'found "", expected host:port such as :1935, 127.0.0.1:1935, [::1]:1935 or localhost:1935'),
        ("localhost:", 'found port "", expected a whole number from 0 to 65535'),
        ("localhost:rtmp", 'found port "rtmp", expected a whole number from 0 to 65535'),
        (":65536", 'found port "65536", expected a whole number from 0 to 65535'),
        (":-1", 'found port "-1", expected a whole number from 0 to 65535'),
        (":١٩", 'found port "١٩", expected a whole number from 0 to 65535'),
        ("::1:1935", 'found "::1:1935", expected brackets around an IPv6 address: [::1]:1935'),
        ("[::1]", 'found port "1]", expected a whole number from 0 to 65535'),
        ("[::g]:1935", 'found "[::g]", expected an IPv6 address in brackets, such as [::1]'),
        ("[::1%]:1935", 'found "[::1%]", expected an IPv6 address in brackets, such as [::1]'),
        ("[::\0]:1", 'found "[::\\x00]", expected an IPv6 address in brackets, such as [::1]'),
        ("my host:1935", 'found host "my host", expected an IPv4 address or a host name'),
        ("-x:1935", 'found host "-x", expected an IPv4 address or a host name'),
        ("rtmp//x:1935", 'found host "rtmp//x", expected an IPv4 address or a host name'),
        ("a\n:1935", 'found host "a\\n", expected an IPv4 address or a host name'),
    ],
)
def test_a_wrong_address_says_what_was_found_and_expected(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listen(text)
    assert str(caught.value) == message


def test_a_host_longer_than_a_name_can_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected an IPv4 address or a host name"):
        parse_listen("a" * 254 + ":1935")


@given(st.text())
def test_any_text_is_an_address_a_duration_or_a_one_line_config_error(text: str) -> None:
    for parse in (parse_listen, parse_duration):
        message = ""
        try:
            parse(text)
        except ConfigError as error:
            message = str(error)
        assert message.isprintable()
        assert len(message) < 1100  # 80 characters, each an escape of ten, and the words around them


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("live/café 日本", "live/café 日本"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\\nb", "a\\\\nb"),
        ("a\u2028b\u202eb", "a\\u2028b\\u202eb"),
        ("\udc80", "\\udc80"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_is_not_printable_is_spelled_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(alphabet=st.characters()))
def test_escaping_loses_nothing_and_leaves_one_printable_line(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    # Doubled backslashes and escapes are Python's own, so Python reads the original back.
    as_ascii = shown.encode("ascii", "backslashreplace").decode("ascii")
    assert as_ascii.encode("ascii").decode("unicode_escape") == text


def test_a_quoted_text_is_cut_and_says_by_how_much() -> None:
    assert quoted('say "hi"') == '"say \\"hi\\""'
    assert quoted("x" * 80) == '"' + "x" * 80 + '"'
    assert quoted("x" * 100) == '"' + "x" * 80 + '" and 20 more characters'
