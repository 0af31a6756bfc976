"""Opus: facts from the identification header, or from the first packet when there is no header.

Follows RFC 7845 5.1 (OpusHead) and RFC 6716 3.1 (table of contents byte).
Enhanced RTMP v2 allows an empty sequence start: the stream is then plain mono or stereo.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.parameters import AudioParameters

_MAGIC = b"OpusHead"
_HEAD_BYTES = 19
# RFC 7845 5.1: a decoder always runs at 48 kHz; the header's rate only tells what the source had.
_DECODED_RATE_HZ = 48000
_STEREO_BIT = 0x04


def describe_opus(head: bytes | None, packet: bytes | None) -> AudioParameters:
    if head:
        return AudioParameters("opus", None, _DECODED_RATE_HZ, _read_channels(head))
    channels = None
    if packet:
        channels = 2 if packet[0] & _STEREO_BIT else 1
    return AudioParameters("opus", None, _DECODED_RATE_HZ, channels)


def _read_channels(head: bytes) -> int:
    if not head.startswith(_MAGIC) or len(head) < _HEAD_BYTES:
        raise PeerError(f"Opus header of {len(head)} bytes, expected OpusHead and at least {_HEAD_BYTES}")
    # The upper half of the version is its major number: other ones may lay the fields out differently.
    if head[8] >> 4 or not head[9]:
        raise PeerError(f"Opus header version {head[8]}, {head[9]} channels, expected version 0..15, 1..255")
    return head[9]
