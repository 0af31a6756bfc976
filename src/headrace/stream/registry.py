"""The registry of streams: who publishes what, what happens when a publisher leaves, and who is told.

Pure: time comes in as `now_s`, and listeners are called in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from headrace.errors import StreamError, UsageError
from headrace.protocol import media, messages
from headrace.stream.cadence import Due, Prepare
from headrace.stream.log import Entry, LogLimits, StreamLog, is_metadata


class StreamListener(Protocol):
    """A reader of a stream: told that there is something to read, and when there will be nothing more."""

    def stream_appended(self) -> None: ...

    def stream_ended(self, reason: str) -> None: ...


class Publisher(Protocol):
    """The source of a stream, as far as the registry has to know it."""

    @property
    def last_received_s(self) -> float: ...

    def displace(self) -> None:
        """Another publisher took the stream: close."""

    def rest(self, until_s: float) -> float:
        """Nobody reads before then: what comes meanwhile may be brought at once. How long it waits in any case."""

    def expect(self, due: Due, prepare: Prepare) -> bool:
        """What is due of it next: `prepare` may be called shortly before. Whether it will be."""


class StreamState(Enum):
    LIVE = "live"
    GRACE = "grace"  # the publisher's connection was lost; readers wait for it to come back
    ENDED = "ended"


class Stream:
    """A published stream: its log, its publisher, its listeners."""

    def __init__(self, app: str, name: str, limits: LogLimits, now_s: float, stream_id: str = "") -> None:
        self.id = stream_id  # of this one publication, whatever its name was used for before
        self.app = app
        self.name = name
        self.key = f"{app}/{name}"
        self.log = StreamLog(limits)
        self.state = StreamState.LIVE
        self.publisher: Publisher | None = None
        self.is_pulled = False  # a copy of a stream that another server has
        self.is_internal = False  # a copy of a stream that another worker of this server has, under the same id
        self.path: tuple[str, ...] = ()  # of a copy: through which servers it came, the nearest first
        self.started_s = now_s
        self.publish_count = 0
        self._count_before = 0  # of publishes under an earlier id
        self.lost_s = 0.0
        self._listeners: tuple[StreamListener, ...] = ()  # replaced, never changed: one may leave while told
        self._readers: tuple[StreamListener, ...] = ()  # those of them that want to know of every message
        self.is_shifted = False  # the publisher's timestamps may not be its readers': it is not the first
        self._offset_ms = 0
        self._reader_count = 0
        self._away_s: float | None = None  # how long the publisher was away, until its first frame is here

    @property
    def is_resumed(self) -> bool:
        """Its publisher is not the first under this id."""
        return self.publish_count - self._count_before > 1

    def begin_anew(self, stream_id: str) -> None:
        """Go on under another id: what it was is told elsewhere."""
        self.id = stream_id
        self._count_before = self.publish_count - 1

    def add_listener(self, listener: StreamListener, *, reads: bool = True) -> None:
        """One that does not read is told of the end only."""
        self._listeners = (*self._listeners, listener)
        if reads:
            self._readers = (*self._readers, listener)

    def remove_listener(self, listener: StreamListener) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        self._readers = tuple(other for other in self._readers if other is not listener)

    def new_reader_id(self) -> str:
        """For a reader that has to prove what it got: a destination of the same name may come twice."""
        self._reader_count += 1
        return f"{self.id}/{self._reader_count}"

    def append(self, type_id: int, timestamp_ms: int, payload: bytes) -> Entry:
        """Add one message of the publisher; listeners are told."""
        entry = self.add(type_id, timestamp_ms, payload)
        self.tell()
        return entry

    def add(self, type_id: int, timestamp_ms: int, payload: bytes) -> Entry:
        """The same for one of several: `tell` follows the last."""
        if self.is_shifted:
            timestamp_ms = self.shift(type_id, timestamp_ms, payload)
        return self.log.append(type_id, timestamp_ms, payload)

    def shift(self, type_id: int, timestamp_ms: int, payload: bytes) -> int:
        """The timestamp that readers get for the publisher's own."""
        if self._away_s is not None:
            return self._resume(type_id, timestamp_ms, payload)
        return (timestamp_ms + self._offset_ms) & 0xFFFFFFFF

    def tell(self) -> None:
        for reader in self._readers:
            reader.stream_appended()

    def _resume(self, type_id: int, timestamp_ms: int, payload: bytes) -> int:
        """A publisher that came back usually counts from 0 again: its media follows on what readers already have.

        Metadata and sequence headers say nothing of its clock (they often carry 0): the first frame decides.
        """
        newest_ms = self.log.newest_ms
        if not _is_frame(type_id, payload):
            # Metadata takes 0: at any other time FFmpeg's demuxer makes a subtitle track of it.
            return 0 if type_id == messages.DATA and is_metadata(payload) else newest_ms
        away_ms = int((self._away_s or 0.0) * 1000)
        self._away_s = None
        ahead_ms = (timestamp_ms + self._offset_ms - newest_ms) & 0xFFFFFFFF
        if ahead_ms > away_ms + _CONTINUED_CLOCK_MS:
            self._offset_ms = (newest_ms + max(away_ms, 1) - timestamp_ms) & 0xFFFFFFFF
        return (timestamp_ms + self._offset_ms) & 0xFFFFFFFF

    def _publish(self, publisher: Publisher, now_s: float) -> None:
        if self.publish_count:
            self.is_shifted = True
            self._away_s = max(now_s - self.lost_s, 0.0)
        self.publisher = publisher
        self.publish_count += 1
        self.state = StreamState.LIVE

    def _lose(self, now_s: float) -> None:
        self.publisher = None
        self.state = StreamState.GRACE
        self.lost_s = now_s

    def end(self, reason: str) -> None:
        """Of a stream that is in no registry; others are ended by theirs."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        self.publisher = None
        self.state = StreamState.ENDED
        for listener in self._listeners:
            listener.stream_ended(reason)
        self._listeners = self._readers = ()


def not_found(name: str, why: str = "") -> StreamError:
    """The answer to whoever wants to play what is not there."""
    return StreamError("NetStream.Play.StreamNotFound", f'No stream "{name}"{why and ": "}{why}.')


def _is_frame(type_id: int, payload: bytes) -> bool:
    if type_id == messages.VIDEO:
        return bool(media.classify_video(payload) & media.FRAME)
    return type_id == messages.AUDIO and bool(media.classify_audio(payload) & media.FRAME)


# A publisher whose first timestamp lies this little after the expected one kept its clock through the outage.
_CONTINUED_CLOCK_MS = 10_000
# A healthy publisher pauses for a frame, a scheduler's whim or a lost packet: without a grace period it would be
# anybody's to replace in that moment.
_MIN_SILENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class Published:
    stream: Stream
    is_resumed: bool


class StreamRegistry:
    """All streams of a server, by key."""

    def __init__(self, *, limits: LogLimits, grace_s: float, id_prefix: str = "") -> None:
        self._id_prefix = id_prefix
        self._count = 0
        self._limits = limits
        self._grace_s = grace_s
        self._streams: dict[str, Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(list(self._streams.values()))

    def find(self, app: str, name: str) -> Stream | None:
        return self._streams.get(f"{app}/{name}")

    def publish(
        self, app: str, name: str, publisher: Publisher, now_s: float, *, stream_id: str | None = None
    ) -> Published:
        """Make `publisher` the source of app/name, or raise StreamError with the code to answer.

        A new stream gets a new id, unless it is known by one elsewhere.
        """
        if not name:
            raise StreamError("NetStream.Publish.BadName", "The stream name is empty.")
        stream = self.find(app, name)
        if stream is None:
            stream = Stream(app, name, self._limits, now_s, stream_id or self.new_id())
            self._streams[stream.key] = stream
            stream._publish(publisher, now_s)
            return Published(stream, is_resumed=False)
        if stream.publisher is not None:
            silent_s = now_s - stream.publisher.last_received_s
            if silent_s <= max(self._grace_s, _MIN_SILENCE_S):
                raise StreamError("NetStream.Publish.BadName", f"{name} is already being published.")
            # Nothing heard for longer than the grace: that connection is dead, whatever its socket says.
            silent, stream.publisher = stream.publisher, None
            stream._lose(now_s - silent_s)
            silent.displace()
        stream._publish(publisher, now_s)
        return Published(stream, is_resumed=True)

    def new_id(self) -> str:
        self._count += 1
        return f"{self._id_prefix}{self._count}"

    def unpublish(self, stream: Stream, publisher: Publisher, reason: str) -> None:
        """The publisher said that it is done: the stream ends now."""
        if stream.publisher is publisher:
            self._remove(stream, reason)

    def lose(self, stream: Stream, publisher: Publisher, now_s: float) -> None:
        """The publisher's connection is gone without a word: readers are kept for the grace period."""
        if stream.publisher is not publisher:
            return  # it was replaced, or the stream has ended
        if self._grace_s > 0:
            stream._lose(now_s)
        else:
            self._remove(stream, "publisher lost")

    def expire(self, now_s: float) -> list[Stream]:
        """End the streams whose publisher did not come back in time."""
        expired = [
            stream
            for stream in self._streams.values()
            if stream.state is StreamState.GRACE and now_s - stream.lost_s >= self._grace_s
        ]
        for stream in expired:
            self._remove(stream, "publisher did not come back within the grace period")
        return expired

    def retain(self, retain_s: float) -> None:
        """Keep at least this much media from now on, in every log."""
        if retain_s > self._limits.retain_s:
            self._limits = replace(self._limits, retain_s=retain_s)
            for stream in self:
                stream.log.limits = self._limits

    def end_all(self, reason: str) -> None:
        for stream in self:
            self._remove(stream, reason)

    def _remove(self, stream: Stream, reason: str) -> None:
        if self._streams.get(stream.key) is not stream:
            raise UsageError(f"stream {stream.key} is not registered")
        del self._streams[stream.key]
        stream._end(reason)
