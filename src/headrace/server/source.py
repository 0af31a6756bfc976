"""Where the server looks for a stream that nobody publishes here."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from headrace.stream.registry import Stream


class Source(Protocol):
    """Brings streams from elsewhere into the server's registry."""

    def find(self, app: str, name: str, via: tuple[str, ...]) -> asyncio.Future[Stream]:
        """The stream once it is here, or StreamError, raised or as the future's result.

        Whoever no longer wants it cancels the future.
        """

    def make_way(self, app: str, name: str) -> None:
        """Somebody wants to publish this here: a copy that nobody watches is given up."""

    def published(self, stream: Stream) -> None:
        """Somebody publishes it here: what is looked for elsewhere is found."""

    def describe(self, stream: Stream) -> dict[str, Any]:
        """What there is to say of a copy, for the status page."""
