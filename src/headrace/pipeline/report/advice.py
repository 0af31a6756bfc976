"""What a measured issue means for a broadcaster and what mends it, in plain words. Pure.

The names are those of `stream_health` and of the relay's error classes; one that is not known here is told by its
numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.pipeline.report import words
from headrace.pipeline.report.facts import Source

KEYFRAME_S = 2  # what YouTube and Twitch both ask for


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An issue's worst value, and what the encoder said of itself."""

    name: str
    value: float | None
    threshold: float | None
    unit: str | None
    source: Source


def finding(issue: Measured) -> str:
    """What was measured against what is wanted: one sentence."""
    known = _FINDINGS.get(issue.name)
    has_numbers = issue.value is not None and issue.threshold is not None
    if known is None or not (has_numbers or issue.name in _WITHOUT_NUMBERS):
        return _plain_finding(issue)
    return known(issue)


def advice(issue: Measured) -> str | None:
    """What to do about it."""
    known = _ADVICE.get(issue.name)
    return known(issue) if known is not None else None


def destination_advice(error_class: str | None) -> str | None:
    return _DESTINATION_ADVICE.get(error_class or "")


def error_words(error_class: str | None) -> str:
    return _ERROR_WORDS.get(error_class or "", f"the error {words.name(error_class)}" if error_class else "unknown")


def skip_words(reason: str) -> str:
    return _SKIP_WORDS.get(reason, words.name(reason))


def _plain_finding(issue: Measured) -> str:
    if issue.value is None or issue.threshold is None:
        return f"{words.name(issue.name)} was reported."
    unit = f" {words.name(issue.unit)}" if issue.unit else ""
    return f"{words.name(issue.name)}: measured {issue.value:,.6g}{unit}, threshold {issue.threshold:,.6g}{unit}."


def _value(issue: Measured) -> float:
    return issue.value or 0.0


def _limit(issue: Measured) -> float:
    return issue.threshold or 0.0


def _kbps(number: float) -> str:
    return words.bitrate(number * 1000)


def _long_gop(issue: Measured) -> str:
    return (
        f"Keyframes came up to {words.seconds(_value(issue))} apart; "
        f"YouTube wants {words.duration(_limit(issue))} or less, Twitch 2 s."
    )


def _over_gop(issue: Measured) -> str:
    return (
        f"Keyframes came up to {words.seconds(_value(issue))} apart, beyond {words.duration(_limit(issue))}: "
        "a viewer who joins may wait that long for a picture. YouTube wants 4 s or less, Twitch 2 s."
    )


def _short_gop(issue: Measured) -> str:
    return (
        f"Keyframes came every {words.duration(_value(issue))} at most; below {words.duration(_limit(issue))} they "
        "take bitrate that the picture could have."
    )


def _starved(issue: Measured) -> str:
    return (
        f"Nothing came in for up to {words.seconds(_value(issue))}; players hold about "
        f"{words.duration(_limit(issue))} in reserve, so viewers saw the picture stop."
    )


def _faster(issue: Measured) -> str:
    return (
        f"Media came in up to {words.seconds(_value(issue))} ahead of the clock; platforms expect real time "
        f"and allow about {words.duration(_limit(issue))}."
    )


def _low(kind: str) -> Callable[[Measured], str]:
    return lambda issue: (
        f"{kind} came at {_kbps(_value(issue))}, less than half of what the encoder announced "
        f"(the threshold is {_kbps(_limit(issue))})."
    )


def _high(kind: str) -> Callable[[Measured], str]:
    return lambda issue: (
        f"{kind} came at {_kbps(_value(issue))}, more than one and a half times what the encoder announced "
        f"(the threshold is {_kbps(_limit(issue))})."
    )


def _codec(kind: str, codec: Callable[[Source], str | None], taken: str) -> Callable[[Measured], str]:
    return lambda issue: f"The {kind} codec is {words.name(codec(issue.source))}; platforms take {taken}."


_WITHOUT_NUMBERS = ("noVideoStream", "noAudioStream", "videoCodec", "audioCodec")

_FINDINGS: dict[str, Callable[[Measured], str]] = {
    "gopSizeLong": _long_gop,
    "gopSizeOver": _over_gop,
    "gopSizeShort": _short_gop,
    "videoIngestionStarved": _starved,
    "videoIngestionFasterThanRealtime": _faster,
    "noVideoStream": lambda issue: "There was sound but no picture.",
    "noAudioStream": lambda issue: "There was a picture but no sound; YouTube and Facebook ask for both.",
    "bitrateLow": _low("Video"),
    "bitrateHigh": _high("Video"),
    "audioBitrateLow": _low("Audio"),
    "audioBitrateHigh": _high("Audio"),
    "frameRateHigh": lambda issue: (
        f"{words.rate(_value(issue))} frames a second came in; no platform takes more than 60."
    ),
    "audioSampleRate": lambda issue: (
        f"The audio sample rate is {_value(issue):,.0f} Hz; platforms want {_limit(issue):,.0f} or 48,000 Hz."
    ),
    "videoCodec": _codec("video", lambda source: source.video_codec, "H.264, and some HEVC, AV1 or VP9"),
    "audioCodec": _codec("audio", lambda source: source.audio_codec, "AAC, and some MP3, Opus, AC-3 or FLAC"),
}


