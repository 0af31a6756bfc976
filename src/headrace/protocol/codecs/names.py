"""The one spelling of every codec's name, whichever way a peer writes it.

Owns: FLV codec ids and Enhanced RTMP FourCCs -> the lower-case names used in logs, events and tables.
Follows FLV 10.1 E.4.2.1 and E.4.3.1, and Enhanced RTMP v2 "Enhanced Audio" and "Enhanced Video".
"""

from __future__ import annotations

# FLV 10.1 E.4.3.1 CodecID. 12 is in no specification: Chinese CDNs and their FFmpeg forks carry HEVC
# in it with the packet layout of AVC, from years before Enhanced RTMP.
VIDEO_CODEC_IDS = {
    2: "sorenson_h263",
    3: "screen",
    4: "vp6",
    5: "vp6a",
    6: "screen2",
    7: "h264",
    12: "hevc",
}

# FLV 10.1 E.4.2.1 SoundFormat. 9 is Enhanced RTMP's ExHeader and never a codec.
SOUND_FORMATS = {
    0: "pcm",
    1: "adpcm",
    2: "mp3",
    3: "pcm_le",
    4: "nellymoser_16k",
    5: "nellymoser_8k",
    6: "nellymoser",
    7: "g711a",
    8: "g711u",
    10: "aac",
    11: "speex",
    14: "mp3_8k",
    15: "device",
}

VIDEO_FOURCCS = {
    b"vp08": "vp8",
    b"vp09": "vp9",
    b"av01": "av1",
    b"avc1": "h264",
    b"hvc1": "hevc",
    b"vvc1": "vvc",
}

AUDIO_FOURCCS = {
    b"ac-3": "ac3",
    b"ec-3": "eac3",
    b"Opus": "opus",
    b".mp3": "mp3",
    b"fLaC": "flac",
    b"mp4a": "aac",
}


def name_of_video_codec_id(codec_id: int) -> str:
    return VIDEO_CODEC_IDS.get(codec_id) or f"unknown({codec_id})"


def name_of_sound_format(sound_format: int) -> str:
    return SOUND_FORMATS.get(sound_format) or f"unknown({sound_format})"


def name_of_fourcc(fourcc: bytes, known: dict[bytes, str]) -> str:
    """The known name; else the FourCC itself if it is printable, so that a log line shows what came."""
    name = known.get(fourcc)
    if name is not None:
        return name
    if all(0x20 <= byte < 0x7F for byte in fourcc):
        return fourcc.decode("ascii")
    return f"unknown(0x{fourcc.hex()})"
