"""The log: a stream is a bounded list of messages, each at a position that is never used twice.

Owns what is kept and for how long, where a reader may start, and the bytes a message has on the wire. Knows nothing of
who reads: a reader holds a `Cursor` (cursor.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.protocol import media, messages
from headrace.protocol.chunks import encode_message

MESSAGE_STREAM_ID = 1  # what every real client is given by its first createStream

# One chunk stream per kind, as librtmp and nginx-rtmp do. Headers are absolute, so the choice carries no state.
_CHUNK_STREAM = {messages.AUDIO: 4, messages.DATA: 5, messages.VIDEO: 6}

# A step of media time longer than this is a jump of the publisher's clock, not media that somebody has to catch up.
_MAX_STEP_MS = 10_000
_HALF_RANGE = 1 << 31

_METADATA_SLOT = "onMetaData"
_METADATA = b"\x02\x00\x0aonMetaData"


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much a log keeps. The newest group of pictures stays beyond `retain_s`, for late joiners, but never beyond
    the two caps."""

    retain_s: float = 5.0
    max_bytes: int = 64 << 20  # 30 s at 17 Mbit/s
    max_messages: int = 20_000  # 30 s of 60 fps video and 48 kHz AAC are 3,200; also bounds a flood of tiny messages


class Entry:
    """One message in the log. `flags` are those of `protocol.media`."""

    __slots__ = ("_wire", "_wire_chunk_size", "flags", "media_ms", "payload", "position", "timestamp_ms", "type_id")

    def __init__(
        self, position: int, type_id: int, timestamp_ms: int, payload: bytes, flags: int, media_ms: int
    ) -> None:
        self.position = position
        self.type_id = type_id
        self.timestamp_ms = timestamp_ms
        self.payload = payload
        self.flags = flags
        self.media_ms = media_ms  # media time since the log began: monotonic, whatever the timestamps do
        self._wire: bytes | None = None
        self._wire_chunk_size = 0

    @property
    def is_keyframe(self) -> bool:
        return bool(self.flags & media.KEYFRAME)

    @property
    def is_config(self) -> bool:
        return bool(self.flags & media.CONFIG)

    def wire(self, chunk_size: int) -> bytes:
        """The message as chunks; made once, however many readers there are."""
        wire = self._wire
        if wire is None or self._wire_chunk_size != chunk_size:
            wire = self._wire = self.encode(chunk_size, MESSAGE_STREAM_ID)
            self._wire_chunk_size = chunk_size
        return wire

    def encode(self, chunk_size: int, message_stream_id: int) -> bytes:
        return encode_message(
            self.type_id,
            self.timestamp_ms,
            message_stream_id,
            self.payload,
            chunk_stream_id=_CHUNK_STREAM[self.type_id],
            chunk_size=chunk_size,
        )

    def at(self, timestamp_ms: int, media_ms: int) -> Entry:
        """The same message with another timestamp and no position: what is repeated for a late joiner."""
        return Entry(NO_POSITION, self.type_id, timestamp_ms, self.payload, self.flags, media_ms)


