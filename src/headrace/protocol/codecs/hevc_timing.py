"""HEVC: the long way through an SPS from the picture size to the timing in its VUI.

Follows ITU-T H.265 7.3.2.2.1 (SPS), 7.3.4 (scaling lists), 7.3.7 (reference picture sets), E.2.1 (VUI).
Owns nothing but the frame rate: everything else here is read to be skipped.
"""

from __future__ import annotations

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import BitReader
from headrace.protocol.codecs.parameters import plausible_rate

_EXTENDED_SAR = 255  # Table E.1
_MAX_REFERENCE_SETS = 64  # 7.4.3.2.1 num_short_term_ref_pic_sets
_MAX_PICTURES = 16  # A.4.2 MaxDpbSize
_MAX_LONG_TERM = 32  # 7.4.3.2.1 num_long_term_ref_pics_sps


def read_frame_rate(bits: BitReader, sub_layers_minus_1: int) -> float | None:
    """Frames per second from a reader that stands behind the conformance window; None if unreachable."""
    try:
        _skip_to_vui(bits, sub_layers_minus_1)
        return _read_vui_rate(bits) if bits.flag() else None
    except PeerError:
        return None


def _skip_to_vui(bits: BitReader, sub_layers_minus_1: int) -> None:
    bits.ue(8)  # bit depths
    bits.ue(8)
    order_count_bits = bits.ue(12) + 4
    for _ in range(sub_layers_minus_1 + 1 if bits.flag() else 1):
        for _ in range(3):
            bits.ue()
    for _ in range(6):  # block sizes and transform depths
        bits.ue()
    if bits.flag() and bits.flag():
        _skip_scaling_lists(bits)
    bits.skip(2)
    if bits.flag():  # PCM
        bits.skip(8)
        bits.ue()
        bits.ue()
        bits.skip(1)
    _skip_reference_sets(bits)
    if bits.flag():
        bits.skip(bits.ue(_MAX_LONG_TERM) * (order_count_bits + 1))
    bits.skip(2)


def _skip_scaling_lists(bits: BitReader) -> None:
    for size_id in range(4):
        for _ in range(2 if size_id == 3 else 6):
            if not bits.flag():
                bits.ue()
                continue
            if size_id > 1:
                bits.se()
            for _ in range(min(64, 16 << 2 * size_id)):
                bits.se()


def _skip_reference_sets(bits: BitReader) -> None:
    pictures = 0  # NumDeltaPocs of the set before: a predicted set has one flag for each, and one more
    for index in range(bits.ue(_MAX_REFERENCE_SETS)):
        if index and bits.flag():
            bits.skip(1)
            bits.ue()
            # used_by_curr_pic_flag; if that is 0, use_delta_flag says whether the entry stays at all.
            pictures = sum(bits.flag() or bits.flag() for _ in range(pictures + 1))
            if pictures > _MAX_PICTURES:
                raise PeerError(f"reference set of {pictures} pictures, expected at most {_MAX_PICTURES}")
        else:
            pictures = bits.ue(_MAX_PICTURES) + bits.ue(_MAX_PICTURES)
            for _ in range(pictures):
                bits.ue()
                bits.skip(1)


def _read_vui_rate(bits: BitReader) -> float | None:
    if bits.flag() and bits.read(8) == _EXTENDED_SAR:
        bits.skip(32)
    if bits.flag():
        bits.skip(1)
    if bits.flag():
        bits.skip(4)
        if bits.flag():
            bits.skip(24)
    if bits.flag():
        bits.ue(5)
        bits.ue(5)
    bits.skip(3)
    if bits.flag():  # default display window
        for _ in range(4):
            bits.ue()
    if not bits.flag():
        return None
    units_in_tick, time_scale = bits.read(32), bits.read(32)
    return plausible_rate(time_scale, units_in_tick)
