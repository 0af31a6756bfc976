"""The proof of delivery of one reader: ranges of log positions that it got, or skipped and why, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.telemetry.events import Delivery, Event

Emit = Callable[[Event], None]


def emit_nothing(event: Event) -> None:
    """Where telemetry is off."""


class DeliveryProof:
    """Turns what a cursor says into ranges that follow each other without hole or overlap.

    Skips are noted when the cursor jumps; they are told, together with what was delivered around them, once the reader
    has really got past them. So a connection that dies in the middle of a batch proves nothing that did not happen.
    """

    def __init__(
        self, emit: Emit, *, reader: str, name: str, feed: str, stream: str, stream_id: str, start: int
    ) -> None:
        self._emit = emit
        self._reader = reader
        self._name = name
        self._feed = feed
        self._stream = stream
        self._stream_id = stream_id
        self._told = start
        self._skips: deque[tuple[int, int, str]] = deque()

    def skipped(self, reason: str, start: int, stop: int) -> None:
        """The reader will not get these."""
        if self._skips and self._skips[-1][1] == start and self._skips[-1][2] == reason:
            self._skips[-1] = (self._skips[-1][0], stop, reason)
        else:
            self._skips.append((start, stop, reason))

    def delivered_until(self, position: int) -> None:
        """The reader has everything before `position` but for what was skipped."""
        while self._skips and self._skips[0][0] < position:
            start, stop, reason = self._skips.popleft()
            if stop > position:
                self._skips.appendleft((position, stop, reason))
                stop = position
            self._tell("delivered", min(start, position), None)
            self._tell("skipped", stop, reason)
        self._tell("delivered", position, None)

    def forget_after(self, position: int) -> None:
        """The reader is thrown back to `position`: what was skipped behind it will be come upon again."""
        self._skips = deque(
            (start, min(stop, position), reason) for start, stop, reason in self._skips if start < position
        )

    def end(self, position: int, reason: str) -> None:
        """Nothing more will be delivered: what there is up to `position` is skipped for this reason."""
        self.forget_after(self._told)
        self._tell("skipped", position, reason)

    def _tell(self, outcome: str, stop: int, reason: str | None) -> None:
        if stop <= self._told:
            return
        self._emit(
            Delivery(
                reader=self._reader,
                name=self._name,
                stream=self._stream,
                stream_id=self._stream_id,
                start=self._told,
                stop=stop,
                outcome=outcome,
                reason=reason,
                feed=self._feed,
            )
        )
        self._told = stop
