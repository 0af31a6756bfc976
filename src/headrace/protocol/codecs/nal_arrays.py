"""The arrays of NAL units at the end of the HEVC and VVC configuration records.

Follows ISO/IEC 14496-15 8.3.3.1.2 (HEVC) and 11.2.4.2 (VVC), which differ in one detail.
A truncated array yields what came before the break: the caller wants facts, not a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

# Ours: real records hold three to five; the cap bounds the walk over thousands of empty units.
_MAX_NAL_UNITS = 64


def nal_units_of_type(
    record: bytes, position: int, wanted: int, *, type_bits: int, single_types: frozenset[int] = frozenset()
) -> Iterator[bytes]:
    """NAL units of one type; `position` is that of numOfArrays, `type_bits` is 6 for HEVC, 5 for VVC."""
    arrays = record[position] if position < len(record) else 0
    position += 1
    seen = 0
    for _ in range(arrays):
        if position >= len(record):
            return
        nal_type = record[position] & ((1 << type_bits) - 1)
        position += 1
        count = 1
        # VVC: units that can occur only once (`single_types`) have no count before them.
        if nal_type not in single_types:
            count = int.from_bytes(record[position : position + 2], "big")
            position += 2
        for _ in range(count):
            seen += 1
            if seen > _MAX_NAL_UNITS or position + 2 > len(record):
                return
            size = int.from_bytes(record[position : position + 2], "big")
            position += 2
            if nal_type == wanted:
                yield record[position : position + size]
            position += size
