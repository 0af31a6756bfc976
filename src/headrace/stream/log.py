"""The log: a stream is a bounded list of messages, each at a position that is never used twice.

Owns what is kept and for how long, where a reader may start, and the bytes a message has on the wire. Knows nothing of
who reads: a reader holds a `Cursor` (cursor.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

import msgspec

from headrace.protocol import media, messages
from headrace.protocol.chunks import EXTENDED, encode_message

MESSAGE_STREAM_ID = 1  # what every real client is given by its first createStream

# One chunk stream per kind, as librtmp and nginx-rtmp do. Headers are absolute, so the choice carries no state.
_CHUNK_STREAM = {messages.AUDIO: 4, messages.DATA: 5, messages.VIDEO: 6}
_FIRST_BYTE = {type_id: chunk_stream_id << 24 for type_id, chunk_stream_id in _CHUNK_STREAM.items()}
_ONE_CHUNK = Struct(">III")  # format 0: basic header and timestamp, length and type, message stream (little-endian)

# A step of media time longer than this is a jump of the publisher's clock, not media that somebody has to catch up.
_MAX_STEP_MS = 10_000

_NOT_PLAIN = media.CONFIG | media.METADATA | media.KEYFRAME

_METADATA_SLOT = "onMetaData"
_METADATA = b"\x02\x00\x0aonMetaData"


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much a log keeps. The newest group of pictures stays beyond `retain_s`, for late joiners, but never beyond
    the two caps."""

    retain_s: float = 5.0
    max_bytes: int = 64 << 20  # 30 s at 17 Mbit/s
    max_messages: int = 20_000  # 30 s of 60 fps video and 48 kHz AAC are 3,200; also bounds a flood of tiny messages


class Entry(msgspec.Struct, eq=False, gc=False):
    """One message in the log. `flags` are those of `protocol.media`.

    Made without a call into Python, and nothing that the garbage collector has to look at.
    """

    position: int
    type_id: int
    timestamp_ms: int
    payload: bytes
    flags: int
    media_ms: int  # media time since the log began: monotonic, whatever the timestamps do

    @property
    def is_keyframe(self) -> bool:
        """A picture can start here: a keyframe of the main track, not of a side track alone."""
        return self.flags & (media.KEYFRAME | media.SIDE_TRACK) == media.KEYFRAME

    @property
    def is_config(self) -> bool:
        return bool(self.flags & media.CONFIG)

    def encode(self, chunk_size: int, message_stream_id: int) -> bytes:
        """The message as chunks."""
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


def encode_entries(entries: Iterable[Entry], chunk_size: int) -> bytes:
    """The messages as chunks on the message stream that nearly every reader has: the same bytes for all of them.

    They are made when they are sent, and copied once. Kept with the entries they took as much memory as the payloads:
    a server with 50 publishers had 175 MB, and has 108 MB.
    """
    pieces: list[bytes] = []
    add = pieces.append
    for entry in entries:
        payload = entry.payload
        size = len(payload)
        type_id = entry.type_id
        timestamp_ms = entry.timestamp_ms
        if size <= chunk_size and timestamp_ms < EXTENDED:
            add(_ONE_CHUNK.pack(_FIRST_BYTE[type_id] | timestamp_ms, size << 8 | type_id, MESSAGE_STREAM_ID << 24))
            add(payload)
        else:
            add(entry.encode(chunk_size, MESSAGE_STREAM_ID))
    return b"".join(pieces)


def _slot(entry: Entry) -> object:
    """What a config or metadata message configures: a newer one in the same slot takes its place."""
    if entry.type_id == messages.DATA:
        return _METADATA_SLOT
    return media.config_slot("video" if entry.type_id == messages.VIDEO else "audio", entry.payload) or entry.type_id


