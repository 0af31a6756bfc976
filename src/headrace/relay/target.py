"""Where a destination is: an `rtmp://` or `rtmps://` address taken apart, and the one place that hides its secrets.

A stream key sits in the path of such an address, so what is shown is always the redacted form.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headrace.errors import ConfigError

DEFAULT_PORTS = {"rtmp": 1935, "rtmps": 443}
HIDDEN = "****"
# Shorter secrets would also redact innocent words; a real key is far longer.
_MIN_SECRET_CHARACTERS = 4


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """One server, application and stream name. `name` is None where the source stream's own name is to be used."""

    scheme: str
    host: str
    port: int
    app: str
    name: str | None

    def __repr__(self) -> str:
        return f"Target({self.shown})"

    @property
    def is_tls(self) -> bool:
        return self.scheme == "rtmps"

    @property
    def tc_url(self) -> str:
        return f"{self.scheme}://{self._authority}/{self.app}"

    @property
    def shown(self) -> str:
        """For logs, pages and errors: no key, no query."""
        app, _, query = self.app.partition("?")
        shown = f"{self.scheme}://{self._authority}/{app}"
        if query:
            shown += f"?{HIDDEN}"
        return shown if self.name is None else f"{shown}/{HIDDEN}"

    def redact(self, text: str) -> str:
        """`text`, which may come from the far end and quote our key back at us, without our secrets."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    @property
    def _authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def _secrets(self) -> set[str]:
        _, _, app_query = self.app.partition("?")
        found = {app_query, *_values(app_query)}
        if self.name is not None:
            path, _, query = self.name.partition("?")
            found |= {self.name, path, query, *_values(query)}
        found |= {unquote(secret) for secret in found}
        return {secret for secret in found if len(secret) >= _MIN_SECRET_CHARACTERS}


def _values(query: str) -> set[str]:
    return {pair.partition("=")[2] for pair in query.split("&")}


def parse_target(url: str, stream_key: str | None = None) -> Target:
    """The target of a URL. `rtmp://host/app` has no name; `rtmp://host/app/name` has; a `stream_key` is appended.

    Errors never repeat the URL, nor what the parser says of it: it may hold the key.
    """
    url = url.strip()
    if not is_encodable(url) or not is_encodable(stream_key or ""):
        raise ConfigError("found characters that are no Unicode text, expected rtmp://host/app/key")
    try:
        parts = urlsplit(url, allow_fragments=False)  # a "#" in a key is part of it
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("found a host or port that cannot be read, expected rtmp://host:port/app/key") from None
    if parts.scheme not in DEFAULT_PORTS:
        found = parts.scheme if "://" in url else "no scheme"
        raise ConfigError(f"found {found}, expected an address that begins with rtmp:// or rtmps://")
    if not host:
        raise ConfigError("found an address without a host, expected rtmp://host/app/key")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("found a user name in the address, expected rtmp://host/app/key with no user")
    path = parts.path.strip("/")
    if not path:
        raise ConfigError("found an address without an application, expected rtmp://host/app/key")
    query = f"?{parts.query}" if parts.query else ""
    if stream_key is not None:
        app, name = path + query, stream_key.strip().strip("/")
        if not name:
            # Most often a variable that is set to nothing; without its key the stream would go to a name of its own.
            raise ConfigError("found an empty stream key, expected a key, or none at all")
    elif "/" in path:
        # Stream keys have no slash, applications may: live/eu/KEY is the application live/eu.
        app, _, last = path.rpartition("/")
        name = last + query
    else:
        return Target(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path + query, None)
    return Target(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], app, name)


def is_encodable(text: str) -> bool:
    """False for half a surrogate pair, which JSON and command lines can hold and no message or page can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
