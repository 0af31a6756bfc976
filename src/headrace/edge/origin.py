"""Where streams are pulled from: an `rtmp://` or `rtmps://` address, whose query may hold a token."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.net.dial import dial
from headrace.relay.target import DEFAULT_PORTS, Target, is_encodable

_EXPECTED = "rtmp://host:1935"


class Upstream(Protocol):
    """Somebody to pull from: an origin, or another worker of this server."""

    @property
    def is_internal(self) -> bool:
        """A worker of this server: what comes from there is neither counted nor told twice."""

    def target(self, app: str) -> Target:
        """The application to connect to, for a stream that is asked for as one of `app`."""

    async def dial(self, timeout_s: float) -> socket.socket:
        """A connected socket, or OSError."""


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


@dataclass(frozen=True, slots=True, repr=False)
class Origin:
    """One server to ask. Without an `app` the stream has the same one there as here."""

    scheme: str
    host: str
    port: int
    app: str
    query: str

    def __repr__(self) -> str:
        return f"Origin({self.shown})"

    @property
    def is_internal(self) -> bool:
        return False

    @property
    def shown(self) -> str:
        return self.target("").shown.rstrip("/")

    def target(self, app: str) -> Target:
        query = f"?{self.query}" if self.query else ""
        return Target(self.scheme, self.host, self.port, (self.app or app) + query, None)

    async def dial(self, timeout_s: float) -> socket.socket:
        tls = _tls_context() if self.scheme == "rtmps" else None
        return await dial(self.host, self.port, tls=tls, timeout_s=timeout_s)


def parse_origins(values: Iterable[str]) -> tuple[Origin, ...]:
    """The origins of `-origin` values, each of which may hold several, separated by commas, in their order."""
    found: list[Origin] = []
    for value in values:
        for url in value.split(","):
            origin = _parse(url.strip())
            if origin in found:
                raise ConfigError(f"{origin.shown} is given twice")
            found.append(origin)
    return tuple(found)


def _parse(url: str) -> Origin:
    """Errors never repeat the address, nor what the parser says of it: it may hold a token."""
    if not url or not is_encodable(url):
        raise ConfigError(f"found an empty address, or no Unicode text, expected {_EXPECTED}")
    try:
        parts = urlsplit(url, allow_fragments=False)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"found a host or port that cannot be read, expected {_EXPECTED}") from None
    if parts.scheme not in DEFAULT_PORTS:
        found = parts.scheme if "://" in url else "no scheme"
        raise ConfigError(f"found {found}, expected an address that begins with rtmp:// or rtmps://")
    if not host:
        raise ConfigError(f"found an address without a host, expected {_EXPECTED}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"found a user name in the address, expected {_EXPECTED} with no user")
    return Origin(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], parts.path.strip("/"), parts.query)
