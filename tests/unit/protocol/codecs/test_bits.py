"""The bit reader: codes from H.264 Table 9-2 and 9-3, emulation prevention from 7.3.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerError
from headrace.protocol.codecs.bits import MAX_PARAMETER_SET_BYTES, BitReader, unescape
from tests.unit.protocol.codecs.clips import bits


def test_fields_are_read_most_significant_bit_first_across_bytes() -> None:
    reader = BitReader(bytes([0b1010_0111, 0b1100_0001, 0xFF]))
    assert [reader.read(3), reader.flag(), reader.read(7), reader.read(0), reader.read(13)] == [
        0b101,
        False,
        0b0111_110,
        0,
        0b0_0001_1111_1111,
    ]
    assert reader.bits_left == 0


@pytest.mark.parametrize(
    ("code", "unsigned", "signed"),
    [("1", 0, 0), ("010", 1, 1), ("011", 2, -1), ("00100", 3, 2), ("00101", 4, -2), ("0001000", 7, 4)],
)
def test_exp_golomb_codes_of_the_specifications_table(code: str, unsigned: int, signed: int) -> None:
    assert BitReader(bits(code)).ue() == unsigned
    assert BitReader(bits(code)).se() == signed


def test_the_largest_exp_golomb_code_is_read_and_the_next_is_refused() -> None:
    assert BitReader(bits("0" * 31 + "1" * 32)).ue() == 2**32 - 2
    assert BitReader(bits("0" * 32 + "1" + "0" * 32)).bits_left == 72
    with pytest.raises(PeerError, match="4294967295"):
        BitReader(bits("0" * 32 + "1" + "0" * 32)).ue()
    with pytest.raises(PeerError, match="leading zeros"):
        BitReader(bytes(64)).ue()


def test_a_value_above_the_callers_maximum_is_refused() -> None:
    with pytest.raises(PeerError, match=r"value 7, expected 0\.\.6"):
        BitReader(bits("0001000")).ue(6)


def test_reading_and_skipping_past_the_end_is_the_peers_error() -> None:
    reader = BitReader(b"\xff")
    reader.skip(6)
    with pytest.raises(PeerError, match="3 bits wanted at bit 6, the data ends at bit 8"):
        reader.read(3)
    with pytest.raises(PeerError, match="3 bits to skip at bit 6"):
        reader.skip(3)
    assert reader.read(2) == 3


def test_align_moves_to_the_next_byte_and_stays_on_a_boundary() -> None:
    reader = BitReader(b"\xff\x01\x02")
    reader.align()
    reader.skip(1)
    reader.align()
    reader.align()
    assert reader.read(8) == 1


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        ("0000030001", "00000001"),
        ("000003000003", "00000000"),
        ("00000303", "000003"),
        ("000300", "000300"),
        ("0000030003", "00000003"),
    ],
)
def test_emulation_prevention_bytes_are_removed(escaped: str, plain: str) -> None:
    assert unescape(bytes.fromhex(escaped)) == bytes.fromhex(plain)


def test_a_huge_parameter_set_is_cut_before_it_is_copied() -> None:
    assert len(unescape(bytes([1]) * 1_000_000)) == MAX_PARAMETER_SET_BYTES


@given(st.binary(max_size=64), st.lists(st.integers(0, 70), max_size=20))
def test_any_reads_of_any_bytes_agree_with_the_bits_as_text(data: bytes, widths: list[int]) -> None:
    reader = BitReader(data)
    text = "".join(f"{byte:08b}" for byte in data)
    for width in widths:
        if width > len(text):
            with pytest.raises(PeerError):
                reader.read(width)
            return
        assert reader.read(width) == int(text[:width] or "0", 2)
        text = text[width:]
