"""What a publisher sends, as a person would say it: the codecs once, and bitrate, frame rate and keyframe interval
every 30 seconds. Counts per message; looks into payloads only where a codec is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.errors import PeerError
from headrace.protocol import codecs, media, messages
from headrace.protocol.media_packets import AudioPacketType
from headrace.protocol.metadata import decode_metadata
from headrace.stream.log import Entry

# Told after this long even if only one of audio and video has come: the other may never.
_DETECTION_WAIT_S = 1.0
REPORT_INTERVAL_S = 30.0
_RATE_WINDOW_S = 5  # what a status page calls now

# Frames looked into for the parameters of a codec that has no sequence header (MP3, AC-3, VP8), before giving up.
_MAX_PROBED_FRAMES = 50


class _Sample(NamedTuple):
    """The totals at one moment."""

    now_s: float
    video_bytes: int
    audio_bytes: int
    frames: int


class _Rates(NamedTuple):
    video_bps: float
    audio_bps: float
    frame_rate: float

    @classmethod
    def between(cls, old: _Sample, new: _Sample) -> _Rates:
        elapsed_s = new.now_s - old.now_s
        if elapsed_s <= 0:
            return cls(0.0, 0.0, 0.0)
        return cls(
            (new.video_bytes - old.video_bytes) * 8 / elapsed_s,
            (new.audio_bytes - old.audio_bytes) * 8 / elapsed_s,
            (new.frames - old.frames) / elapsed_s,
        )


class Counts(NamedTuple):
    """What a publisher sent in some time."""

    video_bytes: int
    audio_bytes: int
    messages: int
    frames: int
    keyframes: int
    backward_steps: int  # timestamps that went back within a track
    max_gap_s: float  # the longest time between two arrivals
    keyframe_interval_max_ms: int | None  # the longest media time between two keyframes; none: no second one came


# A difference modulo 2^32 with this bit set is a step back.
_BACKWARD = 1 << 31


class MediaWatch:
    """Watches one publication."""

    def __init__(self, now_s: float) -> None:
        self.video: codecs.VideoParameters | None = None
        self.audio: codecs.AudioParameters | None = None
        self.declared_frame_rate: float | None = None
        self._probe_video = _MAX_PROBED_FRAMES
        self._probe_audio = _MAX_PROBED_FRAMES
        self._first_media_s: float | None = None
        self._is_told = False
        self.video_bytes = 0
        self.audio_bytes = 0
        self.frames = 0
        self.video_ms: int | None = None  # the newest timestamp of each track
        self.audio_ms: int | None = None
        self._messages = 0
        self._keyframes = 0
        self._backward_steps = 0
        self._max_gap_s = 0.0  # since the counts were last taken
        self._arrived_s = now_s
        self._taken = Counts(0, 0, 0, 0, 0, 0, 0.0, None)
        self._last_report = self._sample(now_s)
        self._samples: deque[_Sample] = deque([self._last_report], maxlen=_RATE_WINDOW_S + 1)
        self._keyframe_ms: int | None = None
        self._interval_max_ms: int | None = None  # since the counts were last taken
        self._gap_count = 0  # between keyframes, since the last report
        self._gap_sum_ms = 0
        self._gap_max_ms = 0

    def observe(self, entry: Entry, now_s: float) -> None:
        flags = entry.flags
        self._messages += 1
        if now_s - self._arrived_s > self._max_gap_s:
            self._max_gap_s = now_s - self._arrived_s
        self._arrived_s = now_s
        if entry.type_id == messages.VIDEO:
            self.video_bytes += len(entry.payload)
            if flags & media.SIDE_TRACK:
                return  # the words are about the main picture: a second one would double its frame rate
            if flags & media.FRAME:
                self.frames += 1
                if self.video_ms is not None and (entry.timestamp_ms - self.video_ms) & _BACKWARD:
                    self._backward_steps += 1
                self.video_ms = entry.timestamp_ms
                if flags & media.KEYFRAME:
                    self._observe_keyframe(entry)
                elif self._first_media_s is None:
                    self._first_media_s = now_s
            # A record of VP8 or VP9 does not hold the size: a keyframe does.
            is_known = self.video is not None and self.video.width is not None
            if flags & media.CONFIG or (not is_known and self._probe_video):
                self._detect_video(entry, now_s)
        elif entry.type_id == messages.AUDIO:
            self.audio_bytes += len(entry.payload)
            if flags & media.SIDE_TRACK:
                return
            if flags & media.FRAME:
                if self.audio_ms is not None and (entry.timestamp_ms - self.audio_ms) & _BACKWARD:
                    self._backward_steps += 1
                self.audio_ms = entry.timestamp_ms
            is_known = self.audio is not None and self.audio.sample_rate_hz is not None
            if flags & media.CONFIG or (not is_known and self._probe_audio):
                self._detect_audio(entry, now_s)
        elif flags & media.METADATA:
            rate = decode_metadata(entry.payload).get("framerate")
            if isinstance(rate, float) and 0 < rate < 1000:
                self.declared_frame_rate = rate

    def detected(self, now_s: float) -> Mapping[str, Any] | None:
        """The fields of a `Codec detected` line, when it is time to write one."""
        if self._is_told or self._first_media_s is None:
            return None
        if (self.video is None or self.audio is None) and now_s - self._first_media_s < _DETECTION_WAIT_S:
            return None
        self._is_told = True
        return self.describe()

    def describe(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"video": None, "audio": None}
        if self.video is not None:
            fields |= {
                "video": self.video.codec,
                "video_profile": self.video.profile,
                "video_level": self.video.level,
                "width": self.video.width,
                "height": self.video.height,
                "frame_rate": self.video.frame_rate or self.declared_frame_rate,
            }
        if self.audio is not None:
            fields |= {
                "audio": self.audio.codec,
                "audio_profile": self.audio.profile,
                "sample_rate": self.audio.sample_rate_hz,
                "channels": self.audio.channels,
            }
        return {name: value for name, value in fields.items() if value is not None or name in ("video", "audio")}

    def take_counts(self) -> Counts:
        """What came since this was last called."""
        totals = Counts(
            self.video_bytes,
            self.audio_bytes,
            self._messages,
            self.frames,
            self._keyframes,
            self._backward_steps,
            0.0,
            None,
        )
        taken, self._taken = self._taken, totals
        max_gap_s, self._max_gap_s = self._max_gap_s, 0.0
        interval_max_ms, self._interval_max_ms = self._interval_max_ms, None
        return Counts(
            totals.video_bytes - taken.video_bytes,
            totals.audio_bytes - taken.audio_bytes,
            totals.messages - taken.messages,
            totals.frames - taken.frames,
            totals.keyframes - taken.keyframes,
            totals.backward_steps - taken.backward_steps,
            max_gap_s,
            interval_max_ms,
        )

    def sample(self, now_s: float) -> None:
        """Once a second: what the current rates are computed from."""
        self._samples.append(self._sample(now_s))

    def rates(self) -> _Rates:
        """Of the last few seconds."""
        return _Rates.between(self._samples[0], self._samples[-1])

    def report(self, now_s: float) -> Mapping[str, Any] | None:
        """The fields of the line every 30 s, when it is time."""
        if now_s - self._last_report.now_s < REPORT_INTERVAL_S:
            return None
        sample = self._sample(now_s)
        rates = _Rates.between(self._last_report, sample)
        mean_ms = self._gap_sum_ms / self._gap_count if self._gap_count else None
        max_ms = self._gap_max_ms
        self._last_report = sample
        self._gap_count = self._gap_sum_ms = self._gap_max_ms = 0
        return {
            "video_kbps": round(rates.video_bps / 1000, 1),
            "audio_kbps": round(rates.audio_bps / 1000, 1),
            "frame_rate": round(rates.frame_rate, 2),
            "keyframe_interval_s": None if mean_ms is None else round(mean_ms / 1000, 2),
            "keyframe_interval_max_s": None if mean_ms is None else round(max_ms / 1000, 2),
        }

    def _sample(self, now_s: float) -> _Sample:
        return _Sample(now_s, self.video_bytes, self.audio_bytes, self.frames)

    def _observe_keyframe(self, entry: Entry) -> None:
        self._keyframes += 1
        if self._keyframe_ms is not None:
            gap_ms = entry.media_ms - self._keyframe_ms
            self._gap_count += 1
            self._gap_sum_ms += gap_ms
            self._gap_max_ms = max(self._gap_max_ms, gap_ms)
            self._interval_max_ms = max(self._interval_max_ms or 0, gap_ms)
        self._keyframe_ms = entry.media_ms

    def _detect_video(self, entry: Entry, now_s: float) -> None:
        if self._first_media_s is None:
            self._first_media_s = now_s
        self._probe_video -= not entry.is_config
        try:
            packet = media.parse_video(entry.payload)
            if not packet.tracks:
                return
            body = bytes(packet.tracks[0].body)
            if packet.is_config:
                found = codecs.describe_video_config(packet.codec, body)
            elif packet.is_keyframe:
                found = codecs.describe_video_frame(packet.codec, body)
            else:
                return
        except PeerError:
            return  # what cannot be read is still relayed
        known = self.video
        if known is not None and known.codec == found.codec:
            if packet.is_config and found.completed_by(known) == known:
                return  # the same record again: what a keyframe added to it still holds
            if not packet.is_config:
                found = known.completed_by(found)
        if found != known:
            self.video = found
            self._is_told = False

    def _detect_audio(self, entry: Entry, now_s: float) -> None:
        if self._first_media_s is None:
            self._first_media_s = now_s
        self._probe_audio -= not entry.is_config
        try:
            packet = media.parse_audio(entry.payload)
            if not packet.tracks:
                return
            body = bytes(packet.tracks[0].body)
            if packet.packet_type is AudioPacketType.MULTICHANNEL_CONFIG:
                return  # where the loudspeakers stand; the codec is told by its sequence start
            if packet.is_config:
                found = codecs.describe_audio(packet.codec, config=body)
            else:
                found = codecs.describe_audio(packet.codec, first_frame=body)
        except PeerError:
            return
        known = self.audio
        if known is not None and known.codec == found.codec and found.sample_rate_hz is None:
            return  # says less than what is known, as the empty sequence starts of AC-3 and MP3 do
        if found != known:
            self.audio = found
            self._is_told = False
