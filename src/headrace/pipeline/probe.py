"""What one executor has: asked by `executors`, told as JSON.

Runs in the executors' Python, so it imports nothing that may be missing there, and must not know the driver.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PROBE_FILE = "probe"
# A quick executor must not be done with its task, and have the next one's, before a slow one has begun.
_SPREAD_S = 0.2


class Question(NamedTuple):
    packages: Sequence[str]  # by the name they are imported by
    directories: Sequence[str]  # that are to be read
    shared: str | None  # a directory of the driver's, which holds PROBE_FILE, and where executors are to write
    job: str  # whose question it is: a process may be asked by several, one after the other


class Answer(NamedTuple):
    host: str
    python: str  # its version
    executable: str
    headrace: str  # where this package came from
    packages: dict[str, str | None]  # version, "" if it does not tell; None: there is none
    unseen: dict[str, str]  # directories, and why
    mark: str  # what was written into `shared`, if there is one


def answer(question: str) -> str:
    """Both as JSON: a function of one text, which Spark can call for every row of a frame."""
    return _answer(question)


@cache  # a worker's process is asked for many rows
def _answer(text: str) -> str:
    question = Question(**json.loads(text))
    time.sleep(_SPREAD_S)
    unseen = {path: why for path in question.directories if (why := _why_not_readable(path))}
    mark = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
    if question.shared is not None and (why := _why_not_shared(Path(question.shared), mark)):
        unseen[question.shared] = why
    found = Answer(
        host=socket.gethostname(),
        python=platform.python_version(),
        executable=sys.executable,
        headrace=_own_file(),
        packages={name: _version(name) for name in question.packages},
        unseen=unseen,
        mark=mark,
    )
    return json.dumps(found._asdict())


def read_answer(text: str) -> Answer:
    fields: dict[str, Any] = json.loads(text)
    return Answer(**fields)


def _version(name: str) -> str | None:
    try:
        module = importlib.import_module(name)
    except Exception:  # a package that is there and cannot be loaded is as good as none
        return None
    # What was loaded, before what is installed: Spark brings a pyspark of its own.
    version = getattr(module, "__version__", None)
    if version is not None:
        return str(version)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _why_not_readable(path: str) -> str:
    try:
        with os.scandir(path):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _why_not_shared(directory: Path, mark: str) -> str:
    """The driver's file is seen here, and what is written here will be looked for by the driver."""
    try:
        if not (directory / PROBE_FILE).is_file():
            return "not there" if not directory.is_dir() else "another directory of that name"
        (directory / mark).touch()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _own_file() -> str:
    return importlib.import_module("headrace").__file__ or ""
