"""Samples of destinations, and the proof of delivery of destinations and recorders, as it is told once a second."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.simulate.audience import NEVER
from headrace.pipeline.simulate.chance import Flags, Ints
from headrace.pipeline.simulate.clock import RELAY_LATE_MS
from headrace.pipeline.simulate.grid import Grid
from headrace.pipeline.simulate.lines import Columns, Rows, encode, fixed, flags, or_null, several
from headrace.pipeline.simulate.plan import Plan
from headrace.pipeline.simulate.samples import Moments, at_ends, at_ticks
from headrace.pipeline.simulate.streams import KEY_SHIFT, PREFACE_BYTES, State
from headrace.telemetry.events import Delivery, Event

NOT_FLOWING_MS = 5000
RECORDER = "recorder"


class _Got(NamedTuple):
    """What a destination had got."""

    connection: Ints
    is_any: Flags  # it had a connection
    is_up: Flags  # and has it still
    position: Ints
    media_ms: Ints
    messages: Ints
    bytes: Ints
    frames: Ints
    keyframes: Ints
    evicted: Ints
    no_keyframe: Ints


class Relay:
    """The feeds of a stretch."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.plan: Plan = grid.plan
        feeds = grid.plan.destinations.feeds
        is_there = (feeds.created_ms < grid.span.stop_ms) & (feeds.over_ms >= grid.span.start_ms)
        self.numbers = np.flatnonzero(is_there)

    # Samples ------------------------------------------------------------------------------------------------------

    def samples(self) -> list[Rows]:
        grid, feeds = self.grid, self.plan.destinations.feeds
        who, column = self._ticks()
        ends = [(int(feeds.over_ms[one]), one) for one in self.numbers.tolist()]
        ends += [(int(feeds.given_up_ms[one]), one) for one in self.numbers.tolist()]
        inside = sorted(end for end in ends if grid.span.start_ms <= end[0] < grid.span.stop_ms)
        end_ms, ending = (np.array([end[place] for end in inside], np.int64) for place in range(2))

        def regular() -> Columns:
            return self._columns(who, at_ticks(grid, feeds.stream[who], column))

        def last() -> Columns:
            return self._columns(ending, at_ends(grid, feeds.stream[ending], end_ms, RELAY_LATE_MS), is_last=True)

        return [
            Rows("destination_sample", grid.times_ms[column] + RELAY_LATE_MS, regular),
            Rows("destination_sample", end_ms, last),
        ]

    def _ticks(self) -> tuple[Ints, Ints]:
        feeds = self.plan.destinations.feeds
        # A tick whose samples come after the end has none.
        before_ms = feeds.over_ms[self.numbers] - RELAY_LATE_MS
        who, column = self.grid.samples(feeds.created_ms[self.numbers], before_ms, RELAY_LATE_MS)
        return self.numbers[who], column

    def got(self, feed: Ints, state: State, time_ms: Ints) -> _Got:
        table = self.plan.destinations.connections
        connection, is_any = table.newest(feed, time_ms)
        is_up = is_any & (time_ms < table.until_ms[connection])
        ends, begins, picture = (one.take(connection) for one in (table.ends, table.begins, table.picture))
        state = state.where(time_ms < table.stuck_ms[connection], ends)
        resumed = is_any & table.is_resumed[connection]
        no_keyframe = np.where(resumed, np.clip(state.frames, begins.frames, picture.frames) - begins.frames, 0)
        low, high = begins.sent_video_bytes, picture.sent_video_bytes
        unsent = np.where(resumed, np.clip(state.sent_video_bytes, low, high) - low, 0)
        preface = table.count[connection] * PREFACE_BYTES
        return _Got(
            connection,
            is_any,
            is_up,
            np.where(is_any, state.position, 0),
            state.media_ms,
            np.where(is_any, state.position - table.skipped[connection] - no_keyframe, 0),
            np.where(is_any, state.sent_bytes - table.unsent_bytes[connection] - unsent + preface, 0),
            np.where(is_any, state.frames - table.skipped_frames[connection] - no_keyframe, 0),
            np.where(is_any, state.keyframes - table.skipped_keyframes[connection], 0),
            np.where(is_any, table.evicted[connection], 0),
            np.where(is_any, table.no_keyframe[connection] + no_keyframe, 0),
        )

    def _columns(self, feed: Ints, moments: Moments, *, is_last: bool = False) -> Columns:
        plan, feeds, table = self.plan, self.plan.destinations.feeds, self.plan.destinations.connections
        now = self.got(feed, moments.now, moments.now_ms)
        before = self.got(feed, moments.before, moments.before_ms)
        known, places = np.unique(feed, return_inverse=True)
        heads = [
            several(
                destination=plan.destination_name(int(feeds.destination[one])),
                stream=plan.stream_name(int(feeds.stream[one])),
                stream_id=plan.stream_id(int(feeds.stream[one])),
            )
            for one in known
        ]
        names = [encode(feed_name(plan, one)) for one in known.tolist()]
        given_up_ms = feeds.given_up_ms[feed]
        is_given_up = moments.now_ms == given_up_ms
        begun_ms = np.where(given_up_ms < moments.now_ms, given_up_ms, feeds.created_ms[feed])
        # Where nothing is handed to a socket: since it was lost or stuck, or, without one, since the feed began.
        stuck_ms, since_ms = table.stuck_ms[now.connection], table.since_ms[now.connection]
        lost_ms = np.where(now.is_any, stuck_ms, feeds.created_ms[feed])
        is_idle = ~now.is_any | (moments.now_ms >= stuck_ms)
        is_back = now.is_any & (moments.before_ms < since_ms)
        was_lost_ms = np.where(before.is_any, table.stuck_ms[before.connection], feeds.created_ms[feed])
        gap_ms = np.maximum(moments.gaps.away_ms, moments.gaps.idle_ms)
        gap_ms = np.where(is_back, np.maximum(gap_ms, since_ms - was_lost_ms), gap_ms)
        gap_ms = np.where(is_idle, moments.now_ms - lost_ms, gap_ms)
        idle_ms = np.where(is_idle, moments.now_ms - lost_ms, moments.gaps.idle_ms)
        is_flowing = now.is_up & (idle_ms < NOT_FLOWING_MS)
        return [
            ("destination stream stream_id", fixed(heads, places)),
            ("interval_ms", moments.now_ms - np.maximum(moments.before_ms, begun_ms)),
            ("state", self._state(feed, moments.now_ms - (is_last & ~is_given_up))),
            ("flowing", "false" if is_last else flags(is_flowing)),
            ("bytes", now.bytes - before.bytes),
            ("messages", now.messages - before.messages),
            ("dropped", _dropped(now.evicted - before.evicted, now.no_keyframe - before.no_keyframe)),
            ("queue_age_ms", np.where(now.is_up, moments.now.media_ms - now.media_ms, 0)),
            ("position", now.position),
            ("feed", fixed(names, places)),
            ("frames", now.frames - before.frames),
            ("keyframes", now.keyframes - before.keyframes),
            ("media_ms", or_null(now.media_ms, ~now.is_any)),
            ("max_gap_ms", gap_ms),
        ]

    def _state(self, feed: Ints, time_ms: Ints) -> pa.Array:
        table = self.plan.state_changes
        place = np.searchsorted(table.sort_key, (feed << KEY_SHIFT) + time_ms, side="right") - 1
        return fixed([encode(name) for name in table.names], table.state[place])

    # Deliveries ---------------------------------------------------------------------------------------------------

    def deliveries(self) -> tuple[list[Rows], list[tuple[int, Event]]]:
        """In bulk where the stream flows; one by one where a connection begins or ends."""
        grid, plan = self.grid, self.plan
        feeds, table = plan.destinations.feeds, plan.destinations.connections
        feed, column = self._ticks()
        moments = at_ticks(grid, feeds.stream[feed], column)
        now = self.got(feed, moments.now, moments.now_ms)
        before = self.got(feed, moments.before, moments.before_ms)
        connection, time_ms = now.connection, moments.now_ms + RELAY_LATE_MS
        is_up = now.is_up & (time_ms < table.until_ms[connection])
        has_picture = before.position >= table.picture.position[connection]
        is_plain = is_up & before.is_any & (before.connection == connection) & has_picture
        flowing = np.flatnonzero(is_plain & (now.position > before.position))

        def regular() -> Columns:
            return _delivery_columns(plan, feed[flowing], before.position[flowing], now.position[flowing])

        single: list[tuple[int, Event]] = []
        for place in np.flatnonzero(is_up & ~is_plain).tolist():
            is_first = not before.is_any[place] or before.connection[place] != connection[place]
            told = None if is_first else int(before.position[place])
            ranges = _beginning(plan, int(connection[place]), told, int(now.position[place]))
            single += [(int(time_ms[place]), self._delivery(int(feed[place]), *one)) for one in ranges]
        single += self._endings()
        return [Rows("delivery", time_ms[flowing], regular)], single

    def _endings(self) -> list[tuple[int, Event]]:
        grid, plan = self.grid, self.plan
        feeds, table = plan.destinations.feeds, plan.destinations.connections
        told: list[tuple[int, Event]] = []
        ending = np.flatnonzero(np.isin(table.feed, self.numbers) & grid.has(table.until_ms))
        until_ms = table.until_ms[ending]
        moments = at_ends(grid, feeds.stream[table.feed[ending]], until_ms, RELAY_LATE_MS)
        start = self.got(table.feed[ending], moments.before, moments.before_ms).position
        stop = table.ends.position[ending]
        for place, one in enumerate(ending.tolist()):
            if stop[place] > start[place]:
                delivery = self._delivery(int(table.feed[one]), int(start[place]), int(stop[place]), None)
                told.append((int(until_ms[place]), delivery))
        given_up = self.numbers[feeds.given_up_ms[self.numbers] < NEVER]
        streams = plan.channels.streams
        first = streams.at(feeds.stream[given_up], feeds.given_up_ms[given_up]).position.tolist()
        last = streams.at(feeds.stream[given_up], feeds.over_ms[given_up]).position.tolist()
        for feed, given_up_at, over_at in zip(given_up.tolist(), first, last, strict=True):
            for time_ms, start_at, stop_at in (
                (int(feeds.given_up_ms[feed]), 0, given_up_at),
                (int(feeds.over_ms[feed]), given_up_at, over_at),
            ):
                if grid.span.start_ms <= time_ms < grid.span.stop_ms and stop_at > start_at:
                    told.append((time_ms, self._delivery(feed, start_at, stop_at, "not_connected")))
        return told

    def _delivery(self, feed: int, start: int, stop: int, reason: str | None) -> Delivery:
        feeds = self.plan.destinations.feeds
        return Delivery(
            reader="destination",
            name=self.plan.destination_name(int(feeds.destination[feed])),
            stream=self.plan.stream_name(int(feeds.stream[feed])),
            stream_id=self.plan.stream_id(int(feeds.stream[feed])),
            start=start,
            stop=stop,
            outcome="delivered" if reason is None else "skipped",
            reason=reason,
            feed=feed_name(self.plan, feed),
        )


