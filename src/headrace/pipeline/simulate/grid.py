"""The streams of a stretch of time at each tick of it: worked out once, looked up by everybody who reads them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.chance import Flags, Ints, noise
from headrace.pipeline.simulate.plan import Plan
from headrace.pipeline.simulate.publishers import Span
from headrace.pipeline.simulate.streams import State

MARGIN_MS = 400  # some events of a tick come so much later


class Gaps(NamedTuple):
    """Between arrivals of a stream in some intervals."""

    arrived_ms: Ints  # the longest that ended with an arrival, within one connection
    away_ms: Ints  # the same with the time that the publisher was away
    idle_ms: Ints  # since the newest arrival


class Grid:
    """Ticks of a stretch, one before it included, and all streams that live then."""

    def __init__(self, plan: Plan, span: Span) -> None:
        self.plan = plan
        self.span = span
        clock = plan.channels.streams.clock
        edges = clock.before(np.array([span.start_ms - MARGIN_MS, span.stop_ms]))
        self.ticks = np.arange(edges[0], edges[1] + 1)
        self.times_ms = clock.at(self.ticks)
        # A little longer than they live: readers say goodbye after the end.
        is_there = (plan.created_ms < span.stop_ms) & (plan.ended_ms + 2 * MARGIN_MS + 1000 > span.start_ms)
        self.streams = np.flatnonzero(is_there)
        stream, tick = np.repeat(self.streams, len(self.ticks)), np.tile(self.ticks, len(self.streams))
        self._states = plan.channels.streams.at_ticks(stream, tick)
        time_ms = np.tile(self.times_ms, len(self.streams))
        self._gaps = gaps_of(plan, stream, np.tile(clock.at(self.ticks - 1), len(self.streams)), time_ms)

    def place(self, stream: Ints, column: Ints) -> Ints:
        """Of a stream and the n-th tick of the grid."""
        return np.searchsorted(self.streams, stream) * len(self.ticks) + column

    def states(self, place: Ints) -> State:
        return self._states.take(place)

    def gaps(self, place: Ints) -> Gaps:
        return Gaps(*(column[place] for column in self._gaps))

    def samples(self, after_ms: Ints, before_ms: Ints, late_ms: int = 0) -> tuple[Ints, Ints]:
        """Who is there at which tick of the grid, tick after tick, if each is there between two times.

        Only ticks whose events, so much later, are of this stretch.
        """
        times_ms = self.times_ms + late_ms
        inside = np.flatnonzero((times_ms >= self.span.start_ms) & (times_ms < self.span.stop_ms))
        if not len(inside) or not len(after_ms):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        low = np.clip(np.searchsorted(self.times_ms, after_ms, side="right"), inside[0], inside[-1] + 1)
        high = np.clip(np.searchsorted(self.times_ms, before_ms, side="left"), inside[0], inside[-1] + 1)
        counts = np.maximum(high - low, 0)
        who = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        column = np.arange(len(who)) - first + np.repeat(low, counts)
        order = np.argsort(column, kind="stable")
        return who[order], column[order]

    def last_column(self, time_ms: Ints) -> Ints:
        """The last tick of the grid before a time within the stretch."""
        return np.searchsorted(self.times_ms, time_ms, side="left") - 1

    def has(self, time_ms: Ints) -> Flags:
        return (time_ms >= self.span.start_ms) & (time_ms < self.span.stop_ms)


def gaps_of(plan: Plan, stream: Ints, from_ms: Ints, to_ms: Ints) -> Gaps:
    """In intervals of streams."""
    streams, publishes = plan.channels.streams, plan.channels.streams.publishes
    publish, _ = streams.publish_at(stream, to_ms)
    start_ms, stop_ms, has_stalled = streams.stall_before(publish, to_ms)
    encoders, channel = streams.encoders, publishes.channel[publish]
    frame_ms = 1000 * encoders.rate_under[channel] // encoders.rate_over[channel]
    usual_ms = frame_ms + noise(to_ms, stream + 11, 25)
    arrived_ms = np.where(has_stalled & (from_ms < stop_ms) & (stop_ms <= to_ms), stop_ms - start_ms, usual_ms)
    first_ms, stopped_ms = publishes.first_ms[publish], publishes.stopped_ms[publish]
    is_back = publishes.is_resumed[publish] & (from_ms < first_ms) & (first_ms <= to_ms)
    away_ms = np.where(is_back, first_ms - publishes.stopped_ms[publish - 1], 0)
    idle_ms = np.where(has_stalled & (to_ms < stop_ms), to_ms - start_ms, noise(to_ms, stream + 13, frame_ms))
    since_ms = np.where(to_ms < first_ms, publishes.started_ms[publish], stopped_ms)
    idle_ms = np.where((to_ms < first_ms) | (to_ms >= stopped_ms), to_ms - since_ms, idle_ms)
    return Gaps(arrived_ms, np.maximum(away_ms, arrived_ms), np.maximum(idle_ms, 0))
