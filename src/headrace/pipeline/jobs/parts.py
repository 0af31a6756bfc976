"""Parts of bronze as Arrow: what each holds is looked up once, and the rows of the newest small ones are kept.

A part never changes, so nothing here can be out of date. It is what a build of live streams begins with, every few
seconds: a Spark job would take longer to plan than the rows to read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.layout import Unit
from headrace.telemetry.events import FIELD_NAMES

REFUSED = ("play_refused", "publish_refused")  # of no stream: they belong to the name that was asked for
# A second of a stream is some ten events and a hundred tags. What an archive's batch holds is read through, not kept.
MAX_PART_ROWS = 20_000
MAX_KEPT_ROWS = 200_000  # 100 MB of events, whose columns are many and mostly null

Keys = Collection[str | None]
After = Mapping[str, int]  # by key: the first place that counts


class Parts:
    """The rows of a bronze table by one of its columns. `order` is another one, whose values grow within a key."""

    def __init__(self, lake: Lake, table: str, key: str, order: str | None = None) -> None:
        self._lake = lake
        self._table = table
        self._key = key
        self._order = order
        self._last: dict[str, dict[str | None, int]] = {}  # by part: the last place of which key
        self._counts: dict[str, Counter[str | None]] = {}  # by part: how many rows of which key
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._kept_rows = 0
        self._large: set[str] = set()
        self._looking = threading.RLock()  # two threads may build tables of the same parts

    def count(self, keys: Keys, after: After | None = None) -> int:
        """How many rows have one of these keys, and with `after` are in parts that reach so far."""
        self._look()
        return sum(
            counts[key]
            for part, counts in self._counts.items()
            for key in keys
            if key in counts and self._reaches(part, key, after)
        )

    def counts(self, keys: Keys) -> Counter[str | None]:
        """How many rows each of these keys has."""
        self._look()
        found: Counter[str | None] = Counter()
        for counts in self._counts.values():
            found.update({key: counts[key] for key in keys if key in counts})
        return found

    def all_keys(self) -> set[str | None]:
        self._look()
        return {key for counts in self._counts.values() for key in counts}

    def rows(self, keys: Keys, after: After | None = None) -> pa.Table:
        """The rows with one of these keys, in the order in which they were taken in; with `after` only those behind."""
        self._look()
        schema = self._lake.arrow_schema(self._table)
        is_key = self._is_key(keys, after or {})
        found = [schema.empty_table()]
        small = [schema.empty_table()]
        for part, counts in self._counts.items():
            if any(key in counts and self._reaches(part, key, after) for key in keys):
                rows = self._small(part)
                if rows is None:
                    found += self._scan(part, schema.names, is_key)
                else:
                    small.append(rows)
        # A long stream has thousands of small parts: they are looked through at once.
        return pa.concat_tables([*found, pa.concat_tables(small).filter(is_key)])

    def distinct(self, part: str, columns: Sequence[str], where: pc.Expression | None = None) -> set[tuple[Any, ...]]:
        """The different values of some columns in a part."""
        found: set[tuple[Any, ...]] = set()
        for rows in self._scan(part, columns, where):
            unique = rows.group_by(list(columns)).aggregate([])
            found.update(zip(*(unique[name].to_pylist() for name in columns), strict=True))
        return found

    def _reaches(self, part: str, key: str | None, after: After | None) -> bool:
        if not after or key is None or key not in after:
            return True
        return self._last[part][key] >= after[key]

    def _is_key(self, keys: Keys, after: After) -> pc.Expression:
        whole = pa.array([key for key in keys if key is not None and key not in after], pa.string())
        is_key = pc.field(self._key).isin(whole)
        for key in after.keys() & set(keys):
            is_key |= (pc.field(self._key) == key) & (pc.field(self._order) >= after[key])
        return is_key | pc.field(self._key).is_null() if None in keys else is_key

    def _look(self) -> None:
        """Into the parts that are new. Those that were merged into others since are gone."""
        with self._looking:
            parts = self._lake.parts(self._table)
            for part in self._counts.keys() - set(parts):
                self._forget(part)
            for part in parts:
                if part not in self._counts:
                    self._counts[part] = self._look_into(part)

    def _forget(self, part: str) -> None:
        del self._counts[part], self._last[part]
        self._large.discard(part)
        rows = self._kept.pop(part, None)
        self._kept_rows -= rows.num_rows if rows is not None else 0

    def _look_into(self, part: str) -> Counter[str | None]:
        counts: Counter[str | None] = Counter()
        last = self._last[part] = {}
        columns = [self._key] if self._order is None else [self._key, self._order]
        for rows in self._scan(part, columns):
            wanted: list[Any] = [([], "count_all"), *((name, "max") for name in columns[1:])]
            counted = rows.group_by(self._key).aggregate(wanted)
            keys = counted[self._key].to_pylist()
            counts.update(dict(zip(keys, counted["count_all"].to_pylist(), strict=True)))
            if self._order is not None:
                for key, place in zip(keys, counted[f"{self._order}_max"].to_pylist(), strict=True):
                    last[key] = max(place, last.get(key, place))
        return counts

    def _scan(self, part: str, columns: Sequence[str], where: pc.Expression | None = None) -> Iterator[pa.Table]:
        rows = self._small(part)
        if rows is not None:
            yield (rows if where is None else rows.filter(where)).select(list(columns))
            return
        for batch in self._lake.dataset(self._table, [part]).to_batches(columns=list(columns), filter=where):
            yield pa.Table.from_batches([batch])

    def _small(self, part: str) -> pa.Table | None:
        """All rows of a part that is small, read once as long as it is kept."""
        with self._looking:
            if part in self._kept:
                self._kept.move_to_end(part)
                return self._kept[part]
            if part in self._large:
                return None
            dataset = self._lake.dataset(self._table, [part])
            if dataset.count_rows() > MAX_PART_ROWS:
                self._large.add(part)
                return None
            return self._keep(part, dataset.to_table())

    def _keep(self, part: str, rows: pa.Table) -> pa.Table:
        self._kept[part] = rows
        self._kept_rows += rows.num_rows
        while self._kept_rows > MAX_KEPT_ROWS:
            _, oldest = self._kept.popitem(last=False)
            self._kept_rows -= oldest.num_rows
        return rows


class EventParts(Parts):
    """Events by stream, and what all of them say of recordings."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake, "events", "stream_id")
        self._opened: dict[str, list[pa.Table]] = {}
        self._units: dict[str, set[Unit]] = {}

    def opened(self, part: str | None = None) -> pa.Table:
        """Every `recording_opened`, or those of a part: few, and whose a file is depends on all of them."""
        self._look()
        parts = self._opened.values() if part is None else [self._opened[part]]
        found = [rows for some in parts for rows in some]
        schema = self._lake.arrow_schema("events")
        return pa.concat_tables([schema.empty_table(), *found], promote_options="default")

    def units(self, part: str) -> set[Unit]:
        """Whom the events of a part belong to."""
        with self._looking:
            if part not in self._units:
                has_unit = pc.field("stream_id").is_valid() | pc.field("type").isin(REFUSED)
                found = self.distinct(part, ("node", "stream_id", "stream"), has_unit)
                self._units[part] = {Unit.of(*row) for row in found}
            return self._units[part]

    def _look_into(self, part: str) -> Counter[str | None]:
        # Only what such an event may have: with all columns a day's archive took a quarter of an hour to look through.
        columns = [name for name in self._lake.arrow_schema("events").names if name not in _NOT_OPENED]
        opened = self._scan(part, columns, pc.field("type") == _OPENED)
        self._opened[part] = [rows for rows in opened if rows.num_rows]
        return super()._look_into(part)

    def _forget(self, part: str) -> None:
        super()._forget(part)
        self._opened.pop(part, None)
        self._units.pop(part, None)


_OPENED = "recording_opened"
_NOT_OPENED = {name for names in FIELD_NAMES.values() for name in names} - set(FIELD_NAMES[_OPENED])
