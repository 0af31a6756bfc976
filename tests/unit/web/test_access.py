"""Who may change something over HTTP: a table of requests, and what each is answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.web.access import Refusal, check_change

TOKEN = "t0ken-4711-abcdef"


def refusal(**request: Any) -> tuple[int, str] | None:
    """What a request is refused with: by default it is curl's, on this machine."""
    given_request: dict[str, Any] = {
        "token": None,
        "client": "127.0.0.1",
        "host": "localhost:8080",
        "origin": None,
        "authorization": None,
        **request,
    }
    found: Refusal | None = None
    try:
        check_change(**given_request)
    except Refusal as error:
        found = error
    if found is None:
        return None
    assert str(found) == found.message
    assert found.message.endswith(".")
    assert TOKEN not in found.message
    return found.status, found.code


# --- without a token


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_without_a_token_programs_on_this_machine_may(client: str) -> None:
    assert refusal(client=client) is None


@pytest.mark.parametrize(
    "client",
    [
        "192.168.1.2",
        "10.0.0.1",
        "8.8.8.8",
        "fe80::1%eth0",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "0.0.0.0",
        "",
        "testclient",
    ],
)
def test_without_a_token_nobody_else_may(client: str) -> None:
    assert refusal(client=client) == (403, "not_local")


def test_a_request_from_nowhere_may_not() -> None:
    assert refusal(client=None) == (403, "not_local")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8080"]
)
def test_the_host_must_be_this_machine_by_a_name_that_nobody_can_point_elsewhere(host: str) -> None:
    assert refusal(host=host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.2:8080", "",
     None, "[::1", "localhost:port", "::1"],
)  # fmt: skip
def test_a_name_that_somebody_pointed_at_this_machine_is_refused(host: str | None) -> None:
    assert refusal(host=host) == (403, "foreign_host")


# --- web pages


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8080", "localhost:8080"),
        ("http://LOCALHOST:8080", "localhost:8080"),
        ("http://127.0.0.1", "127.0.0.1"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("https://localhost:443", "localhost"),
        ("http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_a_page_of_our_own_may(origin: str, host: str) -> None:
    assert refusal(origin=origin, host=host) is None


FOREIGN_ORIGINS = [
    "http://evil.example",
    "http://localhost",  # another port is another site
    "http://localhost:3000",
    "http://127.0.0.1:8080",  # another name of the same machine, too
    "http://localhost.evil.example:8080",
    "null",  # a page without a home: a sandboxed frame, a file
    "",
    "file://",
    "http://[::1",
    "http://localhost:8080x",
]


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_from_elsewhere_may_not(origin: str) -> None:
    assert refusal(origin=origin) == (403, "foreign_origin")


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_page_from_elsewhere_may_not_even_with_the_token(origin: str) -> None:
    assert refusal(origin=origin, token=TOKEN, authorization=f"Bearer {TOKEN}") == (403, "foreign_origin")


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
@pytest.mark.parametrize("host", [None, "", "[::1", "localhost:x"])
def test_a_page_from_elsewhere_may_not_whatever_host_it_names(origin: str, host: str | None) -> None:
    assert refusal(origin=origin, host=host) is not None


# --- with a token


@pytest.mark.parametrize(
    "authorization", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER {TOKEN}", f"Bearer  {TOKEN} "]
)
@pytest.mark.parametrize("client", ["127.0.0.1", "203.0.113.9", None])
@pytest.mark.parametrize("host", ["localhost", "relay.example:8080", None])
def test_whoever_shows_the_token_may_from_anywhere(authorization: str, client: str | None, host: str | None) -> None:
    assert refusal(token=TOKEN, authorization=authorization, client=client, host=host) is None


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (None, "token_missing"),
        ("", "token_missing"),
        ("Bearer", "token_missing"),
        ("Bearer ", "token_missing"),
        (f"Basic {TOKEN}", "token_missing"),
        (TOKEN, "token_missing"),
        (f"Bearer{TOKEN}", "token_missing"),
        ("Bearer wrong", "token_wrong"),
        (f"Bearer {TOKEN}x", "token_wrong"),
        (f"Bearer {TOKEN[:-1]}", "token_wrong"),
        (f"Bearer {TOKEN.upper()}", "token_wrong"),
        (f"Bearer {TOKEN} {TOKEN}", "token_wrong"),
        ("Bearer tökén", "token_wrong"),
    ],
)
def test_once_there_is_a_token_this_machine_must_show_it_too(authorization: str | None, code: str) -> None:
    assert refusal(token=TOKEN, authorization=authorization) == (401, code)


@given(
    client=st.none() | st.text() | st.ip_addresses().map(str),
    host=st.none() | st.text(),
    origin=st.none() | st.text(),
    authorization=st.none() | st.text(st.characters(max_codepoint=255)),
)
def test_without_the_token_no_request_gets_through(
    client: str | None, host: str | None, origin: str | None, authorization: str | None
) -> None:
    assert refusal(token=TOKEN, client=client, host=host, origin=origin, authorization=authorization) is not None


@given(host=st.text(), origin=st.none() | st.text(), client=st.none() | st.text() | st.ip_addresses().map(str))
def test_any_headers_are_an_answer_and_no_accident(host: str, origin: str | None, client: str | None) -> None:
    refusal(host=host, origin=origin, client=client)
