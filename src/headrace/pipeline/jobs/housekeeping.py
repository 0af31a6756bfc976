"""Compaction by the job that has the lake: every so often, and when somebody asks for it.

    LAKE/_compact.json      somebody asks: an id, and what to keep
    LAKE/_compacted.json    the job's answer to that id

Owns that conversation. What compaction does is `compact`.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.compact import compact
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.jobs.report import Say
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.stores.places import existing_store_at
from headrace.pipeline.stores.store import Store

_ASKED, _ANSWERED = "_compact.json", "_compacted.json"
_LOOK_S = 1.0
DEADLINE_S = 1800.0  # a year's first compaction takes minutes


class Housekeeping(threading.Thread):
    """Beside the threads of a job, until it stops. What fails is told, and tried again the next time."""

    def __init__(
        self, lake: Lake, retention: Retention, every_s: float | None, say: Say, stop: threading.Event
    ) -> None:
        super().__init__(name="housekeeping", daemon=True)
        self._lake = lake
        self._retention = retention
        self._every_s = every_s
        self._say = say
        self._stop_asked = stop
        self.start()

    def run(self) -> None:
        last_s = time.monotonic()
        while not self._stop_asked.wait(_LOOK_S):
            asked = _read(self._lake.store, _ASKED)
            is_due = self._every_s is not None and time.monotonic() - last_s >= self._every_s
            if asked is not None:
                self._lake.store.delete(_ASKED)
                _write(self._lake.store, _ANSWERED, {"id": asked.get("id"), **self._compact(_wanted(asked))})
            elif is_due:
                self._compact(self._retention)
            else:
                continue
            last_s = time.monotonic()

    def _compact(self, retention: Retention) -> dict[str, str]:
        try:
            done = str(compact(self._lake, retention, now_ms=int(time.time() * 1000)))
        except (OSError, PipelineError) as error:
            self._say(f"compaction failed: {error}")
            return {"error": str(error)}
        self._say(done)
        return {"done": done}


@dataclass(frozen=True, slots=True)
class Request:
    lake: Path | str
    retention: Retention
    deadline_s: float = DEADLINE_S


def run(request: Request, say: Say) -> None:
    """Do it, or have it done by the job that has the lake. Raises PipelineError."""
    store = existing_store_at(request.lake)
    if not store.can_swap:
        raise PipelineError("LAKE_NOT_COMPACTED", path=store.address)
    try:
        with open_lake(request.lake, "headrace pipeline compact") as lake:
            say(str(compact(lake, request.retention, now_ms=int(time.time() * 1000), quiet_s=0, say=say)))
    except PipelineError as error:
        holder = str(error.parameters.get("holder", ""))
        if error.condition != "LAKE_BUSY" or not holder.startswith("headrace pipeline run"):
            raise
        say(f"asked {holder.removeprefix('headrace pipeline run, ')}, which has the lake")
        say(_ask(store, request, holder))
    except OSError as error:
        raise PipelineError("COMPACTION_FAILED", path=store.address, reason=error) from error


def _ask(store: Store, request: Request, holder: str) -> str:
    identity = uuid.uuid4().hex
    _write(
        store,
        _ASKED,
        {"id": identity, "tiers_ms": request.retention.tiers_ms, "bronze_ms": request.retention.bronze_ms},
    )
    answer = _wait(store, request.deadline_s, identity, holder)
    if "error" in answer:
        raise PipelineError("COMPACTION_FAILED", path=store.address, reason=answer["error"])
    return str(answer["done"])


def _wait(store: Store, deadline_s: float, identity: str, holder: str) -> dict[str, Any]:
    process = holder.removeprefix("headrace pipeline run, ")
    pid = int(process.split()[1])
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        answer = _read(store, _ANSWERED)
        if answer is not None and answer.get("id") == identity:
            return answer
        if not store.is_held_by(pid):
            break
        time.sleep(_LOOK_S / 4)
    store.delete(_ASKED)
    raise PipelineError("COMPACTION_FAILED", path=store.address, reason=f"{process} did not answer")


def _wanted(asked: dict[str, Any]) -> Retention:
    return Retention({int(size): int(kept) for size, kept in asked["tiers_ms"].items()}, int(asked["bronze_ms"]))


def _read(store: Store, name: str) -> dict[str, Any] | None:
    try:
        return store.read_note(name)
    except (OSError, ValueError):
        return None


def _write(store: Store, name: str, content: dict[str, Any]) -> None:
    store.write_note(name, content, is_durable=False)
