"""The garbage collector of a process that serves: what it looks at, and how often."""

from __future__ import annotations

import gc

# Messages in logs are objects that it counts, so a busy server made it look at everything there is several times a
# second: with 50 publishers that was 4 % of the processor time. What it is there for, closed sessions that refer to
# themselves, can wait until there are so many objects more than before.
_NEW_OBJECTS = 20_000


def spare() -> None:
    """After the start: what is there now stays, and need not be looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
