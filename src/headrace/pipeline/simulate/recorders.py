"""The recorder's proof: everything, a moment later, and where its file begins and ends."""

from __future__ import annotations

import numpy as np

from headrace.pipeline.simulate.chance import Ints
from headrace.pipeline.simulate.grid import Grid
from headrace.pipeline.simulate.lines import Columns, Rows, fixed, several
from headrace.pipeline.simulate.plan import Plan

_NAME = "recorder"


CLOSED_AFTER_MS = 8  # a stream's end: the last batch is on the disk


def deliveries(grid: Grid) -> list[Rows]:
    plan, streams, times_ms = grid.plan, grid.streams, grid.times_ms
    opened_ms = np.array([plan.recording_opened_ms(one) for one in streams.tolist()], np.int64)
    ended_ms = plan.ended_ms[streams]
    late_ms = 30 + streams * 37 % 170  # each writes in its own time
    is_live = (times_ms[:, None] > opened_ms) & (times_ms[:, None] + late_ms < ended_ms)
    column, who = np.nonzero(is_live & grid.has(times_ms[:, None] + late_ms))
    place = grid.place(streams[who], column)
    is_first = times_ms[column - 1] <= opened_ms[who]
    start, stop = np.where(is_first, 0, grid.states(place - 1).position), grid.states(place).position
    time_ms = times_ms[column] + late_ms[who]
    told = np.flatnonzero(stop > start)
    told = told[np.argsort(time_ms[told], kind="stable")]
    ends = _ends(grid, opened_ms, late_ms)

    def regular() -> Columns:
        return _columns(plan, streams[who[told]], start[told], stop[told])

    return [Rows("delivery", time_ms[told], regular), ends]


def _ends(grid: Grid, opened_ms: Ints, late_ms: Ints) -> Rows:
    """What came after the last tick that was told of."""
    plan = grid.plan
    own = np.flatnonzero(grid.has(plan.ended_ms[grid.streams] + CLOSED_AFTER_MS))
    own = own[np.argsort(plan.ended_ms[grid.streams[own]], kind="stable")]
    stream = grid.streams[own]
    column = grid.last_column(plan.ended_ms[stream] - late_ms[own])
    is_first = grid.times_ms[column] <= opened_ms[own]
    start = np.where(is_first, 0, grid.states(grid.place(stream, column)).position)
    stop = plan.channels.streams.at(stream, plan.ended_ms[stream]).position
    left = np.flatnonzero(stop > start)

    def last() -> Columns:
        return _columns(plan, stream[left], start[left], stop[left])

    return Rows("delivery", plan.ended_ms[stream[left]] + CLOSED_AFTER_MS, last)


def _columns(plan: Plan, stream: Ints, start: Ints, stop: Ints) -> Columns:
    known, places = np.unique(stream, return_inverse=True)
    names = [{"stream": plan.stream_name(one), "stream_id": plan.stream_id(one)} for one in known.tolist()]
    heads = [several(reader=_NAME, name=_NAME, **one) for one in names]
    feed = plan.options.destinations + 1
    tails = [several(outcome="delivered", reason=None, feed=f"{one['stream_id']}/{feed}") for one in names]
    return [
        ("reader name stream stream_id", fixed(heads, places)),
        ("start", start),
        ("stop", stop),
        ("outcome reason feed", fixed(tails, places)),
    ]
