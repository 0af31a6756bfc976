"""What every stream had come to at any time: positions in its log, media time, frames and bytes.

A stream is published by one connection after the other (`Publishes`), each of which counts its frames anew and adds
to what the stream had. Media arrive as they are made, but for stalls: then nothing comes, and afterwards all that was
held back, in a burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from headrace.pipeline.simulate import encoders as facts
from headrace.pipeline.simulate.chance import Flags, Ints, noise
from headrace.pipeline.simulate.clock import Clock
from headrace.pipeline.simulate.encoders import Encoders

JITTER_MS = 60  # how late the newest frame may be on an ordinary day
CATCH_UP_MS = 800  # what a stall held back comes within this
KEY_SHIFT = 43  # of a number before a time in milliseconds, in one sortable whole: 2^43 ms are 278 years
_MESSAGE_OVERHEAD_BYTES = 12  # of chunks with absolute timestamps


class State(NamedTuple):
    """The sums of a stream at some moments."""

    position: Ints  # behind the newest message
    media_ms: Ints
    video_bytes: Ints
    audio_bytes: Ints
    frames: Ints
    keyframes: Ints
    video_ms: Ints  # the newest timestamp of each track; -1: none yet
    audio_ms: Ints

    def take(self, places: Ints) -> State:
        return State(*(column[places] for column in self))

    def where(self, chosen: Flags, other: State) -> State:
        """Ours where chosen, else the other's."""
        return State(*(np.where(chosen, own, its) for own, its in zip(self, other, strict=True)))

    @property
    def sent_bytes(self) -> Ints:
        """All of it on the wire, a long message in two chunks."""
        return self.video_bytes + self.audio_bytes + self.position * _MESSAGE_OVERHEAD_BYTES + self.keyframes

    @property
    def sent_video_bytes(self) -> Ints:
        return self.video_bytes + self.frames * _MESSAGE_OVERHEAD_BYTES + self.keyframes

    @classmethod
    def zeros(cls, count: int) -> Self:
        columns = [np.zeros(count, np.int64) for _ in cls._fields]
        columns[-2:] = [np.full(count, -1, np.int64)] * 2
        return cls(*columns)


# What a reader gets first: metadata and sequence headers.
PREFACE_BYTES = (
    facts.METADATA_BYTES
    + facts.VIDEO_HEADER_BYTES
    + facts.AUDIO_HEADER_BYTES
    + facts.PREFACE_MESSAGES * _MESSAGE_OVERHEAD_BYTES
)


@dataclass(frozen=True, slots=True)
class Publishes:
    """Connections that published, as columns, in the order of stream and time."""

    stream: Ints
    channel: Ints
    opened_ms: Ints
    started_ms: Ints  # publish granted
    first_ms: Ints  # the first message is here
    stopped_ms: Ints
    is_lost: Flags  # without a word
    is_resumed: Flags
    base: State  # of the stream when it began
    base_media_ms: Ints  # of its first frame

    @property
    def sort_key(self) -> Ints:
        return (self.stream << KEY_SHIFT) + self.first_ms


@dataclass(frozen=True, slots=True)
class Stalls:
    """When a publisher's media did not get through, in the order of publish and time."""

    publish: Ints
    start_ms: Ints
    stop_ms: Ints


