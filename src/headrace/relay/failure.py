"""What can go wrong with a destination, sorted into classes, and what each class means for trying again."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from headrace.errors import HeadraceError
from headrace.protocol.client import ClientState, Refused


class ErrorClass(Enum):
    DNS = "dns"
    REFUSED = "refused"
    TLS = "tls"
    HANDSHAKE = "handshake"
    REJECTED = "rejected"  # the far end understood and said no: busy or unknown key
    AUTH = "auth"  # the far end wants other credentials
    STALLED = "stalled"  # connected, but takes no bytes
    RESET = "reset"
    TIMEOUT = "timeout"


class Retry(Enum):
    BACKOFF = "backoff"  # soon, then less and less often
    SLOWLY = "slowly"  # at the longest delay from the first: it will not change in seconds, and hammering annoys
    NEVER = "never"  # only a person can mend it


RETRY = {
    ErrorClass.DNS: Retry.BACKOFF,
    ErrorClass.REFUSED: Retry.BACKOFF,
    ErrorClass.TLS: Retry.SLOWLY,
    ErrorClass.HANDSHAKE: Retry.BACKOFF,
    ErrorClass.REJECTED: Retry.SLOWLY,
    ErrorClass.AUTH: Retry.NEVER,
    ErrorClass.STALLED: Retry.BACKOFF,
    ErrorClass.RESET: Retry.BACKOFF,
    ErrorClass.TIMEOUT: Retry.BACKOFF,
}


class RelayError(HeadraceError):
    """A connection to a destination failed or ended. The text holds no secret."""

    def __init__(self, error_class: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class

    @property
    def retry(self) -> Retry:
        return RETRY[self.error_class]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    initial_s: float = 1.0
    max_s: float = 30.0
    jitter: float = 0.2  # the share of a delay that is random, so that many destinations do not come back at once
    max_retries: int = 0  # in a row without a stable minute; 0 is for ever

    def delay_s(self, attempt: int, retry: Retry, random: float) -> float:
        """Before retry number `attempt` (from 1); `random` is in 0..1."""
        doubled_s = self.initial_s * 2.0 ** min(attempt - 1, 30)
        delay_s = self.max_s if retry is Retry.SLOWLY else min(doubled_s, self.max_s)
        return delay_s * (1.0 - self.jitter * random)


def of_os_error(error: OSError) -> RelayError:
    """An error of the operating system, told by what it means for us."""
    text = error.strerror or str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return RelayError(ErrorClass.DNS, f"name not found: {text}")
    if error.errno and not isinstance(error, ssl.SSLError):
        text = os.strerror(error.errno)  # event loops put words of their own in its place
    if isinstance(error, ssl.SSLCertVerificationError):
        return RelayError(ErrorClass.TLS, f"certificate not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return RelayError(ErrorClass.TLS, f"TLS failed: {error.reason or text}")
    if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED):
        return RelayError(ErrorClass.RESET, text)
    if isinstance(error, TimeoutError):  # ETIMEDOUT too
        return RelayError(ErrorClass.TIMEOUT, text)
    return RelayError(ErrorClass.REFUSED, text)


# Words by which servers say that the credentials, not the name, are wrong.
_AUTH_WORDS = ("auth", "unauthorized", "denied", "forbidden", "credential", "password")
# Of what the far end says, as much as a person reads. It may be 256 KB, and it is on every page.
MAX_SAID_CHARACTERS = 300


def of_refusal(refused: Refused, name: str, redact: Callable[[str], str]) -> RelayError:
    """What a refusal of the stream `name` means. The far end may quote the name: it must not be taken for words."""
    said = f"{refused.code}: {refused.description}" if refused.description else refused.code
    shown = redact(said)
    public_name = name.partition("?")[0]
    words = shown.replace(public_name, "") if len(public_name) >= min(map(len, _AUTH_WORDS)) else shown
    is_auth = any(word in words.lower() for word in _AUTH_WORDS)
    error_class = ErrorClass.AUTH if is_auth else ErrorClass.REJECTED
    if refused.during is ClientState.RUNNING:
        error_class = ErrorClass.RESET  # it had taken us: the stream was stopped over there
    # Redacted before it is cut: half a key is no longer recognised as one.
    return RelayError(error_class, f"refused during {refused.during.value}: {shown[:MAX_SAID_CHARACTERS]}")


# What a connection that ends without a word means depends on how far it had come.
_ENDED_DURING = {
    ClientState.HANDSHAKE: ErrorClass.HANDSHAKE,
    ClientState.CONNECT: ErrorClass.REJECTED,
    ClientState.CREATE_STREAM: ErrorClass.REJECTED,
    ClientState.START: ErrorClass.REJECTED,
    ClientState.RUNNING: ErrorClass.RESET,
    ClientState.OVER: ErrorClass.RESET,
}


def of_lost_connection(state: ClientState, reason: str) -> RelayError:
    error_class = _ENDED_DURING[state]
    hint = " (platforms do this when the stream key is wrong)" if state is ClientState.START else ""
    return RelayError(error_class, f"connection ended during {state.value}: {reason}{hint}")
