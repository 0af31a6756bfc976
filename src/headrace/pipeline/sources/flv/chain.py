"""Which bytes of a file are a tag, told from the bytes alone, wherever one starts to look.

Owns the links of the chain of previous-tag sizes (FLV 10.1, E.3) and the rule by which a reader finds its place in the
middle of a file. Judges tags as `protocol.flv.FlvReader` does.

A *link* is a place where a tag's header and the size behind the tag agree. Whether one is there depends on its own
bytes only, at most 16 MB of them. A link has one successor at most, and one predecessor, since the size that stands
before a tag names the only place where the one before it can begin: links form separate chains that never join.

Those of an honest file form one. But a payload may hold an FLV file of its own, and a hostile one a second chain that
steps over the headers of the first from end to end. No number of links in a row tells which of the two is real, only
the way from the file's first byte does. What can be told in the middle, at any place, is whether there is a choice:

    **a place is sure if exactly one link stretches across it**, and then the reader goes on at the end of that link.

A reader that has come from the first byte to a sure place stands on that one link too, because every tag it read was a
link: so both agree. Where a place is not sure, nobody begins (see `walk`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.pipeline.sources.flv.files import Bytes, FileBytes
from headrace.pipeline.sources.flv.gather import numbers_at
from headrace.protocol.flv import MAX_PAYLOAD_BYTES

Offsets = npt.NDArray[np.int64]

TAG_HEADER_BYTES = 11  # E.4.1
SIZE_BYTES = 4  # E.3: PreviousTagSize
FRAME_BYTES = TAG_HEADER_BYTES + SIZE_BYTES
MAX_LINK_BYTES = FRAME_BYTES + MAX_PAYLOAD_BYTES
TYPE_MASK = 0x1F
_FILTER = 0x20  # E.4.1: the payload is encrypted
IS_TAG_TYPE = np.array([not byte & _FILTER and byte & TYPE_MASK in (8, 9, 18) for byte in range(256)])

# Behind a gap one link is not yet believed: 1 GB of noise holds one by chance in 90 cases, and two in a row in 10^13.
_LEAST_LINKS = 2
_SCAN_BYTES = 1 << 19  # fits into the processor's cache
_FIRST_SEARCH_BYTES = 1 << 12  # most damage is short, and where it is dense every search has its price


class Links(NamedTuple):
    """Links in the order of their ends."""

    starts: Offsets
    ends: Offsets


_NO_LINKS = Links(np.empty(0, np.int64), np.empty(0, np.int64))


class Fault(NamedTuple):
    found: str
    expected: str


class Chain:
    """The links of one file from its first tag on, up to `size`: what comes behind that is not looked at."""

    def __init__(self, file: FileBytes, first_tag: int, size: int) -> None:
        self.size = size
        self._file = file
        self._first_tag = first_tag
        # Links whose ends were looked for, and where: damage comes in clusters.
        self._known = _NO_LINKS
        self._known_from = self._known_to = 0

    def link_end(self, start: int) -> int | None:
        """Where the link that starts here ends; None if none does."""
        if start + FRAME_BYTES > self.size:
            return None
        head = bytes(self._file.read(start, start + 4))
        end = start + FRAME_BYTES + int.from_bytes(head[1:4], "big")
        if not IS_TAG_TYPE[head[0]] or end > self.size:
            return None
        size = int.from_bytes(bytes(self._file.read(end - SIZE_BYTES, end)), "big")
        return end if size == end - SIZE_BYTES - start else None

    def fault(self, start: int) -> Fault:
        """Why no link starts here, judged in the order in which the bytes come."""
        left = self.size - start
        head = bytes(self._file.read(start, min(start + 4, self.size)))
        if head and not IS_TAG_TYPE[head[0]]:
            return Fault(f"tag type 0x{head[0]:02x}", "8, 9 or 18, not encrypted")
        if left < FRAME_BYTES:
            return Fault(f"the end of the file after {left} bytes", f"a whole tag of at least {FRAME_BYTES}")
        length = TAG_HEADER_BYTES + int.from_bytes(head[1:4], "big")
        if length + SIZE_BYTES > left:
            return Fault(f"the end of the file after {left} bytes", f"a whole tag of {length + SIZE_BYTES}")
        end = start + length
        size = int.from_bytes(bytes(self._file.read(end, end + SIZE_BYTES)), "big")
        return Fault(f"previous-tag size {size} at {end}", str(length))

    def anchor(self, place: int) -> int | None:
        """Where to go on from a place if it is sure; None if it is not."""
        links = self._links_ending(place, min(place + MAX_LINK_BYTES, self.size + 1), across=place)
        if len(links.ends) != 1:
            return None
        end = int(links.ends[0])
        return end if self._is_believed(end) else None

    def resume_after(self, fault: int) -> int | None:
        """Where tags begin again behind a faulty one: the first sure place after it decides.

        At the link across that place if it begins behind the fault, else at its end.
        """
        place, step = fault + 1, _FIRST_SEARCH_BYTES
        while place <= self.size:
            stop = min(place + step, self.size + 1)
            link = self._first_sure_link(place, stop)
            if link is not None:
                return link[0] if link[0] > fault else link[1]
            place, step = stop, min(step * 8, MAX_LINK_BYTES)
        return None

    def _is_believed(self, end: int) -> bool:
        """Enough links follow each other up to here and on, or the file ends with this one."""
        for _ in range(_LEAST_LINKS - 1):
            if end == self.size:
                return True
            following = self.link_end(end)
            if following is None:
                return False
            end = following
        return True

    def _first_sure_link(self, place: int, stop: int) -> tuple[int, int] | None:
        """The link across the first sure place of a range."""
        starts, ends = self._links_across(place, stop)
        by_start = np.argsort(starts, kind="stable")
        sorted_starts = starts[by_start]
        # The number of links across a place changes only behind where one starts or ends.
        places = np.unique(np.concatenate(([place], sorted_starts + 1, ends + 1)))
        places = places[(places >= place) & (places < stop)]
        begun, ended = np.searchsorted(sorted_starts, places), np.searchsorted(ends, places)
        # Where one link is left, the sum of the numbers of those begun is larger by its number than of those ended.
        begun_sum = np.concatenate(([0], np.cumsum(by_start)))
        ended_sum = np.concatenate(([0], np.cumsum(np.arange(len(ends)))))
        for number in (begun_sum[begun] - ended_sum[ended])[begun - ended == 1].tolist():
            if self._is_believed(int(ends[number])):
                return int(starts[number]), int(ends[number])
        return None

    def _links_across(self, place: int, stop: int) -> Links:
        """Every link across any place of a range."""
        until = min(stop + MAX_LINK_BYTES, self.size + 1)
        if not self._known_from <= place <= self._known_to:
            self._known = _NO_LINKS
            self._known_from = self._known_to = place
        if self._known_to < until:
            # In large steps, because each looks at the 16 MB before it, where such a link may start.
            to = min(max(until, self._known_to + MAX_LINK_BYTES), self.size + 1)
            new = self._links_ending(self._known_to, to)
            kept = np.searchsorted(self._known.ends, place)
            starts, ends = (np.concatenate((old[kept:], more)) for old, more in zip(self._known, new, strict=True))
            self._known = Links(starts, ends)
            self._known_from, self._known_to = place, to
        first, last = np.searchsorted(self._known.ends, (place, until))
        starts, ends = self._known.starts[first:last], self._known.ends[first:last]
        return Links(starts[starts < stop], ends[starts < stop])

    def _links_ending(self, first: int, stop: int, across: int | None = None) -> Links:
        """Links that end in a range: all, or those across a place, and of these no more than show that it is two."""
        base = max(self._first_tag, first - MAX_LINK_BYTES)
        data = self._file.read(base, min(stop, self.size))
        before = None if across is None else across - base
        starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        scratch = np.empty((2, _SCAN_BYTES), np.uint8)
        count = 0
        for at in range(max(first, base + FRAME_BYTES), stop, _SCAN_BYTES):
            found = _scan(data, at - base, min(at + _SCAN_BYTES, stop) - base, before, scratch)
            starts.append(found.starts + base)
            ends.append(found.ends + base)
            count += len(found.ends)
            if across is not None and count > 1:
                break
        return Links(np.concatenate(starts), np.concatenate(ends))


def _scan(data: Bytes, first: int, stop: int, before: int | None, scratch: Bytes) -> Links:
    """The links inside `data` that end in a range of it: by the size before each end, then by the header it names.

    From the ends and not from the headers, because a size begins with 0 or 1: in coded video that leaves one byte of
    50 to 128 to look at, the types of tags one of 21. Where only those that start before a place are asked for, a size
    must also reach back to there: on average that leaves half.
    """
    sizes = data[first - SIZE_BYTES : stop]
    count = stop - first
    high, upper, middle, low = (sizes[shift : count + shift] for shift in range(SIZE_BYTES))
    # Into memory that is there: an array of this size is asked of the system each time, and that took twice as long.
    least = 0 if before is None else min(max(0, first - SIZE_BYTES - before) >> 16, 255)
    reaches = np.greater_equal(upper, least, out=scratch[0, :count].view(np.bool_))
    may_be_size = np.less(high, scratch[0, :count], out=reaches)  # 0, where the next byte reaches back
    is_one = np.equal(high, 1, out=scratch[1, :count].view(np.bool_))
    may_be_size |= np.less(upper, scratch[1, :count], out=is_one)  # 1 and 0: of the largest tags
    if not least and np.count_nonzero(may_be_size) > count >> 3:
        # Zeros, as in padding and in holes: no size. Asked only then, it takes longer than all the rest.
        may_be_size &= (high | upper | middle).astype(bool) | (low >= TAG_HEADER_BYTES)
    ends = np.flatnonzero(may_be_size)
    lengths = numbers_at(sizes, ends)
    ends += first
    starts = ends - lengths
    starts -= SIZE_BYTES
    kept = (starts >= 0) & (lengths >= TAG_HEADER_BYTES)
    if before is not None:
        kept &= starts < before
    starts, ends, lengths = starts[kept], ends[kept], lengths[kept]
    heads = numbers_at(data, starts)  # a byte for the type, three for the size
    kept = IS_TAG_TYPE[heads >> 24] & (heads & MAX_PAYLOAD_BYTES == lengths - TAG_HEADER_BYTES)
    return Links(starts[kept], ends[kept])
