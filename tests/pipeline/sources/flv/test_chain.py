"""Links and sure places, on bytes small enough to count."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.pipeline.sources.flv.chain import Chain, Fault
from tests.pipeline.flv_files import AUDIO, HEADER, VIDEO, MemoryFile, encode_tag, two_chains

FIRST = len(HEADER)


def chain_of(data: bytes) -> Chain:
    return Chain(MemoryFile(HEADER + data), FIRST, FIRST + len(data))


def test_a_link_is_a_header_and_a_size_that_agree() -> None:
    tag = encode_tag(AUDIO, b"\xaf\x01")
    assert chain_of(tag).link_end(FIRST) == FIRST + 17
    assert chain_of(tag).link_end(FIRST + 1) is None
    assert chain_of(tag[:-1]).link_end(FIRST) is None
    assert chain_of(tag[:-1] + b"\x0c").link_end(FIRST) is None


def test_a_largest_tag_is_a_link() -> None:
    tag = encode_tag(VIDEO, bytes(0xFFFFFF))
    chain = chain_of(tag + encode_tag(AUDIO, b""))
    assert chain.link_end(FIRST) == FIRST + len(tag)
    assert chain.anchor(FIRST + 1) == chain.anchor(FIRST + len(tag)) == FIRST + len(tag)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x2a" + bytes(20), Fault("tag type 0x2a", "8, 9 or 18, not encrypted")),
        (b"\x08\0\0", Fault("the end of the file after 3 bytes", "a whole tag of at least 15")),
        (b"\x08\0\0\x09" + bytes(16), Fault("the end of the file after 20 bytes", "a whole tag of 24")),
        (b"\x08\0\0\x01" + bytes(12), Fault("previous-tag size 0 at 25", "12")),
    ],
    ids=["encrypted", "cut header", "cut payload", "another size"],
)
def test_a_fault_says_what_is_there_and_what_should_be(data: bytes, fault: Fault) -> None:
    assert chain_of(data).fault(FIRST) == fault


def test_every_place_in_an_honest_file_is_sure_and_leads_to_the_next_tag() -> None:
    tags = [encode_tag(AUDIO, bytes(number)) for number in range(5)]
    chain = chain_of(b"".join(tags))
    ends = FIRST + np.cumsum([len(tag) for tag in tags])
    for place in range(FIRST + 1, chain.size + 1):
        assert chain.anchor(place) == ends[np.searchsorted(ends, place)]


def test_a_place_is_as_sure_far_from_the_ends_of_long_tags() -> None:
    noise = np.random.default_rng(5)
    sizes = (300_000, 70_000, 0xFFFFFF, 65_536, 65_535, 1_500_000, 40, 0)
    tags = [encode_tag(VIDEO, noise.integers(0, 256, size, np.uint8).tobytes()) for size in sizes]
    chain = chain_of(b"".join(tags))
    ends = FIRST + np.cumsum([len(tag) for tag in tags])
    for end, before in zip(ends.tolist(), [FIRST, *ends.tolist()], strict=False):
        for place in (before + 1, (before + end) // 2, end - 65_540, end - 65_536, end - 1, end):
            if before < place:
                assert chain.anchor(place) == end


def test_a_link_inside_a_long_one_makes_places_unsure_however_far_its_end_is() -> None:
    inner = encode_tag(AUDIO, bytes(200_000))
    outer = encode_tag(VIDEO, bytes(1000) + inner + bytes(900_000))
    chain = chain_of(outer + encode_tag(AUDIO, b"") * 2)
    begin = FIRST + 11 + 1000
    assert chain.anchor(begin) == chain.anchor(begin + len(inner) + 1) == FIRST + len(outer)
    assert chain.anchor(begin + 1) is chain.anchor(begin + 100) is chain.anchor(begin + len(inner)) is None


def test_the_first_tag_is_crossed_by_nothing() -> None:
    assert chain_of(encode_tag(AUDIO, b"") * 3).anchor(FIRST) is None


def test_a_place_that_two_links_cross_is_not_sure() -> None:
    inner = encode_tag(AUDIO, bytes(10)) * 2
    chain = chain_of(encode_tag(VIDEO, b"\x27" + inner) + encode_tag(AUDIO, b""))
    begin = FIRST + 12
    assert chain.anchor(begin + 3) is None
    # Exactly where one inner tag begins, only the outer one stretches across; between two, the inner one ends there.
    assert chain.anchor(begin) == FIRST + 11 + 1 + len(inner) + 4
    assert chain.anchor(begin + 25) is None


def test_two_chains_leave_no_place_sure_between_their_ends() -> None:
    gaps = [(bytes(3), bytes(2))] * 6
    data = two_chains(gaps)
    chain = chain_of(data)
    hidden_first, hidden_last = FIRST + 11 + 3, FIRST + len(data) - 2 - 4
    assert all(chain.anchor(place) is None for place in range(hidden_first + 1, hidden_last + 1))
    assert chain.anchor(hidden_last + 1) == chain.size


def test_one_link_alone_is_not_believed_but_two_are_and_so_is_the_last() -> None:
    tag = encode_tag(AUDIO, b"\xaf\x01")
    rubbish = b"\xff" * 9
    assert chain_of(rubbish + tag + rubbish).resume_after(FIRST) is None
    assert chain_of(rubbish + tag + tag + rubbish).resume_after(FIRST) == FIRST + 9
    assert chain_of(rubbish + tag).resume_after(FIRST) == FIRST + 9


def test_tags_are_found_again_behind_more_noise_than_a_search_looks_at_once() -> None:
    noise = np.random.default_rng(7).integers(0, 256, 3 << 20, np.uint8).tobytes()
    chain = chain_of(noise + encode_tag(AUDIO, b"\xaf\x01") * 3)
    assert chain.resume_after(FIRST) == FIRST + len(noise)


def test_a_search_that_begins_again_elsewhere_does_not_remember_too_much() -> None:
    tag, rubbish = encode_tag(AUDIO, b"\xaf\x01"), b"\xff" * 30
    chain = chain_of((rubbish + tag * 2) * 3)
    places = [chain.resume_after(FIRST + number * 64) for number in (2, 0, 1, 0)]
    assert places == [FIRST + number * 64 + 30 for number in (2, 0, 1, 0)]
