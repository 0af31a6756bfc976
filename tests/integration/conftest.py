"""Fixtures of the integration tests: the clips, and a stage for one test's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

for _helper in ("child", "clips", "flv_tags", "harness", "packets", "raw_client"):
    pytest.register_assert_rewrite(f"tests.integration.{_helper}")

from tests.integration.clips import ClipLibrary  # noqa: E402
from tests.integration.harness import Stage  # noqa: E402


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> ClipLibrary:
    base = tmp_path_factory.getbasetemp()
    # With several workers each has a folder of its own inside the run's.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return ClipLibrary(shared / "clips")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        try:
            stage.close()
        finally:
            # Shown by pytest if the test has failed, and only then.
            print(stage.report())
