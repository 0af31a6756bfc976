"""When a stream's next message is due: pictures and sound come at an even pace each, and their timestamps tell it.

Pure: time comes in as `now_s`. An encoder's steps alone are looked at, not when its messages came: a network shifts
those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.protocol import messages
from headrace.stream.log import Entry

# One whose next message is further away is not told of: a slide show, or a clock that was set.
_MAX_STEP_MS = 250
# Timestamps are whole milliseconds: 30 pictures a second are 33, 33 and 34 apart. Steps that differ by no more are of
# one pace, whose mean is taken; by the last step alone a message was due up to a millisecond too early or too late.
_ROUNDED_MS = 1.5
_MEAN_SHARE = 1 / 8
# One that is larger is not kept, nor gone through only to prepare for the next.
_MAX_LIKE_BYTES = 64 << 10


class Due(NamedTuple):
    """The next message: when it will come, and the last of its kind, which it will be like."""

    at_s: float
    like: Entry


Prepare = Callable[[Due], bool]  # what to do shortly before; False if it has come already


class _Kind:
    """Pictures, or sound."""

    __slots__ = ("due_s", "like", "newest_ms", "step_ms")

    def __init__(self, first: Entry) -> None:
        self.newest_ms = first.timestamp_ms
        self.like: Entry | None = None
        self.step_ms = 0.0
        self.due_s = 0.0

    def observe(self, entry: Entry, now_s: float) -> None:
        step_ms = (entry.timestamp_ms - self.newest_ms) & 0xFFFFFFFF
        self.newest_ms = entry.timestamp_ms
        self.like = entry if len(entry.payload) <= _MAX_LIKE_BYTES else None
        if step_ms > _MAX_STEP_MS:
            self.due_s = now_s
            return
        if abs(step_ms - self.step_ms) > _ROUNDED_MS:
            self.step_ms = float(step_ms)
        else:
            self.step_ms += (step_ms - self.step_ms) * _MEAN_SHARE
        self.due_s = now_s + self.step_ms / 1000


class Cadence:
    """What each kind of message leads us to expect."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[int, _Kind] = {}

    def observe(self, entries: Iterable[Entry], now_s: float) -> Due | None:
        """These have just come. What is due next, of either kind; None if that cannot be told."""
        kinds = self._kinds
        for entry in entries:
            if entry.type_id == messages.DATA or entry.is_config:
                continue  # these come when they come
            if (kind := kinds.get(entry.type_id)) is None:
                kind = kinds[entry.type_id] = _Kind(entry)
            kind.observe(entry, now_s)
        first = None
        for kind in kinds.values():
            if kind.due_s > now_s and (first is None or kind.due_s < first.due_s):
                first = kind
        return None if first is None or first.like is None else Due(first.due_s, first.like)

    def is_awaited(self, due: Due) -> bool:
        """It has not come."""
        return self._kinds[due.like.type_id].like is due.like
