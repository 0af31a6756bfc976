"""The link: bytes arrive whole and in order, a peer that does not read is noticed, and an end is told once."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.net import link as link_module
from headrace.net.link import MAX_REPLY_BYTES, RECEIVE_BYTES, Link, tune
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.sockets import (
    descriptor_of,
    is_at_end,
    open_descriptors,
    read_available,
    read_exactly,
    reset,
    tcp_pair,
    unix_pair,
)
from tests.helpers.waiting import DEADLINE_S, eventually_async, turns

MakePair = Callable[[], tuple[socket.socket, socket.socket]]
on_both_pairs = pytest.mark.parametrize("make_pair", [unix_pair, tcp_pair], ids=["unix", "tcp"])


class Handler:
    """Who the link works for: notes what it is told, and may act on it."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.drained = 0
        self.lost: list[str] = []
        self.on_received: Callable[[], None] = lambda: None
        self.on_drained: Callable[[], None] = lambda: None

    def data_received(self, data: bytes) -> None:
        assert not self.lost, "data after the end"
        self.received += data
        self.on_received()

    def link_drained(self) -> None:
        assert not self.lost, "drained after the end"
        self.drained += 1
        self.on_drained()

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)


class Rig:
    """A link, its handler, and the socket at the far end."""

    def __init__(self, make_pair: MakePair) -> None:
        ours, self.peer = make_pair()
        self.handler = Handler()
        self.descriptor = descriptor_of(ours)
        self.link = Link(asyncio.get_running_loop(), ours, self.handler)

    def close(self) -> None:
        self.link.close("test over")
        self.peer.close()
        assert len(self.handler.lost) == 1
        assert self.descriptor not in open_descriptors()

    async def until_lost(self) -> str:
        await eventually_async(lambda: self.handler.lost, "the link to be lost")
        await turns()  # a second report would come now
        assert len(self.handler.lost) == 1
        return self.handler.lost[0]


def with_rig(
    loop_factory: LoopFactory, test: Callable[[Rig], Coroutine[Any, Any, None]], make_pair: MakePair = unix_pair
) -> None:
    async def body() -> None:
        rig = Rig(make_pair)
        try:
            await test(rig)
        finally:
            rig.close()

    run(loop_factory, body)


