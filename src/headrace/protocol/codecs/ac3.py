"""AC-3 and E-AC-3: facts from the header of a syncframe.

Follows ATSC A/52 5.3 (AC-3 syncinfo and bsi) and E.2.2 (E-AC-3 syntax). Enhanced RTMP v2 defines no
sequence start body for the two and FFmpeg sends an empty one, so a frame is the only source.
Channels are those of the first independent substream: the extra ones of 7.1 live in dependent
substreams, which this does not chase. Anything without the sync word is a PeerError.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader
from headrace.protocol.codecs.parameters import AudioParameters

_SYNC_WORD = 0x0B77
_SAMPLE_RATES_HZ = (48000, 44100, 32000)  # Table 5.6 fscod; 3 is reserved in AC-3
_REDUCED_RATE = 3  # E.2.3.1.4: a second code follows, of halved rates
_CHANNELS = (2, 1, 2, 3, 3, 4, 4, 5)  # Table 5.8 acmod, without the low frequency channel
_MAX_AC3_BSID = 10  # 8 is the standard; 9 and 10 halve and quarter its rates, decoders take them
_MAX_EAC3_BSID = 16


def describe_ac3(codec: str, frame: bytes) -> AudioParameters:
    """`codec` is the announced one; which of the two syntaxes holds is told by the frame itself."""
    bits = BitReader(frame[:16])
    sync_word = bits.read(16)
    if sync_word != _SYNC_WORD:
        raise PeerError(f"{codec} frame starts with 0x{sync_word:04x}, expected 0x{_SYNC_WORD:04x}")
    if len(frame) < 8:
        raise PeerError(f"{codec} frame of {len(frame)} bytes, expected at least 8")
    bsid = frame[5] >> 3  # at the same place in both syntaxes, by design
    if bsid <= _MAX_AC3_BSID:
        return _read_ac3(codec, bits)
    if bsid <= _MAX_EAC3_BSID:
        return _read_eac3(codec, bits)
    raise PeerError(f"{codec} bitstream id {bsid}, expected 0..{_MAX_EAC3_BSID}")


def _read_ac3(codec: str, bits: BitReader) -> AudioParameters:
    bits.skip(16)
    rate_code = bits.read(2)
    bits.skip(6)
    bsid = bits.read(5)
    bits.skip(3)
    mode = bits.read(3)
    if rate_code >= len(_SAMPLE_RATES_HZ):
        raise PeerError(f"{codec} sample rate code {rate_code}, expected 0..2")
    # 5.4.2.4 to 5.4.2.6: mix levels for three front channels and for surround, a flag for plain stereo.
    bits.skip(2 * ((mode & 1 and mode != 1) + (mode >> 2) + (mode == 2)))
    channels = _CHANNELS[mode] + bits.read(1)
    return AudioParameters(codec, None, _SAMPLE_RATES_HZ[rate_code] >> max(bsid - 8, 0), channels)


def _read_eac3(codec: str, bits: BitReader) -> AudioParameters:
    bits.skip(2 + 3 + 11)
    rate_code, second_code = bits.read(2), bits.read(2)
    if rate_code == _REDUCED_RATE:
        if second_code >= len(_SAMPLE_RATES_HZ):
            raise PeerError(f"{codec} reduced sample rate code {second_code}, expected 0..2")
        sample_rate_hz = _SAMPLE_RATES_HZ[second_code] // 2
    else:
        sample_rate_hz = _SAMPLE_RATES_HZ[rate_code]
    channels = _CHANNELS[bits.read(3)] + bits.read(1)
    return AudioParameters(codec, None, sample_rate_hz, channels)
