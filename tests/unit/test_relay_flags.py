"""The flags of destinations and of the HTTP side: every spelling, every mistake, and no secret repeated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli import parse_serve_options, rtmp_server
from headrace.errors import ConfigError
from headrace.options import SERVE_FLAGS, ServeOptions
from headrace.units import EXPECTED_ADDRESS, without_key

KEY = "abcd-efgh-1234"
TOKEN = "t0ken-4711-abcdef"


def message_of(argv: list[str], **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_serve_options(argv, environ=environ)
    return str(caught.value)


# --- destinations


def test_addresses_are_kept_in_order_as_they_were_given() -> None:
    argv = ["-relay-to", f"rtmp://a/live/{KEY}", "--relay-to=rtmp://b/live,rtmps://c/live", "-relay-to=x"]
    assert parse_serve_options(argv).relay_to == (
        f"rtmp://a/live/{KEY}",
        "rtmp://b/live,rtmps://c/live",
        "x",  # what it means is for the relay to say
    )
    assert parse_serve_options([]).relay_to == ()


def test_a_key_with_equals_signs_and_question_marks_is_one_value() -> None:
    url = "rtmps://live-api-s.facebook.com:443/rtmp/FB-1-0-Ab?s_bl=1&s_psm=1&a=b=c"
    assert parse_serve_options([f"-relay-to={url}"]).relay_to == (url,)
    assert parse_serve_options(["-relay-to", url]).relay_to == (url,)


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_the_file_of_destinations_is_a_path(dashes: str) -> None:
    assert parse_serve_options([f"{dashes}relay-config", "etc/relay.json"]).relay_config == Path("etc/relay.json")
    assert parse_serve_options([]).relay_config is None
    assert parse_serve_options([f"{dashes}relay-config=none"]).relay_config is None


# --- HTTP


@pytest.mark.parametrize("name", ["http-status", "metrics-addr"])
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":8080", None, 8080),
        ("0.0.0.0:8080", "0.0.0.0", 8080),
        ("[::]:8080", "::", 8080),
        ("localhost:0", "localhost", 0),
        ("off", None, None),
    ],
)
def test_the_http_side_has_an_address_under_either_name(
    name: str, text: str, host: str | None, port: int | None
) -> None:
    for argv in ([f"-{name}", text], [f"--{name}={text}"]):
        options = parse_serve_options(argv)
        assert (options.http_host, options.http_port) == (host, port)


def test_the_http_side_is_off_unless_given() -> None:
    assert parse_serve_options([]).http_port is None


def test_of_both_names_the_last_counts() -> None:
    assert parse_serve_options(["-metrics-addr", ":1", "-http-status", ":2"]).http_port == 2
    assert parse_serve_options(["-http-status", ":2", "-metrics-addr", ":1"]).http_port == 1


def test_the_token_comes_from_the_flag_or_the_environment() -> None:
    environ = {"HEADRACE_API_TOKEN": TOKEN}
    assert parse_serve_options([], environ=environ).api_token == TOKEN
    assert parse_serve_options(["-api-token", "an0ther-token"], environ=environ).api_token == "an0ther-token"
    assert parse_serve_options(["-api-token", "none"], environ=environ).api_token is None
    assert parse_serve_options([], environ={}).api_token is None


# --- mistakes


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-relay-to"], "-relay-to: found no value, expected rtmp://host/app or rtmp://host/app/key"),
        (["-relay-to="], "-relay-to: found an empty value, expected rtmp://host/app or rtmp://host/app/key"),
        (["-relay-to", " "], "-relay-to: found an empty value, expected rtmp://host/app or rtmp://host/app/key"),
        (["-relay-config"], "-relay-config: found no value, expected the path of a file"),
        (["-relay-config", "a\0b"], '-relay-config: found "a\\x00b", expected the path of a file'),
        (
            ["-http-status", "8080"],
            f'-http-status: found "8080", expected {EXPECTED_ADDRESS}',
        ),
        (
            ["-metrics-addr", "::1:8080"],
            '-http-status: found "::1:8080", expected brackets around an IPv6 address: [::1]:1935',
        ),
        (["-http-status", ":99999"], '-http-status: found port "99999", expected a whole number from 0 to 65535'),
        (
            ["-api-token", "short"],
            "-api-token: found a token that is too short or has odd characters, expected at least 12 printable ASCII "
            "characters without spaces",
        ),
        (["-api-token"], "-api-token: found no value, expected a token"),
        (["-relay-too", "rtmp://a/b"], "-relay-too: unknown flag; did you mean -relay-to?"),
        (["-metrics-adr", ":1"], "-metrics-adr: unknown flag; did you mean -metrics-addr?"),
        (
            ["-relay-to", f"rtmp://a/live/{KEY}", f"rtmp://b/live/{KEY}"],
            'found "rtmp://b/live/****", expected only flags and their values',
        ),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rtmp_server(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"rtmp-server: {message}\n")


@pytest.mark.parametrize(
    "token", ["", "t0ken-4711", "with a space in it", "tökén-of-letters", "tab\tbed-token-1", "\x7f" * 20]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused_and_not_repeated(token: str) -> None:
    for message in (message_of([f"-api-token={token}"]), message_of([], HEADRACE_API_TOKEN=token)):
        assert "found a token that is too short or has odd characters" in message
        assert not token or token not in message


def test_a_wrong_token_in_the_environment_names_the_variable() -> None:
    assert message_of([], HEADRACE_API_TOKEN="short").startswith("HEADRACE_API_TOKEN: found a token")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([f"-relay-to=http://a/live/{KEY}"], "-relay-to: found http, expected an address that begins with rtmp://"),
        ([f"-relay-to=rtmp://a/l/{KEY},rtmp://a/l/{KEY}"], "-relay-to: rtmp://a/l/**** is given twice"),
        ([f"-relay-to=rtmp://a/l/{KEY},"], "-relay-to: found an empty address"),
        ([f"-relay-to=rtmp://a:{KEY}/l"], "-relay-to: found a host or port that cannot be read"),
        (["-relay-config", "/nonexistent/relay.json"], "/nonexistent/relay.json: cannot be read: No such file"),
    ],
)
def test_a_wrong_destination_is_one_line_and_nothing_is_started(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rtmp_server(["-listen", "127.0.0.1:0", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"rtmp-server: {message}")
    assert err.count("\n") == 1
    assert KEY not in err


# --- secrets


def test_options_do_not_show_keys_and_tokens_when_printed() -> None:
    options = parse_serve_options(["-relay-to", f"rtmp://a/live/{KEY}", "-api-token", TOKEN])
    assert KEY not in repr(options)
    assert TOKEN not in repr(options)
    assert options != ServeOptions()


def test_what_holds_a_secret_is_marked_so() -> None:
    assert {flag.name for flag in SERVE_FLAGS if flag.is_secret} == {"relay-to", "origin", "api-token"}


def test_help_explains_the_flags_of_destinations(capsys: pytest.CaptureFixture[str]) -> None:
    assert rtmp_server(["-help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Destinations -relay-to URL Push every stream there" in out
    assert "-relay-config FILE Destinations from a JSON file" in out
    assert "HTTP -http-status HOST:PORT Serve /health" in out
    assert "Also called -metrics-addr." in out
    assert "$HEADRACE_API_TOKEN" in out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"rtmp://a/live/{KEY}", "rtmp://a/live/****"),
        (f"RTMPS://a:443/live/{KEY}?a=b", "RTMPS://a:443/live/****"),
        (f"-relay-to=rtmp://a/live/{KEY},rtmp://b/x/{KEY}", "-relay-to=rtmp://a/live/****,rtmp://b/x/****"),
        (f"rtmp://a/live?token={KEY}", "rtmp://a/live/****"),
        (f"rtmp://a?{KEY}", "rtmp://a/****"),
        (f"rtmp://a/live/eu/{KEY}", "rtmp://a/live/****"),
        ("recordings/a.flv", "recordings/a.flv"),
    ],
)
def test_the_keys_of_addresses_are_hidden_in_any_text(text: str, shown: str) -> None:
    assert without_key(text) == shown


@given(st.text("abc/?=&:#.%-", max_size=30))
def test_whatever_follows_the_application_is_hidden(tail: str) -> None:
    assert "SECRET" not in without_key(f"rtmp://host/live/SECRET{tail}") + without_key(f"rtmp://host/live?SECRET{tail}")
