"""A simulation on disk, and its lines as a reader finds them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.pipeline.jobs.progress import SilentProgress
from headrace.pipeline.simulate import job
from headrace.pipeline.simulate.plan import Options

START_MS = 1_767_229_100_000  # 2026-01-01T00:58:20Z: an hour ends soon
Line = dict[str, Any]


def options(folder: Path, **changed: Any) -> Options:
    """Three streams of three minutes in which much goes wrong."""
    chosen: dict[str, Any] = {
        "streams": 3,
        "hours": 0.05,
        "viewers": 4,
        "destinations": 2,
        "seed": 7,
        "start_ms": START_MS,
        "faults": 15.0,
        "data_dir": folder / "data",
        "record_dir": folder / "recordings",
        "frames": None,
    }
    return Options(**{**chosen, **changed})


def simulate(folder: Path, *, jobs: int = 1, say: Callable[[str], None] = lambda line: None, **changed: Any) -> Path:
    """Its data directory."""
    asked = options(folder, **changed)
    job.run(asked, jobs, say, SilentProgress(say))
    return asked.data_dir


def lines_of(data_dir: Path) -> list[Line]:
    """In the order of the files' names, which is that of the log."""
    paths = sorted(data_dir.glob("events/date=*/hour=*/*.jsonl"), key=lambda path: path.name)
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def by_feed(lines: list[Line]) -> dict[str, list[Line]]:
    """Deliveries."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line["type"] == "delivery":
            found[line["feed"]].append(line)
    return found
