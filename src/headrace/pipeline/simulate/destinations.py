"""The plan of destinations: when each is connected, what fails and why, and from where it goes on.

A stream on its way to a destination is a feed. While it is connected it gets what the stream gets; after an outage it
goes on where it stopped, with video from the next keyframe on, or at the newest keyframe if that place is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.audience import NEVER
from headrace.pipeline.simulate.chance import Flags, Ints, generator
from headrace.pipeline.simulate.publishers import Channels
from headrace.pipeline.simulate.streams import KEY_SHIFT, State, Streams

# As the relay has them, which is no business of the pipeline's: a test compares them.
RETAIN_MS = 30_000  # how far behind a destination may be and still go on where it stopped
STALLED_MS = 15_000
_OUTAGES_AN_HOUR = 1.5
_STABLE_MS = 60_000
_APART_MS = _STABLE_MS + 10_000  # between two outages
_WRONG_KEY = 0.003  # of the feeds are refused for good

_FIRST_RETRY_S, _LONGEST_RETRY_S, _RETRY_JITTER = 1.0, 30.0, 0.2

RESET, STALLED, AUTH = "reset", "stalled", "auth"
# Error class -> what is told of it.
ERRORS = {
    RESET: "Connection reset by peer",
    STALLED: "took no bytes for 15 s",
    AUTH: "refused during publish: NetStream.Publish.Denied: authentication failed",
    "refused": "Connection refused",
    "timeout": "no connection within 10 s",
    "dns": "name not found: Temporary failure in name resolution",
    "rejected": "refused during publish: NetStream.Publish.BadName: Stream already publishing",
}
# What the attempts of a longer outage meet, and how long each takes to fail.
_FAILING = (("refused", 40), ("timeout", 10_000), ("dns", 300), ("rejected", 180))
_SHARES = (0.55, 0.15, 0.1, 0.2)


class StateChange(NamedTuple):
    feed: int
    time_ms: int
    state: str
    attempt: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Feeds:
    stream: Ints
    destination: Ints
    created_ms: Ints
    over_ms: Ints
    given_up_ms: Ints  # NEVER


@dataclass(frozen=True, slots=True)
class Connections:
    """Of feeds, in the order of feed and time."""

    feed: Ints
    since_ms: Ints
    until_ms: Ints
    stuck_ms: Ints  # it takes nothing from here on: until_ms, or earlier
    is_resumed: Flags  # goes on where the one before stopped
    # Where it begins: behind what the one before had, where it goes on, else before a keyframe.
    begins: State
    picture: State  # before the keyframe from which on it has video
    ends: State  # when it was stuck or over
    # What was skipped before it, in all of the feed's life, its own beginning included unless it goes on.
    skipped: Ints
    skipped_frames: Ints
    skipped_keyframes: Ints
    unsent_bytes: Ints
    evicted: Ints  # messages of `skipped` that were no longer there
    no_keyframe: Ints  # that came before a keyframe
    count: Ints  # which of its feed it is, from 1

    def newest(self, feed: Ints, time_ms: Ints) -> tuple[Ints, Flags]:
        """The newest connection of each feed, and whether there was one."""
        place = (
            np.searchsorted((self.feed << KEY_SHIFT) + self.since_ms, (feed << KEY_SHIFT) + time_ms, side="right") - 1
        )
        return np.maximum(place, 0), (place >= 0) & (self.feed[place] == feed)


class Destinations(NamedTuple):
    feeds: Feeds
    connections: Connections
    changes: list[StateChange]  # by time


@dataclass(slots=True)
class _Draft:
    """Connections as they are found: feed, since, until, stuck."""

    rows: list[tuple[int, int, int, int]]
    changes: list[StateChange]


def plan_destinations(channels: Channels, seed: int, destinations: int, faults: float) -> Destinations:
    draft = _Draft([], [])
    publishes = channels.streams.publishes
    first = np.searchsorted(publishes.stream, np.arange(len(channels.broadcasts) + 1))
    feeds: list[tuple[int, int, int, int, int]] = []
    for number, broadcast in enumerate(channels.broadcasts):
        # Outages lie within one publish: what a reader skips then is before that publish's next keyframe.
        spans = [
            (int(publishes.first_ms[one]), int(publishes.stopped_ms[one]))
            for one in range(first[number], first[number + 1])
        ]
        for destination in range(destinations):
            chance = generator(seed, 4, number, destination)
            over_ms = broadcast.ended_ms + 3 + int(chance.integers(0, 5))
            created_ms = int(publishes.started_ms[first[number]])
            given_up_ms = _feed(chance, draft, len(feeds), created_ms, over_ms, spans, faults)
            feeds.append((number, destination, created_ms, over_ms, given_up_ms))
    table = Feeds(*(np.array([feed[place] for feed in feeds], np.int64) for place in range(5)))
    draft.changes.sort(key=lambda change: change.time_ms)
    return Destinations(table, _connections(channels.streams, table, draft.rows), draft.changes)


def _feed(
    chance: np.random.Generator,
    draft: _Draft,
    feed: int,
    created_ms: int,
    over_ms: int,
    spans: list[tuple[int, int]],
    faults: float,
) -> int:
    """Plans one feed. When it was given up; NEVER."""
    tell = draft.changes.append
    tell(StateChange(feed, created_ms, "connecting", 0))
    since_ms = created_ms + int(chance.integers(100, 400))  # later than the first message
    if chance.random() < _WRONG_KEY * min(faults, 10):
        tell(StateChange(feed, since_ms, "error", 1, AUTH))
        return since_ms
    tell(StateChange(feed, since_ms, "connected", 0))
    attempt = 0
    outages = _outages(chance, since_ms, spans, faults)
    for stuck_ms, failed_ms, back_ms in outages:
        error = STALLED if stuck_ms < failed_ms else RESET
        draft.rows.append((feed, since_ms, failed_ms, stuck_ms))
        attempt = _try_again(chance, draft.changes, feed, failed_ms, back_ms, error)
        tell(StateChange(feed, back_ms, "connected", attempt))
        since_ms = back_ms
    draft.rows.append((feed, since_ms, over_ms, over_ms))
    # A minute without trouble, and failures are counted anew.
    tell(StateChange(feed, over_ms, "disconnected", attempt if over_ms - since_ms <= _STABLE_MS else 0))
    return NEVER


def _outages(
    chance: np.random.Generator, since_ms: int, spans: list[tuple[int, int]], faults: float
) -> list[tuple[int, int, int]]:
    """When it got stuck, failed and was back: (stuck_ms, failed_ms, back_ms)."""
    outages = []
    time_ms = since_ms + 5000
    for first_ms, stopped_ms in spans:
        time_ms = max(time_ms, first_ms + 6000)
        while True:
            time_ms += int(1000 * chance.exponential(3600 / (_OUTAGES_AN_HOUR * faults) if faults else 1e9))
            is_stuck = chance.random() < 0.2
            failed_ms = time_ms + STALLED_MS + 700 if is_stuck else time_ms
            # Mostly a hiccup, sometimes a restart at the far end, now and then minutes.
            away_s = chance.choice([1.2, chance.uniform(3, 25), chance.uniform(32, 240)], p=[0.45, 0.4, 0.15])
            back_ms = failed_ms + int(1000 * away_s) + int(chance.integers(0, 400))
            if back_ms + 12_000 > stopped_ms:
                break
            outages.append((time_ms, failed_ms, back_ms))
            time_ms = back_ms + _APART_MS
    return outages


def _try_again(
    chance: np.random.Generator,
    changes: list[StateChange],
    feed: int,
    failed_ms: int,
    back_ms: int,
    error: str,
) -> int:
    """The attempts up to the one that is answered. How many failed."""
    attempt, time_ms = 1, failed_ms
    failing, takes_ms = _FAILING[int(chance.choice(len(_FAILING), p=_SHARES))]
    while True:
        changes.append(StateChange(feed, time_ms, "waiting", attempt, error))
        connecting_ms = time_ms + int(1000 * delay_s(attempt, float(chance.random())))
        # The last attempt begins when the far end is there again, or the one that is due then is answered.
        is_last = connecting_ms + takes_ms + 900 >= back_ms
        connecting_ms = max(min(connecting_ms, back_ms - 30), time_ms + 10)
        changes.append(StateChange(feed, connecting_ms, "connecting", attempt))
        if is_last:
            return attempt
        time_ms, error = connecting_ms + takes_ms, failing
        attempt += 1


def delay_s(attempt: int, random: float) -> float:
    """Before retry number `attempt`, from 1."""
    doubled_s = min(_FIRST_RETRY_S * 2.0 ** min(attempt - 1, 30), _LONGEST_RETRY_S)
    return doubled_s * (1.0 - _RETRY_JITTER * random)


def _connections(streams: Streams, feeds: Feeds, rows: list[tuple[int, int, int, int]]) -> Connections:
    feed, since_ms, until_ms, stuck_ms = (np.array([row[place] for row in rows], np.int64) for place in range(4))
    stream = feeds.stream[feed]
    before = np.maximum(np.arange(len(feed)) - 1, 0)
    is_later = (feed == feed[before]) & (np.arange(len(feed)) > 0)
    lost_ms = np.where(is_later, stuck_ms[before], since_ms)
    is_resumed = is_later & (since_ms - lost_ms <= RETAIN_MS)
    newest, reached = streams.before_newest_keyframe(stream, since_ms), streams.at(stream, lost_ms)
    begins = reached.where(is_resumed, newest)
    picture = streams.before_next_keyframe(stream, lost_ms).where(is_resumed, newest)
    # Of one that goes on, video frames up to the keyframe; of any other all from where the one before had stopped.
    nothing = State.zeros(len(feed))
    left = reached.where(is_later, nothing)
    parts = (
        np.where(is_resumed, picture.frames - begins.frames, picture.position - left.position),
        picture.frames - left.frames,
        np.where(is_resumed, 0, picture.keyframes - left.keyframes),
        np.where(is_resumed, picture.sent_video_bytes - begins.sent_video_bytes, picture.sent_bytes - left.sent_bytes),
    )
    by_reason = np.where(is_later & ~is_resumed, parts[0], 0), np.where(is_resumed, parts[0], 0)
    # Up to the beginning of each: its own part comes message by message where it goes on.
    sums = [_sum_within(feed, part) - np.where(is_resumed, part, 0) for part in (*parts, *by_reason)]
    skipped, skipped_frames, skipped_keyframes, unsent_bytes, evicted, no_keyframe = sums
    return Connections(
        feed=feed,
        since_ms=since_ms,
        until_ms=until_ms,
        stuck_ms=stuck_ms,
        is_resumed=is_resumed,
        begins=begins,
        picture=picture,
        ends=streams.at(stream, np.minimum(stuck_ms, until_ms)),
        skipped=skipped,
        skipped_frames=skipped_frames,
        skipped_keyframes=skipped_keyframes,
        unsent_bytes=unsent_bytes,
        evicted=evicted,
        no_keyframe=no_keyframe,
        count=_sum_within(feed, np.ones(len(feed), np.int64)),
    )


def _sum_within(group: Ints, values: Ints) -> Ints:
    """Running sums that begin anew with each group."""
    total = np.cumsum(values)
    first = np.searchsorted(group, group)
    return np.asarray(total - (total - values)[first])
