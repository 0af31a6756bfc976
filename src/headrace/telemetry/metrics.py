"""The server's counters. Plain attributes, added to in place: the hot path pays one addition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ServerMetrics:
    """Totals since the start, and what is there now."""

    streams: int = 0  # live or in their grace period, now
    publishers: int = 0  # now
    subscribers: int = 0  # now
    connections: int = 0  # open now
    connections_accepted: int = 0
    connections_refused: int = 0
    handshakes_failed: int = 0
    peer_errors: int = 0  # connections closed because the peer broke the protocol
    publishes_started: int = 0
    publishes_refused: int = 0
    plays_started: int = 0
    plays_refused: int = 0
    messages_in: int = 0
    bytes_in: int = 0  # payload bytes
    messages_relayed: int = 0
    bytes_relayed: int = 0  # bytes on the wire, chunk headers included
    messages_dropped: Counter[str] = field(default_factory=Counter)  # by reason
    connections_closed: Counter[str] = field(default_factory=Counter)  # by deadline

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain numbers, for a log line or a page."""
        values: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            values[name] = dict(value) if isinstance(value, Counter) else value
        return values
