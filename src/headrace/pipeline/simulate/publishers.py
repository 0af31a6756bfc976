"""The plan of publishers: who is live when, who is lost and comes back, and whose media stall."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.chance import Ints, generator
from headrace.pipeline.simulate.clock import Clock
from headrace.pipeline.simulate.encoders import Encoders
from headrace.pipeline.simulate.streams import Publishes, Stalls, State, Streams

GRACE_MS = 5000  # how long the server waits for a lost publisher
_LOSSES_AN_HOUR, _STALLS_AN_HOUR = 0.5, 2.0
_COMES_BACK = 0.75  # of those lost, within the grace period
_BROADCAST_S, _BROADCAST_SPREAD = 7200, 0.7
_PAUSE_S = 600
_LEAST_S = 12  # shorter ones are not worth a line
MAX_STALL_MS = 8000

UNPUBLISHED = "unpublished"
NOT_BACK = "publisher did not come back within the grace period"


class Broadcast(NamedTuple):
    """One stream of a channel."""

    channel: int
    created_ms: int
    ended_ms: int
    is_lost: bool  # ended because the publisher did not come back


@dataclass(slots=True)
class _Publish:
    """One connection of a publisher, as the plan has it."""

    opened_ms: int
    started_ms: int
    stopped_ms: int
    is_lost: bool
    is_resumed: bool
    stalls: list[tuple[int, int]] = field(default_factory=list)


class Channels(NamedTuple):
    broadcasts: list[Broadcast]  # in the order they began: the number of each is that of its stream
    streams: Streams


class Span(NamedTuple):
    start_ms: int
    stop_ms: int

    @property
    def length_ms(self) -> int:
        return self.stop_ms - self.start_ms


def plan_channels(encoders: Encoders, clock: Clock, span: Span, seed: int, faults: float) -> Channels:
    planned: list[tuple[Broadcast, list[_Publish]]] = []
    for channel in range(len(encoders.presets)):
        planned += _channel(generator(seed, 2, channel), channel, span, faults)
    planned.sort(key=lambda one: (one[0].created_ms, one[0].channel))
    broadcasts = [broadcast for broadcast, _ in planned]
    publishes = [(number, one) for number, (_, of_it) in enumerate(planned) for one in of_it]
    return Channels(broadcasts, _streams(encoders, clock, broadcasts, publishes))


def _channel(
    chance: np.random.Generator, channel: int, span: Span, faults: float
) -> list[tuple[Broadcast, list[_Publish]]]:
    planned = []
    time_ms = span.start_ms + 500 + int(chance.uniform(0, min(span.length_ms // 10, 600_000)))
    # All are over before the server is.
    end_ms = span.stop_ms - GRACE_MS - 3000 - int(chance.uniform(0, min(span.length_ms // 20, 300_000)))
    while end_ms - time_ms > _LEAST_S * 1000:
        stop_ms = time_ms + int(1000 * max(chance.lognormal(np.log(_BROADCAST_S), _BROADCAST_SPREAD), 60))
        if end_ms - stop_ms < 60_000:
            stop_ms = end_ms
        while stop_ms - time_ms > _LEAST_S * 1000:
            broadcast, publishes = _broadcast(chance, channel, time_ms, stop_ms, faults)
            planned.append((broadcast, publishes))
            if not broadcast.is_lost:
                break
            time_ms = broadcast.ended_ms + int(chance.uniform(2000, 50_000))  # the same show, as another stream
        time_ms = max(stop_ms, planned[-1][0].ended_ms) + 60_000 + int(1000 * chance.exponential(_PAUSE_S))
    return planned


def _broadcast(
    chance: np.random.Generator, channel: int, start_ms: int, stop_ms: int, faults: float
) -> tuple[Broadcast, list[_Publish]]:
    publishes: list[_Publish] = []
    time_ms = start_ms
    while True:
        opened_ms = time_ms - int(chance.uniform(8, 90))
        lost_ms = time_ms + 10_000 + _until_next(chance, _LOSSES_AN_HOUR * faults)
        is_lost = lost_ms < stop_ms - 10_000
        one = _Publish(opened_ms, time_ms, lost_ms if is_lost else stop_ms, is_lost, bool(publishes))
        one.stalls = _stalls(chance, one, faults)
        publishes.append(one)
        if not is_lost:
            return Broadcast(channel, start_ms, stop_ms, is_lost=False), publishes
        if chance.random() >= _COMES_BACK:
            ended_ms = lost_ms + GRACE_MS + int(chance.uniform(0, 100))
            return Broadcast(channel, start_ms, ended_ms, is_lost=True), publishes
        time_ms = lost_ms + int(chance.uniform(900, 4000))


def _stalls(chance: np.random.Generator, publish: _Publish, faults: float) -> list[tuple[int, int]]:
    stalls: list[tuple[int, int]] = []
    time_ms = publish.started_ms + 5000
    while True:
        time_ms += _until_next(chance, _STALLS_AN_HOUR * faults)
        length_ms = min(2300 + int(chance.exponential(2000)), MAX_STALL_MS)
        # What it held back is here before the publisher goes.
        if time_ms + length_ms + 3000 > publish.stopped_ms:
            return stalls
        stalls.append((time_ms, time_ms + length_ms))
        time_ms += length_ms + 10_000


def _until_next(chance: np.random.Generator, an_hour: float) -> int:
    """Milliseconds up to something that happens so often; for what never happens longer than any simulation."""
    mean_s = 3600 / an_hour if an_hour > 0 else 1e12
    return int(1000 * chance.exponential(mean_s))


def _streams(
    encoders: Encoders, clock: Clock, broadcasts: list[Broadcast], publishes: list[tuple[int, _Publish]]
) -> Streams:
    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    stream = column([number for number, _ in publishes])
    started_ms = column([one.started_ms for _, one in publishes])
    table = Publishes(
        stream=stream,
        channel=column([broadcasts[number].channel for number, _ in publishes]),
        opened_ms=column([one.opened_ms for _, one in publishes]),
        started_ms=started_ms,
        first_ms=started_ms + 20 + started_ms % 61,
        stopped_ms=column([one.stopped_ms for _, one in publishes]),
        is_lost=np.array([one.is_lost for _, one in publishes], np.bool_),
        is_resumed=np.array([one.is_resumed for _, one in publishes], np.bool_),
        base=State.zeros(len(publishes)),
        base_media_ms=np.zeros(len(publishes), np.int64),
    )
    stalls = [(number, *stall) for number, (_, one) in enumerate(publishes) for stall in one.stalls]
    told = Stalls(*(column([stall[place] for stall in stalls]) for place in range(3)))
    streams = Streams(encoders, clock, table, told)
    _continue(streams)
    return streams


def _continue(streams: Streams) -> None:
    """Publishes that go on with a stream begin where the one before had come to."""
    table = streams.publishes
    later = np.flatnonzero(table.is_resumed)
    while len(later):
        # Those first whose predecessor is known.
        ready = later[~np.isin(later - 1, later)]
        before = ready - 1
        reached = streams.after(before, streams.arrived(before, table.stopped_ms[before]))
        for known, new in zip(table.base, reached, strict=True):
            known[ready] = new
        away_ms = table.started_ms[ready] - table.stopped_ms[before]
        table.base_media_ms[ready] = reached.media_ms + np.maximum(away_ms, 1)
        later = later[np.isin(later - 1, later)]
