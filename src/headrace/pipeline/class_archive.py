"""A JVM that need not parse Spark's classes: an archive of them (JEP 350) that a first job leaves for the next ones.

Owns where it lies and when it is of use: it belongs to one Java, one Spark and one set of options, all of which are in
its name, and a JVM that cannot use it starts as if there were none. Written beside and renamed, so that a job that was
killed leaves nothing that another could take for it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_SUFFIX = ".jsa"
_KEPT = 3  # of other Javas and other Sparks of this user; each is 160 MB
# A JVM has much to say about classes that it could not keep or find there, none of which matters.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"


class ClassArchive:
    """The archive of one kind of JVM in a user's cache."""

    def __init__(self, cache_dir: Path, java_home: Path, spark_home: Path, java_options: str) -> None:
        about = [str(java_home), _content(java_home / "release"), str(spark_home), java_options]
        about += [f"{jar.name} {jar.stat().st_size}" for jar in sorted((spark_home / "jars").glob("*.jar"))]
        name = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
        self._path = cache_dir / f"spark-{name}{_SUFFIX}"
        self._unfinished = self._path.with_suffix(f".{os.getpid()}.new")
        self._is_written = False

    def java_options(self, *, is_written: bool) -> str:
        """What a JVM is started with to use it. One that `is_written` may also make it, if it is not there yet."""
        if self._path.exists():
            return f"-XX:SharedArchiveFile={self._path} {_QUIET}"
        if not is_written or " " in str(self._path):
            return ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        self._is_written = True
        return f"-XX:ArchiveClassesAtExit={self._unfinished} {_QUIET}"

    @property
    def is_being_written(self) -> bool:
        return self._is_written

    def keep(self) -> bool:
        """Call when the JVM has ended well. Whether there is an archive now that was not there before."""
        try:
            self._unfinished.rename(self._path)
        except OSError:
            return False
        others = sorted(self._path.parent.glob(f"spark-*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in others[:-_KEPT]:
            path.unlink(missing_ok=True)
        return True

    def discard(self) -> None:
        """What a JVM that was killed has left."""
        self._unfinished.unlink(missing_ok=True)


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
