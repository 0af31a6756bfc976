"""What executors are sent."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace.pipeline import archive
from headrace.pipeline.archive import pack_package


def test_the_package_can_be_imported_from_its_archive(tmp_path: Path) -> None:
    packed = pack_package(tmp_path)
    names = zipfile.ZipFile(packed).namelist()
    assert "headrace/pipeline/sources/flv/walk.py" in names
    assert not [name for name in names if "__pycache__" in name]
    code = "import headrace.pipeline.sources.flv.walk as walk; print(walk.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(packed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == f"{packed}/headrace/pipeline/sources/flv/walk.py"


def test_the_same_sources_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = []
    for number in (1, 2):
        package = tmp_path / f"checkout{number}" / "headrace"
        (package / "__pycache__").mkdir(parents=True)
        (package / "__pycache__" / "a.pyc").write_bytes(bytes([number]))
        for name in ("a.py", "b.py")[:: (1, -1)[number - 1]]:
            (package / name).write_text(f"# {name}\n")
            (package / name).chmod(0o600 + 0o44 * number)
            os.utime(package / name, (1e9 * number, 1e9 * number))
        target = tmp_path / f"packed{number}"
        target.mkdir()
        monkeypatch.setattr(archive, "PACKAGE", package)
        packed.append(pack_package(target).read_bytes())
    assert packed[0] == packed[1]
