"""Bytes at many places at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.sources.flv.gather import big_endian, bytes_at


@given(st.binary(max_size=40), st.sets(st.integers(0, 39)), st.integers(1, 19))
def test_rows_are_the_bytes_from_each_place_on_and_zeros_behind_the_last(
    data: bytes, places: set[int], width: int
) -> None:
    wanted = sorted(place for place in places if place < len(data))
    rows = bytes_at(np.frombuffer(data, np.uint8), np.array(wanted, np.int64), width)
    assert [bytes(row) for row in rows] == [data[place : place + width].ljust(width, b"\0") for place in wanted]


def test_rows_of_a_window_in_the_middle_of_a_file_are_counted_from_its_start() -> None:
    data = np.frombuffer(bytes(range(100)), np.uint8)[40:60]
    assert bytes_at(data, np.array([0, 19]), 2).tolist() == [[40, 41], [59, 0]]


def test_four_bytes_are_a_number_without_sign() -> None:
    rows = np.array([[0, 0, 1, 2], [255, 255, 255, 254]], np.uint8)
    assert big_endian(rows).tolist() == [0x102, 0xFFFFFFFE]
    assert big_endian(rows[:, (3, 0, 1, 2)]).tolist() == [0x2000001, 0xFEFFFFFF]
