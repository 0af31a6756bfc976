"""A publisher's way to the worker that has its stream: what it sends here is published there.

A publisher that comes back within the grace period may be given to another worker than before. The stream, with its
players, recordings and destinations, stays where it is; the worker in between keeps a short log and one reader of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from headrace.errors import StreamError
from headrace.logs import Logger
from headrace.net.fanout import Fanout, Player
from headrace.protocol.chunks import RawMessage
from headrace.relay.failure import RelayError
from headrace.relay.session import DestinationSession
from headrace.stream.cursor import Cursor
from headrace.stream.log import LogLimits
from headrace.stream.registry import Stream
from headrace.telemetry.metrics import ServerMetrics

# A worker that takes nothing for so long is stuck, and the parent will notice.
_LIMITS = LogLimits(retain_s=5.0)


class ForwardedPublication:
    """The `Intake` of a session whose stream another worker has."""

    def __init__(
        self,
        session: DestinationSession,
        message_stream_id: int,
        app: str,
        name: str,
        *,
        chunk_size: int,
        on_lost: Callable[[str], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stream = Stream(app, name, _LIMITS, loop.time())  # in no registry
        self._session = session
        self._on_lost = on_lost
        self._is_left = False
        # Counted by the worker that has the stream, so not here.
        self._fanout = Fanout(loop, self.stream, ServerMetrics(), chunk_size)
        player = Player(
            Cursor(self.stream.log),
            session.link,
            message_stream_id,
            lambda reason: session.finish(),
            since_s=loop.time(),
            is_viewer=False,
            is_internal=True,
        )
        session.attach(self._fanout, player)
        session.ended.add_done_callback(self._ended)

    def receive(self, batch: Sequence[RawMessage], message_stream_id: int, now_s: float) -> int:
        taken = 0
        for type_id, timestamp_ms, its_stream_id, payload in batch:
            if its_stream_id == message_stream_id:
                self.stream.add(type_id, timestamp_ms, payload)
                taken += 1
        self.stream.tell()
        return taken

    def sweep(self, log: Logger, now_s: float) -> None:
        pass  # the worker that has the stream samples it

    def leave(self, log: Logger, reason: str, kind: str, now_s: float) -> None:
        self._is_left = True
        log.info("publisher disconnected", stream_key=self.stream.key, reason=reason)
        if kind == "unpublished":
            self.stream.end(reason)  # what is not sent yet goes first, then the goodbye
        else:
            self._fanout.flush()
            self._session.link.close(reason, flush=True)  # without a goodbye: it may come back

    def describe(self) -> dict[str, Any]:
        return {}

    def _ended(self, ended: asyncio.Future[RelayError | None]) -> None:
        if not self._is_left:
            self._on_lost("the worker that has the stream closed it")


async def open_forward(
    session: DestinationSession,
    app: str,
    name: str,
    *,
    chunk_size: int,
    on_lost: Callable[[str], None],
) -> ForwardedPublication:
    """The way to a worker that granted it; StreamError with its refusal otherwise."""
    try:
        message_stream_id = await session.start()
    except RelayError as error:
        refused = session.refused
        if refused is not None and refused.code.startswith("NetStream."):
            raise StreamError(refused.code, refused.description) from None
        raise StreamError("NetStream.Publish.Denied", f"The stream cannot be published now: {error}.") from None
    return ForwardedPublication(session, message_stream_id, app, name, chunk_size=chunk_size, on_lost=on_lost)
