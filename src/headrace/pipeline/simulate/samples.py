"""Samples, one a second of every publisher and player, and the last one of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.pipeline.simulate.audience import Plays
from headrace.pipeline.simulate.chance import Flags, Ints
from headrace.pipeline.simulate.encoders import PREFACE_MESSAGES
from headrace.pipeline.simulate.grid import Gaps, Grid, gaps_of
from headrace.pipeline.simulate.lines import Columns, Rows, fixed, flags, or_null, several
from headrace.pipeline.simulate.plan import Plan
from headrace.pipeline.simulate.streams import PREFACE_BYTES, State

MAX_LAG_MS = 5000  # of a player: the server's default


class Moments(NamedTuple):
    """Two states of each stream, when they were, and the gaps between them."""

    before: State
    now: State
    before_ms: Ints
    now_ms: Ints
    gaps: Gaps


def at_ticks(grid: Grid, stream: Ints, column: Ints) -> Moments:
    place = grid.place(stream, column)
    times_ms = grid.times_ms
    return Moments(grid.states(place - 1), grid.states(place), times_ms[column - 1], times_ms[column], grid.gaps(place))


def at_ends(grid: Grid, stream: Ints, now_ms: Ints, late_ms: int = 0) -> Moments:
    """From the last tick whose samples, so much later, were before it, to some other time."""
    column = grid.last_column(now_ms - late_ms)
    before_ms = grid.times_ms[column]
    return Moments(
        grid.states(grid.place(stream, column)),
        grid.plan.channels.streams.at(stream, now_ms),
        before_ms,
        now_ms,
        gaps_of(grid.plan, stream, before_ms, now_ms),
    )


# Publishers -------------------------------------------------------------------------------------------------------


def publisher_samples(grid: Grid) -> list[Rows]:
    table = grid.plan.channels.streams.publishes
    there = np.flatnonzero((table.started_ms < grid.span.stop_ms) & (table.stopped_ms >= grid.span.start_ms))
    who, column = grid.samples(table.started_ms[there], table.stopped_ms[there])
    ending = there[grid.has(table.stopped_ms[there])]
    ending = ending[np.argsort(table.stopped_ms[ending], kind="stable")]

    def regular() -> Columns:
        publish = there[who]
        return _publisher_columns(grid.plan, publish, at_ticks(grid, table.stream[publish], column))

    def last() -> Columns:
        return _publisher_columns(grid.plan, ending, at_ends(grid, table.stream[ending], table.stopped_ms[ending]))

    return [
        Rows("publisher_sample", grid.times_ms[column], regular),
        Rows("publisher_sample", table.stopped_ms[ending], last),
    ]


def _publisher_columns(plan: Plan, publish: Ints, moments: Moments) -> Columns:
    before, now = moments.before, moments.now
    table, encoders = plan.channels.streams.publishes, plan.channels.streams.encoders
    known, places = np.unique(publish, return_inverse=True)
    heads = [
        several(
            conn=f"c{plan.publish_connection[one]}",
            stream=plan.stream_name(int(table.stream[one])),
            stream_id=plan.stream_id(int(table.stream[one])),
        )
        for one in known
    ]
    messages = now.position - before.position
    channel = table.channel[publish]
    # The newest keyframe of this connection, and the one before it.
    number = now.keyframes - table.base.keyframes[publish] - 1
    newest_ms = encoders.video_ms(channel, encoders.keyframe(channel, number))
    apart_ms = newest_ms - encoders.video_ms(channel, encoders.keyframe(channel, number - 1))
    return [
        ("conn stream stream_id", fixed(heads, places)),
        ("interval_ms", moments.now_ms - np.maximum(moments.before_ms, table.started_ms[publish])),
        ("video_bytes", now.video_bytes - before.video_bytes),
        ("audio_bytes", now.audio_bytes - before.audio_bytes),
        ("messages", messages),
        ("frames", now.frames - before.frames),
        ("keyframes", now.keyframes - before.keyframes),
        ("media_ms", now.media_ms),
        ("timestamp_ms", now.media_ms),
        ("video_ms", or_null(now.video_ms, now.video_ms < table.base_media_ms[publish])),
        ("audio_ms", or_null(now.audio_ms, now.audio_ms < table.base_media_ms[publish])),
        ("max_gap_ms", np.where(messages > 0, moments.gaps.arrived_ms, 0)),
        ("backward_steps", "0"),
        ("position", now.position),
        ("keyframe_interval_max_ms", or_null(apart_ms, (now.keyframes == before.keyframes) | (number < 1))),
    ]


# Players ----------------------------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What a player had got."""

    position: Ints
    media_ms: Ints
    messages: Ints
    bytes: Ints
    frames: Ints
    keyframes: Ints
    has_jumped: Flags
    is_blocked: Flags