NO_POSITION = -1


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a reader may begin: the messages it needs first, then the log from `position`."""

    position: int
    preface: tuple[Entry, ...]


class StreamLog:
    """Messages from `head` (the oldest kept) up to, not including, `tail`."""

    def __init__(self, limits: LogLimits) -> None:
        self._limits = limits
        self._entries: list[Entry] = []
        self._bytes = 0
        self.head = 0
        self.tail = 0
        self.total_bytes = 0
        self.media_ms = 0
        self.has_video = False
        self.newest_ms = 0  # the newest timestamp, modulo 2^32
        # What a decoder must have first, by what it configures: metadata, sequence headers, one per track.
        self._preface: dict[object, Entry] = {}
        self._keyframe: Entry | None = None
        self._keyframe_preface: tuple[Entry, ...] = ()
        self._start: StartPoint | None = None  # the answer of start_point(), kept until the log changes it

    def append(self, type_id: int, timestamp_ms: int, payload: bytes) -> Entry:
        if type_id == messages.VIDEO:
            flags = media.classify_video(payload)
            self.has_video = True
        elif type_id == messages.AUDIO:
            flags = media.classify_audio(payload)
        else:
            flags = media.METADATA if payload.startswith(_METADATA) else 0
        self._advance(timestamp_ms)
        entry = Entry(self.tail, type_id, timestamp_ms, payload, flags, self.media_ms)
        self._entries.append(entry)
        self.tail += 1
        self._bytes += len(payload)
        self.total_bytes += len(payload)
        if flags & (media.CONFIG | media.METADATA):
            self._configure(entry)
        elif flags & media.KEYFRAME:
            self._keyframe = entry
            self._keyframe_preface = tuple(self._preface.values())
            self._start = None
        self._trim()
        return entry

    def entries(self, start: int, stop: int) -> Sequence[Entry]:
        """The entries at positions start..stop-1, which must lie within head..tail."""
        return self._entries[start - self.head : stop - self.head]

    def entry(self, position: int) -> Entry:
        return self._entries[position - self.head]

    @property
    def kept_bytes(self) -> int:
        return self._bytes

    @property
    def newest_keyframe(self) -> Entry | None:
        """The newest keyframe that is still here and that the current sequence headers fit."""
        return self._keyframe

    def start_point(self) -> StartPoint:
        """Where a picture (or, without video, sound) can begin now: the newest keyframe, else the newest message."""
        if self._start is None or (self._keyframe is None and self._start.position != self.tail):
            if self._keyframe is not None:
                first, preface = self._keyframe, self._keyframe_preface
                self._start = StartPoint(first.position, self._repeat(preface, first))
            else:
                preface = tuple(self._preface.values())
                newest = self._entries[-1] if self._entries else None
                self._start = StartPoint(self.tail, self._repeat(preface, newest))
        return self._start

    def _repeat(self, preface: tuple[Entry, ...], first: Entry | None) -> tuple[Entry, ...]:
        # They take the timestamp of what follows: a jump from 0 to an hour makes some players wait for an hour.
        if first is None:
            return preface
        return tuple(entry.at(first.timestamp_ms, first.media_ms) for entry in preface)

    def _configure(self, entry: Entry) -> None:
        if entry.type_id == messages.DATA:
            key: object = _METADATA_SLOT
        else:
            kind = "video" if entry.type_id == messages.VIDEO else "audio"
            key = media.config_slot(kind, entry.payload) or entry.type_id
        known = self._preface.get(key)
        if known is not None and known.payload == entry.payload:
            return  # an identical sequence header changes nothing
        if entry.type_id == messages.VIDEO and known is not None:
            # Frames before a new sequence header cannot be decoded with it: no start point until the next keyframe.
            self._keyframe = None
        self._preface[key] = entry
        if key == _METADATA_SLOT:
            # Metadata goes first, wherever it came.
            self._preface = {key: entry, **{k: v for k, v in self._preface.items() if k != key}}
        while len(self._preface) > _MAX_PREFACE:
            self._preface.pop(next(k for k in self._preface if k != _METADATA_SLOT))
        self._start = None

    def _advance(self, timestamp_ms: int) -> None:
        if not self.tail:
            self.newest_ms = timestamp_ms
            return
        step = (timestamp_ms - self.newest_ms) & 0xFFFFFFFF  # modulo 2^32: a stream may run for more than 49 days
        if step < _HALF_RANGE:
            self.newest_ms = timestamp_ms
            if step <= _MAX_STEP_MS:
                self.media_ms += step
        elif (1 << 32) - step > _MAX_STEP_MS:
            self.newest_ms = timestamp_ms  # the clock was set back: go on from there

    def _trim(self) -> None:
        limits = self._limits
        entries = self._entries
        count = len(entries)
        drop = 0
        if self._bytes <= limits.max_bytes and count <= limits.max_messages:
            oldest_ms = self.media_ms - limits.retain_s * 1000
            if count <= _TRIM_BATCH or entries[_TRIM_BATCH].media_ms >= oldest_ms:
                return
            stop = count - 1
            if self._keyframe is not None and self._keyframe.media_ms > self.media_ms - _MAX_GOP_MS:
                stop = self._keyframe.position - self.head
            while drop < stop and entries[drop].media_ms < oldest_ms:
                drop += 1
        else:
            excess = self._bytes - limits.max_bytes
            while drop < count - 1 and (excess > 0 or count - drop > limits.max_messages):
                excess -= len(entries[drop].payload)
                drop += 1
        if not drop:
            return
        self._bytes -= sum(len(entry.payload) for entry in entries[:drop])
        del entries[:drop]
        self.head += drop
        if self._keyframe is not None and self._keyframe.position < self.head:
            self._keyframe = None
            self._start = None


# Dropping a prefix of a list moves the rest: done for this many at a time, it costs nothing that can be measured.
_TRIM_BATCH = 32
# The newest group of pictures is kept for late joiners up to this age; video that stopped long ago pins nothing.
_MAX_GOP_MS = 60_000
# Sequence headers a late joiner may need: two kinds, a few tracks each. A peer cannot make it grow.
_MAX_PREFACE = 64