def numbered(size: int) -> bytes:
    """Bytes in which no two places look alike."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))


# --- sending


@on_both_loops
@on_both_pairs
def test_a_send_the_socket_takes_in_parts_arrives_whole_and_in_order(
    loop_factory: LoopFactory, make_pair: MakePair
) -> None:
    async def test(rig: Rig) -> None:
        data = numbered(1 << 20)
        rig.link.offer(data)
        assert rig.link.is_blocked
        assert rig.link.queued_bytes + rig.link.sent_bytes == len(data)
        assert await read_exactly(rig.peer, len(data)) == data
        await eventually_async(lambda: not rig.link.is_blocked, "the link to drain")
        assert rig.link.sent_bytes == len(data)
        assert rig.link.queued_bytes == 0
        assert rig.handler.drained == 1

    with_rig(loop_factory, test, make_pair)


@on_both_loops
def test_a_link_is_blocked_only_while_something_is_queued(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        blocked = [rig.link.is_blocked]
        rig.link.offer(b"small")
        blocked.append(rig.link.is_blocked)
        for _ in range(3):
            data = numbered(1 << 20)
            rig.link.offer(data)
            blocked.append(rig.link.is_blocked)
            await read_exactly(rig.peer, len(data))
            await eventually_async(lambda: not rig.link.is_blocked, "the link to drain")
        assert blocked == [False, False, True, True, True]
        assert rig.handler.drained == 3
        assert rig.handler.lost == []

    with_rig(loop_factory, test)


@on_both_loops
def test_a_peer_that_does_not_read_costs_no_processor_time(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        sends = 0
        send_now = rig.link.send_now

        def count(data: Any) -> int:
            nonlocal sends
            sends += 1
            return send_now(data)

        rig.link.send_now = count
        rig.link.offer(numbered(1 << 20))
        await turns(200)
        assert sends <= 3  # the first, and at most the one that finds the buffer full

    with_rig(loop_factory, test)


@on_both_loops
def test_replies_wait_behind_the_media_that_is_queued(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        media = numbered(1 << 20)
        rig.link.offer(media)
        rig.link.write(b"first reply")
        rig.link.write(b"second reply")
        expected = media + b"first reply" + b"second reply"
        assert await read_exactly(rig.peer, len(expected)) == expected
        assert rig.handler.drained == 1

    with_rig(loop_factory, test)


@on_both_loops
def test_a_reply_on_a_free_link_leaves_at_once(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.write(b"")
        rig.link.write(b"reply")
        assert read_available(rig.peer) == b"reply"
        assert rig.link.sent_bytes == 5
        assert rig.handler.drained == 0

    with_rig(loop_factory, test)


@on_both_loops
def test_a_handler_that_offers_more_when_the_link_drains_is_served_to_the_end(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        batches = [bytes((number,)) * (1 << 18) for number in range(6)]
        waiting = batches[1:]

        def offer_next() -> None:
            if waiting:
                rig.link.offer(waiting.pop(0))

        rig.handler.on_drained = offer_next
        rig.link.offer(batches[0])
        assert await read_exactly(rig.peer, 6 << 18) == b"".join(batches)
        await eventually_async(lambda: rig.handler.drained == 6, "the last drain")
        assert not rig.link.is_blocked

    with_rig(loop_factory, test)


@on_both_loops
def test_a_send_done_by_the_caller_is_accounted_for_and_its_rest_is_sent(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        data = numbered(1 << 18)
        sent = rig.link.send_now(data)
        assert sent < len(data)
        rig.link.keep_rest(data, sent)
        assert await read_exactly(rig.peer, len(data)) == data
        assert rig.link.sent_bytes == len(data)
        rig.link.keep_rest(b"whole", 5)
        assert not rig.link.is_blocked

    with_rig(loop_factory, test)


@on_both_loops
def test_the_time_of_the_last_progress_moves_when_the_peer_reads_some(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        before_s = time.monotonic()
        rig.link.offer(numbered(1 << 20))
        blocked_s = rig.link.blocked_since_s
        assert blocked_s >= before_s
        await turns(20)
        assert rig.link.blocked_since_s == blocked_s  # nothing read, no progress
        await read_exactly(rig.peer, 1 << 16)
        await eventually_async(lambda: rig.link.blocked_since_s > blocked_s, "progress")
        assert rig.link.is_blocked

    with_rig(loop_factory, test)


@on_both_loops
def test_a_peer_that_asks_and_never_reads_is_closed_at_the_cap(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        reply = bytes(1 << 16)
        written = 0
        while not rig.link.is_blocked:
            rig.link.write(reply)
        while written <= MAX_REPLY_BYTES:
            assert rig.handler.lost == []
            rig.link.write(reply)
            written += len(reply)
        assert rig.link.queued_bytes <= MAX_REPLY_BYTES + len(reply)
        assert rig.handler.lost == []  # told at the next turn, not within the write
        rig.link.write(reply)
        assert "bytes of replies unread" in await rig.until_lost()

    with_rig(loop_factory, test)


@on_both_loops
def test_a_large_batch_of_media_in_the_queue_does_not_count_against_replies(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        media = bytes(MAX_REPLY_BYTES + (1 << 18))  # one keyframe may have 16 MB
        rig.link.offer(media)
        rig.link.write(b"ping")
        await turns()
        assert rig.handler.lost == []
        assert (await read_exactly(rig.peer, len(media) + 4))[-4:] == b"ping"

    with_rig(loop_factory, test)


@on_both_loops
def test_replies_that_were_read_no_longer_count(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        reply = bytes(MAX_REPLY_BYTES // 2)
        for _ in range(3):
            rig.link.offer(bytes(1 << 18))
            rig.link.write(reply)
            await read_exactly(rig.peer, (1 << 18) + len(reply))
            await eventually_async(lambda: not rig.link.is_blocked, "the link to drain")
        assert rig.handler.lost == []

    with_rig(loop_factory, test)


# --- receiving


@on_both_loops
@on_both_pairs
def test_what_the_peer_sends_arrives_in_order(loop_factory: LoopFactory, make_pair: MakePair) -> None:
    async def test(rig: Rig) -> None:
        data = numbered(4 * RECEIVE_BYTES)
        await asyncio.get_running_loop().sock_sendall(rig.peer, data)
        await eventually_async(lambda: len(rig.handler.received) == len(data), "all of it")
        assert bytes(rig.handler.received) == data

    with_rig(loop_factory, test, make_pair)


@on_both_loops
@on_both_pairs
def test_a_peer_that_closes_ends_the_link_once(loop_factory: LoopFactory, make_pair: MakePair) -> None:
    async def test(rig: Rig) -> None:
        rig.peer.send(b"last words")
        rig.peer.close()
        assert await rig.until_lost() == "closed by peer"
        assert rig.handler.received == b"last words"
        assert rig.link.is_closed
        assert rig.link.is_blocked  # nothing more is offered

    with_rig(loop_factory, test, make_pair)


@on_both_loops
def test_a_peer_that_resets_ends_the_link_once(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        reset(rig.peer)
        assert await rig.until_lost() == "connection reset by peer"

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
@pytest.mark.parametrize("size", [100, 30_000])
def test_what_a_peer_sent_right_before_its_reset_is_heard_and_the_end_noticed_at_once(
    loop_factory: LoopFactory, size: int
) -> None:
    async def test(rig: Rig) -> None:
        data = numbered(size)
        rig.peer.setblocking(True)
        rig.peer.settimeout(DEADLINE_S)
        rig.peer.sendall(data)
        reset(rig.peer)
        assert await rig.until_lost() == "connection reset by peer"
        assert rig.handler.received == data

    with_rig(loop_factory, test, lambda: tcp_pair(None))


@on_both_loops
def test_what_a_peer_sent_before_a_send_to_it_failed_is_heard(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.peer.send(b"last words")
        reset(rig.peer)
        rig.link.write(b"into the void")
        assert await rig.until_lost() in ("connection reset by peer", "broken pipe")
        assert rig.handler.received == b"last words"

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_handler_that_answers_while_a_broken_link_is_drained_does_no_harm(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.handler.on_received = lambda: rig.link.write(b"an answer")
        rig.peer.send(b"a question")
        reset(rig.peer)
        rig.link.write(b"into the void")
        await rig.until_lost()
        assert rig.link.sent_bytes == 0

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_handler_may_close_a_broken_link_while_it_is_drained(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.handler.on_received = lambda: rig.link.close("heard enough", flush=True)
        rig.peer.send(b"a question")
        reset(rig.peer)
        rig.link.write(b"into the void")
        await rig.until_lost()
        assert rig.handler.received == b"a question"

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_peer_that_resets_while_bytes_are_queued_ends_the_link_once(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.offer(bytes(1 << 20))
        queued = rig.link.queued_bytes
        assert queued
        reset(rig.peer)
        await rig.until_lost()
        assert rig.link.queued_bytes == 0
        assert 0 < rig.link.unsent_bytes <= queued

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
@pytest.mark.parametrize("way", ["write", "offer"])
def test_a_failure_inside_a_send_is_told_at_the_next_turn(loop_factory: LoopFactory, way: str) -> None:
    async def test(rig: Rig) -> None:
        reset(rig.peer)
        getattr(rig.link, way)(b"into the void")
        assert rig.handler.lost == []
        assert rig.link.is_blocked  # the fan-out passes it over from here on
        rig.link.write(b"more")
        assert await rig.until_lost() in ("connection reset by peer", "broken pipe")
        assert rig.link.sent_bytes == 0
        assert rig.link.unsent_bytes == len(b"into the void")

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_failure_of_the_callers_own_send_is_told_at_the_next_turn(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.fail(BrokenPipeError(32, "Broken pipe"))
        rig.link.fail(ConnectionResetError(104, "Connection reset by peer"))
        assert rig.handler.lost == []
        assert await rig.until_lost() == "closed by peer"

    with_rig(loop_factory, test)


@on_both_loops
def test_an_error_without_a_text_is_told_by_its_name(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.fail(TimeoutError())
        assert await rig.until_lost() == "timeouterror"

    with_rig(loop_factory, test)


# --- closing


@on_both_loops
@on_both_pairs
def test_close_ends_at_once_and_drops_the_queue(loop_factory: LoopFactory, make_pair: MakePair) -> None:
    async def test(rig: Rig) -> None:
        rig.link.offer(bytes(1 << 20))
        rig.link.close("enough")
        assert rig.handler.lost == ["enough"]
        assert rig.link.unsent_bytes + rig.link.sent_bytes == 1 << 20
        assert rig.descriptor not in open_descriptors()
        rig.link.close("again")
        rig.link.write(b"ignored")
        assert await rig.until_lost() == "enough"
        await eventually_async(lambda: is_at_end(rig.peer), "the peer to see the end")

    with_rig(loop_factory, test, make_pair)


@on_both_loops
@on_both_pairs
def test_close_with_flush_sends_what_is_queued_first(loop_factory: LoopFactory, make_pair: MakePair) -> None:
    async def test(rig: Rig) -> None:
        data = numbered(1 << 20)
        rig.link.offer(data)
        rig.link.write(b"goodbye")
        rig.link.close("done", flush=True)
        rig.link.write(b"too late")
        assert rig.handler.lost == []
        assert await read_exactly(rig.peer, len(data) + 7) == data + b"goodbye"
        await eventually_async(lambda: is_at_end(rig.peer), "the peer to see the end")
        assert rig.handler.lost == []  # our side has ended, the peer's has not
        rig.peer.close()
        assert await rig.until_lost() == "done"
        assert rig.handler.drained == 0  # there is nothing more to offer
        assert rig.link.unsent_bytes == 0

    with_rig(loop_factory, test, make_pair)


@on_both_loops
@on_both_pairs
def test_a_peer_that_is_still_talking_gets_our_last_words_and_no_reset(
    loop_factory: LoopFactory, make_pair: MakePair
) -> None:
    async def test(rig: Rig) -> None:
        rig.peer.send(b"unread when we close")
        rig.link.write(b"goodbye")
        rig.link.close("done", flush=True)
        assert rig.link.is_blocked  # nothing is offered from here on
        assert time.monotonic() - rig.link.blocked_since_s < 60  # and no sweep takes it for stalled
        assert await read_exactly(rig.peer, 7) == b"goodbye"
        await turns(10)
        rig.peer.send(b"still talking")
        await turns(10)
        assert rig.peer.recv(100) == b""  # an orderly end: a reset would raise
        assert rig.handler.lost == []
        rig.peer.close()
        assert await rig.until_lost() == "done"
        assert rig.handler.received == b""

    with_rig(loop_factory, test, make_pair)


@on_both_loops
def test_a_peer_that_does_not_end_its_side_is_not_waited_for(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "LINGER_S", 0.02)

    async def test(rig: Rig) -> None:
        rig.link.close("done", flush=True)
        assert rig.handler.lost == []
        assert await rig.until_lost() == "done"
        rig.link.close("again", flush=True)

    with_rig(loop_factory, test)


@on_both_loops
def test_close_with_flush_after_the_peer_has_gone_ends_the_link(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        reset(rig.peer)
        rig.link.close("done", flush=True)
        await rig.until_lost()

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_peer_that_leaves_during_the_flush_ends_the_link_once(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.offer(bytes(1 << 20))
        rig.link.close("done", flush=True)
        reset(rig.peer)
        await rig.until_lost()

    with_rig(loop_factory, test, tcp_pair)


@on_both_loops
def test_a_flush_can_be_cut_short(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.offer(bytes(1 << 20))
        rig.link.close("done", flush=True)
        rig.link.close("deadline passed")
        assert rig.handler.lost == ["deadline passed"]

    with_rig(loop_factory, test)


@on_both_loops
def test_nothing_is_told_after_close_though_the_socket_is_readable_and_writable(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.link.offer(bytes(1 << 20))
        rig.peer.send(b"unread")
        read_available(rig.peer)  # both callbacks are due at the next turn
        rig.link.close("enough")
        await turns(10)
        assert rig.handler.received == b""
        assert rig.handler.drained == 0
        assert rig.handler.lost == ["enough"]

    with_rig(loop_factory, test)


@on_both_loops
def test_a_handler_may_close_the_link_when_data_comes(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.handler.on_received = lambda: rig.link.close("not welcome")
        rig.peer.send(bytes(4 << 10))
        assert await rig.until_lost() == "not welcome"
        assert len(rig.handler.received) == 4 << 10

    with_rig(loop_factory, test)


@on_both_loops
def test_a_handler_may_close_the_link_when_it_drains(loop_factory: LoopFactory) -> None:
    async def test(rig: Rig) -> None:
        rig.handler.on_drained = lambda: rig.link.close("all sent")
        rig.link.offer(bytes(1 << 18))
        await read_exactly(rig.peer, 1 << 18)
        assert await rig.until_lost() == "all sent"

    with_rig(loop_factory, test)


@on_both_loops
def test_a_number_of_a_closed_descriptor_is_free_for_the_next_connection(loop_factory: LoopFactory) -> None:
    async def body() -> None:
        first = Rig(unix_pair)
        first.link.offer(bytes(1 << 18))  # both callbacks are registered
        first.close()
        second = Rig(unix_pair)  # most likely with the number of the first
        second.peer.send(b"hello")
        await eventually_async(lambda: second.handler.received == b"hello", "data on the second link")
        assert first.handler.received == b""
        assert first.handler.drained == 0
        second.close()

    run(loop_factory, body)


@on_both_loops
def test_a_hundred_links_leave_no_descriptor_behind(loop_factory: LoopFactory) -> None:
    async def body() -> None:
        before = len(os.listdir("/proc/self/fd"))
        for number in range(100):
            rig = Rig(unix_pair)
            if number % 2:
                rig.peer.close()
                await rig.until_lost()
            rig.close()
        assert len(os.listdir("/proc/self/fd")) == before

    run(loop_factory, body)


# --- options


def option(sock: socket.socket, level: int, number: int) -> int:
    value = sock.getsockopt(level, number)
    assert isinstance(value, int)
    return value


def test_a_media_connection_is_tuned_for_latency_and_dead_peers() -> None:
    ours, peer = tcp_pair(None)
    with ours, peer:
        ours.setblocking(True)
        tune(ours)
        assert not ours.getblocking()
        assert option(ours, socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert option(ours, socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert option(ours, socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert option(ours, socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 256 << 10


def test_an_option_the_socket_does_not_have_is_done_without() -> None:
    ours, peer = unix_pair()
    with ours, peer:
        tune(ours)
        assert not ours.getblocking()


@on_both_loops
@on_both_pairs
def test_asking_for_quick_acknowledgements_harms_no_socket(loop_factory: LoopFactory, make_pair: MakePair) -> None:
    async def test(rig: Rig) -> None:
        rig.link.acknowledge_now()
        rig.link.close("enough")
        rig.link.acknowledge_now()

    with_rig(loop_factory, test, make_pair)
