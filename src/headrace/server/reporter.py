"""What a session tells the event log: one place that turns sessions, publications and players into typed events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.net.fanout import Player
from headrace.protocol.metadata import decode_metadata
from headrace.server.media_watch import MediaWatch
from headrace.stream.registry import Stream
from headrace.telemetry import events
from headrace.telemetry.proof import Emit


class PlayRecord:
    """What one play has been told about so far; samples are differences to it."""

    __slots__ = (
        "bytes",
        "dropped",
        "frames",
        "keyframes",
        "messages",
        "sampled_s",
        "started_bytes",
        "started_s",
        "stream",
    )

    def __init__(self, stream: Stream, sent_bytes: int, now_s: float) -> None:
        self.stream = stream
        self.started_s = self.sampled_s = now_s
        self.started_bytes = self.bytes = sent_bytes
        self.messages = self.frames = self.keyframes = 0
        self.dropped: Counter[str] = Counter()

    def again(self, player: Player, sent_bytes: int, now_s: float) -> PlayRecord:
        """The record of the same play from here on, for a stream that goes on under another id."""
        record = PlayRecord(self.stream, sent_bytes, now_s)
        record.messages, record.frames, record.keyframes = player.messages, player.frames, player.keyframes
        record.dropped = self.dropped
        return record

    def first_keyframe_ms(self, player: Player) -> int | None:
        first_s = player.first_picture_s
        return None if first_s is None else _ms(first_s - self.started_s)


class SessionReporter:
    """Speaks for one connection; one that was not accepted here, but made by us or told of, is not told as opened."""

    def __init__(
        self, emit: Emit, conn: str, viewer: str, now_s: float, *, is_accepted: bool = True, origin: str | None = None
    ) -> None:
        self._emit = emit
        self._conn = conn
        self._viewer = viewer
        self._opened_s = now_s
        self._sampled_s: dict[Stream, float] = {}
        self._origin = origin
        if is_accepted:
            emit(events.ConnectionOpened(conn=conn, viewer=viewer))

    def connection_closed(self, reason: str, now_s: float, bytes_in: int, bytes_out: int) -> None:
        self._emit(
            events.ConnectionClosed(
                conn=self._conn,
                reason=reason[:_MAX_TEXT],
                duration_ms=_ms(now_s - self._opened_s),
                bytes_in_total=bytes_in,
                bytes_out_total=bytes_out,
            )
        )

    def publish_started(self, stream: Stream, *, resumed: bool, now_s: float) -> None:
        self._sampled_s[stream] = now_s
        self._emit(
            events.PublishStarted(
                conn=self._conn, **_names(stream), resumed=resumed, position=stream.log.tail, origin=self._origin
            )
        )

    def publish_refused(self, stream_key: str, reason: str) -> None:
        stream_key = stream_key[:_MAX_TEXT]  # as of a play
        self._emit(events.PublishRefused(conn=self._conn, viewer=self._viewer, stream=stream_key, reason=reason))

    def publish_stopped(self, stream: Stream, reason: str) -> None:
        self._sampled_s.pop(stream, None)
        self._emit(events.PublishStopped(conn=self._conn, **_names(stream), reason=reason, position=stream.log.tail))

    def codec_detected(self, stream: Stream, facts: Mapping[str, Any]) -> None:
        self._emit(events.CodecDetected(**_names(stream), **facts))

    def metadata_received(self, stream: Stream, payload: bytes) -> None:
        said = decode_metadata(payload)

        def number(key: str) -> float | None:
            value = said.get(key)
            # Infinities and not-a-numbers are no numbers in JSON.
            return value if isinstance(value, float) and abs(value) < 1e12 else None

        encoder = said.get("encoder")
        self._emit(
            events.MetadataReceived(
                **_names(stream),
                encoder=encoder[:_MAX_TEXT] if isinstance(encoder, str) else None,
                declared_width=number("width"),
                declared_height=number("height"),
                declared_frame_rate=number("framerate"),
                declared_video_kbps=number("videodatarate"),
                declared_audio_kbps=number("audiodatarate"),
            )
        )

    def sample_publication(self, stream: Stream, watch: MediaWatch, now_s: float) -> None:
        counts = watch.take_counts()
        interval_s = now_s - self._sampled_s.get(stream, now_s)
        self._sampled_s[stream] = now_s
        self._emit(
            events.PublisherSample(
                conn=self._conn,
                **_names(stream),
                interval_ms=_ms(interval_s),
                video_bytes=counts.video_bytes,
                audio_bytes=counts.audio_bytes,
                messages=counts.messages,
                frames=counts.frames,
                keyframes=counts.keyframes,
                media_ms=stream.log.media_ms,
                timestamp_ms=stream.log.newest_ms,
                video_ms=watch.video_ms,
                audio_ms=watch.audio_ms,
                max_gap_ms=_ms(counts.max_gap_s),
                backward_steps=counts.backward_steps,
                position=stream.log.tail,
                keyframe_interval_max_ms=counts.keyframe_interval_max_ms,
            )
        )

    def play_refused(self, stream_key: str, reason: str) -> None:
        # Asking costs a peer nothing, and a name may have 128 KB.
        stream_key = stream_key[:_MAX_TEXT]
        self._emit(events.PlayRefused(conn=self._conn, viewer=self._viewer, stream=stream_key, reason=reason))

    def play_started(self, stream: Stream) -> None:
        self._emit(events.PlayStarted(conn=self._conn, viewer=self._viewer, **_names(stream)))

    def sample_play(self, record: PlayRecord, player: Player, now_s: float) -> None:
        link, cursor = player.link, player.cursor
        dropped, new = record.dropped, {}
        if cursor.skipped:  # of most players it is empty
            dropped = Counter({reason.value: count for reason, count in cursor.skipped.items()})
            new = dict(dropped - record.dropped)
        stream = record.stream
        self._emit(
            events.SubscriberSample(
                conn=self._conn,
                viewer=self._viewer,
                stream=stream.key,
                stream_id=stream.id,
                interval_ms=_ms(now_s - record.sampled_s),
                bytes=link.sent_bytes - record.bytes,
                messages=player.messages - record.messages,
                dropped=new,
                queue_age_ms=cursor.lag_ms,
                blocked=link.is_blocked,
                position=cursor.position,
                frames=player.frames - record.frames,
                keyframes=player.keyframes - record.keyframes,
                media_ms=cursor.media_ms,
                max_gap_ms=_ms(player.take_max_gap_s(now_s)),
                first_keyframe_ms=record.first_keyframe_ms(player),
            )
        )
        record.sampled_s = now_s
        record.bytes = link.sent_bytes
        record.messages = player.messages
        record.frames = player.frames
        record.keyframes = player.keyframes
        record.dropped = dropped

    def play_stopped(self, record: PlayRecord, player: Player, reason: str, now_s: float) -> None:
        self.sample_play(record, player, now_s)
        self._emit(
            events.PlayStopped(
                conn=self._conn,
                viewer=self._viewer,
                **_names(record.stream),
                reason=reason,
                duration_ms=_ms(now_s - record.started_s),
                first_keyframe_ms=record.first_keyframe_ms(player),
                messages_total=player.messages,
                bytes_total=player.link.sent_bytes - record.started_bytes,
            )
        )


# Of what a peer says, such as what an encoder calls itself; the rest of a longer text is no name.
_MAX_TEXT = 200


def _names(stream: Stream) -> dict[str, Any]:
    return {"stream": stream.key, "stream_id": stream.id}


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 0)
