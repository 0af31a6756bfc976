"""What is in a lake, as far as the lake itself tells: tables, their columns and their files. Writes nothing.

The lake says so in `_lake.json`, so neither PySpark nor the file of a table has to be opened to know its columns.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.layout import LAYERS, LAYOUT_VERSION, VERSION_FILE

if TYPE_CHECKING:
    from headrace.pipeline.stores.store import Entry, Store

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
    root = root.absolute()
    try:
        known = json.loads((root / VERSION_FILE).read_text("utf-8"))
        layout, columns = known["layout"], dict(known["tables"])
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


def is_named(table: str, sql: str) -> bool:
    """Whether a query names it. A word may be that of a column too: one too many costs time, and no row."""
    return re.search(rf"\b{re.escape(table)}\b", sql, re.IGNORECASE) is not None


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


def stored_files(store: Store, directory: str) -> list[Entry]:
    """The same of a lake anywhere. Raises FileNotFoundError where a job has put the table aside for a moment."""
    files = [file for file in store.entries(directory, is_recursive=True) if _is_of_table(file.name)]
    if not files:  # every table has one, that of its columns
        raise not_there(directory)
    return files


def not_there(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "not there", name)


def _is_of_table(name: str) -> bool:
    return name.endswith(".parquet") and not any(word.startswith(("_", ".")) for word in name.split("/"))


def patiently(path: Path | str, look: Callable[[], Found], pause: Callable[[float], None]) -> Found:
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
            # A store elsewhere names no file of this system.
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error).partition("\n")[0]
            raise PipelineError("LAKE_UNREADABLE", path=path, reason=reason) from None
        attempt += 1
        pause(PAUSE_S)


def _place(root: Path, name: str) -> tuple[str, Path]:
    for layer in LAYERS:
        if (root / layer / name).is_dir():
            return layer, root / layer / name
    raise FileNotFoundError(2, "no such table", str(root / "*" / name))
