"""The plan of the audience: who watches which stream from when to when, who leaves before a picture, who is slow."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from headrace.pipeline.simulate.chance import Flags, Ints, generator
from headrace.pipeline.simulate.publishers import Broadcast, Channels

NEVER = 1 << 42  # a time that does not come
_WATCH_S, _WATCH_SPREAD = 300, 1.1  # half of all plays are shorter
_SHORTEST_S = 1.5
_AWAY_SHARE = 0.05  # of the time a seat is empty
_NO_PICTURE = 0.015  # of the plays end before their first picture
_SLOW = 0.02  # of the plays have a connection that stops for some seconds
_PICTURE_LATE = 0.1  # have to wait for their first picture
_FED_UP = 0.1  # of those who watch leave when the picture stands still
_VIEWERS_PER_SEAT = 40


@dataclass(frozen=True, slots=True)
class Plays:
    """As columns, in the order they were granted."""

    stream: Ints
    opened_ms: Ints
    started_ms: Ints
    stopped_ms: Ints
    viewer: Ints
    picture_ms: Ints  # when the first keyframe has left; NEVER
    blocked_ms: Ints  # its socket takes nothing from here; NEVER
    unblocked_ms: Ints
    is_ended: Flags  # by the end of the stream

    def take(self, places: Ints | slice) -> Plays:
        return Plays(*(getattr(self, one.name)[places] for one in fields(self)))


def plan_audience(channels: Channels, seed: int, seats: int, faults: float) -> Plays:
    stalls, publishes = channels.streams.stalls, channels.streams.publishes
    troubles = np.concatenate([publishes.stream[stalls.publish], publishes.stream[publishes.is_lost]])
    trouble_ms = np.concatenate([stalls.start_ms, publishes.stopped_ms[publishes.is_lost]])
    parts = []
    for number, broadcast in enumerate(channels.broadcasts):
        chance = generator(seed, 3, number)
        own_ms = trouble_ms[troubles == number]
        parts.append(_of_stream(chance, number, broadcast, seats, own_ms, faults))
    plays = Plays(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Plays)))
    return plays.take(np.lexsort((plays.stream, plays.started_ms)))


def _of_stream(
    chance: np.random.Generator,
    number: int,
    broadcast: Broadcast,
    seats: int,
    trouble_ms: Ints,
    faults: float,
) -> Plays:
    first_ms, last_ms = broadcast.created_ms + 300, broadcast.ended_ms - 200
    life_s = (last_ms - first_ms) / 1000
    watch_s = min(_WATCH_S, life_s / 4)
    starts, stops = [], []
    # A seat is taken by one viewer after the other; all of them fill within a minute.
    free_s = chance.uniform(0, min(60, life_s / 8), seats)
    while True:
        length_s = np.maximum(chance.lognormal(np.log(watch_s), _WATCH_SPREAD, seats), _SHORTEST_S)
        is_in_time = free_s < life_s - _SHORTEST_S
        if not is_in_time.any():
            break
        starts.append(free_s[is_in_time])
        stops.append((free_s + length_s)[is_in_time])
        free_s = free_s + length_s + chance.exponential(watch_s * _AWAY_SHARE, seats) + 0.05
    start_s, stop_s = np.concatenate([*starts, []]), np.concatenate([*stops, []])
    count = len(start_s)
    started_ms = first_ms + (start_s * 1000).astype(np.int64)
    left_ms = first_ms + (stop_s * 1000).astype(np.int64)
    for moment_ms in trouble_ms:
        is_fed_up = (started_ms + 2000 < moment_ms) & (moment_ms < left_ms) & (chance.random(count) < _FED_UP)
        left_ms = np.where(is_fed_up, moment_ms + chance.integers(1200, 9000, count), left_ms)
    waits_ms = np.where(
        chance.random(count) < _PICTURE_LATE, chance.integers(40, 1400, count), chance.integers(0, 12, count)
    )
    has_picture = chance.random(count) >= _NO_PICTURE
    left_ms = np.where(has_picture, left_ms, started_ms + chance.integers(150, 1400, count))
    is_ended = left_ms >= broadcast.ended_ms
    # The players' share of the last bytes comes after the publisher's goodbye.
    stopped_ms = np.where(is_ended, broadcast.ended_ms + chance.integers(1, 4, count), left_ms)
    blocked_ms = started_ms + 3000 + (chance.random(count) * np.maximum(stopped_ms - started_ms, 1)).astype(np.int64)
    unblocked_ms = blocked_ms + chance.integers(1500, 11_000, count)
    is_slow = (chance.random(count) < _SLOW * min(faults, 10)) & has_picture & (unblocked_ms + 2000 < stopped_ms)
    return Plays(
        stream=np.full(count, number, np.int64),
        opened_ms=started_ms - chance.integers(2, 120, count),
        started_ms=started_ms,
        stopped_ms=stopped_ms,
        viewer=chance.integers(0, seats * _VIEWERS_PER_SEAT, count) + broadcast.channel * seats * _VIEWERS_PER_SEAT,
        picture_ms=np.where(has_picture & (started_ms + waits_ms < stopped_ms), started_ms + waits_ms, NEVER),
        blocked_ms=np.where(is_slow, blocked_ms, NEVER),
        unblocked_ms=np.where(is_slow, unblocked_ms, NEVER),
        is_ended=is_ended,
    )
