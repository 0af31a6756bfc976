"""What is in a lake, as far as the lake itself tells: tables, their columns and their files. Writes nothing.

The lake says so in `_lake.json`, so neither PySpark nor the file of a table has to be opened to know its columns.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.layout import LAYERS, LAYOUT_VERSION, VERSION_FILE

# A job takes files away one at a time, and whole tables only where it brings a lake to a new shape: for milliseconds.
TRIES, PAUSE_S = 20, 0.1

Found = TypeVar("Found")


class Table(NamedTuple):
    name: str
    layer: str
    directory: Path
    columns: dict[str, Any]  # name -> type, in the words of Spark's JSON


def find_tables(root: Path, *, made_by: str, pause: Callable[[float], None] = time.sleep) -> dict[str, Table]:
    """Every table of a lake, in the lake's order. `made_by` is the command to run where there is none."""
    if "://" in str(root) or ":/" in str(root):
        raise PipelineError("LAKE_NOT_LOCAL", path=root)
    root = root.absolute()
    try:
        known = json.loads((root / VERSION_FILE).read_text("utf-8"))
        layout, columns = known["layout"], known["tables"]
    except (FileNotFoundError, NotADirectoryError):
        raise PipelineError("LAKE_NOT_FOUND", path=root, command=made_by) from None
    except OSError as error:
        raise PipelineError("LAKE_UNREADABLE", path=root, reason=f"{VERSION_FILE}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise PipelineError("LAKE_UNREADABLE", path=root, reason=f"{VERSION_FILE} is damaged") from None
    if layout != LAYOUT_VERSION:
        raise PipelineError("LAKE_VERSION", path=root, what="layout", found=layout, expected=LAYOUT_VERSION)
    return patiently(
        root, lambda: {name: Table(name, *_place(root, name), own) for name, own in columns.items()}, pause
    )


def parquet_files(directory: Path) -> Iterator[str]:
    """The files of a table, in no order. Like every reader of parquet, it passes over what begins with _ or a dot."""
    folders = [str(directory)]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                if entry.name.startswith(("_", ".")):
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                elif entry.name.endswith(".parquet"):
                    yield entry.path


def patiently(path: Path, look: Callable[[], Found], pause: Callable[[float], None]) -> Found:
    """What is found, also while a job replaces it: what went away in between is looked for again, but not for ever."""
    attempt = 1
    while True:
        try:
            return look()
        except FileNotFoundError as error:
            if attempt == TRIES:
                reason = f"{error.filename} is not there, at {TRIES} looks"
                raise PipelineError("LAKE_UNREADABLE", path=path, reason=reason) from None
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
            raise PipelineError("LAKE_UNREADABLE", path=path, reason=reason) from None
        attempt += 1
        pause(PAUSE_S)


def _place(root: Path, name: str) -> tuple[str, Path]:
    for layer in LAYERS:
        if (root / layer / name).is_dir():
            return layer, root / layer / name
    raise FileNotFoundError(2, "no such table", str(root / "*" / name))
