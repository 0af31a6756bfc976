"""Tables of few rows, in the driver: plans made once, run over rows that pyarrow reads and writes.

Of a live stream's tables the rows cost nothing and the plans everything: see docs/decisions/0005.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.jobs.heads import CONTENTS, SUMS, Claims, Head, Tail, move_on
from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.plans import Plan, Slot, quick_session
from headrace.pipeline.jobs.units import Selection, file_name
from headrace.pipeline.layout import Unit, file_of
from headrace.pipeline.tables import (
    audience,
    destination_health,
    destination_states,
    gops,
    incidents,
    recordings,
    relay_audit,
    sessions,
    stream_health,
    stream_windows,
    timeline,
)
from headrace.pipeline.tables.catalog import TABLES

MAX_HEADS = 200  # of streams that were live most recently; a megabyte an hour each
Heads = dict[tuple[str, str], Head]  # by node and stream
Around = Callable[[Collection[Unit]], tuple[set[Unit], set[Unit]]]


class _FewRows:
    """Tables as plans over slots."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = quick_session(spark)
        self._lake = lake
        self._directory = lake.working_directory(type(self).__name__)
        self._makers: dict[str, Callable[[], DataFrame]] = {}
        self._plans: dict[str, Plan] = {}
        self._making: dict[str, threading.Lock] = {}

    def _slot(self, name: str, schema: StructType) -> Slot:
        return Slot(self._spark, self._directory, name, schema)

    def _make(self, **makers: Callable[[], DataFrame]) -> None:
        """Plans by their names, each made when it is first asked for: the first tables need not wait for the rest."""
        self._makers |= makers
        self._making |= {name: threading.Lock() for name in makers}

    def _plan(self, name: str) -> Plan:
        with self._making[name]:
            if name not in self._plans:
                self._plans[name] = Plan(self._makers[name]())
            return self._plans[name]

    def _run(self, name: str) -> pa.Table:
        """The rows of a plan."""
        return self._plan(name).run()

    def _publish(self, table: str, selection: Selection) -> pa.Table:
        rows = self._run(table)
        self._lake.replace_units(table, rows, selection.files)
        return rows


