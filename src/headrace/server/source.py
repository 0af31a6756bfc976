"""Where the server looks for a stream that nobody publishes here, and whom it asks before somebody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.logs import Logger
from headrace.protocol.chunks import RawMessage
from headrace.stream.registry import Stream


class Source(Protocol):
    """Brings streams from elsewhere into the server's registry."""

    def find(self, app: str, name: str, via: tuple[str, ...]) -> asyncio.Future[Stream]:
        """The stream once it is here, or StreamError, raised or as the future's result.

        Whoever no longer wants it cancels the future.
        """

    def pending(self, app: str, name: str) -> asyncio.Future[Stream] | None:
        """The same for another worker: what we are about to bring from elsewhere, and nothing that is not."""

    def make_way(self, app: str, name: str) -> None:
        """Somebody wants to publish this here: a copy that nobody watches is given up."""

    def published(self, stream: Stream) -> None:
        """Somebody publishes it here: what is looked for elsewhere is found."""

    def describe(self, stream: Stream) -> dict[str, Any]:
        """What there is to say of a copy, for the status page."""


class Intake(Protocol):
    """Where a publisher's messages go: a log here, or another worker."""

    @property
    def stream(self) -> Stream: ...

    def receive(self, batch: Sequence[RawMessage], message_stream_id: int, now_s: float) -> int:
        """Take the messages of this message stream out of a batch; how many those were."""

    def sweep(self, log: Logger, now_s: float) -> None: ...

    def leave(self, log: Logger, reason: str, kind: str, now_s: float) -> None: ...

    def describe(self) -> dict[str, Any]: ...


class Claims(Protocol):
    """Of several workers one has a stream; the others know that and send its publisher's messages there."""

    def claim(
        self, app: str, name: str, *, conn_id: str, remote: str, is_internal: bool, on_lost: Callable[[str], None]
    ) -> asyncio.Future[Intake | None]:
        """None once the stream is ours to be published, the way to whoever has it, or StreamError.

        Whoever no longer wants it cancels the future. `on_lost` is called if that way breaks off.
        """

    def settle(self, key: str) -> None:
        """Somebody stopped publishing, or did not begin: is the stream still ours?"""
