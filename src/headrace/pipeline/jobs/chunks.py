"""An archive in pieces that are taken in one after the other: so much at a time, in the order of the names.

What is taken in at once is kept by the executors until it is written, and how far a job has come is known after each
piece. Small archives are one piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# Some twenty seconds of work on two cores, where the second or so that every piece costs is not seen.
EVENT_BYTES = 512 << 20
RECORDING_BYTES = 8 << 30
MAX_FILES = 5000  # each is named to Spark


class Chunk(NamedTuple):
    paths: list[str]  # files, or folders of which all files are meant
    files: int
    size_bytes: int


class _File(NamedTuple):
    path: Path
    size_bytes: int


def by_folder(paths: Iterable[Path], max_bytes: int) -> list[Chunk]:
    """Pieces of whole folders, and of files where a folder alone is too large."""
    folders: dict[Path, list[_File]] = {}
    for file in _sized(paths):
        folders.setdefault(file.path.parent, []).append(file)
    pieces: list[Chunk] = []
    for folder in sorted(folders):
        files = folders[folder]
        whole = Chunk([str(folder)], len(files), sum(file.size_bytes for file in files))
        pieces += [whole] if whole.size_bytes <= max_bytes else [_of_file(file) for file in sorted(files)]
    return list(_joined(pieces, max_bytes))


def by_file(paths: Iterable[Path], max_bytes: int) -> list[Chunk]:
    return list(_joined([_of_file(file) for file in sorted(_sized(paths))], max_bytes))


def is_below(paths: Iterable[Path], max_bytes: int) -> bool:
    """Whether these are no more bytes, and no more files than are worth counting. Looks no further than to know."""
    size_bytes = 0
    for number, file in enumerate(_sized(paths)):
        size_bytes += file.size_bytes
        if size_bytes > max_bytes or number >= MAX_FILES:
            return False
    return True


def _sized(paths: Iterable[Path]) -> Iterator[_File]:
    for path in paths:
        try:
            yield _File(path, os.stat(path).st_size)
        except FileNotFoundError:
            continue  # the server made room


def _of_file(file: _File) -> Chunk:
    return Chunk([str(file.path)], 1, file.size_bytes)


def _joined(pieces: list[Chunk], max_bytes: int) -> Iterator[Chunk]:
    """Neighbours together, as many as fit."""
    held: list[Chunk] = []
    held_bytes = 0
    for piece in pieces:
        if held and (held_bytes + piece.size_bytes > max_bytes or len(held) >= MAX_FILES):
            yield _together(held)
            held, held_bytes = [], 0
        held.append(piece)
        held_bytes += piece.size_bytes
    if held:
        yield _together(held)


def _together(pieces: list[Chunk]) -> Chunk:
    return Chunk(
        [path for piece in pieces for path in piece.paths],
        sum(piece.files for piece in pieces),
        sum(piece.size_bytes for piece in pieces),
    )
