"""The addresses of origins: what may be left out, what is an error, and that no token is ever shown."""

from __future__ import annotations

import pytest

from headrace.edge.origin import Origin, parse_origins
from headrace.errors import ConfigError

TOKEN = "t0ken-5a17"


@pytest.mark.parametrize(
    ("url", "origin", "app"),
    [
        ("rtmp://host", Origin("rtmp", "host", 1935, "", ""), "live"),
        ("rtmp://host:1940/", Origin("rtmp", "host", 1940, "", ""), "live"),
        ("rtmps://host", Origin("rtmps", "host", 443, "", ""), "live"),
        ("rtmp://[::1]:1940/far/app", Origin("rtmp", "::1", 1940, "far/app", ""), "far/app"),
        (f"rtmp://host?token={TOKEN}", Origin("rtmp", "host", 1935, "", f"token={TOKEN}"), f"live?token={TOKEN}"),
        (f"rtmp://host/far?t={TOKEN}", Origin("rtmp", "host", 1935, "far", f"t={TOKEN}"), f"far?t={TOKEN}"),
    ],
)
def test_an_address_names_a_server_and_maybe_an_application(url: str, origin: Origin, app: str) -> None:
    assert parse_origins([url]) == (origin,)
    target = origin.target("live")
    assert (target.app, target.name) == (app, None)
    for shown in (repr(origin), origin.shown, target.shown, target.redact(f"no such app {app}")):
        assert TOKEN not in shown


def test_several_are_kept_in_their_order() -> None:
    found = parse_origins(["rtmp://a, rtmp://b:1936", "rtmps://c"])
    assert [origin.shown for origin in found] == ["rtmp://a", "rtmp://b:1936", "rtmps://c"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([""], "found an empty address"),
        (["rtmp://a,,rtmp://b"], "found an empty address"),
        (["host:1935"], "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        (["http://host"], "found http, expected"),
        (["rtmp:///live"], "found an address without a host"),
        ([f"rtmp://host:port/{TOKEN}"], "found a host or port that cannot be read"),
        ([f"rtmp://user:{TOKEN}@host"], "found a user name in the address"),
        (["rtmp://a\ud800"], "no Unicode text"),
        ([f"rtmp://a?{TOKEN}", f"rtmp://a?{TOKEN}"], "rtmp://a/?**** is given twice"),
    ],
)
def test_a_wrong_address_is_one_line_without_its_secrets(values: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_origins(values)
    assert complaint in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)
