"""The files of a query's tables, held open from its beginning to its end.

A job replaces the file of a live stream every few seconds, and a reader that opens a file by its name twice, once for
its columns and once for its rows, may get two files. A file that is open stays what it was, whatever its name means by
now. So the query is given descriptors, as paths under /dev/fd, and sees one state of every stream in a table.
"""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.query.lake import Table, parquet_files, patiently

DESCRIPTORS = "/dev/fd"


@contextmanager
def pinned(tables: Iterable[Table], pause: Callable[[float], None] = time.sleep) -> Iterator[dict[str, list[str]]]:
    """Table -> the paths of its files, good until the end. Raises PipelineError if they cannot be opened."""
    _allow_many_files()
    with ExitStack() as held:
        paths: dict[str, list[str]] = {}
        for table in tables:
            descriptors = patiently(table.directory, partial(_open_all, table), pause)
            for descriptor in descriptors:
                held.callback(os.close, descriptor)
            paths[table.name] = [f"{DESCRIPTORS}/{descriptor}" for descriptor in descriptors]
        yield paths


def _open_all(table: Table) -> list[int]:
    """All files of a table or, if one of them went away meanwhile, FileNotFoundError and none."""
    with ExitStack() as opened:
        descriptors = []
        files = sorted(parquet_files(table.directory))
        for file in files:
            try:
                descriptor = os.open(file, os.O_RDONLY)
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                raise PipelineError("TOO_MANY_FILES", table=table.name, files=len(files), limit=limit) from None
            opened.callback(os.close, descriptor)
            descriptors.append(descriptor)
        opened.pop_all()
    return descriptors


def _allow_many_files() -> None:
    """A day of a live server is tens of thousands of small files, and 1024 is what a shell begins with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS says there is no limit, and has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
