"""FLV files for the tests of the source, written out by hand from FLV 10.1, Annex E, and a slow reader of them.

`read_slowly` follows the rule of `walk` and `chain` word by word, looking at every byte: what it gives is what the fast
reader must give, whole or split. It holds for small files only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headrace.pipeline.sources.flv.files import Bytes, FileBytes
from headrace.pipeline.sources.flv.pieces import Range, split
from headrace.pipeline.sources.flv.walk import Problem, Tags, walk

AUDIO, VIDEO, SCRIPT = 8, 9, 18
HEADER = bytes.fromhex("464c56 01 05 00000009 00000000")

METADATA = bytes.fromhex("02 000a 6f6e4d65746144617461 08 00000000 000009")
AVC_CONFIG = bytes.fromhex("17 00 000000 01 64000b ff e1 0000 01 0000")
AVC_KEYFRAME = bytes.fromhex("17 01 000050 00000002 6588")  # composition time 80 ms
AVC_FRAME = bytes.fromhex("27 01 000000 00000002 419a")
AAC_CONFIG = bytes.fromhex("af 00 1210")
AAC_FRAME = bytes.fromhex("af 01 2110")


class MemoryFile:
    """Bytes as a file. A small window makes a small file have many."""

    def __init__(self, data: bytes, window_bytes: int = 1 << 20) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self.size = len(data)
        self.window_bytes = window_bytes

    def read(self, start: int, stop: int) -> Bytes:
        return self._data[start:stop]

    def close(self) -> None:
        pass


class Read(NamedTuple):
    offsets: list[int]
    problems: list[Problem]


def encode_tag(type_id: int, payload: bytes, timestamp_ms: int = 0) -> bytes:
    low, high = (timestamp_ms & 0xFFFFFF).to_bytes(3, "big"), (timestamp_ms >> 24).to_bytes(1, "big")
    size = len(payload)
    return (
        bytes((type_id,)) + size.to_bytes(3, "big") + low + high + bytes(3) + payload + (11 + size).to_bytes(4, "big")
    )


def recording(frames: int = 20, start_ms: int = 0) -> list[bytes]:
    """Tags as our recorder writes them: metadata, headers, then a keyframe in ten, with sound. 50 ms a frame."""
    tags = [
        encode_tag(SCRIPT, METADATA),
        encode_tag(VIDEO, AVC_CONFIG, start_ms),
        encode_tag(AUDIO, AAC_CONFIG, start_ms),
    ]
    for number in range(frames):
        at_ms, body = start_ms + 50 * number, number.to_bytes(4, "big") * (number % 7 + 1)
        tags.append(encode_tag(VIDEO, (AVC_FRAME if number % 10 else AVC_KEYFRAME) + body, at_ms))
        tags.append(encode_tag(AUDIO, AAC_FRAME + body, at_ms))
    return tags


def write_flv(path: Path, tags: Sequence[bytes]) -> Path:
    path.write_bytes(HEADER + b"".join(tags))
    return path


def two_chains(gaps: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Tags whose payloads hold, between two gaps each, the joints of a second chain that steps over their headers.

    Both chains fit from end to end: nothing but the way from the file's first byte tells which is the real one.
    """
    out = bytearray()
    hidden = 0
    for number, (before, behind) in enumerate(gaps):
        is_first, is_last = number == 0, number == len(gaps) - 1
        size = len(before) + (0 if is_first else 4) + (0 if is_last else 11) + len(behind)
        out += bytes((VIDEO,)) + size.to_bytes(3, "big") + bytes(7) + before
        if not is_first:
            hidden_size = len(out) - hidden - 11
            out[hidden + 1 : hidden + 4] = hidden_size.to_bytes(3, "big")
            out += (hidden_size + 11).to_bytes(4, "big")
        if not is_last:
            hidden = len(out)
            out += bytes((AUDIO,)) + bytes(10)
        out += behind + (size + 11).to_bytes(4, "big")
    return bytes(out)


def read_whole(file: FileBytes) -> Read:
    return _gather([(file, Range.whole(file.size))])


def read_split(file: FileBytes, max_bytes: int) -> Read:
    return _gather([(file, piece.part) for piece in split("any", 0, file.size, max_bytes)])


def read_slowly(data: bytes) -> Read:
    """Offsets of tags, and problems without their words. The file header must be whole."""
    size = len(data)
    links: dict[int, int] = {}
    for start in range(len(HEADER), size - 14):
        end = start + 15 + int.from_bytes(data[start + 1 : start + 4], "big")
        is_tag = not data[start] & 0x20 and data[start] & 0x1F in (AUDIO, VIDEO, SCRIPT)
        if is_tag and end <= size and int.from_bytes(data[end - 4 : end], "big") == end - start - 4:
            links[start] = end

    def sure_link(place: int) -> tuple[int, int] | None:
        across = [(start, end) for start, end in links.items() if start < place <= end]
        is_believed = len(across) == 1 and (across[0][1] in links or across[0][1] == size)
        return across[0] if is_believed else None

    offsets: list[int] = []
    problems: list[Problem] = []
    position: int | None = len(HEADER)
    while position is not None and position < size:
        if position in links:
            offsets.append(position)
            position = links[position]
            continue
        fault = position
        found = next((link for link in map(sure_link, range(fault + 1, size + 1)) if link), None)
        position = None if found is None else found[0] if found[0] > fault else found[1]
        problems.append(Problem(fault, "", "", position))
    return Read(offsets, problems)


def without_words(read: Read) -> Read:
    return Read(read.offsets, [Problem(one.byte_offset, "", "", one.resumed_at) for one in read.problems])


def _gather(parts: Sequence[tuple[FileBytes, Range]]) -> Read:
    read = Read([], [])
    for file, part in parts:
        for found in walk(file, part):
            if isinstance(found, Tags):
                read.offsets.extend((found.starts + found.base).tolist())
            else:
                read.problems.append(found)
    return read
