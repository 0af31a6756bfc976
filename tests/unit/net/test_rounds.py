"""Rounds: publishers are read whole and in order, by the clock where there are many, and an end is told once."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from headrace.net.rounds import Rounds
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops, run
from tests.helpers.sockets import reset, tcp_pair
from tests.helpers.waiting import eventually_async, turns

pytestmark = pytest.mark.skipif(not Rounds.is_possible(), reason="this system has no epoll sets")


class Peer:
    """One publisher's two ends, and what was read of it."""

    def __init__(self, rounds: Rounds) -> None:
        self.ours, self.far = tcp_pair()
        self.ours.setblocking(False)
        self.received = bytearray()
        self.ends: list[str] = []
        self.on_received: Callable[[], None] = lambda: None
        self._rounds = rounds
        rounds.add(self.ours, self)

    def round_received(self, data: memoryview) -> None:
        self.received += data
        self.on_received()

    def round_ended(self, error: OSError | None) -> None:
        self.end("end" if error is None else type(error).__name__)

    def end(self, how: str) -> None:
        self.ends.append(how)
        self._rounds.remove(self.ours)
        self.ours.close()


def with_peers(
    loop_factory: LoopFactory,
    test: Callable[[Rounds, list[Peer]], Coroutine[Any, Any, None]],
    *,
    count: int = 3,
    max_pace_s: float = 0.02,
) -> None:
    async def main() -> None:
        rounds = Rounds(asyncio.get_running_loop(), max_pace_s=max_pace_s)
        peers = [Peer(rounds) for _ in range(count)]
        try:
            await test(rounds, peers)
        finally:
            for peer in peers:
                if not peer.ends:
                    peer.end("test over")
                peer.far.close()

    run(loop_factory, main)


