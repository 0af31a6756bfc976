"""A stretch of the log: all events of some time in their order, numbered, and written as the files of that time.

Files are as `telemetry/event_log.py` makes them: one every second and a half, or more if there is much to say, in a
folder for each hour, finished before they get there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.simulate import recorders, story
from headrace.pipeline.simulate.chance import Ints
from headrace.pipeline.simulate.grid import Grid
from headrace.pipeline.simulate.lines import Rows, format_events, format_rows, order_of, sort_key
from headrace.pipeline.simulate.plan import Plan
from headrace.pipeline.simulate.publishers import Span
from headrace.pipeline.simulate.relay import Relay
from headrace.pipeline.simulate.samples import Audience, publisher_samples
from headrace.telemetry.event_log import FOLDER, ROTATE_S
from headrace.telemetry.events import Event

CELL_MS = round(ROTATE_S * 1000)  # what goes into one file
MAX_LINES = 40_000  # of a file: about 16 MB, where the server begins a new one too
_OPEN_FOLDER = "events-open"
_ROWS = 120_000  # of a stretch, about: some 50 MB of text at a time


class Counted(NamedTuple):
    """How many lines and files a stretch has."""

    lines: int
    files: int


class Written(NamedTuple):
    lines: int
    files: int
    bytes: int


def stretches(plan: Plan) -> list[Span]:
    """The whole time in stretches of whole cells. How it is cut changes no byte of what is written."""
    options = plan.options
    a_second = options.streams * (2 + options.viewers + 2 * options.destinations) + 1
    length_ms = CELL_MS * max(min(_ROWS * 1000 // (a_second * CELL_MS), 400), 1)
    first_ms = plan.span.start_ms // CELL_MS * CELL_MS
    return [Span(start_ms, start_ms + length_ms) for start_ms in range(first_ms, plan.span.stop_ms + 1, length_ms)]


class Stretch:
    """The events of some time, in order but not yet written."""

    def __init__(self, plan: Plan, span: Span) -> None:
        self._plan = plan
        grid = Grid(plan, span)
        relay = Relay(grid)
        deliveries, single = relay.deliveries()
        self._rows: list[Rows] = [
            *publisher_samples(grid),
            *Audience.of(grid).samples(grid),
            *relay.samples(),
            *deliveries,
            *recorders.deliveries(grid),
        ]
        told = [*story.tell(grid), *single]
        # The relay's own in the order they are told: ranges follow each other.
        keys = np.array([sort_key(time_ms, event.type) for time_ms, event in told], np.int64)
        order = np.argsort(keys, kind="stable")
        self._events: list[tuple[int, Event]] = [told[place] for place in order.tolist()]
        groups = [*(rows.sort_key for rows in self._rows), keys[order]]
        told_ms = np.array([one[0] for one in self._events], np.int64)
        times_ms = np.concatenate([*(rows.time_ms for rows in self._rows), told_ms])
        self._order, self._places = order_of(groups)
        self._cuts = list(_cuts(times_ms[self._order]))

    @property
    def counted(self) -> Counted:
        return Counted(len(self._order), len(self._cuts))

    def write(self, first_seq: int, first_file: int) -> Written:
        """Writes the files, the lines numbered from here on."""
        plan = self._plan
        seqs = [places + first_seq for places in self._places]
        texts = [format_rows(rows, plan.node, plan.boot, seq) for rows, seq in zip(self._rows, seqs, strict=False)]
        texts.append(format_events(self._events, plan.node, plan.boot, seqs[-1]))
        buffers = [_Lines(text) for text in texts]
        group = np.repeat(np.arange(len(texts)), [len(text) for text in texts])[self._order]
        place = np.concatenate([np.arange(len(text)) for text in texts])[self._order]
        # Where the next line is not the next of the same group.
        breaks = np.flatnonzero((np.diff(group) != 0) | (np.diff(place) != 1)) + 1
        total = 0
        for number, (start, stop, hour_ms) in enumerate(self._cuts):
            inside = breaks[(breaks > start) & (breaks < stop)]
            edges = [start, *inside.tolist(), stop]
            runs = [
                buffers[group[low]].between(int(place[low]), int(place[low]) + high - low)
                for low, high in pairwise(edges)
            ]
            total += _write_file(plan, first_file + number, hour_ms, runs)
        return Written(len(self._order), len(self._cuts), total)


def _cuts(times_ms: Ints) -> Iterator[tuple[int, int, int]]:
    """Which lines make a file, and the time that its folder is of."""
    if not len(times_ms):
        return
    cells = times_ms // CELL_MS
    edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
    for start, stop in pairwise(edges):
        for low in range(start, stop, MAX_LINES):
            yield low, min(low + MAX_LINES, stop), int(times_ms[start])


class _Lines:
    """The lines of one group: bytes behind each other, and where each ends."""

    def __init__(self, text: pa.Array) -> None:
        _, offsets, data = text.buffers()
        self._offsets = np.frombuffer(offsets, np.int32) if offsets is not None else np.zeros(1, np.int32)
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def between(self, start: int, stop: int) -> memoryview:
        return self._data[self._offsets[start] : self._offsets[stop]]


def _write_file(plan: Plan, number: int, time_ms: int, pieces: Sequence[memoryview]) -> int:
    name = f"{plan.node}-{plan.boot}-{number:06d}.jsonl"
    unfinished = plan.options.data_dir / _OPEN_FOLDER / f"{name}.new"
    content = b"".join(pieces)
    unfinished.write_bytes(content)
    os.rename(unfinished, folder_of(plan.options.data_dir, time_ms) / name)
    return len(content)


def folder_of(data_dir: Path, time_ms: int) -> Path:
    when = datetime.fromtimestamp(time_ms / 1000, UTC)
    folder = data_dir / FOLDER / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
