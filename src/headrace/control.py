"""What the HTTP side shows and does, put together from the server, its recordings and its destinations."""

from __future__ import annotations

from typing import Any

from headrace.edge.service import NO_PULLS, EdgeService
from headrace.record.service import RecordingService
from headrace.relay.config import change_destination, read_destination
from headrace.relay.service import RelayService
from headrace.server.server import Server
from headrace.telemetry.event_log import EventLog
from headrace.web.backend import NotFoundError


class Control:
    """The `Backend` of the HTTP side."""

    def __init__(
        self,
        server: Server,
        recordings: RecordingService,
        relay: RelayService,
        event_log: EventLog | None = None,
        edge: EdgeService | None = None,
    ) -> None:
        self._server = server
        self._recordings = recordings
        self._relay = relay
        self._event_log = event_log
        self._edge = edge

    def health(self) -> dict[str, Any]:
        return self._relay.snapshot()

    def destinations(self) -> dict[str, dict[str, Any]]:
        return {name: destination.snapshot() for name, destination in self._relay.destinations.items()}

    def streams(self) -> list[dict[str, Any]]:
        return [{name: value for name, value in one.items() if name != "is_copy"} for one in self.describe_streams()]

    def describe_streams(self) -> list[dict[str, Any]]:
        """The same with what is a copy of another worker's stream marked as such."""
        recorded = {recorder.stream: recorder for recorder in self._recordings.active}
        shown = []
        for stream, facts in self._server.describe_streams():
            feeds = {
                name: destination.feeds[stream.key].state.value
                for name, destination in self._relay.destinations.items()
                if stream.key in destination.feeds
            }
            path = recorded[stream].path if stream in recorded else None
            recorders = [str(path)] if path is not None else []
            shown.append({**facts, "destinations": feeds, "recorders": recorders})
        return shown

    def counters(self) -> dict[str, Any]:
        totals = self._recordings.totals
        log = self._event_log
        return {
            **self._server.snapshot(),
            # Without an event log there is nothing to write, and nothing is lost.
            "events": {"written": log.events_written if log else 0, "lost": log.events_lost if log else 0},
            "pulls": self._edge.snapshot() if self._edge is not None else NO_PULLS,
            "recordings": {
                "active": len(self._recordings.active),
                "files": totals.files,
                "tags": totals.tags,
                "size_bytes": totals.size_bytes,
                "errors": totals.errors,
                "skipped": {reason.value: count for reason, count in totals.skipped.items()},
            },
        }

    def add_destination(self, body: Any) -> dict[str, Any]:
        return self._relay.add(read_destination(body, None, "destination")).snapshot()

    def change_destination(self, name: str, body: Any) -> dict[str, Any]:
        destination = self._relay.destinations.get(name)
        if destination is None:
            raise NotFoundError(f'There is no destination "{name}".')
        config = change_destination(destination.config, body, "destination")
        return self._relay.replace(config).snapshot()

    def remove_destination(self, name: str) -> None:
        if name not in self._relay.destinations:
            raise NotFoundError(f'There is no destination "{name}".')
        self._relay.remove(name)

    def drop_publisher(self, stream_key: str) -> None:
        if not self._server.drop_publisher(stream_key):
            raise NotFoundError(f'No stream "{stream_key}" is being published.')
