"""What a worker is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.edge.origin import Origin
from headrace.options import ServeOptions


@dataclass(frozen=True, slots=True)
class WorkerStart:
    worker: int  # its number, from 0
    server_id: str
    options: ServeOptions
    destinations: list[dict[str, Any]]  # as in a configuration file, expanded
    origins: tuple[Origin, ...]
