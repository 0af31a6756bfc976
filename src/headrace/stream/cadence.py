"""When a stream's next message is due: pictures and sound come at an even pace each, and their timestamps tell it.

Pure: time comes in as `now_s`. An encoder's steps alone are looked at, not when its messages came: a network shifts
those.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.stream.log import Entry

# One whose next message is further away is not told of: a slide show, or a clock that was set.
_MAX_STEP_MS = 250


class Cadence:
    """What each kind of message leads us to expect."""

    __slots__ = ("_due_s", "_newest_ms")

    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}  # timestamp of the newest message, by its type
        self._due_s: dict[int, float] = {}  # when the next one is due

    def observe(self, entries: Iterable[Entry], now_s: float) -> float | None:
        """These have just come. When the next message is due, of whatever kind; None if that cannot be told."""
        newest_ms, due_s = self._newest_ms, self._due_s
        for entry in entries:
            type_id, timestamp_ms = entry.type_id, entry.timestamp_ms
            step_ms = (timestamp_ms - newest_ms.get(type_id, timestamp_ms)) & 0xFFFFFFFF
            newest_ms[type_id] = timestamp_ms
            due_s[type_id] = now_s + step_ms / 1000 if step_ms <= _MAX_STEP_MS else now_s
        return min((at_s for at_s in due_s.values() if at_s > now_s), default=None)