def feed_name(plan: Plan, feed: int) -> str:
    feeds = plan.destinations.feeds
    return f"{plan.stream_id(int(feeds.stream[feed]))}/{int(feeds.destination[feed]) + 1}"


def _beginning(plan: Plan, connection: int, told: int | None, position: int) -> list[tuple[int, int, str | None]]:
    """The ranges of a connection that has just begun, or still waits for its picture, up to a position."""
    table = plan.destinations.connections
    picture = int(table.picture.position[connection])
    if not table.is_resumed[connection]:
        left = 0 if table.count[connection] == 1 else int(table.ends.position[connection - 1])
        reason = "not_connected" if table.count[connection] == 1 else "evicted"
        ranges = [(left, picture, reason), (picture, position, None)]
    else:
        begins = int(table.begins.position[connection]) if told is None else told
        ranges = []
        reached = begins
        for start, stop in _video_runs(plan, connection):
            if stop <= begins or start >= position:
                continue
            start, stop = max(start, begins), min(stop, position)
            ranges += [(reached, start, None), (start, stop, "no_keyframe")]
            reached = stop
        ranges.append((reached, position, None))
    return [one for one in ranges if one[1] > one[0]]


def _video_runs(plan: Plan, connection: int) -> list[tuple[int, int]]:
    """Positions of the video frames that a connection which goes on skips up to its picture, neighbours as one."""
    streams, table = plan.channels.streams, plan.destinations.connections
    stream = plan.destinations.feeds.stream[table.feed[[connection]]]
    publish, _ = streams.publish_at(stream, table.stuck_ms[[connection - 1]])
    first = table.begins.frames[connection] - streams.publishes.base.frames[publish[0]]
    last = table.picture.frames[connection] - streams.publishes.base.frames[publish[0]]
    frames = np.arange(first, last)
    positions = streams.before_frame(np.repeat(publish, len(frames)), frames).position
    breaks = np.flatnonzero(np.diff(positions) > 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(positions, breaks) if len(run)]


def _delivery_columns(plan: Plan, feed: Ints, start: Ints, stop: Ints) -> Columns:
    feeds = plan.destinations.feeds
    known, places = np.unique(feed, return_inverse=True)
    heads = [
        several(
            reader="destination",
            name=plan.destination_name(int(feeds.destination[one])),
            stream=plan.stream_name(int(feeds.stream[one])),
            stream_id=plan.stream_id(int(feeds.stream[one])),
        )
        for one in known
    ]
    tails = [several(outcome="delivered", reason=None, feed=feed_name(plan, one)) for one in known.tolist()]
    return [
        ("reader name stream stream_id", fixed(heads, places)),
        ("start", start),
        ("stop", stop),
        ("outcome reason feed", fixed(tails, places)),
    ]


def _dropped(evicted: Ints, no_keyframe: Ints) -> pa.Array:
    counts, places = np.unique(np.stack([evicted, no_keyframe], 1), axis=0, return_inverse=True)
    names = ("evicted", "no_keyframe")
    texts = [encode({name: int(n) for name, n in zip(names, row, strict=True) if n}) for row in counts]
    return fixed(texts or ["{}"], places.reshape(-1))
