"""Who may change something over HTTP.

With a token: whoever shows it. Without one: programs on this machine, and no web page, since a page from anywhere can
make a browser on this machine send requests here (by a form, or by a name that it points at 127.0.0.1).
"""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Refusal(Exception):
    """Why a request may not do what it asks, with the status to answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def check_change(
    *, token: str | None, client: str | None, host: str | None, origin: str | None, authorization: str | None
) -> None:
    """Raise Refusal unless a request with these headers from this client may change something."""
    if origin is not None and _host_of(origin) != _host_of(f"//{host or ''}"):
        raise Refusal(403, "foreign_origin", "A page from elsewhere may not change anything here.")
    if token is not None:
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Refusal(401, "token_missing", "This call needs the header Authorization: Bearer TOKEN.")
        if not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise Refusal(401, "token_wrong", "The bearer token is not the one this server was started with.")
        return
    if client is None or not _is_loopback(client):
        raise Refusal(403, "not_local", "Without -api-token, changes are accepted from this machine only.")
    if (_host_of(f"//{host or ''}") or ("", None))[0] not in _LOCAL_NAMES:
        raise Refusal(403, "foreign_host", "Without -api-token, the Host header must name this machine as localhost.")


def _is_loopback(client: str) -> bool:
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _host_of(url: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        default = {"http": 80, "https": 443}.get(parts.scheme)
        port = parts.port
        return (parts.hostname or "", None if port == default else port)
    except ValueError:
        return None
