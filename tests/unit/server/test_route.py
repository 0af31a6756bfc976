"""The way from server to server: what a stranger may put into it, and what is a circle."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.server.route import MAX_HOPS, decode_ids, encode_ids, is_circle


def test_ids_come_back_as_they_were_sent() -> None:
    ids = ("0123456789abcdef", "a", "ffffffffffffffff")
    assert decode_ids(encode_ids(ids)) == ids


@pytest.mark.parametrize(
    "value",
    [None, 5.0, {}, "", ",", "abc,", "ABC", "a b", "a\n", "é", "a" * 33, ",".join(["a" * 32] * 20)],
)
def test_what_is_no_list_of_ids_is_none(value: Any) -> None:
    assert decode_ids(value) == ()


@pytest.mark.parametrize(
    ("via", "path", "found"),
    [
        ((), (), False),
        (("b",), (), False),
        (("b", "c"), ("d",), False),
        (("a",), (), True),  # it has been here
        (("a", "b"), (), True),
        (("b",), ("c", "b"), True),  # the stream comes from who asks
        (tuple(f"s{number}" for number in range(MAX_HOPS - 1)), (), False),
        (tuple(f"s{number}" for number in range(MAX_HOPS)), (), True),
    ],
)
def test_a_circle_is_known(via: tuple[str, ...], path: tuple[str, ...], found: bool) -> None:
    assert is_circle("a", via, path) is found
