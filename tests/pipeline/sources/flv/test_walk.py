"""Walking a file: whole, split, damaged, hostile, huge."""

from __future__ import annotations

import os
import random
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.pipeline.sources.flv.chain import Chain
from headrace.pipeline.sources.flv.files import MappedFile
from headrace.pipeline.sources.flv.pieces import Range
from headrace.pipeline.sources.flv.walk import Problem, Tags, walk, whole_tags
from tests.pipeline.flv_files import (
    AUDIO,
    HEADER,
    SCRIPT,
    VIDEO,
    MemoryFile,
    Read,
    encode_tag,
    read_slowly,
    read_split,
    read_whole,
    recording,
    two_chains,
    without_words,
)

# --- generated files: tags in tags, two chains at once, and damage

noise = st.one_of(st.binary(max_size=24), st.sampled_from((b"", bytes(20), b"\x08" * 20, b"\x09\0\0\0" * 4, HEADER)))


def _chain_of(payloads: st.SearchStrategy[bytes], least: int) -> st.SearchStrategy[bytes]:
    tags = st.builds(encode_tag, st.sampled_from((AUDIO, VIDEO, SCRIPT)), payloads)
    return st.lists(tags, min_size=least, max_size=3).map(b"".join)


nested = st.recursive(noise, lambda inner: st.tuples(noise, _chain_of(inner, 1), noise).map(b"".join), max_leaves=6)
interleaved = st.lists(st.tuples(noise, noise), min_size=2, max_size=5).map(two_chains)
any_file = st.lists(st.one_of(_chain_of(nested, 0), interleaved), max_size=4).map(
    lambda chains: HEADER + b"".join(chains)
)
any_damage = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 15), st.binary(max_size=16)), max_size=4)


def _damaged(data: bytes, damage: list[tuple[int, int, bytes]]) -> bytes:
    """Some bytes taken out and others put in, anywhere behind the file header."""
    for place, taken, put in damage:
        at = len(HEADER) + place % (len(data) - len(HEADER) + 1)
        data = data[:at] + put + data[at + taken :]
    return data


def _offsets(tags: list[bytes]) -> list[int]:
    return list(accumulate(map(len, tags[:-1]), initial=len(HEADER))) if tags else []


@settings(deadline=None)
@given(any_file, any_damage, st.sampled_from((1, 32, 1 << 20)))
def test_a_walk_gives_what_a_look_at_every_byte_gives(
    data: bytes, damage: list[tuple[int, int, bytes]], window_bytes: int
) -> None:
    data = _damaged(data, damage)
    assert without_words(read_whole(MemoryFile(data, window_bytes))) == read_slowly(data)


@settings(deadline=None)
@given(any_file, any_damage, st.integers(1, 300), st.sampled_from((1, 32, 1 << 20)))
@example(HEADER + two_chains([(b"", b"")] * 5), [], 1, 32)
def test_any_split_gives_the_tags_and_problems_of_an_unsplit_read(
    data: bytes, damage: list[tuple[int, int, bytes]], max_bytes: int, window_bytes: int
) -> None:
    file = MemoryFile(_damaged(data, damage), window_bytes)
    assert read_split(file, max_bytes) == read_whole(file)


@given(st.binary(max_size=200), st.booleans(), st.integers(1, 100))
def test_any_bytes_are_read_without_an_error(garbage: bytes, is_headed: bool, max_bytes: int) -> None:
    file = MemoryFile(HEADER + garbage if is_headed else garbage)
    assert read_split(file, max_bytes) == read_whole(file)


def test_flipped_bits_give_the_same_in_any_split() -> None:
    source = HEADER + b"".join(recording(40))
    chance = random.Random(4)
    for _ in range(60):
        data = bytearray(source)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file = MemoryFile(bytes(data))
        whole = read_whole(file)
        assert read_split(file, chance.randint(1, len(data))) == whole
        if data[: len(HEADER)] == HEADER:
            assert without_words(whole) == read_slowly(bytes(data))


# --- damage, by hand


@pytest.mark.parametrize("max_bytes", [1 << 20, 40])
def test_a_file_cut_at_every_byte_gives_its_whole_tags_and_one_problem(max_bytes: int) -> None:
    tags = recording(6)
    data = HEADER + b"".join(tags)
    starts = _offsets(tags)
    ends = [start + len(tag) for start, tag in zip(starts, tags, strict=True)]
    for cut in range(len(data) + 1):
        offsets, problems = read_split(MemoryFile(data[:cut]), max_bytes)
        assert offsets == [start for start, end in zip(starts, ends, strict=True) if end <= cut]
        is_clean = cut in ends or cut == len(HEADER)
        assert len(problems) == (0 if is_clean else 1), cut
        assert all(problem.resumed_at is None for problem in problems)


