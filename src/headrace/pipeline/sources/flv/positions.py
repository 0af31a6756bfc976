"""Where a file's tags are in the log of their stream, as far as the server's event log tells.

Owns what is taken from events: the position of a file's first frame (`recording_opened`), from which on every tag is
the next message of the log, and where the recorder skipped some (`delivery`), behind which nobody knows. A file that
two streams claim belongs to neither, as in `tables.timeline`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from headrace.pipeline.sources.flv.facts import Flags, Numbers
from headrace.pipeline.sources.flv.listing import Files
from headrace.pipeline.sources.flv.pieces import Place

_EVENT_FILES = "*.jsonl"
# Nearly every line is a sample: these are looked at without being parsed.
_TOLD_BY = (b'"recording_opened"', b'"skipped"')
_READ_BYTES = 4 << 20


class Places:
    """Of all files that the event log of some data directories names."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._claims: dict[str, set[tuple[str, str, str, int]]] = defaultdict(set)
        self._skips: dict[tuple[str, str], list[int]] = defaultdict(list)
        for line in lines:
            if any(word in line for word in _TOLD_BY):
                self._learn(line)

    @classmethod
    def read(cls, data_dirs: str) -> Places:
        """From directories or addresses, separated by commas. A directory without events tells nothing."""
        files = Files([place.strip() for place in data_dirs.split(",")], _EVENT_FILES, is_recursive=True)
        return cls(line for file in files.find(may_be_missing=False) for line in _lines(files, file.path))

    def of(self, path: str) -> Place | None:
        claims = [claim for claim in self._claims[_name(path)] if path == claim[2] or path.endswith(f"/{claim[2]}")]
        if len({claim[:2] for claim in claims}) != 1:
            return None
        node, stream_id, _, first = min(claims)
        return Place(first, min((start for start in self._skips[node, stream_id] if start >= first), default=None))

    def _learn(self, line: bytes) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
            owner = str(event["node"]), str(event["stream_id"])
            if event["type"] == "recording_opened" and isinstance(event["frame_position"], int):
                self._claims[_name(event["path"])].add((*owner, event["path"], event["frame_position"]))
            elif event["type"] == "delivery" and (event["reader"], event["outcome"]) == ("recorder", "skipped"):
                self._skips[owner].append(int(event["start"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # no event: `sources.events` tells of it


class Counter:
    """Positions of the tags of one file, batch by batch from its first on."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._first_frame: int | None = None  # its index among the tags
        self._tags = 0

    def count(self, is_frame: Flags) -> tuple[Numbers, Flags]:
        """Of the next tags: the position of each, and whether it is known."""
        index = np.arange(self._tags, self._tags + len(is_frame))
        self._tags += len(is_frame)
        if self._first_frame is None and is_frame.any():
            self._first_frame = int(index[np.argmax(is_frame)])
        if self._first_frame is None:
            return index, np.zeros(len(index), np.bool_)
        position = index - self._first_frame + self._place.first
        is_known = index >= self._first_frame
        return position, is_known if self._place.stop is None else is_known & (position < self._place.stop)

    def stop(self) -> None:
        """Here is damage: nobody knows how many tags it was."""
        self._place = Place(self._place.first, self._place.first)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _lines(files: Files, path: str) -> Iterator[bytes]:
    file = files.open(path)
    try:
        position, rest = 0, b""
        while True:
            data = bytes(file.read(position, position + _READ_BYTES))
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
            position += len(data)
            if not data:
                yield rest
                return
    finally:
        file.close()
