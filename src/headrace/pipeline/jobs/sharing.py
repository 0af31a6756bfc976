"""Many that use a thing, or one that changes it: what readers of parts and the one who merges them agree by."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Sharing:
    """Whoever changes it waits for those who use it, and those who come later wait for him."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._is_wanted_alone = False

    @contextmanager
    def used(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_wanted_alone)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_wanted_alone)
            self._is_wanted_alone = True
            self._changed.wait_for(lambda: self._users == 0)
        try:
            yield
        finally:
            with self._changed:
                self._is_wanted_alone = False
                self._changed.notify_all()