class Audience:
    """Some plays, and what each of them had got at any time."""

    def __init__(self, plan: Plan, numbers: Ints) -> None:
        self._plan = plan
        self.numbers = numbers
        self.plays: Plays = plan.plays.take(numbers)
        streams = plan.channels.streams
        self._start = streams.before_newest_keyframe(self.plays.stream, self.plays.started_ms)
        self._stuck = streams.at(self.plays.stream, self.plays.blocked_ms)
        self._again = streams.before_newest_keyframe(self.plays.stream, self.plays.unblocked_ms)
        late_ms = streams.at(self.plays.stream, self.plays.unblocked_ms).media_ms - self._stuck.media_ms
        self._jumps = (late_ms > MAX_LAG_MS) & (self._again.position > self._stuck.position)

    @classmethod
    def of(cls, grid: Grid) -> Audience:
        """Those who are there in a stretch."""
        plays = grid.plan.plays
        is_there = (plays.started_ms < grid.span.stop_ms) & (plays.stopped_ms >= grid.span.start_ms)
        return cls(grid.plan, np.flatnonzero(is_there))

    def samples(self, grid: Grid) -> list[Rows]:
        plays = self.plays
        who, column = grid.samples(plays.started_ms, plays.stopped_ms)
        ending = np.flatnonzero(grid.has(plays.stopped_ms))
        ending = ending[np.argsort(plays.stopped_ms[ending], kind="stable")]

        def regular() -> Columns:
            return self._columns(who, at_ticks(grid, plays.stream[who], column))

        def last() -> Columns:
            return self._columns(ending, at_ends(grid, plays.stream[ending], plays.stopped_ms[ending]))

        return [
            Rows("subscriber_sample", grid.times_ms[column], regular),
            Rows("subscriber_sample", plays.stopped_ms[ending], last),
        ]

    def totals(self) -> tuple[Ints, Ints]:
        """Messages and bytes of each at its end."""
        plays = self.plays
        state = self._plan.channels.streams.at(plays.stream, plays.stopped_ms)
        seen = self._seen(np.arange(len(self.numbers)), state, plays.stopped_ms)
        return seen.messages, seen.bytes

    def _seen(self, who: Ints, state: State, time_ms: Ints) -> _Seen:
        start, stuck, again = self._start.take(who), self._stuck.take(who), self._again.take(who)
        is_on = time_ms >= self.plays.picture_ms[who]
        is_blocked = (time_ms >= self.plays.blocked_ms[who]) & (time_ms < self.plays.unblocked_ms[who])
        has_jumped = self._jumps[who] & (time_ms >= self.plays.unblocked_ms[who])
        state = stuck.where(is_blocked, state)
        # Behind a jump metadata and sequence headers come again.
        skipped = np.where(has_jumped, again.position - stuck.position - PREFACE_MESSAGES, 0)
        unsent = np.where(has_jumped, again.sent_bytes - stuck.sent_bytes - PREFACE_BYTES, 0)
        return _Seen(
            np.where(is_on, state.position, start.position),
            np.where(is_on, state.media_ms, start.media_ms),
            np.where(is_on, state.position - start.position + PREFACE_MESSAGES - skipped, 0),
            np.where(is_on, state.sent_bytes - start.sent_bytes + PREFACE_BYTES - unsent, 0),
            np.where(is_on, state.frames - start.frames - has_jumped * (again.frames - stuck.frames), 0),
            np.where(is_on, state.keyframes - start.keyframes - has_jumped * (again.keyframes - stuck.keyframes), 0),
            has_jumped,
            is_blocked | ~is_on,
        )

    def _columns(self, who: Ints, moments: Moments) -> Columns:
        plan, plays = self._plan, self.plays
        now = self._seen(who, moments.now, moments.now_ms)
        before = self._seen(who, moments.before, moments.before_ms)
        known, places = np.unique(who, return_inverse=True)
        heads = [
            several(
                conn=f"c{plan.play_connection[self.numbers[one]]}",
                viewer=plan.viewer(int(plays.viewer[one])),
                stream=plan.stream_name(int(plays.stream[one])),
                stream_id=plan.stream_id(int(plays.stream[one])),
            )
            for one in known
        ]
        started_ms = plays.started_ms[who]
        blocked_ms, unblocked_ms = plays.blocked_ms[who], plays.unblocked_ms[who]
        waiting_ms = moments.now_ms - np.where(moments.now_ms >= blocked_ms, blocked_ms, started_ms)
        is_freed = (moments.before_ms < unblocked_ms) & (moments.now_ms >= unblocked_ms)
        gap_ms = np.maximum(moments.gaps.away_ms, moments.gaps.idle_ms)
        gap_ms = np.where(is_freed, np.maximum(unblocked_ms - blocked_ms, gap_ms), gap_ms)
        return [
            ("conn viewer stream stream_id", fixed(heads, places)),
            ("interval_ms", moments.now_ms - np.maximum(moments.before_ms, started_ms)),
            ("bytes", now.bytes - before.bytes),
            ("messages", now.messages - before.messages),
            ("dropped", self._dropped(who, now.has_jumped & ~before.has_jumped)),
            ("queue_age_ms", moments.now.media_ms - now.media_ms),
            ("blocked", flags(now.is_blocked)),
            ("position", now.position),
            ("frames", now.frames - before.frames),
            ("keyframes", now.keyframes - before.keyframes),
            ("media_ms", now.media_ms),
            ("max_gap_ms", np.where(now.is_blocked, waiting_ms, gap_ms)),
            (
                "first_keyframe_ms",
                or_null(plays.picture_ms[who] - started_ms, moments.now_ms < plays.picture_ms[who]),
            ),
        ]

    def _dropped(self, who: Ints, is_jump: Flags) -> pa.Array:
        jumping, places = np.unique(np.where(is_jump, who + 1, 0), return_inverse=True)
        counts = self._again.position - self._stuck.position
        texts = ["{}" if one == 0 else f'{{"lag":{counts[one - 1]}}}' for one in jumping.tolist()]
        return fixed(texts, places)
