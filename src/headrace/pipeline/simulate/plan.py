"""The whole plan of a simulation: made once from the options, read by whoever writes a stretch of the log."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.audience import Plays, plan_audience
from headrace.pipeline.simulate.chance import Ints, generator
from headrace.pipeline.simulate.clock import Clock
from headrace.pipeline.simulate.destinations import Destinations, plan_destinations
from headrace.pipeline.simulate.encoders import make_encoders
from headrace.pipeline.simulate.publishers import Channels, Span, plan_channels
from headrace.pipeline.simulate.streams import KEY_SHIFT

APP = "live"
_REFUSED_PLAYS_AN_HOUR, _REFUSED_PUBLISHES_AN_HOUR = 0.5, 0.1  # of each channel


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for."""

    streams: int
    hours: float
    viewers: int
    destinations: int
    seed: int
    start_ms: int
    faults: float
    data_dir: Path
    record_dir: Path  # absolute
    frames: str | None  # what recordings hold: None, "thin" or "full"


class Refusal(NamedTuple):
    time_ms: int
    stream: str
    is_publish: bool


class StateChanges(NamedTuple):
    names: list[str]
    sort_key: Ints
    state: Ints


@dataclass(frozen=True)
class Plan:
    options: Options
    span: Span
    node: str
    boot: str
    channels: Channels
    destinations: Destinations
    plays: Plays
    refusals: list[Refusal]
    # The numbers of connections, by the time they were opened.
    publish_connection: Ints
    play_connection: Ints
    refusal_connection: Ints

    def channel_name(self, channel: int) -> str:
        return f"channel-{channel + 1:03d}"

    def stream_name(self, stream: int) -> str:
        return f"{APP}/{self.channel_name(self.channels.broadcasts[stream].channel)}"

    def stream_id(self, stream: int) -> str:
        return f"{self.node}.{self.boot}.{stream + 1}"

    def destination_name(self, destination: int) -> str:
        return f"platform-{destination + 1}"

    def destination_url(self, destination: int) -> str:
        return f"rtmp://ingest.{self.destination_name(destination)}.example/live/****"

    def viewer(self, number: int) -> str:
        return hashlib.blake2b(f"{self.options.seed}/{number}".encode(), digest_size=8).hexdigest()

    def recording(self, stream: int) -> Path:
        """Named as the recorder names them."""
        opened_at = datetime.fromtimestamp(self.recording_opened_ms(stream) / 1000, UTC)
        channel = self.channel_name(self.channels.broadcasts[stream].channel)
        return self.options.record_dir / f"{APP}_{channel}_{opened_at:%Y%m%d_%H%M%S}.flv"

    def recording_opened_ms(self, stream: int) -> int:
        """The recorder gathers for a moment before it writes."""
        return int(self.first_ms[stream]) + 155 + stream % 40

    @cached_property
    def state_changes(self) -> StateChanges:
        """Of destinations, in the order of feed and time."""
        changes = sorted(self.destinations.changes, key=lambda one: (one.feed, one.time_ms))
        names = sorted({one.state for one in changes})
        key = [(one.feed << KEY_SHIFT) + one.time_ms for one in changes]
        return StateChanges(
            names, np.array(key, np.int64), np.array([names.index(one.state) for one in changes], np.int64)
        )

    @cached_property
    def first_publish(self) -> Ints:
        """Of each stream."""
        return np.searchsorted(self.channels.streams.publishes.stream, np.arange(len(self.channels.broadcasts)))

    @cached_property
    def first_ms(self) -> Ints:
        """When the first message of each stream came."""
        return self.channels.streams.publishes.first_ms[self.first_publish]

    @cached_property
    def created_ms(self) -> Ints:
        return np.array([one.created_ms for one in self.channels.broadcasts], np.int64)

    @cached_property
    def ended_ms(self) -> Ints:
        return np.array([one.ended_ms for one in self.channels.broadcasts], np.int64)


def make_plan(options: Options) -> Plan:
    chance = generator(options.seed, 0)
    span = Span(options.start_ms, options.start_ms + round(options.hours * 3_600_000))
    clock = Clock(options.start_ms, int(chance.integers(1, 1 << 40)))
    encoders = make_encoders(options.seed, options.streams)
    channels = plan_channels(encoders, clock, span, options.seed, options.faults)
    plays = plan_audience(channels, options.seed, options.viewers, options.faults)
    refusals = _refusals(options, channels)
    opened = (
        channels.streams.publishes.opened_ms,
        plays.opened_ms,
        np.array([one.time_ms for one in refusals], np.int64),
    )
    number = np.argsort(np.argsort(np.concatenate(opened), kind="stable"), kind="stable") + 1
    by_publish, by_play, by_refusal = np.split(number, np.cumsum([len(one) for one in opened])[:-1])
    return Plan(
        options=options,
        span=span,
        node=f"simulated-{int(chance.integers(1 << 32)):08x}",
        boot=f"{options.start_ms:x}-{int(chance.integers(300, 32768)):x}",
        channels=channels,
        destinations=plan_destinations(channels, options.seed, options.destinations, options.faults),
        plays=plays,
        refusals=refusals,
        publish_connection=by_publish,
        play_connection=by_play,
        refusal_connection=by_refusal,
    )


def _refusals(options: Options, channels: Channels) -> list[Refusal]:
    """Plays of streams that are not there, and publishes of such that are another's."""
    chance = generator(options.seed, 5)
    channel_hours = options.hours * options.streams
    found = []
    for rate, is_publish in ((_REFUSED_PLAYS_AN_HOUR, False), (_REFUSED_PUBLISHES_AN_HOUR, True)):
        for _ in range(max(round(rate * channel_hours), 1)):
            broadcast = channels.broadcasts[int(chance.integers(len(channels.broadcasts)))]
            time_ms = (
                broadcast.created_ms + 3000 + int(chance.uniform(0, broadcast.ended_ms - broadcast.created_ms - 9000))
            )
            name = (
                f"{APP}/channel-{broadcast.channel + 1:03d}"
                if is_publish
                else f"{APP}/nobody-{int(chance.integers(20))}"
            )
            found.append(Refusal(time_ms, name, is_publish))
    return sorted(found)