def test_a_tag_whose_size_was_flipped_is_one_problem_and_the_rest_is_read() -> None:
    tags = [encode_tag(AUDIO, b"\xaf\x01" + bytes((number,)) * 8) for number in range(6)]  # 25 bytes each
    data = bytearray(HEADER + b"".join(tags))
    data[13 + 2 * 25 + 3] ^= 1  # 10 becomes 11: the size is looked for one byte late, 00 00 15 08
    assert read_whole(MemoryFile(bytes(data))) == Read(
        [13, 38, 88, 113, 138], [Problem(63, "previous-tag size 5384 at 85", "22", resumed_at=88)]
    )


def test_a_second_file_behind_the_first_is_read_after_a_problem() -> None:
    tags = recording(5)
    one = HEADER + b"".join(tags)
    offsets, problems = read_whole(MemoryFile(one + one))
    assert offsets == _offsets(tags) + [len(one) + offset for offset in _offsets(tags)]
    assert problems == [Problem(len(one), "tag type 0x46", "8, 9 or 18, not encrypted", len(one) + len(HEADER))]


def test_a_claimed_size_beyond_the_end_says_how_much_is_there() -> None:
    data = HEADER + encode_tag(VIDEO, b"\x17") + bytes.fromhex("09 ffffff 000000 00 000000 17 01")
    assert read_whole(MemoryFile(data)) == Read(
        [13], [Problem(29, "the end of the file after 13 bytes", "a whole tag of at least 15")]
    )
    assert read_whole(MemoryFile(data + bytes(10))).problems == [
        Problem(29, "the end of the file after 23 bytes", "a whole tag of 16777230")
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", Problem(0, "a file of 0 bytes", "a file header of 13")),
        (HEADER[:8], Problem(0, "a file of 8 bytes", "a file header of 13")),
        (HEADER[:11], Problem(0, "a file of 11 bytes", "a file header of 13")),
        (b"\0\0\0\x18ftypmp42" + bytes(50), Problem(0, "signature b'\\x00\\x00\\x00'", "b'FLV'")),
        (b"FLW" + HEADER[3:] + encode_tag(AUDIO, b"\xaf\x01"), Problem(0, "signature b'FLW'", "b'FLV'")),
    ],
    ids=["empty", "a cut header", "a cut first size", "an MP4 file", "another signature"],
)
def test_what_is_no_flv_file_is_one_problem_in_any_split(data: bytes, problem: Problem) -> None:
    assert read_whole(MemoryFile(data)) == read_split(MemoryFile(data), 5) == Read([], [problem])


def test_a_wrong_data_offset_costs_nothing_but_a_problem() -> None:
    tags = recording(3)
    data = HEADER[:5] + b"\x80\0\0\x09" + HEADER[9:] + b"".join(tags)
    file = MemoryFile(data)
    assert read_whole(file) == Read(_offsets(tags), [Problem(5, "data offset 2147483657", "9..1024", 13)])
    assert read_split(file, 50) == read_whole(file)


def test_an_empty_recording_is_no_problem() -> None:
    assert read_whole(MemoryFile(HEADER)) == Read([], [])


# --- hostile files


@pytest.mark.parametrize("max_bytes", [100, 1000, 4096, 30_000])
def test_an_flv_file_inside_a_payload_is_never_read_wherever_a_split_falls(max_bytes: int) -> None:
    inside = HEADER + b"".join(recording(200))
    tags = [*recording(3), encode_tag(VIDEO, b"\x27\x01\0\0\0" + inside), *recording(3)]
    file = MemoryFile(HEADER + b"".join(tags))
    assert read_split(file, max_bytes) == read_whole(file) == Read(_offsets(tags), [])


@pytest.mark.parametrize("max_bytes", [64, 500, 5000])
def test_a_second_chain_through_the_whole_file_is_never_taken_for_the_first(max_bytes: int) -> None:
    data = HEADER + two_chains([(bytes(number % 9), b"\x55" * (number % 5)) for number in range(300)])
    file = MemoryFile(data)
    whole = read_whole(file)
    assert whole.problems == []
    assert len(whole.offsets) == 300
    assert read_split(file, max_bytes) == whole


def test_a_piece_that_is_not_sure_of_its_place_comes_from_one_before_it_and_keeps_that_to_itself() -> None:
    tags = [*recording(3), encode_tag(VIDEO, b"".join(recording(60))), *recording(3)]
    data = HEADER + b"".join(tags)
    before = len(recording(3)) + 1
    inside = _offsets(tags)[before - 1] + 500
    first, second = Range(0, inside, len(data)), Range(inside, len(data), len(data), is_exact=False, tags_before=None)
    assert Chain(MemoryFile(data), len(HEADER), len(data)).anchor(inside) is None
    for part, expected in ((first, _offsets(tags)[:before]), (second, _offsets(tags)[before:])):
        found = [one for one in walk(MemoryFile(data), part) if isinstance(one, Tags)]
        assert [one.base + int(start) for one in found for start in one.starts] == expected
        assert found[0].first_index == part.tags_before