def _mend_gop(issue: Measured) -> str:
    frames = round((issue.source.declared_frame_rate or 30) * KEYFRAME_S)
    return (
        f"In OBS set Keyframe Interval to {KEYFRAME_S} s (Settings, Output, Streaming); "
        f"with FFmpeg use -g {frames} (two seconds at {words.rate(frames / KEYFRAME_S)} frames a second)."
    )


def _mend_network(issue: Measured) -> str:
    return (
        "Look at the encoder first: its own network (a cable instead of wireless, a bitrate of at most three quarters "
        "of the uplink) and its processor. OBS shows both under Stats, as dropped and as skipped frames."
    )


def _mend_low(issue: Measured) -> str:
    return (
        "A still picture needs little and is no fault. Otherwise the uplink may be full: "
        "lower the bitrate in the encoder to what it holds, and use constant bitrate (CBR)."
    )


def _mend_high(issue: Measured) -> str:
    return "Use constant bitrate (CBR); with FFmpeg set -maxrate and -bufsize beside -b:v."


_ADVICE: dict[str, Callable[[Measured], str]] = {
    "gopSizeLong": _mend_gop,
    "gopSizeOver": _mend_gop,
    "gopSizeShort": _mend_gop,
    "videoIngestionStarved": _mend_network,
    "videoIngestionFasterThanRealtime": lambda issue: (
        "A file that is streamed needs a pace: with FFmpeg put -re before -i. After a stall it passes by itself."
    ),
    "noVideoStream": lambda issue: (
        "If it is meant to be radio, add a still picture: platforms refuse sound alone. "
        "Otherwise check the video source."
    ),
    "noAudioStream": lambda issue: (
        "Check that the source is not muted and its track is chosen (OBS: Settings, Output, Audio Track); "
        "where silence is meant, send a silent track (FFmpeg: -f lavfi -i anullsrc)."
    ),
    "bitrateLow": _mend_low,
    "bitrateHigh": _mend_high,
    "audioBitrateLow": lambda issue: "Silence needs little and is no fault; otherwise set a constant audio bitrate.",
    "audioBitrateHigh": lambda issue: "Set a constant audio bitrate, 128 kbit/s for instance.",
    "frameRateHigh": lambda issue: "Set 30 or 60 frames a second (OBS: Settings, Video, Common FPS Values).",
    "audioSampleRate": lambda issue: "Set 48 kHz (OBS: Settings, Audio, Sample Rate; FFmpeg: -ar 48000).",
    "videoCodec": lambda issue: "Encode as H.264 unless the platform says otherwise (FFmpeg: -c:v libx264).",
    "audioCodec": lambda issue: "Encode as AAC unless the platform says otherwise (FFmpeg: -c:a aac).",
}

_ERROR_WORDS = {
    "dns": "its host name was not found",
    "refused": "nothing accepted the connection",
    "tls": "the encrypted connection failed",
    "handshake": "the far end did not answer as an RTMP server",
    "rejected": "the far end refused the stream",
    "auth": "the far end refused the credentials",
    "stalled": "it was connected but took no data",
    "reset": "the far end closed the connection",
    "timeout": "the far end did not answer in time",
    "publisher": "the encoder or its network",
    "lost": "its connection broke",
    "dropped": "it was dropped by the operator",
}

_DESTINATION_ADVICE = {
    "dns": "Check the host name in the address, and this machine's name server.",
    "refused": "Check host and port of the address, that the server there runs, and the firewalls between.",
    "tls": "Check that the address is meant to be rtmps://, and that the far end's certificate is valid for its name.",
    "handshake": "Check that an RTMP server listens at this port: rtmps:// and rtmp:// have different ones.",
    "rejected": "Check the stream key, and that no other encoder uses it; some platforms want the event created first.",
    "auth": "Take the stream key or the password anew from the platform: it will not be tried again until it changes.",
    "stalled": "The way there was full or the far end stuck: compare the bitrate with the uplink, or send less.",
    "reset": "The far end ended it: see its own dashboard for why. A backup address keeps a broadcast up meanwhile.",
    "timeout": "Check the network on the way there; a backup address keeps a broadcast up meanwhile.",
}

_SKIP_WORDS = {
    "lag": "too far behind, skipped to the newest keyframe",
    "evicted": "away for longer than the log holds (30 s)",
    "no_keyframe": "no picture before the next keyframe",
    "paused": "paused by the player",
    "not_connected": "never connected",
    "disconnected": "gone before the end",
    "error": "the file could not be written",
    "unknown": "no reason told",
}
