"""AAC: facts from the AudioSpecificConfig.

Follows ISO/IEC 14496-3 1.6.2.1 (AudioSpecificConfig), 1.6.5 (signalling of SBR and PS), 4.4.1
(GASpecificConfig) and 4.5.1.1 (program_config_element).
A config that breaks off before rate and channels is a PeerError; one that breaks off in the optional
extensions behind them counts as a config without extensions.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader
from headrace.protocol.codecs.parameters import AudioParameters

# 1.6.3.4 samplingFrequencyIndex; 13 and 14 are reserved, 15 is followed by 24 bits of rate.
_SAMPLE_RATES_HZ = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_ESCAPED_RATE = 15

# 1.6.3.5 channelConfiguration; 0 means a program_config_element, 8 to 10 and 15 are reserved.
_CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8, 11: 7, 12: 8, 13: 24, 14: 8}

# 1.5.1.1 audio object types
_SBR, _PS, _BSAC, _ESCAPED_TYPE = 5, 29, 22, 31
_GENERAL_AUDIO = frozenset({1, 2, 3, 4, 6, 7, 17, 19, 20, 21, 22, 23})
_WITH_LAYER_NUMBER = frozenset({6, 20})
_PROFILES = {
    1: "Main",
    2: "LC",
    3: "SSR",
    4: "LTP",
    6: "Scalable",
    17: "ER LC",
    22: "ER BSAC",
    23: "LD",
    39: "ELD",
    42: "xHE-AAC",
}
_SBR_SYNC, _PS_SYNC = 0x2B7, 0x548  # 1.6.2.1 syncExtensionType


def describe_aac(config: bytes) -> AudioParameters:
    bits = BitReader(config[:256])
    object_type = _read_object_type(bits)
    rate_hz = _read_rate(bits)
    channel_configuration = bits.read(4)
    has_sbr, has_ps = object_type in (_SBR, _PS), object_type == _PS
    if has_sbr:
        rate_hz = _read_rate(bits)
        object_type = _read_object_type(bits)
        if object_type == _BSAC:
            bits.skip(4)
    channels = _CHANNELS.get(channel_configuration)
    try:
        if object_type in _GENERAL_AUDIO:
            counted = _read_general_audio(bits, object_type, channel_configuration)
            channels = counted or channels
            if not has_sbr:
                has_sbr, has_ps, rate_hz = _read_backward_compatible_sbr(bits, rate_hz)
    except PeerError:
        pass
    if has_ps and channels == 1:
        channels = 2  # parametric stereo makes two channels of the coded one
    profile = _PROFILES.get(object_type) or f"object type {object_type}"
    if has_sbr and object_type == 2:
        profile = "HE-AACv2" if has_ps else "HE-AAC"
    return AudioParameters("aac", profile, rate_hz, channels)


def _read_object_type(bits: BitReader) -> int:
    object_type = bits.read(5)
    return 32 + bits.read(6) if object_type == _ESCAPED_TYPE else object_type


def _read_rate(bits: BitReader) -> int:
    index = bits.read(4)
    if index < len(_SAMPLE_RATES_HZ):
        return _SAMPLE_RATES_HZ[index]
    rate_hz = bits.read(24) if index == _ESCAPED_RATE else 0
    if not rate_hz:
        raise PeerError(f"AAC sampling frequency index {index}, expected 0..12, or 15 and a rate above 0")
    return rate_hz


def _read_general_audio(bits: BitReader, object_type: int, channel_configuration: int) -> int | None:
    """Skip the GASpecificConfig; the number of channels if its program config says so."""
    bits.skip(1)
    if bits.flag():
        bits.skip(14)
    has_extension = bits.flag()
    channels = None if channel_configuration else _count_program_channels(bits)
    if object_type in _WITH_LAYER_NUMBER:
        bits.skip(3)
    if has_extension:
        bits.skip({_BSAC: 16, 17: 3, 19: 3, 20: 3, 23: 3}.get(object_type, 0) + 1)
    return channels


def _count_program_channels(bits: BitReader) -> int:
    bits.skip(4 + 2 + 4)
    front, side, back, low_frequency = bits.read(4), bits.read(4), bits.read(4), bits.read(2)
    associated_data, coupling = bits.read(3), bits.read(4)
    for mixdown_bits in (4, 4, 3):
        if bits.flag():
            bits.skip(mixdown_bits)
    channels = low_frequency
    for _ in range(front + side + back):
        channels += 2 if bits.flag() else 1
        bits.skip(4)
    bits.skip(4 * low_frequency + 4 * associated_data + 5 * coupling)
    bits.align()
    bits.skip(8 * bits.read(8))  # comment
    return channels


def _read_backward_compatible_sbr(bits: BitReader, rate_hz: int) -> tuple[bool, bool, int]:
    """1.6.6.3: SBR announced behind the LC config, where decoders without SBR do not look."""
    if bits.bits_left < 16 or bits.read(11) != _SBR_SYNC or _read_object_type(bits) != _SBR:
        return False, False, rate_hz
    if not bits.flag():
        return False, False, rate_hz
    extended_rate_hz = _read_rate(bits)
    has_ps = bits.bits_left >= 12 and bits.read(11) == _PS_SYNC and bits.flag()
    return True, has_ps, extended_rate_hz
