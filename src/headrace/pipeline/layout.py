"""The names in a lake that its readers need too, also those without PySpark. `jobs/lake.py` says what lies where."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

LAYOUT_VERSION = 1  # raised when what lies where changes its meaning
LAYERS = ("bronze", "silver", "gold")
VERSION_FILE = "_lake.json"  # the version, and the columns of every table
SCHEMA_FILE = "schema.parquet"  # of every table: no rows, so that it can be read before it has some
SETTLED = "settled-"  # what a file begins with that holds the rows of many streams, none of which changes any more


class Unit(NamedTuple):
    """What is rebuilt as a whole: a stream of a node, or what was refused of a name."""

    node: str
    stream_id: str | None
    stream: str | None  # only where there is no stream_id

    @classmethod
    def of(cls, node: str, stream_id: str | None, stream: str | None) -> Unit:
        """The unit of a row."""
        return cls(node, stream_id, None if stream_id is not None else stream)


def file_of(unit: Unit) -> str:
    """The name of a unit's file: readable, and safe whatever a stream is called."""
    identity = [unit.node, unit.stream_id or "", *([unit.stream or ""] if unit.stream_id is None else [])]
    shown = re.sub("[^A-Za-z0-9._-]", "_", unit.stream_id or unit.stream or "")
    return f"{hashlib.sha256(chr(10).join(identity).encode()).hexdigest()[:12]}-{shown[:100]}"
