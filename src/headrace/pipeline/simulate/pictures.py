"""What a recording holds instead of pictures and sound: headers that any reader understands, and frames that are
unlike those of any other stream but cannot be decoded."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from headrace.pipeline.simulate.chance import Flags, Ints
from headrace.pipeline.simulate.encoders import AUDIO_HEADER_BYTES, VIDEO_HEADER_BYTES, Preset
from headrace.protocol.amf0 import EcmaArray, Value, encode_values

FRAME_BYTES = 24  # of a thin frame, and how much of a full one is not zero

_PROFILES = {"Constrained Baseline": (66, 0x40), "Main": (77, 0), "High": (100, 0)}
_SAMPLE_RATES = {48_000: 3, 44_100: 4}  # ISO/IEC 14496-3, table 1.18
_AVC_KEYFRAME, _AVC_FRAME, _AAC = 0x17, 0x27, 0xAF
_IDR_SLICE, _SLICE = 0x65, 0x41


def metadata(preset: Preset) -> bytes:
    said: dict[str, Value] = {
        "duration": 0.0,
        "width": float(preset.width),
        "height": float(preset.height),
        "videodatarate": float(preset.video_kbps),
        "framerate": float(preset.frame_rate),
        "videocodecid": 7.0,
        "audiodatarate": float(preset.audio_kbps),
        "audiosamplerate": float(preset.sample_rate),
        "stereo": True,
        "audiocodecid": 10.0,
        "encoder": preset.encoder,
    }
    return encode_values("onMetaData", EcmaArray(said))


def audio_header(preset: Preset) -> bytes:
    """AudioSpecificConfig of two channels of AAC LC."""
    config = 2 << 11 | _SAMPLE_RATES[preset.sample_rate] << 7 | 2 << 3
    header = bytes([_AAC, 0]) + struct.pack(">H", config)
    assert len(header) == AUDIO_HEADER_BYTES
    return header


def video_header(preset: Preset) -> bytes:
    """AVCDecoderConfigurationRecord (ISO/IEC 14496-15, 5.3.3.1)."""
    profile, compatibility = _PROFILES[preset.profile]
    level = round(float(preset.level) * 10)
    sps = _sequence_parameters(preset, profile, compatibility, level)
    record = bytes([1, profile, compatibility, level, 0xFF, 0xE1]) + struct.pack(">H", len(sps)) + sps
    # Zeros may follow any NAL unit: all headers are of one length.
    pps = bytes([0x68, 0xCE, 0x38, 0x80]).ljust(VIDEO_HEADER_BYTES - 5 - len(record) - 3, b"\x00")
    return bytes([_AVC_KEYFRAME, 0, 0, 0, 0]) + record + b"\x01" + struct.pack(">H", len(pps)) + pps


def _sequence_parameters(preset: Preset, profile: int, compatibility: int, level: int) -> bytes:
    """ITU-T H.264, 7.3.2.1.1, with what this has a say in: the size of the picture."""
    columns, lines = -(-preset.width // 16), -(-preset.height // 16)
    bits = _exp_golomb(0)
    if profile == 100:
        bits += _exp_golomb(1) + _exp_golomb(0) + _exp_golomb(0) + "00"  # 4:2:0, eight bits
    bits += _exp_golomb(0) + _exp_golomb(2) + _exp_golomb(1) + "0"
    bits += _exp_golomb(columns - 1) + _exp_golomb(lines - 1) + "11"  # no interlacing
    crop = (columns * 16 - preset.width) // 2, (lines * 16 - preset.height) // 2
    bits += "1" + _exp_golomb(0) + _exp_golomb(crop[0]) + _exp_golomb(0) + _exp_golomb(crop[1]) if any(crop) else "0"
    bits += "0" + "1"  # no more parameters; the stop bit
    bits = bits.ljust(-(-len(bits) // 8) * 8, "0")
    payload = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return bytes([0x67, profile, compatibility, level]) + payload


def _exp_golomb(value: int) -> str:
    """H.264, 9.1."""
    digits = f"{value + 1:b}"
    return "0" * (len(digits) - 1) + digits


def frame_heads(is_video: Flags, is_keyframe: Flags, size: Ints, mark: int, number: Ints) -> npt.NDArray[np.uint8]:
    """The first bytes of frames, a row each: codec headers, then the stream's mark and the frame's number."""
    rows = np.zeros((len(size), FRAME_BYTES), np.uint8)
    rows[:, 0] = np.where(is_video, np.where(is_keyframe, _AVC_KEYFRAME, _AVC_FRAME), _AAC)
    rows[:, 1] = 1
    # Five bytes, then the length of the one NAL unit and its first byte.
    rows[:, 5:9] = np.where(is_video[:, None], as_bytes(size - 9, 4), 0)
    rows[:, 9] = np.where(is_video, np.where(is_keyframe, _IDR_SLICE, _SLICE), 0)
    rows[:, 10:18] = as_bytes(np.full(len(size), mark), 8)
    rows[:, 18:] = as_bytes(number, FRAME_BYTES - 18)
    return rows


def as_bytes(values: Ints, count: int) -> npt.NDArray[np.uint8]:
    """Big-endian, a row each."""
    return values.astype(">i8").view(np.uint8).reshape(-1, 8)[:, 8 - count :]
