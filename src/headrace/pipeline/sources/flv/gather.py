"""The bytes at many places of an array at once: what of a tag lies at its start or before its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.pipeline.sources.flv.files import Bytes

_ITEMS = [np.dtype(f"V{width}") for width in range(32)]  # of so many bytes
_NUMBER = np.dtype(">u4")


def bytes_at(data: Bytes, places: npt.NDArray[np.int64], width: int) -> Bytes:
    """A row of `width` bytes from each place on, zeros where the data ends before. Places are in order.

    As items of a view in which one begins at every byte: a sixth of the time that an index per byte takes.
    """
    items: npt.NDArray[Any] = np.ndarray((max(0, len(data) - width + 1),), _ITEMS[width], data, strides=(1,))
    inside = int(places.searchsorted(len(items)))
    rows: Bytes = items[places[:inside]].view(np.uint8).reshape(inside, width)
    if inside == len(places):
        return rows
    rest = [bytes(data[place : place + width]).ljust(width, b"\0") for place in places[inside:].tolist()]
    return np.concatenate((rows, np.frombuffer(b"".join(rest), np.uint8).reshape(-1, width)))


def numbers_at(data: Bytes, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The number of four bytes at each place, in any order. None of them beyond the data."""
    items: npt.NDArray[Any] = np.ndarray((max(0, len(data) - _NUMBER.itemsize + 1),), _ITEMS[4], data, strides=(1,))
    return items[places].view(_NUMBER).astype(np.int64)


def big_endian(rows: Bytes) -> npt.NDArray[np.int64]:
    """Rows of four bytes as numbers."""
    return np.ascontiguousarray(rows).view(_NUMBER).reshape(-1).astype(np.int64)
