"""From a codec's name and its bytes to facts: the table of who reads what.

Owns: the choice of the reader and the cap on input. Raises PeerError for bytes that are not what the
codec's name promises. A codec without a reader, or without bytes, gives a sheet of unknowns.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import PeerError
from headrace.protocol.codecs.aac import describe_aac
from headrace.protocol.codecs.ac3 import describe_ac3
from headrace.protocol.codecs.av1 import describe_av1, describe_av1_frame
from headrace.protocol.codecs.avc import describe_avc
from headrace.protocol.codecs.flac import describe_flac
from headrace.protocol.codecs.hevc import describe_hevc
from headrace.protocol.codecs.mpeg_audio import describe_mp3
from headrace.protocol.codecs.opus import describe_opus
from headrace.protocol.codecs.parameters import AudioParameters, VideoParameters
from headrace.protocol.codecs.vpx import describe_vp8_frame, describe_vp9_frame, describe_vpx
from headrace.protocol.codecs.vvc import describe_vvc

# Ours: real records are below 3 kB (x265 puts a long SEI into hvcC); more is an attempt to keep us busy.
MAX_CONFIG_BYTES = 65536

_VIDEO_CONFIGS: dict[str, Callable[[bytes], VideoParameters]] = {
    "h264": describe_avc,
    "hevc": describe_hevc,
    "vvc": describe_vvc,
    "av1": describe_av1,
    "vp8": lambda record: describe_vpx("vp8", record),
    "vp9": lambda record: describe_vpx("vp9", record),
}

_VIDEO_FRAMES: dict[str, Callable[[bytes], VideoParameters]] = {
    "av1": describe_av1_frame,
    "vp8": describe_vp8_frame,
    "vp9": describe_vp9_frame,
}

# FLV 10.1 E.4.2.1: formats whose rate and channels are fixed, whatever the bits of the header say.
_FIXED_AUDIO = {
    "speex": AudioParameters("speex", None, 16000, 1),
    "nellymoser_16k": AudioParameters("nellymoser_16k", None, 16000, 1),
    "nellymoser_8k": AudioParameters("nellymoser_8k", None, 8000, 1),
    "g711a": AudioParameters("g711a", None, 8000, None),
    "g711u": AudioParameters("g711u", None, 8000, None),
}


def describe_video_config(codec: str, config: bytes) -> VideoParameters:
    """Facts from the body of a sequence start, named as `headrace.protocol.media` names codecs.

    An empty body is no error: FFmpeg sends one before its AV1 encoder knows the sequence header, and the
    filled one behind it.
    """
    _check_size(config)
    reader = _VIDEO_CONFIGS.get(codec)
    return reader(config) if reader and config else VideoParameters(codec)


def describe_video_frame(codec: str, frame: bytes) -> VideoParameters:
    """Facts from the body of a keyframe, for codecs whose config does not hold the size.

    VP8 and VP9 always, AV1 where the record came without a sequence header. The rest gives unknowns.
    """
    reader = _VIDEO_FRAMES.get(codec)
    return reader(frame) if reader else VideoParameters(codec)


def describe_audio(codec: str, config: bytes | None = None, first_frame: bytes | None = None) -> AudioParameters:
    """Facts from the sequence start of AAC, Opus and FLAC; from a frame of MP3, AC-3 and E-AC-3.

    Opus without a header takes what a frame tells. Missing bytes are no error: a caller may ask again.
    """
    if config is not None:
        _check_size(config)
    if codec == "opus":
        return describe_opus(config, first_frame)
    if codec == "aac" and config:
        return describe_aac(config)
    if codec == "flac" and config:
        return describe_flac(config)
    if codec in ("mp3", "mp3_8k") and first_frame:
        return describe_mp3(codec, first_frame)
    if codec in ("ac3", "eac3") and first_frame:
        return describe_ac3(codec, first_frame)
    return _FIXED_AUDIO.get(codec) or AudioParameters(codec)


def _check_size(config: bytes) -> None:
    if len(config) > MAX_CONFIG_BYTES:
        raise PeerError(f"codec configuration of {len(config)} bytes, expected at most {MAX_CONFIG_BYTES}")