def test_a_piece_that_begins_behind_damage_does_not_tell_of_it_again() -> None:
    tags = recording(30)
    data = bytearray(HEADER + b"".join(tags))
    broken, unsure = _offsets(tags)[4], _offsets(tags)[5]
    data[broken] = 0
    file = MemoryFile(bytes(data))
    assert Chain(file, len(HEADER), len(data)).anchor(unsure) is None  # no link stretches across it
    second = Range(unsure, len(data), len(data), is_exact=False, tags_before=None)
    assert read_whole(file).problems[0].resumed_at == unsure
    assert [one.byte_offset for one in walk(file, second) if isinstance(one, Problem)] == []
    assert sum(len(one.starts) for one in walk(file, second) if isinstance(one, Tags)) == len(tags) - 5


# --- large files


@pytest.fixture(scope="module")
def sparse_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """4.4 GB of tags of 16 MB, nearly all of it holes."""
    path = tmp_path_factory.mktemp("sparse") / "long.flv"
    size, starts = 0xFFFFFF, []
    with path.open("wb") as file:
        file.write(HEADER)
        for _ in range(264):
            starts.append(file.tell())
            file.write(bytes((VIDEO,)) + size.to_bytes(3, "big") + bytes(7) + b"\x27\x01")
            file.seek(size - 2, os.SEEK_CUR)
            file.write((size + 11).to_bytes(4, "big"))
    return path, starts


def test_offsets_beyond_4_gb_are_right_in_any_split(sparse_file: tuple[Path, list[int]]) -> None:
    path, starts = sparse_file
    assert starts[-1] > 1 << 32
    file = MappedFile(os.open(path, os.O_RDONLY))
    assert read_whole(file) == Read(starts, [])
    assert read_split(file, 1 << 30) == Read(starts, [])


def test_damage_beyond_4_gb_is_found_and_passed(sparse_file: tuple[Path, list[int]]) -> None:
    path, starts = sparse_file
    with path.open("r+b") as file:
        file.seek(starts[-4])
        file.write(b"\0")
    try:
        offsets, problems = read_whole(MappedFile(os.open(path, os.O_RDONLY)))
    finally:
        with path.open("r+b") as file:
            file.seek(starts[-4])
            file.write(bytes((VIDEO,)))
    assert offsets == starts[:-4] + starts[-3:]
    assert [(one.byte_offset, one.resumed_at) for one in problems] == [(starts[-4], starts[-3])]


def test_a_file_that_became_shorter_since_it_was_planned_is_a_problem() -> None:
    tags = recording(2)
    data = HEADER + b"".join(tags)
    planned = Range.whole(len(data) + 100)
    *found, problem = walk(MemoryFile(data), planned)
    assert sum(len(one.starts) for one in found if isinstance(one, Tags)) == len(tags)
    assert problem == Problem(len(data), f"a file of {len(data)} bytes", f"the {len(data) + 100} that it had")


# --- files that grow


@pytest.mark.parametrize("window_bytes", [1, 1 << 20])
def test_a_growing_file_is_read_up_to_its_last_whole_tag(window_bytes: int) -> None:
    tags = recording(4)
    data = HEADER + b"".join(tags)
    ends = [start + len(tag) for start, tag in zip(_offsets(tags), tags, strict=True)]
    for there in range(len(data) + 1):
        count = sum(end <= there for end in ends)
        expected = (ends[count - 1], count) if count else (0, 0)
        assert whole_tags(MemoryFile(data[:there], window_bytes), 0, there) == expected


def test_a_growing_file_is_read_on_from_where_it_was_left_and_no_further_than_allowed() -> None:
    tags = recording(4)
    data = HEADER + b"".join(tags)
    starts = _offsets(tags)
    file = MemoryFile(data)
    assert whole_tags(file, starts[3], starts[6]) == (starts[6], 3)
    assert whole_tags(file, starts[3], starts[6] + 5) == (starts[6], 3)
    assert whole_tags(file, starts[3], starts[3] + 1) == (starts[4], 1)  # one at least


def test_a_growing_file_with_damage_waits_at_it() -> None:
    tags = recording(4)
    starts = _offsets(tags)
    data = bytearray(HEADER + b"".join(tags))
    data[starts[5]] = 0
    assert whole_tags(MemoryFile(bytes(data)), 0, len(data)) == (starts[5], 5)
    assert whole_tags(MemoryFile(b"FLX" + bytes(data[3:])), 0, len(data)) == (0, 0)
