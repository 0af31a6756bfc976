"""The installed package as an archive that Python imports from: what executors elsewhere are sent.

Owns what is in the archive. The same sources give the same bytes, so that a cluster which keeps files by their content
keeps one of them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path

import headrace

PACKAGE = Path(headrace.__file__).parent
NAME = "headrace.zip"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time that an archive can hold
_READABLE = 0o100644 << 16


def pack_package(directory: Path) -> Path:
    """The archive, written into a directory."""
    archive = directory / NAME
    with zipfile.ZipFile(archive, "w") as package:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                # Neither the time of a checkout nor the rights that somebody's umask gave are part of the sources.
                entry = zipfile.ZipInfo(path.relative_to(PACKAGE.parent).as_posix(), _EPOCH)
                entry.external_attr = _READABLE
                entry.compress_type = zipfile.ZIP_DEFLATED
                package.writestr(entry, path.read_bytes())
    return archive


def pack_for_this_process() -> Path:
    """The archive, for as long as this process lives: executors that start late fetch it late."""
    directory = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return pack_package(Path(directory))
