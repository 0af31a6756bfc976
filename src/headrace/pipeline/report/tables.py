"""Rows of the lake, read by pyarrow while a job may be writing: no lock, no JVM.

Owns how the files are found and read; the layout is that of `jobs.lake`, which says it to Spark. A file of silver or
gold holds the rows of one unit (a stream of a node, or what was refused of a name) and has the same name in every
table, or, `settled-…`, those of many old ones. It is replaced in one step, so whoever has it open reads the old one to
its end; one that is gone was taken away, which a second look at the directory settles.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.layout import LAYOUT_VERSION, SETTLED, VERSION_FILE, Unit, file_of

Row = dict[str, Any]

LAYERS = {
    "stream_windows": "silver",
    "gops": "silver",
    "sessions": "silver",
    "destination_states": "silver",
    "stream_health": "gold",
    "destination_health": "gold",
    "audience": "gold",
    "relay_audit": "gold",
    "incidents": "gold",
    "recordings": "gold",
}
_LOOKS = 5  # a job that rebuilds a lake takes its files away once, not again and again
_PAUSE_S = 0.05


class LakeTables:
    """The silver and gold tables of one lake."""

    def __init__(self, root: Path) -> None:
        self.root = root
        _require_lake(root)

    def units(self, table: str) -> list[str]:
        """Whose rows a table has, by the names of their files."""
        own = {path.stem for path in self._directory(table).glob("*.parquet") if path.stem != "schema"}
        return sorted({name for name in own if not name.startswith(SETTLED)} | self._settled(table).keys())

    def rows(self, table: str, unit: str, columns: Sequence[str], **equal: object) -> list[Row]:
        """The rows of one unit in which these columns have these values, or one of several; none without a file."""
        found = self._read(table, unit, columns, equal)
        return [] if found is None else found

    def all_rows(self, table: str, columns: Sequence[str], **equal: object) -> Iterator[tuple[str, list[Row]]]:
        """Every unit with its rows."""
        done: dict[str, list[Row]] = {}
        for look in range(_LOOKS):
            is_whole = True
            for unit in self.units(table):
                if unit in done:
                    continue
                found = self._read(table, unit, columns, equal)
                if found is None:
                    is_whole = False
                else:
                    done[unit] = found
            if is_whole:
                break
            time.sleep(_PAUSE_S * look)
        yield from done.items()

    def _directory(self, table: str) -> Path:
        return self.root / LAYERS[table] / table

    def _read(self, table: str, unit: str, columns: Sequence[str], equal: dict[str, object]) -> list[Row] | None:
        """None where there is no such file."""
        path = self._directory(table) / f"{unit}.parquet"
        for look in range(_LOOKS):
            try:
                with path.open("rb") as file:
                    return _rows_of(file, columns, equal)
            except FileNotFoundError:
                return self._read_settled(table, unit, columns, equal)
            except (OSError, pa.ArrowInvalid) as error:
                # A network's file system may lose a file that was replaced under its reader.
                if look == _LOOKS - 1:
                    raise PipelineError("TABLE_UNREADABLE", path=path, reason=_one_line(error)) from None
                time.sleep(_PAUSE_S)
        return None

    def _settled(self, table: str) -> dict[str, tuple[Path, Unit]]:
        """Units whose rows are in a file with those of others: which, and who they are."""
        found: dict[str, tuple[Path, Unit]] = {}
        for path in sorted(self._directory(table).glob(f"{SETTLED}*.parquet")):
            try:
                with path.open("rb") as file:
                    rows = pq.ParquetFile(file).read(columns=["node", "stream_id"], use_threads=False)
            except FileNotFoundError:
                continue  # merged with another meanwhile
            for row in rows.group_by(["node", "stream_id"], use_threads=False).aggregate([]).to_pylist():
                unit = Unit(row["node"], row["stream_id"], None)
                found[file_of(unit)] = path, unit
        return found

    def _read_settled(
        self, table: str, unit: str, columns: Sequence[str], equal: dict[str, object]
    ) -> list[Row] | None:
        for _ in range(_LOOKS):
            place = self._settled(table).get(unit)
            if place is None:
                return None
            path, who = place
            try:
                with path.open("rb") as file:
                    return _rows_of(file, columns, {**equal, "node": who.node, "stream_id": who.stream_id})
            except FileNotFoundError:
                continue
        return None


def _require_lake(root: Path) -> None:
    try:
        known = json.loads((root / VERSION_FILE).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise PipelineError("LAKE_NOT_FOUND", path=root, command="`headrace pipeline run` or `batch`") from None
    except (OSError, ValueError) as error:
        raise PipelineError("TABLE_UNREADABLE", path=root / VERSION_FILE, reason=_one_line(error)) from None
    found = known.get("layout") if isinstance(known, dict) else None
    if found != LAYOUT_VERSION:
        raise PipelineError("LAKE_VERSION", path=root, what="layout", found=found, expected=LAYOUT_VERSION)


def _rows_of(file: Any, columns: Sequence[str], equal: dict[str, object]) -> list[Row]:
    # Spark writes times in a form of its own, without a zone and finer than they are.
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    there = set(parquet.schema_arrow.names)
    wanted = dict.fromkeys([*columns, *equal])
    # Without threads: a file is small, and a pool that is still starting when a short command ends aborts the process.
    rows = parquet.read(columns=[name for name in wanted if name in there], use_threads=False)
    for name, value in equal.items():
        if name not in there:
            return []
        values = value if isinstance(value, tuple) else (value,)
        rows = rows.filter(pc.is_in(rows[name], value_set=pa.array(values, type=rows[name].type)))
    # A column that an older file lacks is null.
    lists = {name: _values(rows[name]) if name in there else [None] * rows.num_rows for name in columns}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC"), safe=False)
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
