"""The names in a lake that its readers need too, also those without PySpark. `jobs/lake.py` says what lies where."""

from __future__ import annotations

from pathlib import Path

from headrace.pipeline.errors import PipelineError

LAYOUT_VERSION = 1  # raised when what lies where changes its meaning
LAYERS = ("bronze", "silver", "gold")
VERSION_FILE = "_lake.json"  # the version, and the columns of every table


def require_lake(root: Path) -> None:
    """Raises PipelineError where no job has made a lake yet."""
    if not (root / VERSION_FILE).exists():
        raise PipelineError("LAKE_NOT_FOUND", path=root, command="`headrace pipeline run` or `batch`")
