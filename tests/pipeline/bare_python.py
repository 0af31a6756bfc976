"""Pythons for executors: an environment with everything that this one has, less some packages."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

# Pandas too: the driver needs it, and whether executors do is what the clusters' tests show.
NOT_ON_EXECUTORS = ("headrace", "pandas")


def make_python(folder: Path, without: tuple[str, ...], at_start: str = "") -> Path:
    """A Python without these packages, however they were installed here. `at_start` is code that it begins with."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        # A .pth file is how a package in place is found, and so how headrace would be.
        is_unwanted = entry.suffix == ".pth" or any(entry.name.partition("-")[0] == name for name in without)
        if not is_unwanted:
            (site / entry.name).symlink_to(entry)
    (site / "sitecustomize.py").write_text(at_start)
    return folder / "bin" / "python"
