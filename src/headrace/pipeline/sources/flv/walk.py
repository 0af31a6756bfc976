"""The tags of a file in order: of a whole file, or of one byte range of it.

Owns the order of reading, what happens at damage, and who reads what when a file is split. Follows FLV 10.1, E.2-E.4.

**A whole file.** From the first byte, tag by tag, each one given out when the size behind it has been read and fits.
What is no tag is a problem, and tags begin again at the first sure place (`chain`) behind it.

**A split file** gives the same tags and problems, however it is split and whatever is in it. A piece begins where the
file does, or at its own first byte if that place is sure; if not, it comes from a sure place before it, or from the
file's first byte, and keeps what it passes on the way to itself. It ends with its last byte: the piece behind it needs
nobody to tell it where to begin. Why this is the walk of the whole file: each piece takes up where a reader from the
first byte would be. If that reader crosses a sure place inside a tag, that tag is the one link there; if it is
searching, it goes on from the first sure place it comes to, which this is, or was before.
A hostile file can only make its pieces unsure, and then each of them walks all that is before it, without making rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np

from headrace.pipeline.sources.flv.chain import (
    FRAME_BYTES,
    IS_TAG_TYPE,
    MAX_LINK_BYTES,
    SIZE_BYTES,
    Chain,
    Fault,
    Offsets,
)
from headrace.pipeline.sources.flv.files import Bytes, FileBytes
from headrace.pipeline.sources.flv.gather import big_endian, bytes_at
from headrace.pipeline.sources.flv.pieces import Range

SIGNATURE = b"FLV"  # E.2
_FILE_HEADER_BYTES = 9  # E.2: DataOffset of version 1
_MAX_DATA_OFFSET = 1024  # as `protocol.flv` has it
_DATA_OFFSET_AT = 5

# Tags looked at before they are checked: few behind damage, where most turn out to be none.
_RUN_BEHIND_DAMAGE = 64
_LONGEST_RUN = 1 << 16
# How far before a place that is not sure the next one is tried, at first: what makes a place unsure is mostly one tag.
_FIRST_STEP_BACK_BYTES = 2 * MAX_LINK_BYTES
_TYPE_AND_SIZE = Struct(">I")


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags that follow each other without a gap. `data` is the file from `base` on, with all of them in it."""

    data: Bytes
    base: int
    starts: Offsets  # within `data`
    ends: Offsets  # each behind the previous-tag size
    first_index: int | None  # of the first among the file's; None where nobody counted


@dataclass(frozen=True, slots=True)
class Problem:
    """What is no tag. `resumed_at` is where tags go on; None if they do not."""

    byte_offset: int
    found: str
    expected: str
    resumed_at: int | None = None


def walk(file: FileBytes, part: Range) -> Iterator[Tags | Problem]:
    size = min(part.size, file.size)
    first_tag, fault = read_file_header(file, size)
    chain = Chain(file, first_tag or 0, size)
    start: int | None = None
    if first_tag is not None:
        start = chain.resume_after(first_tag - 1) if fault is not None else first_tag
    if part.begin == 0 and fault is not None:
        yield Problem(0 if first_tag is None else _DATA_OFFSET_AT, *fault, start)
    if start is not None:
        start = max(start, part.begin) if part.is_exact else _sure_place_before(chain, part.begin, start)
        yield from _walk_from(chain, file, start, part)
    if part.begin <= size < min(part.stop, part.size):
        yield Problem(size, f"a file of {size} bytes", f"the {part.size} that it had")


def _sure_place_before(chain: Chain, begin: int, first: int) -> int:
    """Where a walk has to start that is to come to `begin` as one from the file's `first` tag would."""
    place, step = begin, _FIRST_STEP_BACK_BYTES
    while place > first:
        if (start := chain.anchor(place)) is not None:
            return start
        place, step = place - step, step * 8
    return first


