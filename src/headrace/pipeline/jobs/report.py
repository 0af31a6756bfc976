"""What a job says: one line for each micro-batch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

Say = Callable[[str], None]
_lock = threading.Lock()


def say_to_stdout(line: str) -> None:
    with _lock:  # streams speak from threads of their own
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def describe(what: str, rows: int, problems: int, took_s: float, batch_id: int | None = None) -> str:
    batch = "" if batch_id is None else f" batch={batch_id}"
    is_built = what.startswith("tables")
    unit = "streams" if is_built else "rows"
    found = "" if is_built else f" problems={problems}"
    return f"{what}{batch} {unit}={rows}{found} took={took_s:.1f}s"
