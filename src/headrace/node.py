"""A server with all that belongs to it in one process: its event log, recordings, destinations and pulls, wired once.

The process that serves alone has one, and so has every worker of several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakSet

from headrace import __version__
from headrace.control import Control
from headrace.edge.origin import Origin
from headrace.edge.service import EdgeService
from headrace.logs import get_logger
from headrace.options import ServeOptions
from headrace.record.service import RecordingService
from headrace.relay.config import DestinationConfig
from headrace.relay.service import RelayService
from headrace.server.server import Server
from headrace.stream.registry import Stream
from headrace.telemetry.event_log import EventLog
from headrace.telemetry.events import ServerStarted, ServerStopped
from headrace.telemetry.identity import load_identity
from headrace.telemetry.proof import emit_nothing
from headrace.workers.claims import Fellows, WorkerClaims, WorkerPulls

# Everything must be over within 5 s of a SIGTERM; recordings get what the sessions leave.
_RECORDINGS_CLOSE_S = 2.0
_SESSIONS_CLOSE_S = 2.0
_EVENTS_CLOSE_S = 0.5


class Node:
    """From here on it runs; nothing listens yet."""

    def __init__(
        self,
        options: ServeOptions,
        destinations: Sequence[DestinationConfig],
        origins: Sequence[Origin],
        fellows: Fellows | None = None,
    ) -> None:
        self._options = options
        self._offered: WeakSet[Stream] = WeakSet()
        self.event_log = _open_event_log(options, is_shared=fellows is not None)
        emit = self.event_log.emit if self.event_log is not None else emit_nothing
        emit(ServerStarted(version=__version__))
        self.recordings = RecordingService(options.record_dir, segment_duration_s=options.segment_duration_s, emit=emit)
        identity = f"{self.event_log.identity.node}.{self.event_log.boot}." if self.event_log is not None else ""
        self.server = Server(
            chunk_size=options.chunk_size,
            grace_s=options.publisher_grace_s,
            max_lag_s=options.max_lag_s,
            merge_s=options.merge_ms / 1000,
            on_stream=self._stream_started,
            emit=emit,
            viewer_name=_viewer_naming(options, self.event_log),
            stream_id_prefix=identity,
            server_id=fellows.server_id if fellows is not None else None,
            conn_prefix=fellows.conn_prefix if fellows is not None else "",
        )
        claims = WorkerClaims(self.server, fellows) if fellows is not None else None
        self.relay = RelayService(
            destinations,
            fanout_of=self.server.fanout,
            retain=self.server.streams.retain,
            chunk_size=options.chunk_size,
            emit=emit,
            leases=claims,
        )
        self.pulls: EdgeService | None = None
        if claims is not None:
            self.pulls = WorkerPulls(self.server, claims, origins, linger_s=options.origin_linger_s)
        elif origins:
            self.pulls = EdgeService(self.server, origins, linger_s=options.origin_linger_s)
        self.server.source = self.pulls
        self.server.claims = claims
        self.claims = claims
        self.control = Control(self.server, self.recordings, self.relay, self.event_log, self.pulls)

    def _stream_started(self, stream: Stream) -> None:
        # What another worker has, that one records and pushes.
        is_left_out = stream.is_pulled and (stream.is_internal or self._options.pulled_streams == "play")
        # A pulled stream is offered again when a publisher here takes it.
        if is_left_out or stream in self._offered:
            return
        self._offered.add(stream)
        self.relay.stream_started(stream)
        if self._options.record_all:
            self.recordings.start(stream)

    async def abandon(self) -> None:
        """There is nowhere to listen: it never served."""
        await self.server.close()
        if self.event_log is not None:
            self.event_log.close(_EVENTS_CLOSE_S)

    async def close(self, *others: asyncio.Task[None]) -> bool:
        """End sessions, destinations and pulls, and `others` with them, then close the files.

        False if a thread hangs in a dead disk: Python would wait for it for ever, and what can be saved has been.
        """
        loop = asyncio.get_running_loop()
        closing = [loop.create_task(self.server.close()), loop.create_task(self.relay.close()), *others]
        if self.pulls is not None:
            closing.append(loop.create_task(self.pulls.close()))
        await asyncio.wait(closing, timeout=_SESSIONS_CLOSE_S)
        is_clean = await self.recordings.close(_RECORDINGS_CLOSE_S)
        if self.event_log is not None:
            self.event_log.emit(ServerStopped(events_lost_total=self.event_log.events_lost))
            is_clean &= self.event_log.close(_EVENTS_CLOSE_S)
        get_logger(__name__).info("Stopped", **self.server.snapshot())
        return is_clean


def _open_event_log(options: ServeOptions, *, is_shared: bool) -> EventLog | None:
    """The event log, unless it is off or cannot be: a relay without telemetry is better than no relay."""
    if not options.telemetry:
        return None
    try:
        return EventLog(options.data_dir, load_identity(options.data_dir), is_shared=is_shared)
    except OSError as error:
        get_logger(__name__).error("Event log failed", path=str(options.data_dir), error=error.strerror)
        return None


def _viewer_naming(options: ServeOptions, event_log: EventLog | None) -> Callable[[str], str]:
    if event_log is None:
        return lambda remote: ""
    if options.store_addresses:
        return lambda remote: remote.rpartition(":")[0]
    return event_log.identity.viewer
