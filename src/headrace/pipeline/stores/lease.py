"""One job at a time where nobody locks files for us: a flag that its holder renews, on any store of strong consistency.

    LAKE/_lease/ID.json     who it is, and whether it is still asking or holds the lake

Whoever wants the lake writes a flag, then lists all of them. Of two who do so at least one sees the other, because a
listing shows every write that was finished before it. Who sees no living flag but its own holds the lake; who sees one
takes its own away. So two never hold it, and nothing needs a conditional write or a time to settle.

A flag that was not renewed for TAKEN_OVER_S, by the store's own clock, is dead. Its holder has stopped by itself before
that: after LOST_S without a renewal it writes nothing any more. What cannot be excluded is a write that was begun
before and reaches the store only after that time.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import uuid4

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.stores.store import Entry, Note

TAKEN_OVER_S = 60.0
LOST_S = 45.0
_RENEWED_EVERY_S = 10.0
_FOLDER, _SUFFIX = "_lease", ".json"
_ATTEMPTS = 5  # of several who ask in the same moment
_ASKING, _HOLDING = "asking", "holding"


class Flags(Protocol):
    """What it takes of a store."""

    address: str

    def entries(self, directory: str) -> list[Entry]: ...

    def read_note(self, name: str) -> Note | None: ...

    def put_note(self, name: str, content: Note) -> None:
        """In one step, and whoever holds the lake."""

    def remove(self, name: str) -> None: ...


class _Other(NamedTuple):
    state: str
    holder: str
    silent_s: float


class Lease:
    """Taken by `take`, renewed by a thread of its own, given back by `give_back`."""

    def __init__(
        self,
        flags: Flags,
        job: str,
        *,
        clock: Callable[[], float] | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._flags = flags
        self._file = f"{uuid4().hex}{_SUFFIX}"
        self._name = f"{_FOLDER}/{self._file}"
        self._holder = f"{job}, process {os.getpid()} on {socket.gethostname()}"
        self._clock = clock or _clock
        self._wait = wait
        self._renewed_s = 0.0
        self._is_given_back = threading.Event()
        self._renewing = threading.Lock()

    def take(self) -> None:
        """Raises PipelineError if another job has it, or asks for it all the time."""
        for attempt in range(_ATTEMPTS):
            other = self._ask()
            if other is None:
                threading.Thread(target=self._renew_on, name="lease", daemon=True).start()
                return
            if other.state == _HOLDING or attempt == _ATTEMPTS - 1:
                silent_s = round(other.silent_s)
                silent = f", not heard of for {silent_s} s" if silent_s > 2 * _RENEWED_EVERY_S else ""
                raise PipelineError("LAKE_BUSY", path=self._flags.address, holder=f"{other.holder}{silent}")
            # Somebody asks in the same moment. The one who waits less has it.
            self._wait(random.uniform(0.1, 1.0) * (attempt + 1))  # noqa: S311 spreads load only

    def _ask(self) -> _Other | None:
        """None if it is ours."""
        self._renewed_s = self._clock()
        self._flags.put_note(self._name, self._note(_ASKING))
        is_ours = False
        try:
            others = self._others()
            if not others:
                self.renew()
                is_ours = True
        finally:
            if not is_ours:
                with suppress(OSError):
                    self._flags.remove(self._name)
        return max(others, key=lambda other: other.state == _HOLDING, default=None)

    def require(self) -> None:
        """Raises PipelineError if somebody else may have it by now."""
        if self.is_lost:
            silent_s = self._clock() - self._renewed_s
            raise PipelineError("LAKE_LOST", path=self._flags.address, silent_s=round(silent_s))

    @property
    def is_lost(self) -> bool:
        return self._clock() - self._renewed_s > LOST_S

    def renew(self) -> None:
        """Raises OSError if the store does not answer, PipelineError if it is too late."""
        self.require()
        began_s = self._clock()
        self._flags.put_note(self._name, self._note(_HOLDING))
        self.require()  # a write that took so long may have come after another one took the lake
        self._renewed_s = began_s

    def give_back(self) -> None:
        self._is_given_back.set()
        with self._renewing:  # a renewal that comes behind it would hold the lake for nobody
            self._flags.remove(self._name)

    def _renew_on(self) -> None:
        while not self._is_given_back.wait(_RENEWED_EVERY_S):
            try:
                with self._renewing:
                    if not self._is_given_back.is_set():
                        self.renew()
            except OSError:
                continue  # there is time for more attempts
            except PipelineError:
                return  # told to whoever writes next

    def _note(self, state: str) -> Note:
        return {"holder": self._holder, "state": state}

    def _others(self) -> list[_Other]:
        """Those that live. What the dead have left is removed: the store's own clock says how old it is."""
        entries = {entry.name: entry for entry in _flags_in(self._flags)}
        own = entries.pop(self._file, None)
        if own is None:
            raise PipelineError(
                "LAKE_NOT_REACHED", path=self._flags.address, who="this job", reason="what it wrote is not listed there"
            )
        found = []
        for name, entry in entries.items():
            if own.changed_s - entry.changed_s > TAKEN_OVER_S:
                self._flags.remove(f"{_FOLDER}/{name}")
                continue
            told = _read(self._flags, name)
            found.append(_Other(told["state"], told["holder"], own.changed_s - entry.changed_s))
        return found


def is_held(flags: Flags, now_s: float) -> bool:
    """Whether some job lives, as far as our clock and the store's agree."""
    return any(now_s - entry.changed_s <= TAKEN_OVER_S for entry in _flags_in(flags))


def _flags_in(flags: Flags) -> list[Entry]:
    return [entry for entry in flags.entries(_FOLDER) if entry.name.endswith(_SUFFIX)]


def _read(flags: Flags, name: str) -> Note:
    unknown = {"state": _HOLDING, "holder": "another job"}
    try:
        return {**unknown, **(flags.read_note(f"{_FOLDER}/{name}") or {})}
    except ValueError:
        return unknown


def _clock() -> float:
    """Goes on while the machine sleeps, where the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
