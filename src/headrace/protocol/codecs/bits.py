"""A bounded reader of bit fields, and what every NAL-unit codec needs before its bits can be read.

Owns: fixed-width fields, exp-Golomb codes, emulation prevention. Knows no codec.
Follows ITU-T H.264 7.2, 7.3.1 and 9.1 (H.265 and H.266 use the same codes) and AV1 4.10.3.
Reading past the end raises PeerError: the bytes came from a peer, and short ones are its fault.
"""

from __future__ import annotations

from headrace.errors import PeerError

# Ours: parameter sets of real encoders stay below 300 bytes; the cap bounds the work on hostile ones.
MAX_PARAMETER_SET_BYTES = 4096

# H.264 9.1: codes of ue(v) reach 2^32 - 2, which is 32 leading zeros at most.
_MAX_LEADING_ZEROS = 32


class BitReader:
    """Reads a byte string from its most significant bit on."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._end = len(data) * 8

    @property
    def bits_left(self) -> int:
        return self._end - self._position

    def read(self, width: int) -> int:
        """u(n): an unsigned number of `width` bits, most significant first."""
        start = self._position
        stop = start + width
        if stop > self._end:
            raise PeerError(f"{width} bits wanted at bit {start}, the data ends at bit {self._end}")
        self._position = stop
        window = int.from_bytes(self._data[start >> 3 : (stop + 7) >> 3], "big")
        return (window >> (-stop & 7)) & ((1 << width) - 1)

    def flag(self) -> bool:
        return self.read(1) == 1

    def skip(self, width: int) -> None:
        if width > self.bits_left:
            raise PeerError(f"{width} bits to skip at bit {self._position}, the data ends at bit {self._end}")
        self._position += width

    def align(self) -> None:
        """Move to the next byte boundary; stay where one already is."""
        self._position = (self._position + 7) & ~7

    def ue(self, maximum: int = 0xFFFF_FFFE) -> int:
        """ue(v), refused above `maximum` so that a count read here is safe to loop over."""
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > _MAX_LEADING_ZEROS:
                raise PeerError(f"exp-Golomb code of more than {_MAX_LEADING_ZEROS} leading zeros")
        value = (1 << zeros) - 1 + self.read(zeros)
        if value > maximum:
            raise PeerError(f"exp-Golomb value {value}, expected 0..{maximum}")
        return value

    def se(self) -> int:
        """se(v): 0, 1, -1, 2, -2, ... (H.264 9.1.1)."""
        code = self.ue()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def unescape(nal_unit: bytes) -> bytes:
    """Remove emulation prevention bytes (H.264 7.3.1), at most MAX_PARAMETER_SET_BYTES of input."""
    # bytes.replace goes on behind each match, which is how a decoder resets its count of zeros.
    return nal_unit[:MAX_PARAMETER_SET_BYTES].replace(b"\x00\x00\x03", b"\x00\x00")
