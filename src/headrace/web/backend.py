"""What the HTTP side asks of the server behind it."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.errors import HeadraceError


class NotFoundError(HeadraceError):
    """There is no such stream or destination."""


class Backend(Protocol):
    """Plain data out, plain data in. Bad input is a ConfigError, an unknown name a NotFoundError."""

    def health(self) -> dict[str, Any]: ...

    def streams(self) -> list[dict[str, Any]]: ...

    def counters(self) -> dict[str, Any]: ...

    def destinations(self) -> dict[str, dict[str, Any]]: ...

    def add_destination(self, body: Any) -> dict[str, Any]: ...

    def change_destination(self, name: str, body: Any) -> dict[str, Any]: ...

    def remove_destination(self, name: str) -> None: ...

    def drop_publisher(self, stream_key: str) -> None: ...
