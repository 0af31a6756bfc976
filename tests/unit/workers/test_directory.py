"""The book of who has what: one worker per stream, destinations in turn, and nothing left of a worker that is gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.workers.directory import Directory


def test_the_first_to_claim_a_stream_has_it_until_it_gives_it_back() -> None:
    book = Directory()
    assert book.find("live/a") is None
    assert book.claim("live/a", 1) == 1
    assert book.claim("live/a", 0) == 1
    assert book.claim("live/a", 1) == 1
    assert book.find("live/a") == 1
    book.release("live/a", 0)  # not its own
    assert book.find("live/a") == 1
    book.release("live/a", 1)
    assert book.claim("live/a", 0) == 0


def test_a_destination_is_given_to_the_workers_in_the_order_of_their_asking() -> None:
    book = Directory()
    assert book.acquire("far", 2) is True
    assert book.acquire("far", 0) is False
    assert book.acquire("far", 1) is False
    assert book.acquire("far", 2) is True  # it has it already
    assert book.let_go("far", 1) is None  # it only waited
    assert book.let_go("far", 2) == 0
    assert book.let_go("far", 0) is None
    assert book.acquire("far", 1) is True


def test_a_worker_that_is_gone_has_nothing_and_those_who_waited_for_it_are_next() -> None:
    book = Directory()
    for key in ("live/a", "live/b"):
        book.claim(key, 0)
    book.claim("live/c", 1)
    for name in ("near", "far"):
        book.acquire(name, 0)
    book.acquire("far", 1)
    assert book.drop(0) == [("far", 1)]
    assert [book.find(key) for key in ("live/a", "live/b", "live/c")] == [None, None, 1]
    assert book.acquire("near", 1) is True
    assert len(book) == 1


@given(st.lists(st.tuples(st.sampled_from(["acquire", "let_go", "drop"]), st.integers(0, 3)), max_size=40))
def test_a_destination_never_has_two_workers_and_none_is_forgotten(steps: list[tuple[str, int]]) -> None:
    book = Directory()
    having: int | None = None
    wanting: set[int] = set()
    for act, worker in steps:
        if act == "acquire":
            wanting.add(worker)
            if book.acquire("far", worker):
                assert having in (None, worker)
                having = worker
        else:
            wanting.discard(worker)
            turns = (
                [book.let_go("far", worker)] if act == "let_go" else [following for _, following in book.drop(worker)]
            )
            if having == worker:
                having = None
            for following in turns:
                if following is not None:
                    assert having is None
                    having = following
        assert (having is None) == (not wanting)
