"""Failures sorted into classes, and the delays that follow from a class: tables, no clock, no socket."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.protocol.client import ClientState, Refused
from headrace.relay.failure import (
    MAX_SAID_CHARACTERS,
    RETRY,
    ErrorClass,
    RelayError,
    Retry,
    RetryPolicy,
    of_lost_connection,
    of_os_error,
    of_refusal,
)
from headrace.relay.target import parse_target

KEY = "abcd-efgh-1234-5678"


# --- trying again


def test_every_class_says_whether_to_try_again() -> None:
    assert RETRY.keys() == set(ErrorClass)
    soon = {name for name, retry in RETRY.items() if retry is Retry.BACKOFF}
    assert {error.value for error in soon} == {"dns", "refused", "handshake", "stalled", "reset", "timeout"}
    # A key or a certificate does not change within seconds, and credentials only when a person changes them.
    assert RETRY[ErrorClass.REJECTED] is RETRY[ErrorClass.TLS] is Retry.SLOWLY
    assert RETRY[ErrorClass.AUTH] is Retry.NEVER


@pytest.mark.parametrize("error_class", list(ErrorClass))
def test_an_error_knows_its_class_and_what_follows_from_it(error_class: ErrorClass) -> None:
    error = RelayError(error_class, "it broke")
    assert isinstance(error, HeadraceError)
    assert (str(error), error.error_class, error.retry) == ("it broke", error_class, RETRY[error_class])


PLAIN = RetryPolicy(jitter=0.0)


@pytest.mark.parametrize(
    ("policy", "retry", "delays_s"),
    [
        (PLAIN, Retry.BACKOFF, [1, 2, 4, 8, 16, 30, 30, 30]),
        (PLAIN, Retry.SLOWLY, [30, 30, 30, 30]),
        (RetryPolicy(initial_s=0.5, max_s=3, jitter=0), Retry.BACKOFF, [0.5, 1, 2, 3, 3]),
        (RetryPolicy(initial_s=0.5, max_s=3, jitter=0), Retry.SLOWLY, [3, 3]),
        (RetryPolicy(initial_s=5, max_s=5, jitter=0), Retry.BACKOFF, [5, 5, 5]),
    ],
)
def test_delays_double_up_to_the_longest(policy: RetryPolicy, retry: Retry, delays_s: list[float]) -> None:
    assert [policy.delay_s(attempt, retry, 0.7) for attempt in range(1, len(delays_s) + 1)] == delays_s


@pytest.mark.parametrize(
    ("jitter", "random", "delay_s"),
    [(0.2, 0.0, 8.0), (0.2, 0.5, 7.2), (0.2, 1.0, 6.4), (1.0, 1.0, 0.0), (0.0, 1.0, 8.0)],
)
def test_jitter_is_the_share_of_a_delay_that_is_random(jitter: float, random: float, delay_s: float) -> None:
    assert RetryPolicy(jitter=jitter).delay_s(4, Retry.BACKOFF, random) == pytest.approx(delay_s)


def test_the_default_is_one_second_doubling_to_thirty_for_ever() -> None:
    assert RetryPolicy() == RetryPolicy(initial_s=1.0, max_s=30.0, jitter=0.2, max_retries=0)


@given(
    attempt=st.integers(1, 10**9),
    retry=st.sampled_from(Retry),
    random=st.floats(0, 1),
    initial_s=st.floats(0.01, 3600),
    more_s=st.floats(0, 3600),
    jitter=st.floats(0, 1),
)
def test_no_delay_is_negative_or_longer_than_the_longest(
    attempt: int, retry: Retry, random: float, initial_s: float, more_s: float, jitter: float
) -> None:
    policy = RetryPolicy(initial_s=initial_s, max_s=initial_s + more_s, jitter=jitter)
    assert 0 <= policy.delay_s(attempt, retry, random) <= policy.max_s


# --- errors of the operating system


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


def tls_error(reason: str | None, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    error = kind(1, "[SSL] something")
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("error", "error_class", "message"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Unknown"), ErrorClass.DNS, "name not found: Unknown"),
        (socket.gaierror(socket.EAI_AGAIN, "Try again"), ErrorClass.DNS, "name not found: Try again"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), ErrorClass.REFUSED, os.strerror(errno.ECONNREFUSED)),
        # An event loop's own words name an address and say less.
        (OSError(errno.ECONNREFUSED, "Connect call failed"), ErrorClass.REFUSED, os.strerror(errno.ECONNREFUSED)),
        (OSError(errno.EHOSTUNREACH, "x"), ErrorClass.REFUSED, os.strerror(errno.EHOSTUNREACH)),
        (OSError(errno.ENETUNREACH, "x"), ErrorClass.REFUSED, os.strerror(errno.ENETUNREACH)),
        (OSError("host has no address"), ErrorClass.REFUSED, "host has no address"),
        (ConnectionResetError(errno.ECONNRESET, "x"), ErrorClass.RESET, os.strerror(errno.ECONNRESET)),
        (BrokenPipeError(errno.EPIPE, "x"), ErrorClass.RESET, os.strerror(errno.EPIPE)),
        (ConnectionAbortedError(errno.ECONNABORTED, "x"), ErrorClass.RESET, os.strerror(errno.ECONNABORTED)),
        (OSError(errno.ETIMEDOUT, "x"), ErrorClass.TIMEOUT, os.strerror(errno.ETIMEDOUT)),
        (TimeoutError(), ErrorClass.TIMEOUT, "TimeoutError"),
        (certificate_error(), ErrorClass.TLS, "certificate not accepted: self-signed certificate"),
        (tls_error("WRONG_VERSION_NUMBER"), ErrorClass.TLS, "TLS failed: WRONG_VERSION_NUMBER"),
        (tls_error(None), ErrorClass.TLS, "TLS failed: [SSL] something"),
        (tls_error(None, ssl.SSLEOFError), ErrorClass.TLS, "TLS failed: [SSL] something"),
    ],
)
def test_an_error_of_the_system_is_told_by_what_it_means(error: OSError, error_class: ErrorClass, message: str) -> None:
    told = of_os_error(error)
    assert (told.error_class, str(told)) == (error_class, message)


# --- refusals


def refusal(
    code: str, description: str, *, during: ClientState = ClientState.START, name: str = KEY, url: str = "rtmp://h/live"
) -> RelayError:
    target = parse_target(url, KEY)
    return of_refusal(Refused(during, code, description), name, target.redact)


@pytest.mark.parametrize(
    ("code", "description", "error_class"),
    [
        ("NetStream.Publish.BadName", "already publishing", ErrorClass.REJECTED),
        ("NetStream.Publish.BadName", "", ErrorClass.REJECTED),
        ("NetConnection.Call.Failed", "error", ErrorClass.REJECTED),
        ("NetConnection.Connect.InvalidApp", "no such application", ErrorClass.REJECTED),
        ("NetConnection.Connect.Rejected", "[ AccessManager.Reject ] : [ code=403 need auth ]", ErrorClass.AUTH),
        ("NetConnection.Connect.Rejected", "code=403 need auth; authmod=adobe", ErrorClass.AUTH),
        ("NetStream.Publish.Denied", "", ErrorClass.AUTH),
        ("NetStream.Publish.BadName", "Unauthorized", ErrorClass.AUTH),
        ("NetStream.Publish.Failed", "403 FORBIDDEN", ErrorClass.AUTH),
        ("NetStream.Publish.Failed", "Wrong Password", ErrorClass.AUTH),
        ("NetStream.Publish.Failed", "bad credentials", ErrorClass.AUTH),
    ],
)
def test_the_words_of_a_refusal_tell_wrong_credentials_from_a_wrong_name(
    code: str, description: str, error_class: ErrorClass
) -> None:
    told = refusal(code, description)
    assert told.error_class is error_class
    assert str(told) == f"refused during start: {code}" + (f": {description}" if description else "")


def test_a_refusal_after_it_had_begun_means_that_the_stream_was_stopped_over_there() -> None:
    told = refusal("NetStream.Publish.Denied", "kicked", during=ClientState.RUNNING)
    assert told.error_class is ErrorClass.RESET
    assert told.retry is Retry.BACKOFF


def test_a_refusal_that_quotes_the_key_is_shown_without_it() -> None:
    told = refusal("NetStream.Publish.BadName", f"stream {KEY} is already published")
    assert str(told) == "refused during start: NetStream.Publish.BadName: stream **** is already published"


@pytest.mark.parametrize("name", ["author-cam", "denied", "auth", "password?auth=1"])
def test_a_name_that_sounds_like_credentials_is_not_given_up_for_it(name: str) -> None:
    public = name.partition("?")[0]
    told = refusal("NetStream.Publish.BadName", f"{public} is already being published", name=name)
    assert told.error_class is ErrorClass.REJECTED
    assert public in str(told)  # the source's own name is public


@pytest.mark.parametrize("name", ["a", "t", "th", "u"])
def test_a_short_name_does_not_hide_the_word_for_credentials(name: str) -> None:
    assert refusal("NetStream.Publish.BadName", "need auth", name=name).error_class is ErrorClass.AUTH


def test_a_key_that_sounds_like_credentials_is_not_given_up_for_it() -> None:
    target = parse_target("rtmp://h/live", "auth-4711?password=forbidden")
    told = of_refusal(
        Refused(ClientState.START, "NetStream.Publish.BadName", "auth-4711?password=forbidden is busy"),
        "auth-4711?password=forbidden",
        target.redact,
    )
    assert told.error_class is ErrorClass.REJECTED
    assert str(told) == "refused during start: NetStream.Publish.BadName: **** is busy"


def test_of_a_long_speech_a_person_sees_the_beginning_and_nobody_half_a_key() -> None:
    before = "x" * (MAX_SAID_CHARACTERS - len("code: ") - 5)
    told = refusal("code", before + KEY + "y" * 100_000)
    assert len(str(told)) <= len("refused during start: ") + MAX_SAID_CHARACTERS
    assert KEY[:3] not in str(told)


# --- ends without a word


@pytest.mark.parametrize(
    ("state", "error_class", "message"),
    [
        (ClientState.HANDSHAKE, ErrorClass.HANDSHAKE, "connection ended during handshake: closed by peer"),
        (ClientState.CONNECT, ErrorClass.REJECTED, "connection ended during connect: closed by peer"),
        (ClientState.CREATE_STREAM, ErrorClass.REJECTED, "connection ended during createStream: closed by peer"),
        (
            ClientState.START,
            ErrorClass.REJECTED,
            "connection ended during start: closed by peer (platforms do this when the stream key is wrong)",
        ),
        (ClientState.RUNNING, ErrorClass.RESET, "connection ended during running: closed by peer"),
        (ClientState.OVER, ErrorClass.RESET, "connection ended during over: closed by peer"),
    ],
)
def test_an_end_without_a_word_is_told_by_how_far_it_had_come(
    state: ClientState, error_class: ErrorClass, message: str
) -> None:
    told = of_lost_connection(state, "closed by peer")
    assert (told.error_class, str(told)) == (error_class, message)
