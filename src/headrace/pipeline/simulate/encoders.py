"""What encoders make of media time: how many frames, which of them are keyframes, and their bytes.

Everything is a function of a frame's number in integers, so that any second of any stream can be told without those
before it. Bytes are told as sums from the first frame on; a frame's size is the difference of two sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from headrace.pipeline.simulate.chance import Ints, generator, noise

AAC_SAMPLES = 1024
# onMetaData and two sequence headers, which every publisher sends first.
PREFACE_MESSAGES = 3
VIDEO_HEADER_BYTES, AUDIO_HEADER_BYTES, METADATA_BYTES = 48, 4, 220
# Periods of the bitrate's ups and downs, of some seconds up to some minutes: from, to.
_WAVE_FRAMES = ((150, 300), (600, 1200), (4000, 9000), (30_000, 60_000))


class Preset(NamedTuple):
    """What people choose in their encoders."""

    encoder: str
    width: int
    height: int
    frame_rate: Fraction
    video_kbps: int
    audio_kbps: int
    sample_rate: int
    profile: str
    level: str
    keyframe_s: float
    is_steady: bool  # a keyframe exactly every keyframe_s; else about so


_OBS = "obs-output module (libobs version 31.0.2)"
PRESETS = (
    Preset(_OBS, 1920, 1080, Fraction(60), 6000, 160, 48_000, "High", "4.2", 2, True),
    Preset(_OBS, 1280, 720, Fraction(30), 2500, 128, 48_000, "Main", "3.1", 2, True),
    Preset("Lavf61.7.100", 1280, 720, Fraction(25), 3000, 128, 44_100, "High", "3.1", 2, True),
    Preset("Larix Broadcaster", 1280, 720, Fraction(30), 2000, 96, 44_100, "Constrained Baseline", "3.1", 2, False),
    Preset("vMix", 1920, 1080, Fraction(50), 5000, 192, 48_000, "High", "4.2", 1, True),
    Preset("Wirecast", 1920, 1080, Fraction(30000, 1001), 4500, 128, 48_000, "High", "4.0", 3, False),
    Preset("Teradek", 1280, 720, Fraction(60000, 1001), 3500, 128, 48_000, "Main", "3.2", 2, True),
    # What platforms complain of: five seconds between keyframes.
    Preset("FMLE/3.0", 960, 540, Fraction(25), 1200, 96, 44_100, "Main", "3.1", 5, True),
)  # fmt: skip
_SHARES = (0.24, 0.2, 0.12, 0.14, 0.1, 0.08, 0.08, 0.04)


@dataclass(frozen=True, slots=True)
class Encoders:
    """One for each channel, as columns; every method takes the channels' numbers beside what it is asked about."""

    presets: list[Preset]
    rate_over: Ints  # frames in rate_under seconds
    rate_under: Ints
    sample_rate: Ints
    gop_frames: Ints
    gop_stray: Ints  # by how many frames a keyframe may be late
    frame_bytes: Ints
    keyframe_bytes: Ints  # beyond those of a frame
    audio_bytes: Ints
    salt: Ints
    wave_frames: Ints  # periods of the bitrate's ups and downs: waves in rows
    wave_bytes: Ints

    def frames_until(self, channel: Ints, media_ms: Ints) -> tuple[Ints, Ints]:
        """Video and audio frames up to and with this media time; none before 0."""
        video = media_ms * self.rate_over[channel] // (1000 * self.rate_under[channel]) + 1
        audio = media_ms * self.sample_rate[channel] // (1000 * AAC_SAMPLES) + 1
        return np.where(media_ms < 0, 0, video), np.where(media_ms < 0, 0, audio)

    def video_ms(self, channel: Ints, frame: Ints) -> Ints:
        """The timestamp of a video frame, rounded up."""
        return -(-frame * 1000 * self.rate_under[channel] // self.rate_over[channel])

    def audio_ms(self, channel: Ints, frame: Ints) -> Ints:
        return -(-frame * 1000 * AAC_SAMPLES // self.sample_rate[channel])

    def keyframe(self, channel: Ints, number: Ints) -> Ints:
        """Which frame the n-th keyframe is; the first frame is one."""
        stray = noise(number, self.salt[channel] + 1, self.gop_stray[channel])
        return number * self.gop_frames[channel] + np.where(number > 0, stray, 0)

    def keyframes_among(self, channel: Ints, frames: Ints) -> Ints:
        """How many of the first so many frames are keyframes."""
        number = np.maximum(frames - 1, 0) // self.gop_frames[channel]
        return np.where(frames > 0, number + (self.keyframe(channel, number) < frames), 0)

    def video_sum(self, channel: Ints, frames: Ints) -> Ints:
        """Bytes of the first so many video frames."""
        total = frames * self.frame_bytes[channel]
        total += self.keyframes_among(channel, frames) * self.keyframe_bytes[channel]
        for wave in range(len(_WAVE_FRAMES)):
            period, height = self.wave_frames[wave][channel], self.wave_bytes[wave][channel]
            place = (frames + self.salt[channel] % period) % period
            start = self.salt[channel] % period
            total += _triangle(place, period, height) - _triangle(start, period, height)
        # Less than the smallest frame, so that no sum is below the one before.
        return total + np.where(frames > 0, noise(frames, self.salt[channel] + 2, self.frame_bytes[channel] // 4), 0)

    def audio_sum(self, channel: Ints, frames: Ints) -> Ints:
        stray = noise(frames, self.salt[channel] + 3, self.audio_bytes[channel] // 4)
        return frames * self.audio_bytes[channel] + np.where(frames > 0, stray, 0)


def _triangle(place: Ints, period: Ints, height: Ints) -> Ints:
    return np.asarray(height * np.abs(2 * place - period) // period)


def make_encoders(seed: int, channels: int) -> Encoders:
    chance = generator(seed, 1)
    chosen = chance.choice(len(PRESETS), size=channels, p=_SHARES)
    presets = [PRESETS[number] for number in chosen]

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    rate = column([round(1000 * preset.frame_rate) for preset in presets])
    gop = column([round(preset.keyframe_s * preset.frame_rate) for preset in presets])
    video_bps = column([preset.video_kbps * 125 for preset in presets]) * chance.integers(90, 106, channels) // 100
    # A keyframe is as large as six frames beside itself, and all together make the bitrate.
    frame_bytes = video_bps * 1000 // rate * gop // (gop + 6)
    # A wave's rise takes half its period: each of them moves the size of a frame by at most 8 %.
    waves = [chance.integers(low, high, channels) for low, high in _WAVE_FRAMES]
    return Encoders(
        presets=presets,
        rate_over=column([preset.frame_rate.numerator for preset in presets]),
        rate_under=column([preset.frame_rate.denominator for preset in presets]),
        sample_rate=column([preset.sample_rate for preset in presets]),
        gop_frames=gop,
        gop_stray=np.where([preset.is_steady for preset in presets], 1, gop // 4),
        frame_bytes=frame_bytes,
        keyframe_bytes=6 * frame_bytes,
        audio_bytes=column([preset.audio_kbps * 125 * AAC_SAMPLES // preset.sample_rate for preset in presets]),
        salt=chance.integers(1, 1 << 40, channels),
        wave_frames=np.stack(waves),
        wave_bytes=np.stack([frame_bytes * period * 4 // 100 for period in waves]),
    )
