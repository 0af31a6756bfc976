"""What a job on a cluster must end with, and what it says of its executors."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pipeline.jobs.logs_on_disk import all_tables

Tables = dict[str, list[str]]


def assert_same(lake: Path, expected: Tables) -> None:
    found = all_tables(lake)
    for table, rows in expected.items():
        assert found[table] == rows, table
    assert not list((lake / "_tmp").iterdir())


def executors_in(said: str) -> dict[str, str]:
    """What the job's line about its executors says."""
    (line,) = re.findall(r"^executors (.+=.+)$", said, re.MULTILINE)
    return dict(word.split("=", 1) for word in line.split())