def _remember(preface: dict[object, Entry], slot: object, entry: Entry) -> None:
    if len(entry.payload) > _MAX_CONFIG_BYTES:
        preface.pop(slot, None)  # what it replaces is no longer true either
        return
    preface[slot] = entry
    while len(preface) > _MAX_PREFACE:
        preface.pop(next(key for key in preface if key != _METADATA_SLOT))


def is_metadata(payload: bytes) -> bool:
    """Of a data message: `onMetaData`, which describes the stream, and no cue point or caption in it."""
    return payload.startswith(_METADATA)


def _repeat(preface: tuple[Entry, ...], timestamp_ms: int, media_ms: int) -> tuple[Entry, ...]:
    # Sequence headers take the timestamp of what follows: a jump from 0 to an hour makes some players wait for an hour.
    # Metadata takes 0: at any other time FFmpeg's demuxer makes a subtitle track of it.
    return tuple(entry.at(0 if entry.type_id == messages.DATA else timestamp_ms, media_ms) for entry in preface)


class Reader(Protocol):
    """Somebody with a place in the log."""

    position: int


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where a reader may begin: the messages it needs first, then the log from `position`."""

    position: int
    preface: tuple[Entry, ...]


class StreamLog:
    """Messages from `head` (the oldest kept) up to, not including, `tail`."""

    def __init__(self, limits: LogLimits) -> None:
        self.limits = limits
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
        self._head_preface: dict[object, Entry] = {}  # the same as it was at the head
        self._keyframe: Entry | None = None
        self._keyframe_preface: tuple[Entry, ...] = ()
        self._patient_readers: tuple[Reader, ...] = ()
        self._start: StartPoint | None = None  # the answer of start_point(), kept until the log changes it

    @property
    def limits(self) -> LogLimits:
        """May be changed: what comes is kept by the new ones."""
        return self._limits

    @limits.setter
    def limits(self, limits: LogLimits) -> None:
        self._limits = limits
        self._retain_ms = limits.retain_s * 1000

    def append(self, type_id: int, timestamp_ms: int, payload: bytes) -> Entry:
        if type_id == messages.VIDEO:
            flags = media.classify_video(payload)
            self.has_video = True
        elif type_id == messages.AUDIO:
            flags = media.classify_audio(payload)
        else:
            flags = media.METADATA if is_metadata(payload) else 0
        tail = self.tail
        step = (timestamp_ms - self.newest_ms) & 0xFFFFFFFF  # modulo 2^32: a stream may run for more than 49 days
        if step <= _MAX_STEP_MS and tail:
            self.newest_ms = timestamp_ms
            self.media_ms += step
        else:
            self._set_clock(timestamp_ms, step, is_frame=bool(flags & media.FRAME))
        media_ms = self.media_ms
        entry = Entry(tail, type_id, timestamp_ms, payload, flags, media_ms)
        entries = self._entries
        entries.append(entry)
        self.tail = tail + 1
        size = len(payload)
        self._bytes += size
        self.total_bytes += size
        if flags & _NOT_PLAIN:
            if flags & (media.CONFIG | media.METADATA):
                self._configure(entry)
            elif not flags & media.SIDE_TRACK:
                self._keyframe = entry
                self._keyframe_preface = tuple(self._preface.values())
                self._start = None
        limits = self._limits
        count = len(entries)
        if (
            (count > _TRIM_BATCH and entries[_TRIM_BATCH].media_ms < media_ms - self._retain_ms)
            or self._bytes > limits.max_bytes
            or count > limits.max_messages
        ):
            self._trim()
        return entry

    def wait_for(self, reader: Reader) -> None:
        """Keep what this reader has not read, however old, within the caps on bytes and messages.

        For recorders: media that comes faster than real time ages by the hour in a second, and a disk may hang for one.
        """
        self._patient_readers = (*self._patient_readers, reader)

    def wait_no_more_for(self, reader: Reader) -> None:
        self._patient_readers = tuple(other for other in self._patient_readers if other is not reader)

    def entries(self, start: int, stop: int) -> Sequence[Entry]:
        """The entries at positions start..stop-1, which must lie within head..tail."""
        return self._entries[start - self.head : stop - self.head]

    def entry(self, position: int) -> Entry:
        return self._entries[position - self.head]

    def media_ms_at(self, position: int) -> int:
        """Media time of the message there; behind the newest one its own, before the oldest kept that one's."""
        return self.media_ms if position >= self.tail else self.entry(max(position, self.head)).media_ms

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
                self._start = StartPoint(first.position, _repeat(preface, first.timestamp_ms, first.media_ms))
            else:
                preface = tuple(self._preface.values())
                self._start = StartPoint(self.tail, _repeat(preface, self.newest_ms, self.media_ms))
        return self._start

    def preface_at(self, position: int) -> tuple[Entry, ...]:
        """The metadata and sequence headers in force at `position`, as far back as the log goes."""
        in_force = dict(self._head_preface)
        for entry in self.entries(self.head, max(position, self.head)):
            if entry.flags & (media.CONFIG | media.METADATA):
                in_force[_slot(entry)] = entry
        metadata = in_force.pop(_METADATA_SLOT, None)
        preface = (*((metadata,) if metadata is not None else ()), *in_force.values())
        if not self.head <= position < self.tail:
            return _repeat(preface, self.newest_ms, self.media_ms)
        first = self.entry(position)
        return _repeat(preface, first.timestamp_ms, first.media_ms)

    def _configure(self, entry: Entry) -> None:
        key = _slot(entry)
        known = self._preface.get(key)
        if known is not None and known.payload == entry.payload:
            return  # an identical sequence header changes nothing
        if entry.type_id == messages.VIDEO and entry.is_config and known is not None:
            # Frames before a new sequence header cannot be decoded with it: no start point until the next keyframe.
            self._keyframe = None
        _remember(self._preface, key, entry)
        if metadata := self._preface.pop(_METADATA_SLOT, None):
            # Metadata goes first, wherever it came.
            self._preface = {_METADATA_SLOT: metadata, **self._preface}
        self._start = None

    def _set_clock(self, timestamp_ms: int, step: int, *, is_frame: bool) -> None:
        if not self.tail:
            self.newest_ms = timestamp_ms
        elif is_frame and step < (1 << 32) - _MAX_STEP_MS:
            # The clock was set: go on from there. Metadata, data and sequence headers do not set it, since encoders
            # stamp them with 0 in the middle of a stream.
            self.newest_ms = timestamp_ms

    def _trim(self) -> None:
        limits = self._limits
        entries = self._entries
        count = len(entries)
        drop = 0
        excess = self._bytes - limits.max_bytes
        while drop < count - 1 and (excess > 0 or count - drop > limits.max_messages):
            excess -= len(entries[drop].payload)
            drop += 1
        # Time is looked at even where a cap was passed: a log that had grown to a cap would stay there for good.
        oldest_ms = self.media_ms - self._retain_ms
        if count > _TRIM_BATCH and entries[_TRIM_BATCH].media_ms < oldest_ms:
            stop = count - 1
            keyframe = self._keyframe
            is_kept = keyframe is not None and keyframe.position >= self.head + drop  # no cap has passed over it
            if keyframe is not None and is_kept and keyframe.media_ms > self.media_ms - _MAX_GOP_MS:
                stop = keyframe.position - self.head
            for reader in self._patient_readers:
                stop = min(stop, reader.position - self.head)
            while drop < stop and entries[drop].media_ms < oldest_ms:
                drop += 1
        if not drop:
            return
        for entry in entries[:drop]:
            self._bytes -= len(entry.payload)
            if entry.flags & (media.CONFIG | media.METADATA):
                _remember(self._head_preface, _slot(entry), entry)
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
# Real ones are below 3 kB, but a message may have 16 MB, and these are kept whatever the log's own cap is.
_MAX_CONFIG_BYTES = 64 << 10
