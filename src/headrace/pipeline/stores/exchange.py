"""Two directories in each other's place in one step: how many files become few without a reader seeing rows twice.

Linux can do that (renameat2 with RENAME_EXCHANGE) on its own file systems. Elsewhere it takes two steps, between which
the directory is not there: a reader then fails, and must not see wrong rows. Owns what is left of a step by a crash.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_ASIDE = "_aside"
_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def exchange(root: Path, live: Path, other: Path) -> None:
    """What was `live` is then `other`. `root` is a directory of the same file system that outlives a crash."""
    try:
        _swap(live, other)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
        _in_two_steps(root, live, other)


def mend(root: Path) -> None:
    """After a crash between two steps: what was put aside comes back, if nothing took its place."""
    aside = root / _ASIDE
    for layer in aside.glob("*"):
        for kept in layer.glob("*"):
            place = root / layer.name / kept.name
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                kept.rename(place)


def aside_directory(root: Path) -> Path:
    return root / _ASIDE


def _swap(live: Path, other: Path) -> None:
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, "no renameat2") from None
    if renameat2(_AT_FDCWD, os.fsencode(live), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(live))


def _in_two_steps(root: Path, live: Path, other: Path) -> None:
    kept = root / _ASIDE / live.relative_to(root)
    kept.parent.mkdir(parents=True, exist_ok=True)
    live.rename(kept)
    other.rename(live)
    kept.rename(other)
