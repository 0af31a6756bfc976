"""What happened, as typed facts: the one contract between the server and the data pipeline.

Every event is one JSON object on one line, with the same envelope: `v` (schema version), `node`, `boot`, `seq`,
`time_ms` (UTC, milliseconds since 1970), `type`, and then the fields of its class below. A number that counts
something is of the second the sample covers, unless its name says total. Positions are those of the stream's log; a
range is `start` up to, not including, `stop`.

Secrets never enter: a destination is known by its name and redacted address, a stream by app/name, a viewer by a keyed
hash of its address.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_type_hints

import msgspec

# Raised when a field changes its meaning or goes away; a new optional field or type does not raise it.
SCHEMA_VERSION = 1


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all: `type` names the class on the wire."""

    type: ClassVar[str]


class ServerStarted(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "server_started"
    version: str


class ServerStopped(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "server_stopped"
    events_lost_total: int  # events that the writer had to drop since the start


class ConnectionOpened(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "connection_opened"
    conn: str
    viewer: str  # keyed hash of the peer's address, or the address itself where the operator asked for it


class ConnectionClosed(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "connection_closed"
    conn: str
    reason: str
    duration_ms: int
    bytes_in_total: int
    bytes_out_total: int


class PublishStarted(Event, frozen=True, kw_only=True):
    """A publisher was granted a stream. `stream_id` is new for every stream, and the same for one that comes back
    within the grace period."""

    type: ClassVar[str] = "publish_started"
    conn: str
    stream: str
    stream_id: str
    resumed: bool
    position: int  # of the first message it will append
    origin: str | None = None  # redacted address of the server that the stream is pulled from; none: published here


class PublishRefused(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "publish_refused"
    conn: str
    viewer: str
    stream: str
    reason: str  # the NetStream code of the answer


class PublishStopped(Event, frozen=True, kw_only=True):
    """A publisher is gone; the stream may go on for its grace period."""

    type: ClassVar[str] = "publish_stopped"
    conn: str
    stream: str
    stream_id: str
    reason: str  # unpublished, lost, replaced, dropped
    position: int  # behind the last message it appended


class StreamEnded(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "stream_ended"
    stream: str
    stream_id: str
    reason: str
    position: int  # the number of messages the stream had


class PlayStarted(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "play_started"
    conn: str
    viewer: str
    stream: str
    stream_id: str


class PlayStopped(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "play_stopped"
    conn: str
    viewer: str
    stream: str
    stream_id: str
    reason: str
    duration_ms: int
    first_keyframe_ms: int | None  # from the play command to the first keyframe handed to the socket; none: no picture
    messages_total: int
    bytes_total: int


class PlayRefused(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "play_refused"
    conn: str
    viewer: str
    stream: str
    reason: str


class CodecDetected(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "codec_detected"
    stream: str
    stream_id: str
    video: str | None = None
    video_profile: str | None = None
    video_level: str | None = None
    width: int | None = None
    height: int | None = None
    frame_rate: float | None = None
    audio: str | None = None
    audio_profile: str | None = None
    sample_rate: int | None = None
    channels: int | None = None


class MetadataReceived(Event, frozen=True, kw_only=True):
    """What the encoder says of itself."""

    type: ClassVar[str] = "metadata"
    stream: str
    stream_id: str
    encoder: str | None = None
    declared_width: float | None = None
    declared_height: float | None = None
    declared_frame_rate: float | None = None
    declared_video_kbps: float | None = None
    declared_audio_kbps: float | None = None


class DestinationState(Event, frozen=True, kw_only=True):
    """Told whenever its state, its address or which of its addresses that is has changed."""

    type: ClassVar[str] = "destination_state"
    destination: str
    url: str  # redacted; of what is tried next where it waits
    stream: str
    stream_id: str
    state: str
    attempt: int
    error: str | None = None
    error_class: str | None = None
    feed: str | None = None  # as in Delivery
    is_backup: bool = False  # the url is the destination's second address, or where that sent us


class RecordingOpened(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "recording_opened"
    path: str  # absolute
    stream: str
    stream_id: str
    position: int | None = None  # of the first message of the log that is in the file
    frame_position: int | None = None  # of the first frame; from there on every tag is the next message


class RecordingClosed(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "recording_closed"
    path: str  # as in RecordingOpened
    stream: str
    stream_id: str
    bytes_total: int  # of this file, also where the recording has several
    tags_total: int
    duration_ms: int
    error: str | None = None


class PublisherSample(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "publisher_sample"
    conn: str
    stream: str
    stream_id: str
    interval_ms: int  # what the sample covers, nominally 1000
    video_bytes: int
    audio_bytes: int
    messages: int
    frames: int
    keyframes: int
    media_ms: int  # media time since the stream began
    timestamp_ms: int  # the newest timestamp
    video_ms: int | None  # the newest timestamp of each track, for their skew
    audio_ms: int | None
    max_gap_ms: int  # the longest time between two arrivals
    backward_steps: int  # timestamps that went back within a track
    position: int  # behind the newest message
    keyframe_interval_max_ms: int | None = None  # the most media time between two keyframes, the second of them new


class SubscriberSample(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "subscriber_sample"
    conn: str
    viewer: str
    stream: str
    stream_id: str
    interval_ms: int
    bytes: int
    messages: int
    dropped: dict[str, int] = msgspec.field(default_factory=dict)  # messages by reason
    queue_age_ms: int = 0
    blocked: bool = False  # its socket takes nothing: a rebuffering as seen from here
    position: int = 0
    frames: int = 0  # video frames of the main track handed to its socket, and the keyframes among them
    keyframes: int = 0
    media_ms: int | None = None  # media time at its position, since the stream began
    # The longest time between two batches handed to its socket, the last of them in this interval, or since the last
    # one: a gap that goes on grows from sample to sample. A pause that the player asked for is one too.
    max_gap_ms: int = 0
    first_keyframe_ms: int | None = None  # as in PlayStopped, as soon as the first picture has left


class DestinationSample(Event, frozen=True, kw_only=True):
    type: ClassVar[str] = "destination_sample"
    destination: str
    stream: str
    stream_id: str
    interval_ms: int
    state: str
    flowing: bool
    bytes: int
    messages: int
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    queue_age_ms: int = 0
    position: int = 0
    feed: str | None = None  # as in Delivery
    frames: int = 0  # video frames of the main track that its socket took whole, and the keyframes among them
    keyframes: int = 0
    media_ms: int | None = None  # as in SubscriberSample; none before the first connection
    max_gap_ms: int = 0  # as in SubscriberSample, connected or not


class Delivery(Event, frozen=True, kw_only=True):
    """A range of the log that a destination or a recorder got, or did not get and why.

    Ranges of one feed follow each other without hole or overlap: together they are its proof. A destination that is
    taken away and added again, or whose settings change, reads the stream anew, as another feed whose ranges may begin
    before the last one's end.
    """

    type: ClassVar[str] = "delivery"
    reader: str  # "destination" or "recorder"
    name: str  # of the destination; "recorder"
    stream: str
    stream_id: str
    start: int
    stop: int
    outcome: str  # "delivered" or "skipped"
    reason: str | None = None  # why it was skipped
    feed: str | None = None  # new for every time that a destination or a recorder begins to read a stream


EVENT_TYPES: dict[str, type[Event]] = {
    kind.type: kind
    for kind in (
        ServerStarted,
        ServerStopped,
        ConnectionOpened,
        ConnectionClosed,
        PublishStarted,
        PublishRefused,
        PublishStopped,
        StreamEnded,
        PlayStarted,
        PlayStopped,
        PlayRefused,
        CodecDetected,
        MetadataReceived,
        DestinationState,
        RecordingOpened,
        RecordingClosed,
        PublisherSample,
        SubscriberSample,
        DestinationSample,
        Delivery,
    )
}


FIELD_NAMES: dict[str, tuple[str, ...]] = {name: kind.__struct_fields__ for name, kind in EVENT_TYPES.items()}


def field_types(kind: type[Event]) -> dict[str, Any]:
    """Field name to type, for whoever builds a schema from the contract."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in FIELD_NAMES[kind.type]}
