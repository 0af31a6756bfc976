"""What we know about a track without decoding it: the facts shown in logs, events and status.

Owns: the two fact sheets and their one-line text. Any field is None where the bytes do not say.
"""

from __future__ import annotations

from dataclasses import dataclass

# Index = chroma_format_idc of H.264 6.2, H.265 6.2 and H.266 6.2; the other codecs are mapped onto it.
CHROMA_FORMATS = ("4:0:0", "4:2:0", "4:2:2", "4:4:4")

# Ours: level 6.2 of H.265 (A.4.1) ends at 16888 pixels a side, and AV1 has 16 bits for one; more is
# garbage that happened to parse.
_MAX_SIDE_PIXELS = 65536

# Ours: x264 fed with variable frame rate writes its clock (90000 ticks a second) into the timing fields.
_MAX_FRAME_RATE = 1000.0


@dataclass(frozen=True, slots=True)
class VideoParameters:
    """One video track: `h264 High@4.1 1920x1080 30 fps` when printed."""

    codec: str
    profile: str | None = None
    level: str | None = None
    width: int | None = None
    height: int | None = None
    frame_rate: float | None = None
    bit_depth: int | None = None
    chroma: str | None = None

    @property
    def is_complete(self) -> bool:
        """The size is known: no need to look into a keyframe."""
        return self.width is not None and self.height is not None

    def completed_by(self, other: VideoParameters) -> VideoParameters:
        """These facts, with the unknown ones taken from another source about the same track."""
        return VideoParameters(
            codec=self.codec,
            profile=other.profile if self.profile is None else self.profile,
            level=other.level if self.level is None else self.level,
            width=other.width if self.width is None else self.width,
            height=other.height if self.height is None else self.height,
            frame_rate=other.frame_rate if self.frame_rate is None else self.frame_rate,
            bit_depth=other.bit_depth if self.bit_depth is None else self.bit_depth,
            chroma=other.chroma if self.chroma is None else self.chroma,
        )

    def describe(self) -> str:
        words = [self.codec]
        if self.profile or self.level:
            words.append("@".join(part for part in (self.profile, self.level) if part))
        if self.width and self.height:
            words.append(f"{self.width}x{self.height}")
        if self.frame_rate:
            words.append(f"{_plain(self.frame_rate)} fps")
        # The usual 8 bit 4:2:0 would be noise in every line.
        if self.bit_depth not in (None, 8):
            words.append(f"{self.bit_depth} bit")
        if self.chroma not in (None, "4:2:0"):
            words.append(str(self.chroma))
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class AudioParameters:
    """One audio track: `aac LC 48000 Hz 2 ch` when printed."""

    codec: str
    profile: str | None = None
    sample_rate_hz: int | None = None
    channels: int | None = None

    @property
    def is_complete(self) -> bool:
        """Rate and channels are known: no need to look into a frame."""
        return self.sample_rate_hz is not None and self.channels is not None

    def completed_by(self, other: AudioParameters) -> AudioParameters:
        """These facts, with the unknown ones taken from another source about the same track."""
        return AudioParameters(
            codec=self.codec,
            profile=other.profile if self.profile is None else self.profile,
            sample_rate_hz=other.sample_rate_hz if self.sample_rate_hz is None else self.sample_rate_hz,
            channels=other.channels if self.channels is None else self.channels,
        )

    def describe(self) -> str:
        words = [self.codec]
        if self.profile:
            words.append(self.profile)
        if self.sample_rate_hz:
            words.append(f"{self.sample_rate_hz} Hz")
        if self.channels:
            words.append(f"{self.channels} ch")
        return " ".join(words)


def plausible_rate(ticks_per_s: int, ticks_per_frame: int) -> float | None:
    """Frames per second, or None for the clocks and zeros that encoders write in its place."""
    if ticks_per_s <= 0 or ticks_per_frame <= 0:
        return None
    rate = ticks_per_s / ticks_per_frame
    return rate if rate <= _MAX_FRAME_RATE else None


def is_plausible_size(width: int, height: int) -> bool:
    return 0 < width <= _MAX_SIDE_PIXELS and 0 < height <= _MAX_SIDE_PIXELS


def _plain(rate: float) -> str:
    return f"{rate:.3f}".rstrip("0").rstrip(".")
