"""The server's once-a-second: when samples are taken."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.chance import Ints, noise

TICK_MS = 1000
_LATE_MS = 4  # a timer is never early, and a busy loop is late by so much
RELAY_LATE_MS = 7  # the relay has a timer of its own, which was started so much later


class Clock(NamedTuple):
    start_ms: int
    salt: int

    def at(self, tick: Ints) -> Ints:
        """When tick number so and so was."""
        return self.start_ms + TICK_MS * (tick + 1) + noise(tick + 1, self.salt, _LATE_MS)

    def before(self, time_ms: Ints) -> Ints:
        """The number of the last tick before this time; -1 and less: there was none yet."""
        guess = (time_ms - self.start_ms) // TICK_MS - 1
        return np.where(self.at(guess) < time_ms, guess, guess - 1)