@dataclass(frozen=True, slots=True)
class Streams:
    """Tells the state of streams. Numbers of streams, publishes and ticks are arrays of one length."""

    encoders: Encoders
    clock: Clock
    publishes: Publishes
    stalls: Stalls

    def publish_at(self, stream: Ints, time_ms: Ints) -> tuple[Ints, Flags]:
        """The newest publish of each stream that had brought something, and whether there is any; else its first."""
        place = np.searchsorted(self.publishes.sort_key, (stream << KEY_SHIFT) + time_ms, side="right") - 1
        is_any = (place >= 0) & (self.publishes.stream[place] == stream)
        return np.where(is_any, place, place + 1), is_any

    def at_ticks(self, stream: Ints, tick: Ints) -> State:
        time_ms = self.clock.at(tick)
        publish, is_any = self.publish_at(stream, time_ms)
        return self.after(publish, self._arrived_at_tick(publish, tick)).where(is_any, State.zeros(len(stream)))

    def at(self, stream: Ints, time_ms: Ints) -> State:
        """At any time: what had come at the tick before, and a part of what came until the next."""
        publish, is_any = self.publish_at(stream, time_ms)
        return self.after(publish, self.arrived(publish, time_ms)).where(is_any, State.zeros(len(stream)))

    def arrived(self, publish: Ints, time_ms: Ints) -> Ints:
        """Media time of a publish that is here at this time; -1: nothing."""
        tick = self.clock.before(time_ms + 1)  # the last one up to and with this time
        first_ms, stopped_ms = self.publishes.first_ms[publish], self.publishes.stopped_ms[publish]
        low_ms = np.clip(self.clock.at(tick), first_ms, stopped_ms)
        high_ms = np.clip(self.clock.at(tick + 1), first_ms, stopped_ms)
        low = np.where(low_ms > first_ms, self._arrived_at_tick(publish, tick), 0)
        high = np.where(high_ms > first_ms, self._arrived_at_tick(publish, tick + 1), 0)
        now_ms = np.clip(time_ms, low_ms, high_ms)
        between = low + (high - low) * (now_ms - low_ms) // np.maximum(high_ms - low_ms, 1)
        return np.where(time_ms < first_ms, -1, between)

    def _arrived_at_tick(self, publish: Ints, tick: Ints) -> Ints:
        time_ms = self.clock.at(tick)
        first_ms, stopped_ms = self.publishes.first_ms[publish], self.publishes.stopped_ms[publish]
        is_over = time_ms >= stopped_ms
        now_ms = np.minimum(time_ms, stopped_ms)
        late_ms = self._held_back_ms(publish, now_ms)
        jitter_ms = np.where(is_over | (late_ms > 0), 0, noise(tick + 1, publish + 7, JITTER_MS))
        return np.where(time_ms < first_ms, -1, np.maximum(now_ms - first_ms - late_ms - jitter_ms, 0))

    def _held_back_ms(self, publish: Ints, time_ms: Ints) -> Ints:
        start_ms, stop_ms, is_any = self.stall_before(publish, time_ms)
        left_ms = np.maximum(CATCH_UP_MS - (time_ms - stop_ms), 0)
        catching_up_ms = (stop_ms - start_ms) * left_ms // CATCH_UP_MS
        return np.where(is_any, np.where(time_ms < stop_ms, time_ms - start_ms, catching_up_ms), 0)

    def stall_before(self, publish: Ints, time_ms: Ints) -> tuple[Ints, Ints, Flags]:
        """The newest stall of each publish that had begun: from, to, and whether there is one."""
        stalls = self.stalls
        if not len(stalls.publish):
            return time_ms, time_ms, np.zeros(len(time_ms), np.bool_)
        key = (stalls.publish << KEY_SHIFT) + stalls.start_ms
        place = np.maximum(np.searchsorted(key, (publish << KEY_SHIFT) + time_ms, side="right") - 1, 0)
        is_any = (stalls.publish[place] == publish) & (stalls.start_ms[place] <= time_ms)
        return stalls.start_ms[place], stalls.stop_ms[place], is_any

    def after(self, publish: Ints, arrived_ms: Ints) -> State:
        """The stream's state when a publish had brought so much media."""
        frames = self.encoders.frames_until(self.publishes.channel[publish], arrived_ms)
        return self.after_frames(publish, *frames)

    def after_frames(self, publish: Ints, video: Ints, audio: Ints, *, has_preface: bool = False) -> State:
        """The same after so many frames of the publish; without any it is what the stream had before."""
        encoders, base = self.encoders, self.publishes.base.take(publish)
        channel, base_ms = self.publishes.channel[publish], self.publishes.base_media_ms[publish]
        is_begun = (video + audio > 0) | has_preface
        video_ms = np.where(video > 0, base_ms + encoders.video_ms(channel, video - 1), base.video_ms)
        audio_ms = np.where(audio > 0, base_ms + encoders.audio_ms(channel, audio - 1), base.audio_ms)
        return State(
            position=base.position + np.where(is_begun, facts.PREFACE_MESSAGES, 0) + video + audio,
            media_ms=np.maximum(np.maximum(video_ms, audio_ms), 0),
            video_bytes=base.video_bytes
            + np.where(is_begun, facts.VIDEO_HEADER_BYTES + encoders.video_sum(channel, video), 0),
            audio_bytes=base.audio_bytes
            + np.where(is_begun, facts.AUDIO_HEADER_BYTES + encoders.audio_sum(channel, audio), 0),
            frames=base.frames + video,
            keyframes=base.keyframes + encoders.keyframes_among(channel, video),
            video_ms=video_ms,
            audio_ms=audio_ms,
        )

    def before_frame(self, publish: Ints, frame: Ints) -> State:
        """What the stream had when this video frame of a publish was the next message."""
        channel = self.publishes.channel[publish]
        _, audio = self.encoders.frames_until(channel, self.encoders.video_ms(channel, frame) - 1)
        return self.after_frames(publish, frame, audio, has_preface=True)

    def before_newest_keyframe(self, stream: Ints, time_ms: Ints) -> State:
        """Where a reader begins that comes at this time."""
        publish, _ = self.publish_at(stream, time_ms)
        channel = self.publishes.channel[publish]
        video, _ = self.encoders.frames_until(channel, self.arrived(publish, time_ms))
        number = np.maximum(self.encoders.keyframes_among(channel, video) - 1, 0)
        return self.before_frame(publish, self.encoders.keyframe(channel, number))

    def before_next_keyframe(self, stream: Ints, time_ms: Ints) -> State:
        """The first keyframe that comes after what was there at this time, in the same publish."""
        publish, _ = self.publish_at(stream, time_ms)
        channel = self.publishes.channel[publish]
        video, _ = self.encoders.frames_until(channel, self.arrived(publish, time_ms))
        return self.before_frame(
            publish, self.encoders.keyframe(channel, self.encoders.keyframes_among(channel, video))
        )