@on_both_loops
def test_each_publisher_is_read_whole_and_in_order(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        sent = [bytes((number,)) * 700_000 + b"." for number in range(3)]
        loop = asyncio.get_running_loop()
        for peer in peers:
            peer.far.setblocking(False)
        await asyncio.gather(*(loop.sock_sendall(peer.far, data) for peer, data in zip(peers, sent, strict=True)))
        await eventually_async(lambda: all(peer.received.endswith(b".") for peer in peers), "everything to be read")
        assert [bytes(peer.received) for peer in peers] == sent

    with_peers(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize(("leave", "how"), [(socket.socket.close, "end"), (reset, "ConnectionResetError")])
def test_an_end_is_told_once_and_after_what_came_before_it(
    loop_factory: LoopFactory, leave: Callable[[socket.socket], None], how: str
) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        peers[0].far.sendall(b"last words")
        await eventually_async(lambda: peers[0].received, "the words")
        leave(peers[0].far)
        await eventually_async(lambda: peers[0].ends, "the end")
        peers[1].far.sendall(b"here")
        await eventually_async(lambda: peers[1].received, "the others to go on")
        assert (bytes(peers[0].received), peers[0].ends) == (b"last words", [how])

    with_peers(loop_factory, test)


@on_both_loops
def test_one_that_resets_right_after_its_last_bytes_is_read_and_told_of(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        peers[0].far.sendall(b"last words")
        reset(peers[0].far)  # both are there before the loop looks
        await eventually_async(lambda: peers[0].ends, "the end")
        assert (bytes(peers[0].received), peers[0].ends) == (b"last words", ["ConnectionResetError"])

    with_peers(loop_factory, test)


@on_both_loops
def test_one_that_rests_while_many_come_is_read_on_by_the_clock(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        rounds.rest(peers[0].ours, time.monotonic() + 0.3)
        peers[0].far.sendall(b"rested")
        await chatter(rounds, peers[1:], lambda: rounds.pace_s, "rounds by the clock")
        await chatter(rounds, peers[1:], lambda: peers[0].received, "the one that rested")
        assert peers[0].received == b"rested"
        await eventually_async(lambda: not rounds.pace_s, "the clock to be left")
        peers[0].far.sendall(b" and read")
        await eventually_async(lambda: peers[0].received == b"rested and read", "it to be read as ever")

    with_peers(loop_factory, test, count=20)


def test_one_that_is_removed_on_account_of_another_is_not_read_any_more() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        first, second, _ = peers
        first.on_received = partial(second.end, "left")
        second.on_received = partial(first.end, "left")
        for peer in (first, second):
            peer.far.sendall(b"x")
        await eventually_async(lambda: first.received or second.received, "one of them")
        await turns()
        assert sorted([bytes(first.received), bytes(second.received)]) == [b"", b"x"]

    with_peers(LOOP_FACTORIES["asyncio"], test)


def has_more(peer: Peer, than: int) -> bool:
    return len(peer.received) > than


async def chatter(rounds: Rounds, peers: list[Peer], until: Callable[[], object], what: str) -> None:
    """All of them send without a pause, as dozens of publishers do."""

    def spoke() -> object:
        for peer in peers:
            peer.far.sendall(b"word ")
        return until()

    await eventually_async(spoke, what)


@on_both_loops
def test_many_reads_make_rounds_by_the_clock_until_there_are_few_again(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        assert rounds.pace_s == 0
        await chatter(rounds, peers, lambda: rounds.pace_s, "rounds by the clock")
        assert rounds.pace_s <= 0.02
        await eventually_async(lambda: not rounds.pace_s, "the clock to be left")
        for peer in peers:
            before = len(peer.received)
            peer.far.sendall(b"word ")
            await eventually_async(partial(has_more, peer, before), "its word")
            assert bytes(peer.received) == b"word " * (len(peer.received) // 5)

    with_peers(loop_factory, test, count=20)


def test_without_a_pace_nothing_ever_waits_for_the_clock() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        await chatter(rounds, peers, lambda: len(peers[0].received) > 2000, "400 words")
        assert rounds.pace_s == 0

    with_peers(LOOP_FACTORIES["asyncio"], test, count=20, max_pace_s=0.0)


def test_the_last_one_to_leave_ends_the_clock() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        await chatter(rounds, peers, lambda: rounds.pace_s, "rounds by the clock")
        for peer in peers:
            peer.end("left")
        assert rounds.pace_s == 0
        peers[0].far.close()
        peers[0] = Peer(rounds)
        peers[0].far.sendall(b"again")
        await eventually_async(lambda: peers[0].received == b"again", "a new one")

    with_peers(LOOP_FACTORIES["asyncio"], test, count=20)


@on_both_loops
def test_one_that_rests_is_read_whole_when_its_time_is_over_and_the_others_as_ever(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        began_s = time.monotonic()
        rounds.rest(peers[0].ours, began_s + 0.3)
        rounds.rest(peers[0].ours, began_s + 60)  # it rests already
        for word in (b"one ", b"two ", b"three"):
            peers[0].far.sendall(word)
            peers[1].far.sendall(word)
            await eventually_async(partial(peers[1].received.endswith, word), "the one that does not rest")
        if time.monotonic() < began_s + 0.25:
            assert not peers[0].received
        await eventually_async(lambda: peers[0].received, "the one that rests")
        assert time.monotonic() > began_s + 0.25
        assert peers[0].received == b"one two three"
        peers[0].far.sendall(b" four")
        await eventually_async(lambda: peers[0].received.endswith(b" four"), "what comes after its rest")

    with_peers(loop_factory, test)


def test_a_connection_that_breaks_while_it_rests_is_told_at_once() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        rounds.rest(peers[0].ours, time.monotonic() + 60)
        reset(peers[0].far)
        await eventually_async(lambda: peers[0].ends, "the end")
        assert peers[0].ends == ["ConnectionResetError"]

    with_peers(LOOP_FACTORIES["asyncio"], test)


def test_one_that_leaves_while_it_rests_is_forgotten() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        rounds.rest(peers[0].ours, time.monotonic() + 0.05)
        peers[0].end("left")
        peers[0].far.close()
        peers[0] = Peer(rounds)  # the system may give it the same number
        peers[0].far.sendall(b"again")
        await eventually_async(lambda: peers[0].received == b"again", "a new one")
        await asyncio.sleep(0.1)
        assert not peers[0].ends

    with_peers(LOOP_FACTORIES["asyncio"], test)


def test_what_is_more_than_the_buffer_does_not_wait_for_the_next_round() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        rounds._buffer = memoryview(bytearray(1000))

        def rest() -> None:
            rounds.rest(peers[0].ours, time.monotonic() + 60)

        peers[0].on_received = rest
        rounds.rest(peers[0].ours, time.monotonic() + 0.05)
        peers[0].far.sendall(bytes(range(100)) * 100)
        await eventually_async(lambda: peers[0].received, "what it sent")
        assert peers[0].received == bytes(range(100)) * 100

    with_peers(LOOP_FACTORIES["asyncio"], test)


@on_both_loops
def test_who_is_expected_is_prepared_for_shortly_before(loop_factory: LoopFactory) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        prepared_s: list[float] = []
        at_s = time.monotonic() + 0.05
        assert rounds.expect(peers[0].ours, at_s, lambda: prepared_s.append(time.monotonic()))
        await eventually_async(lambda: prepared_s, "the preparation")
        assert prepared_s[0] > at_s - 0.01
        peers[0].far.sendall(b"here")
        await eventually_async(lambda: peers[0].received == b"here", "what was expected")

    with_peers(loop_factory, test)


@pytest.mark.parametrize(("publishers", "is_prepared_for"), [(1, True), (3, True), (4, False)])
def test_where_many_publish_nobody_is_prepared_for(publishers: int, is_prepared_for: bool) -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        assert rounds.expect(peers[0].ours, time.monotonic() + 60, lambda: None) is is_prepared_for

    with_peers(LOOP_FACTORIES["asyncio"], test, count=publishers)


def test_nothing_is_prepared_for_one_that_is_due_now_or_is_not_read_as_it_comes() -> None:
    async def test(rounds: Rounds, peers: list[Peer]) -> None:
        prepared: list[str] = []
        assert not rounds.expect(peers[0].ours, time.monotonic() + 0.001, lambda: prepared.append("due now"))
        rounds.rest(peers[1].ours, time.monotonic() + 60)
        assert not rounds.expect(peers[1].ours, time.monotonic() + 0.02, lambda: prepared.append("rests"))
        done: list[str] = []
        rounds.expect(peers[0].ours, time.monotonic() + 0.1, lambda: done.append("later than both"))
        await eventually_async(lambda: done, "the last")
        assert not prepared

    with_peers(LOOP_FACTORIES["asyncio"], test)
