"""One lake for all: a query changes nothing, and tests show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.query.night import write_lake


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lake(tmp_path_factory.mktemp("night") / "lake")
