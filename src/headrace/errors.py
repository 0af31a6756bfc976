"""The one tree of errors. A class exists only where some caller branches on it."""

from __future__ import annotations


class HeadraceError(Exception):
    """Everything Headrace raises on purpose."""


class PeerError(HeadraceError):
    """The peer sent bytes that break the rules: its connection is closed, nobody else is affected."""


class UsageError(HeadraceError):
    """Our own code called an API out of order: a bug, never the peer's fault."""


class StreamError(HeadraceError):
    """A publish or play that cannot be granted; carries the NetStream code to answer with."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description


class ConfigError(HeadraceError):
    """A flag, a file or an environment variable holds what it must not; one line for the user."""
