"""Addresses of destinations: taken apart as platforms write them, and never shown with a secret in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.relay.target import HIDDEN, Target, parse_target

KEY = "abcd-efgh-1234-5678"

# (address, stream_key) -> (scheme, host, port, app, name) and what is shown of it.
ADDRESSES = [
    ("rtmp://host/live", None, ("rtmp", "host", 1935, "live", None), "rtmp://host/live"),
    ("rtmp://host/live/", None, ("rtmp", "host", 1935, "live", None), "rtmp://host/live"),
    ("rtmps://host/live", None, ("rtmps", "host", 443, "live", None), "rtmps://host/live"),
    ("rtmps://host:443/live", None, ("rtmps", "host", 443, "live", None), "rtmps://host/live"),
    ("rtmp://host:443/live", None, ("rtmp", "host", 443, "live", None), "rtmp://host:443/live"),
    ("RTMP://HOST:1940/Live/Name", None, ("rtmp", "host", 1940, "Live", "Name"), "rtmp://host:1940/Live/****"),
    ("  rtmp://host/live/x  ", None, ("rtmp", "host", 1935, "live", "x"), "rtmp://host/live/****"),
    ("rtmp://[::1]:1940/live", None, ("rtmp", "::1", 1940, "live", None), "rtmp://[::1]:1940/live"),
    ("rtmp://[::1]/live", None, ("rtmp", "::1", 1935, "live", None), "rtmp://[::1]/live"),
    # YouTube: the key stands apart, or at the end.
    (
        "rtmp://a.rtmp.youtube.com/live2",
        KEY,
        ("rtmp", "a.rtmp.youtube.com", 1935, "live2", KEY),
        "rtmp://a.rtmp.youtube.com/live2/****",
    ),
    (
        f"rtmp://a.rtmp.youtube.com/live2/{KEY}",
        None,
        ("rtmp", "a.rtmp.youtube.com", 1935, "live2", KEY),
        "rtmp://a.rtmp.youtube.com/live2/****",
    ),
    # Facebook: keys contain "?" and "=".
    (
        "rtmps://live-api-s.facebook.com:443/rtmp/FB-1-0-Abc?s_bl=1&s_psm=2&a=AbcDefG",
        None,
        ("rtmps", "live-api-s.facebook.com", 443, "rtmp", "FB-1-0-Abc?s_bl=1&s_psm=2&a=AbcDefG"),
        "rtmps://live-api-s.facebook.com/rtmp/****",
    ),
    # A token that belongs to the application, and one without a name.
    ("rtmp://host/live?token=t0ps", KEY, ("rtmp", "host", 1935, "live?token=t0ps", KEY), "rtmp://host/live?****/****"),
    ("rtmp://host/live?token=t0ps", None, ("rtmp", "host", 1935, "live?token=t0ps", None), "rtmp://host/live?****"),
    # An application of two words, and a key that holds a slash, which only a key that stands apart can.
    ("rtmp://host/live/eu/KEY", None, ("rtmp", "host", 1935, "live/eu", "KEY"), "rtmp://host/live/eu/****"),
    ("rtmp://host/live", "a/b", ("rtmp", "host", 1935, "live", "a/b"), "rtmp://host/live/****"),
    ("rtmp://host/live/", "/KEY", ("rtmp", "host", 1935, "live", "KEY"), "rtmp://host/live/****"),
    ("rtmp://host/live", "KEY\n", ("rtmp", "host", 1935, "live", "KEY"), "rtmp://host/live/****"),
    # Everything after the path is the key's, a "#" too.
    ("rtmp://host/live/a#b?c=d", None, ("rtmp", "host", 1935, "live", "a#b?c=d"), "rtmp://host/live/****"),
    ("rtmp://host/live/a b", None, ("rtmp", "host", 1935, "live", "a b"), "rtmp://host/live/****"),
]


@pytest.mark.parametrize(("url", "stream_key", "parts", "shown"), ADDRESSES)
def test_an_address_is_taken_apart_and_shown_without_its_secrets(
    url: str, stream_key: str | None, parts: tuple[str, str, int, str, str | None], shown: str
) -> None:
    target = parse_target(url, stream_key)
    assert target == Target(*parts)
    assert target.shown == shown
    assert repr(target) == str(target) == f"Target({shown})"


@pytest.mark.parametrize(
    ("url", "tc_url"),
    [
        ("rtmp://host/live/key", "rtmp://host/live"),
        ("rtmp://host:1940/live/key", "rtmp://host:1940/live"),
        ("rtmps://[::1]/live/key", "rtmps://[::1]/live"),
        ("rtmp://host/live?token=t0ps", "rtmp://host/live?token=t0ps"),
    ],
)
def test_the_far_end_is_told_the_address_up_to_the_application(url: str, tc_url: str) -> None:
    assert parse_target(url).tc_url == tc_url


def test_only_rtmps_is_encrypted() -> None:
    assert parse_target("rtmps://host/live").is_tls
    assert not parse_target("rtmp://host:443/live").is_tls


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"http://host/live/{KEY}", "found http, expected an address that begins with rtmp:// or rtmps://"),
        (f"host/live/{KEY}", "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        (f"localhost:1935/live/{KEY}", "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        (KEY, "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        ("", "found no scheme, expected an address that begins with rtmp:// or rtmps://"),
        (f"rtmp:///live/{KEY}", "found an address without a host, expected rtmp://host/app/key"),
        ("rtmp://host", "found an address without an application, expected rtmp://host/app/key"),
        ("rtmp://host/", "found an address without an application, expected rtmp://host/app/key"),
        (f"rtmp://host?{KEY}", "found an address without an application, expected rtmp://host/app/key"),
        (f"rtmp://user:{KEY}@host/live", "found a user name in the address, expected rtmp://host/app/key with no user"),
        (f"rtmp://{KEY}@host/live", "found a user name in the address, expected rtmp://host/app/key with no user"),
        (f"rtmp://host:{KEY}", "found a host or port that cannot be read, expected rtmp://host:port/app/key"),
        (f"rtmp://host:99999/a/{KEY}", "found a host or port that cannot be read, expected rtmp://host:port/app/key"),
        (f"rtmp://[::1/a/{KEY}", "found a host or port that cannot be read, expected rtmp://host:port/app/key"),
        (f"rtmp://host/a/{KEY}\udcff", "found characters that are no Unicode text, expected rtmp://host/app/key"),
    ],
)
def test_a_wrong_address_is_explained_without_being_repeated(url: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(url)
    assert str(caught.value) == message


@pytest.mark.parametrize("stream_key", ["", " ", "/", "\n"])
def test_an_empty_stream_key_is_refused_since_the_stream_would_go_elsewhere(stream_key: str) -> None:
    with pytest.raises(ConfigError, match="found an empty stream key"):
        parse_target("rtmp://host/live", stream_key)


@pytest.mark.parametrize(
    ("url", "stream_key", "said", "shown"),
    [
        ("rtmp://h/live", KEY, f"stream {KEY} is busy", "stream **** is busy"),
        ("rtmp://h/live", f"{KEY}?a=b-long-token", "no b-long-token for you", "no **** for you"),
        ("rtmp://h/live", f"{KEY}?a=b-long-token", f"{KEY}: unknown", "****: unknown"),
        ("rtmp://h/live?sig=abcdef", KEY, "rtmp://h/live?sig=abcdef is closed", "rtmp://h/live?**** is closed"),
        ("rtmp://h/live", "k%20ey%3D1", "k ey=1 unknown, k%20ey%3D1 too", "**** unknown, **** too"),
        ("rtmp://h/live", KEY, f"twice: {KEY}{KEY}", "twice: ********"),
        # Too short to be a key, and to be told from innocent words.
        ("rtmp://h/live", "on", "the connection is gone", "the connection is gone"),
        # The source's own name is public.
        ("rtmp://h/live", None, "stream cam is busy", "stream cam is busy"),
    ],
)
def test_what_the_far_end_says_is_shown_without_our_secrets(
    url: str, stream_key: str | None, said: str, shown: str
) -> None:
    assert parse_target(url, stream_key).redact(said) == shown


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXT, TEXT, st.text("abc/?&=#%-_.~:@ ", min_size=1))
def test_whatever_the_key_is_it_is_never_shown(before: str, after: str, tail: str) -> None:
    secret = "s3cr3t" + tail
    target = parse_target("rtmp://host/live", secret)
    assert "s3cr3t" not in target.shown + repr(target)
    assert target.name is not None
    assert target.name not in target.redact(f"{before}{target.name}{after}") or target.name in HIDDEN + before + after


@given(st.text())
def test_any_text_is_a_target_or_one_printable_line_without_it(url: str) -> None:
    message = ""
    try:
        target = parse_target(url)
        assert target.host
        assert target.app
        assert target.name != ""
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()