class FewEvents(_FewRows):
    """The tables of events."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        super().__init__(spark, lake)
        self._events = self._slot("events", TABLES["events"].schema)
        self._sessions = self._slot("sessions", sessions.SCHEMA)
        self._states = self._slot("destination_states", destination_states.SCHEMA)
        events, own_sessions, states = self._events.frame, self._sessions.frame, self._states.frame
        self._make(
            sessions=lambda: sessions.build(events),
            stream_health=lambda: stream_health.build(events, stream_windows.by_arrival(events)),
            destination_states=lambda: destination_states.build(events),
            incidents=lambda: incidents.build(events, own_sessions, states),
            destination_health=lambda: destination_health.build(events, own_sessions, states),
            audience=lambda: audience.build(own_sessions),
        )

    def build(self, selection: Selection) -> None:
        self._events.put(selection.events())
        of_events = ("sessions", "stream_health", "destination_states")
        of_these = ("incidents", "destination_health", "audience")
        with ThreadPoolExecutor(2) as threads:
            begun = {name: threads.submit(self._publish, name, selection) for name in of_events}
            self._sessions.put(begun["sessions"].result())
            self._states.put(begun["destination_states"].result())
            rest = [threads.submit(self._publish, name, selection) for name in of_these]
            for work in (begun["stream_health"], *rest):
                work.result()


class FewRecordings(_FewRows):
    """The tables that it takes recordings for: of a live stream from its tail and its head, see `heads`.

    Beside a live job they are built one after the other (`threads`): another core is for the tables of events, which
    are wanted sooner.
    """

    def __init__(self, spark: SparkSession, lake: Lake, threads: int = 1) -> None:
        super().__init__(spark, lake)
        self._threads = threads
        event_schema = TABLES["events"].schema
        self._events, self._wide_events, self._opened = (
            self._slot(name, event_schema) for name in ("events", "wide_events", "opened")
        )
        self._tags = self._slot("tags", TABLES["tags"].schema)
        self._of_streams = Plan(timeline.of_streams(self._opened.frame, self._tags.frame))
        self._stream_tags, self._wide_tags = (
            self._slot(name, self._of_streams.schema) for name in ("stream_tags", "wide_tags")
        )
        self._sums = self._slot("sums", stream_windows.SUMS)
        self._contents = self._slot("contents", recordings.CONTENTS)
        events, stream_tags, sums = self._events.frame, self._stream_tags.frame, self._sums.frame
        contents, wide_events, wide_tags = self._contents.frame, self._wide_events.frame, self._wide_tags.frame
        self._make(
            sums=lambda: stream_windows.sums_of(stream_tags),
            stream_windows=lambda: stream_windows.by_arrival(events).unionByName(stream_windows.by_media_time(sums)),
            gops=lambda: gops.build(events, stream_tags),
            contents=lambda: recordings.contents_of(stream_tags),
            recordings=lambda: recordings.of_contents(events, contents),
            relay_audit=lambda: relay_audit.build(wide_events, wide_tags),
            alone=lambda: relay_audit.build(wide_events, None),
        )
        self._heads: OrderedDict[tuple[str, str], Head] = OrderedDict()

    def prepare(self) -> None:
        """Make plans ahead of their rows; but for those that most lakes have no rows for."""
        for name in self._makers:
            if name != "relay_audit":
                self._plan(name)

    def after(self) -> dict[str, int]:
        """By path: from where on its tags are needed. What is before is known."""
        return {head.cut.path: head.cut.byte_offset for head in self._heads.values()}

    def forget(self, units: Collection[Unit]) -> None:
        """Somebody else has built these."""
        for unit in units:
            self._heads.pop((unit.node, unit.stream_id or ""), None)

    def build(self, selection: Selection, around: Around) -> None:
        rows = selection.events()
        self._events.put(rows)
        tails = self._tails(selection)
        schema = _arrow(self._of_streams.schema)
        marked = [tail.marked().cast(schema) for tail in tails.values()]
        self._stream_tags.put(pa.concat_tables([schema.empty_table(), *marked]))
        heads = {key: tail.head for key, tail in tails.items() if tail.head is not None}
        around_these = around(selection.units)

        with ThreadPoolExecutor(self._threads) as threads:  # in this order if there is one, and none needs another
            windows = threads.submit(self._build_windows, selection, heads)
            groups = threads.submit(self._build_gops, selection, heads)
            files = threads.submit(self._build_recordings, selection, heads)
            audit = threads.submit(self._build_relay_audit, selection, rows, *around_these)
            own_sums, own_windows = windows.result()
            built = (own_sums, own_windows, groups.result(), files.result())
            audit.result()
        for key, tail in tails.items():
            own = pc.field("node").isin([key[0]]) & pc.field("stream_id").isin([key[1]])
            before = tail.tags_before(tail.next_cut or 0)
            tables = (table.filter(own) for table in built)
            self._keep(key, move_on(tail, _claims(selection.opened(), before), *tables))

    def _build_windows(self, selection: Selection, heads: Heads) -> tuple[pa.Table, pa.Table]:
        own_sums = self._run("sums")
        own_sums = pa.concat_tables([_behind(own_sums.cast(SUMS), heads), *(head.sums for head in heads.values())])
        self._sums.put(own_sums)
        rows = self._run("stream_windows").cast(self._lake.arrow_schema("stream_windows"))
        rows = pa.concat_tables([rows, *(head.windows for head in heads.values())])
        self._lake.replace_units("stream_windows", rows, selection.files)
        return own_sums, rows

    def _build_gops(self, selection: Selection, heads: Heads) -> pa.Table:
        rows = self._run("gops").cast(self._lake.arrow_schema("gops"))
        rows = pa.concat_tables([rows, *(head.gops for head in heads.values())])
        self._lake.replace_units("gops", rows, selection.files)
        return rows

    def _build_recordings(self, selection: Selection, heads: Heads) -> pa.Table:
        """Gives what is in the files."""
        rows = self._run("contents").cast(CONTENTS)
        rows = pa.concat_tables([rows, *(head.contents for head in heads.values())])
        self._contents.put(rows)
        self._publish("recordings", selection)
        return rows

    def _tails(self, selection: Selection) -> dict[tuple[str, str], Tail]:
        """Of each stream with tags what is new since its head, or everything where the head does not hold."""
        opened, counts = selection.opened(), selection.tag_counts()
        after = {path: offset for path, offset in self.after().items() if path in counts}
        known = {path for head in self._heads.values() for path in head.tags if path not in after}
        found = _by_stream(self._stream_tags_of(selection, after, known))
        tails = {key: Tail(rows, self._heads.get(key)) for key, rows in found}
        broken = [
            key
            for key, tail in tails.items()
            if tail.head is not None and not tail.follows(counts, _claims(opened, tail.head.tags))
        ]
        # A head without any tail is of a stream whose files somebody else claims now, or whose tags are gone.
        wanted = {(unit.node, unit.stream_id or "") for unit in selection.units}
        broken += [key for key in self._heads if key in wanted and key not in tails]
        if broken:
            for key in broken:
                self._heads.pop(key, None)
                tails.pop(key, None)
            ids = {stream_id for _, stream_id in broken}
            units = [unit for unit in selection.units if unit.stream_id in ids]
            for key, rows in _by_stream(self._stream_tags_of(selection.of(units), {}, set())):
                if key in broken:
                    tails[key] = Tail(rows, None)
        return tails

    def _stream_tags_of(self, selection: Selection, after: dict[str, int], known: set[str]) -> pa.Table:
        self._opened.put(selection.opened())
        self._tags.put(selection.tags(after, known))
        rows = self._of_streams.run()
        return rows.filter(pc.is_in(rows["stream_id"], value_set=pa.array(selection.ids, pa.string())))

    def _keep(self, key: tuple[str, str], head: Head | None) -> None:
        if head is None:
            return
        self._heads[key] = head
        self._heads.move_to_end(key)
        while len(self._heads) > MAX_HEADS:
            self._heads.popitem(last=False)

    def _build_relay_audit(self, selection: Selection, rows: pa.Table, beside: set[Unit], around: set[Unit]) -> None:
        wide = selection.of(around)
        if around != set(selection.units):
            rows = wide.events()
        self._wide_events.put(rows)
        has_destination = pc.any(pc.equal(rows["type"], "destination_state")).as_py()
        if has_destination and len(set(wide.opened()["stream_id"].to_pylist())) > 1:
            self._wide_tags.put(self._stream_tags_of(wide, {}, set()))
            found = self._run("relay_audit")
        else:
            found = self._run("alone")
        ids = pa.array([unit.stream_id for unit in beside], pa.string())
        own = found.filter(pc.is_in(found["stream_id"], value_set=ids))
        self._lake.replace_units("relay_audit", own, [file_of(unit) for unit in beside])


def _by_stream(rows: pa.Table) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    for key in rows.group_by(["node", "stream_id"]).aggregate([]).to_pylist():
        own = (pc.field("node") == key["node"]) & (pc.field("stream_id") == key["stream_id"])
        yield (key["node"], key["stream_id"]), rows.filter(own)


def _claims(opened: pa.Table, paths: Iterable[str]) -> Claims:
    """What anybody says of these files."""
    names = {file_name(path) for path in paths}
    columns = ("node", "stream_id", "path", "seq", "frame_position")
    rows = zip(*(opened[name].to_pylist() for name in columns), strict=True)
    return frozenset(row for row in rows if file_name(row[2]) in names)


def _behind(sums: pa.Table, heads: Heads) -> pa.Table:
    """Without the seconds that a head has: the tail knows too little of them."""
    kept = pa.array(
        [
            (head := heads.get((node, stream_id))) is None or start_ms >= head.from_ms
            for node, stream_id, start_ms in zip(
                *(sums[name].to_pylist() for name in ("node", "stream_id", "start_ms")), strict=True
            )
        ],
        pa.bool_(),
    )
    return sums.filter(kept)


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
