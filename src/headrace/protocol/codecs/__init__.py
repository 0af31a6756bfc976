"""Codec facts: what a track is, read from its configuration record or its first frame.

Owns: profile, level, size, rates and channels of the codecs that RTMP carries. Pure, and decodes nothing.
Must not know FLV or RTMP framing (`headrace.protocol.media`) nor who asks.
"""

from headrace.protocol.codecs.describe import (
    MAX_CONFIG_BYTES,
    describe_audio,
    describe_video_config,
    describe_video_frame,
)
from headrace.protocol.codecs.parameters import AudioParameters, VideoParameters

__all__ = [
    "MAX_CONFIG_BYTES",
    "AudioParameters",
    "VideoParameters",
    "describe_audio",
    "describe_video_config",
    "describe_video_frame",
]
