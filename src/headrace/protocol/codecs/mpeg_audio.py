"""MP3: facts from the header of a frame. There is no config: every frame starts with all of it.

Follows ISO/IEC 11172-3 2.4.2.3 (header), ISO/IEC 13818-3 2.4.2.3 (half rates) and the MPEG 2.5 extension
of Fraunhofer (quarter rates). Anything without the sync word, or with reserved values, is a PeerError.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.parameters import AudioParameters

_SAMPLE_RATES_HZ = (44100, 48000, 32000)
# The two version bits: 3 is MPEG 1, 2 is MPEG 2 with half the rates, 0 is MPEG 2.5 with a quarter.
_RATE_DIVISORS = {3: 1, 2: 2, 0: 4}
_SINGLE_CHANNEL = 3


def describe_mp3(codec: str, frame: bytes) -> AudioParameters:
    if len(frame) < 4:
        raise PeerError(f"MP3 frame of {len(frame)} bytes, expected at least 4")
    if frame[0] != 0xFF or frame[1] & 0xE0 != 0xE0:
        raise PeerError(f"MP3 frame starts with {frame[:2].hex()}, expected eleven set bits")
    divisor = _RATE_DIVISORS.get(frame[1] >> 3 & 3)
    rate_index = frame[2] >> 2 & 3
    if divisor is None or rate_index == 3:
        raise PeerError(f"MP3 frame header {frame[:4].hex()} has a reserved version or sample rate")
    channels = 1 if frame[3] >> 6 == _SINGLE_CHANNEL else 2
    return AudioParameters(codec, None, _SAMPLE_RATES_HZ[rate_index] // divisor, channels)
