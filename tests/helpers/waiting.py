"""Waiting for what another thread, process or the kernel does: a condition is polled, and a deadline ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Against hanging, not a measure of speed: generous, because a loaded machine may stop a process for seconds.
DEADLINE_S = 20.0
_POLL_S = 0.002
_QUICK_TRIES = 200  # most things happen within a few turns of the loop: those are not slept over


def eventually(
    condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S, poll_s: float = _POLL_S
) -> None:
    """Return once the condition is true; fail, saying what was waited for, when it does not become so in time."""
    give_up_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        time.sleep(poll_s)


async def eventually_async(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """The same on an event loop, which goes on meanwhile."""
    give_up_s = time.monotonic() + deadline_s
    tries = 0
    while not condition():
        if time.monotonic() > give_up_s:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        tries += 1
        await asyncio.sleep(0 if tries < _QUICK_TRIES else _POLL_S)


async def turns(count: int = 3) -> None:
    """Let the loop run its callbacks: what is due at the next turn has happened afterwards."""
    for _ in range(count):
        await asyncio.sleep(0)
