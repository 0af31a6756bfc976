"""What a connection reports: closed set of facts, past tense where the peer did something, `...Requested` where it
waits for our answer. Media itself comes as `Message`, so that a frame costs no extra object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HandshakeCompleted:
    is_digest: bool


@dataclass(frozen=True, slots=True)
class ConnectRequested:
    """Answer with `accept_connect` or `reject_connect`."""

    app: str
    query: str
    tc_url: str
    flash_version: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamCreated:
    message_stream_id: int


@dataclass(frozen=True, slots=True)
class PublishRequested:
    """Answer with `accept_publish` or `reject_publish`."""

    message_stream_id: int
    name: str
    query: str
    kind: str


@dataclass(frozen=True, slots=True)
class PlayRequested:
    """Answer with `accept_play` or `reject_play`."""

    message_stream_id: int
    name: str
    query: str
    start_s: float


@dataclass(frozen=True, slots=True)
class Unpublished:
    """The publisher said that it ends: closeStream, deleteStream or FCUnpublish. Its request may be unanswered yet."""

    message_stream_id: int


@dataclass(frozen=True, slots=True)
class PlayStopped:
    """The player wants no more, or something else. Its request may be unanswered yet."""

    message_stream_id: int


@dataclass(frozen=True, slots=True)
class PauseChanged:
    message_stream_id: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class ReceiveChanged:
    """receiveAudio and receiveVideo: None means unchanged."""

    message_stream_id: int
    audio: bool | None = None
    video: bool | None = None


@dataclass(frozen=True, slots=True)
class SeekAnswered:
    """The player asked for a position; a live stream has one only, and that was the answer."""

    message_stream_id: int
    position_ms: float


@dataclass(frozen=True, slots=True)
class CommandIgnored:
    name: str


Event = (
    HandshakeCompleted
    | ConnectRequested
    | StreamCreated
    | PublishRequested
    | PlayRequested
    | Unpublished
    | PlayStopped
    | PauseChanged
    | ReceiveChanged
    | SeekAnswered
    | CommandIgnored
)