def whole_tags(file: FileBytes, position: int, stop: int) -> tuple[int, int]:
    """Where the last whole tag before `stop` ends, or the first one if it is longer, and how many there are.

    For a file that may still grow: what is no whole tag is not there yet.
    """
    size, begin, count = file.size, position, 0
    first_tag, fault = read_file_header(file, size)
    if first_tag is None or fault is not None:
        return begin, 0
    position = max(position, first_tag)
    chain = Chain(file, first_tag, size)
    while position < stop:
        _, ends = _tags_in(file.read(position, min(position + file.window_bytes, size)), _LONGEST_RUN)
        kept = int(np.searchsorted(ends, stop - position, side="right"))
        if kept:
            position += int(ends[kept - 1])
            count += kept
            continue
        end = chain.link_end(position)  # longer than the window, or than what is left
        if end is None or (end > stop and count):
            break
        position, count = end, count + 1
    return (position, count) if count else (begin, 0)


def read_file_header(file: FileBytes, size: int) -> tuple[int | None, Fault | None]:
    """Where the first tag begins, and what is wrong. Both: it is FLV, but the first tag must be looked for."""
    head = bytes(file.read(0, min(_FILE_HEADER_BYTES, size)))
    if not SIGNATURE.startswith(head[: len(SIGNATURE)]):
        return None, Fault(f"signature {head[:3]!r}", repr(SIGNATURE))
    if len(head) < _FILE_HEADER_BYTES:
        return None, Fault(f"a file of {size} bytes", "a file header of 13")
    data_offset = int.from_bytes(head[_DATA_OFFSET_AT:], "big")
    if not _FILE_HEADER_BYTES <= data_offset <= _MAX_DATA_OFFSET:
        return _FILE_HEADER_BYTES, Fault(f"data offset {data_offset}", f"9..{_MAX_DATA_OFFSET}")
    first_tag = data_offset + SIZE_BYTES
    if first_tag > size:
        return None, Fault(f"a file of {size} bytes", f"a file header of {first_tag}")
    return first_tag, None


def _walk_from(chain: Chain, file: FileBytes, position: int, part: Range) -> Iterator[Tags | Problem]:
    """What begins in the part. The position is in it, or before it."""
    index = part.tags_before
    stop, run, needed = min(part.stop, chain.size), _LONGEST_RUN, 0
    while position < stop:
        data = file.read(position, min(position + max(file.window_bytes, needed), chain.size))
        starts, ends = _tags_in(data, run)
        count = int(starts.searchsorted(stop - position))
        if count:
            passed = int(starts.searchsorted(part.begin - position)) if position < part.begin else 0
            if passed < count:
                yield Tags(data, position, starts[passed:count], ends[passed:count], index)
            position += int(ends[count - 1])
            index = None if index is None else index + count
            run, needed = min(run * 2, _LONGEST_RUN), 0
            continue
        end = chain.link_end(position)
        if end is not None:
            needed = end - position  # the window was too short for it
            continue
        resumed_at = chain.resume_after(position)
        if position >= part.begin:
            yield Problem(position, *chain.fault(position), resumed_at)
        if resumed_at is None:
            return
        position, run = resumed_at, _RUN_BEHIND_DAMAGE


def _tags_in(data: Bytes, most: int) -> tuple[Offsets, Offsets]:
    """The links that follow each other from the first byte on: a plain loop for the places, numpy for the proof."""
    view, length = data.data, len(data)
    unpack, last = _TYPE_AND_SIZE.unpack_from, length - FRAME_BYTES
    places: list[int] = [0]
    position = 0
    while position <= last and len(places) <= most:
        position += FRAME_BYTES + (unpack(view, position)[0] & 0xFFFFFF)
        places.append(position)
    edges = np.array(places, np.int64)
    if position > length:  # the last one is cut by the window's end
        edges = edges[:-1]
    starts, ends = edges[:-1], edges[1:]
    sizes = big_endian(bytes_at(data, ends - SIZE_BYTES, SIZE_BYTES))
    is_link = IS_TAG_TYPE[data[starts]] & (sizes == ends - starts - SIZE_BYTES)
    count = len(starts) if is_link.all() else int(np.argmin(is_link))
    return starts[:count], ends[:count]
