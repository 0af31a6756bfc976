"""FLAC: facts from the STREAMINFO block.

Follows RFC 9639 8.1 and 8.2. Enhanced RTMP v2 asks for the `fLaC` signature and the block with its header;
FFmpeg 8 writes the bare 34 bytes of the block. Both are taken, as is the block with a header alone.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader
from headrace.protocol.codecs.parameters import AudioParameters

_SIGNATURE = b"fLaC"
_STREAMINFO_BYTES = 34
# Block type 0 and its length, with and without the bit for "last block". STREAMINFO itself cannot start
# like this: its first two fields would be a smallest block of 0 or one larger than the largest.
_BLOCK_HEADERS = (b"\x00\x00\x00\x22", b"\x80\x00\x00\x22")


def describe_flac(config: bytes) -> AudioParameters:
    info = config.removeprefix(_SIGNATURE)
    if info.startswith(_BLOCK_HEADERS):
        info = info[4:]
    if len(info) < _STREAMINFO_BYTES:
        raise PeerError(f"FLAC STREAMINFO of {len(info)} bytes, expected {_STREAMINFO_BYTES}")
    bits = BitReader(info[:_STREAMINFO_BYTES])
    bits.skip(16 + 16 + 24 + 24)
    sample_rate_hz, channels = bits.read(20), bits.read(3) + 1
    if not sample_rate_hz:
        raise PeerError("FLAC STREAMINFO sample rate 0, expected 1..1048575")
    return AudioParameters("flac", None, sample_rate_hz, channels)
