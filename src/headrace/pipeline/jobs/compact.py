"""Many small files become few, and what is older than its time goes.

Bronze: parts that everything was built from are merged into larger ones, by source, sorted so that a stream's rows
lie together. Silver and gold: a stream whose bronze has been let go is settled, that is, never built again, and its
rows are merged with those of others. Windows go when their tier's time is over. Each table changes in one step
(`exchange`): nobody sees a row twice, and a crash anywhere leaves every row where it was or where it should be.

Safe beside a running job, because that job does it: see `housekeeping`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.retention import Retention
from headrace.pipeline.jobs.units import file_name
from headrace.pipeline.layout import SETTLED, Unit, file_of
from headrace.pipeline.tables.catalog import DERIVED

# A merged part; of events, whose columns are many, a tenth of a gigabyte in memory. A part this large is left alone.
MERGED_ROWS = 200_000
_ROW_GROUP_ROWS = 50_000
# The newest parts are what live streams are built from every few seconds, out of memory.
QUIET_S = 3600.0
_ORDER = {"events": ["stream_id", "time_ms"], "tags": ["path", "byte_offset"], "problems": ["source", "file"]}
_NUMBERED = re.compile(r"(?P<source>stream-.+-|batch-)(?P<number>\d+)(?:-\d+){0,2}(?:-recordings)?")
_MERGED = re.compile(r"(?P<source>stream-.+-|batch-\d+-)m[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Compacted:
    files_before: int
    files_after: int
    rows_dropped: int
    streams_settled: int
    took_s: float

    def __str__(self) -> str:
        return (
            f"compacted files={self.files_before}->{self.files_after} rows_dropped={self.rows_dropped}"
            f" streams_settled={self.streams_settled} took={self.took_s:.1f}s"
        )


def compact(
    lake: Lake,
    retention: Retention,
    *,
    now_ms: int,
    quiet_s: float = QUIET_S,
    say: Callable[[str], None] = lambda line: None,
) -> Compacted:
    """Everything that can be merged, and everything whose time is over."""
    began_s, before, dropped = time.monotonic(), lake.count_files(), 0
    old = _old_units(lake, now_ms - retention.bronze_ms)
    # First the promise never to build them again, then what it is for.
    lake.settle({file: last_ms for file, (_, last_ms) in old.items()})
    gone = {file for file, last_ms in lake.settled().items() if last_ms < now_ms - retention.longest_ms}
    for table in DERIVED:
        dropped += _compact_derived(lake, table, retention, now_ms, gone)
        say(f"{table} done")
    if gone:
        lake.settle({}, gone)
    let_go = _LetGo(lake, old, retention, now_ms)
    for table in ("tags", "events", "problems"):  # tags by what events say of their files
        dropped += _compact_bronze(lake, table, let_go, now_ms, quiet_s)
        say(f"{table} done")
    return Compacted(before, lake.count_files(), dropped, len(old), time.monotonic() - began_s)


# Bronze -------------------------------------------------------------------------------------------------------------


class _LetGo:
    """Which rows of bronze nobody needs any more."""

    def __init__(self, lake: Lake, old: dict[str, tuple[Unit, int]], retention: Retention, now_ms: int) -> None:
        self._ids = pa.array(sorted({unit.stream_id or "" for unit, _ in old.values()}), pa.string())
        self.bronze_s = retention.bronze_ms / 1000
        self._bronze_ms = now_ms - retention.bronze_ms
        self._longest_ms = now_ms - retention.longest_ms
        opened = lake.dataset("events").to_table(
            columns=["stream_id", "path"], filter=pc.field("type") == "recording_opened"
        )
        by_age: dict[bool, set[str]] = {True: set(), False: set()}
        is_old = pc.is_in(opened["stream_id"], value_set=self._ids).to_pylist()
        for path, old_one in zip(opened["path"].to_pylist(), is_old, strict=True):
            by_age[old_one].add(file_name(path))
        self._names = by_age[True] - by_age[False]

    def keep(self, table: str, rows: pa.Table) -> pa.Table:
        if table == "events":
            of_stream = pc.field("stream_id").is_valid()
            is_old = of_stream & pc.field("stream_id").isin(self._ids)
            # A refused name has no stream that ends: it is kept for as long as anything is.
            is_refused = pc.field("type").isin(["play_refused", "publish_refused"])
            too_old = pc.field("time_ms") < pc.if_else(is_refused, self._longest_ms, self._bronze_ms)
            return rows.filter(~(is_old | (~of_stream & too_old)))
        if table == "tags" and self._names:
            paths = pc.unique(rows["path"]).to_pylist()
            dead = pa.array([path for path in paths if file_name(path) in self._names], pa.string())
            return rows.filter(pc.invert(pc.is_in(rows["path"], value_set=dead)))
        return rows


def _compact_bronze(lake: Lake, table: str, let_go: _LetGo, now_ms: int, quiet_s: float) -> int:
    """How many rows went. A group of parts at a time, so that memory stays small."""
    dropped = 0
    times_s = lake.part_times_s(table)
    ages_s = {part: now_ms / 1000 - times_s[part] for part in lake.finished_parts(table)}
    for source, parts in _mergeable(ages_s, quiet_s, let_go.bronze_s):
        sizes = {part: lake.count_rows(table, part) for part in parts}
        for group in _groups(sizes):
            rows = lake.dataset(table, group).to_table()
            kept = let_go.keep(table, rows)
            if len(group) == 1 and kept.num_rows == rows.num_rows:
                continue
            dropped += rows.num_rows - kept.num_rows
            keys = [(name, "ascending") for name in _ORDER[table]]
            merged = {f"{source}m{uuid.uuid4().hex[:12]}": kept.sort_by(keys)} if kept.num_rows else {}
            lake.swap_parts(table, group, merged)
    return dropped


def _mergeable(ages_s: dict[str, float], quiet_s: float, dead_s: float) -> Iterator[tuple[str, list[str]]]:
    """Parts by what the merged one's name begins with: a stream tells by it that it need not look for its own rows.

    Not the newest part of a stream, whose batch may be done again after a crash and finds out by that part's name,
    unless nobody has gone on with it for as long as bronze is kept.
    """
    numbered: dict[str, list[tuple[int, str]]] = defaultdict(list)
    merged: dict[str, list[str]] = defaultdict(list)
    for part in ages_s:
        if match := _NUMBERED.fullmatch(part):
            numbered[match["source"]].append((int(match["number"]), part))
        elif match := _MERGED.fullmatch(part):
            merged[re.sub(r"^batch-\d+-", "batch-", match["source"])].append(part)
    for source in numbered.keys() | merged.keys():
        own = sorted(numbered[source])
        newest = own[-1][0] if own else 0
        is_stream = source != "batch-"
        settled = [part for number, part in own if not is_stream or number < newest or ages_s[part] > dead_s]
        quiet = [part for part in settled if ages_s[part] >= quiet_s]
        # Batches go on counting from the highest number there is.
        yield source if is_stream else f"batch-{max(newest, _highest(merged[source])):06d}-", merged[source] + quiet


def _highest(parts: list[str]) -> int:
    return max((int(part.split("-")[1]) for part in parts), default=0)


def _groups(sizes: dict[str, int]) -> Iterator[list[str]]:
    """Small ones together up to the size of a merged part, large ones alone: they may have rows to let go."""
    group: list[str] = []
    rows = 0
    for part, count in sizes.items():
        if count >= MERGED_ROWS // 2:
            yield [part]
            continue
        if group and rows + count > MERGED_ROWS:
            yield group
            group, rows = [], 0
        group.append(part)
        rows += count
    if group:
        yield group


def _old_units(lake: Lake, before_ms: int) -> dict[str, tuple[Unit, int]]:
    """Streams that have no event since: by file the unit and its newest event. What is settled is not among them."""
    newest: dict[tuple[str, str], int] = {}
    columns = ["node", "stream_id", "time_ms"]
    for batch in lake.dataset("events").to_batches(columns=columns, filter=pc.field("stream_id").is_valid()):
        grouped = pa.Table.from_batches([batch]).group_by(["node", "stream_id"]).aggregate([("time_ms", "max")])
        for row in grouped.to_pylist():
            key = row["node"], row["stream_id"]
            newest[key] = max(newest.get(key, 0), row["time_ms_max"])
    units = {Unit(*key, None): last_ms for key, last_ms in newest.items() if last_ms < before_ms}
    return {file_of(unit): (unit, last_ms) for unit, last_ms in units.items()}


# Silver and gold ----------------------------------------------------------------------------------------------------


def _compact_derived(lake: Lake, table: str, retention: Retention, now_ms: int, gone: Collection[str]) -> int:
    settled, names = lake.settled(), [file.name for file in lake.files(table)]
    own = [name for name in names if name.removesuffix(".parquet") in settled]
    before = [name for name in names if name.startswith(SETTLED)]
    dropped = 0
    if own or (gone and before) or (table == "stream_windows" and before):
        dropped += _merge_settled(lake, table, [*before, *own], retention, now_ms, gone)
    if table == "stream_windows":
        dropped += _thin_windows(lake, retention, now_ms)
    return dropped


def _merge_settled(
    lake: Lake, table: str, names: list[str], retention: Retention, now_ms: int, gone: Collection[str]
) -> int:
    dropped = 0
    for group in _groups({name: lake.count_file_rows(table, name) for name in names}):
        rows = pa.concat_tables(lake.read_file(table, name) for name in group)
        # A group of pictures is as fine as what it is made of, and goes with it.
        kept = rows.slice(0, 0) if table == "gops" else _without_units(rows, gone)
        if table == "stream_windows":
            kept = _thinned(kept, retention, now_ms)
        if kept.num_rows == rows.num_rows and len(group) == 1 and group[0].startswith(SETTLED):
            continue
        dropped += rows.num_rows - kept.num_rows
        keys = [("node", "ascending"), ("stream_id", "ascending")]
        merged = {f"{SETTLED}{uuid.uuid4().hex[:12]}.parquet": kept.sort_by(keys)} if kept.num_rows else {}
        lake.swap_units(table, group, merged)
    return dropped


def _thin_windows(lake: Lake, retention: Retention, now_ms: int) -> int:
    """Of streams that may still be built again, which brings back what their bronze has. So not of live ones."""
    dropped = 0
    for seen in lake.files("stream_windows"):
        if seen.name.startswith(SETTLED) or now_ms - seen.changed_s * 1000 < min(retention.tiers_ms.values()):
            continue
        rows = lake.read_file("stream_windows", seen.name)
        kept = _thinned(rows, retention, now_ms)
        if kept.num_rows < rows.num_rows and lake.replace_unchanged("stream_windows", seen, kept):
            dropped += rows.num_rows - kept.num_rows
    return dropped


def _thinned(windows: pa.Table, retention: Retention, now_ms: int) -> pa.Table:
    """Without those whose tier's time is over. Media windows count from when their stream is first known of."""
    if not windows.num_rows:
        return windows
    wall_ms = pc.cast(pc.if_else(pc.equal(windows["clock"], "wall"), windows["start_ms"], None), pa.int64())
    keyed = pa.table({"node": windows["node"], "stream_id": windows["stream_id"], "wall_ms": wall_ms})
    began = {
        (row["node"], row["stream_id"]): row["wall_ms_min"]
        for row in keyed.group_by(["node", "stream_id"]).aggregate([("wall_ms", "min")]).to_pylist()
    }
    base = [began[key] or 0 for key in zip(windows["node"].to_pylist(), windows["stream_id"].to_pylist(), strict=True)]
    start_ms = pc.coalesce(wall_ms, pc.add(windows["start_ms"], pa.array(base, pa.int64())))
    age_ms = pc.subtract(now_ms, pc.add(start_ms, pc.multiply(pc.cast(windows["window_s"], pa.int64()), 1000)))
    is_kept = pa.array([False] * windows.num_rows, pa.bool_())
    for window_s, kept_ms in retention.tiers_ms.items():
        is_kept = pc.or_(is_kept, pc.and_(pc.equal(windows["window_s"], window_s), pc.less_equal(age_ms, kept_ms)))
    return windows.filter(is_kept)


def _without_units(rows: pa.Table, gone: Collection[str]) -> pa.Table:
    if not gone:
        return rows
    keys = zip(rows["node"].to_pylist(), rows["stream_id"].to_pylist(), strict=True)
    return rows.filter(pa.array([file_of(Unit(node, stream_id, None)) not in gone for node, stream_id in keys]))
