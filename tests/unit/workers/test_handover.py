"""Connections handed from one process to another: each arrives once, whole, and in order."""

from __future__ import annotations

import socket

import pytest

from headrace.workers.handover import Kind, Receiver, hand_over
from tests.helpers.loops import LOOP_FACTORIES, LoopFactory, on_both_loops, run
from tests.helpers.sockets import open_descriptors
from tests.helpers.waiting import eventually_async


@on_both_loops
def test_every_connection_arrives_once_with_its_kind_and_number(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        before = open_descriptors()
        giving, taking = socket.socketpair()
        giving.setblocking(False)
        got: list[tuple[Kind, int, socket.socket]] = []
        receiver = Receiver(taking, lambda kind, number, sock: got.append((kind, number, sock)), lambda: None)
        peers = []
        sent = [(kind, number) for number in range(70) for kind in Kind]
        for kind, number in sent:
            ours, theirs = socket.socketpair()
            peers.append(ours)
            assert hand_over(giving, kind, theirs, number)
            theirs.close()
        await eventually_async(lambda: len(got) == len(sent), "all connections")
        assert [(kind, number) for kind, number, _ in got] == sent
        for index, (peer, (_, _, sock)) in enumerate(zip(peers, got, strict=True)):
            sock.sendall(str(index).encode())
            assert peer.recv(10) == str(index).encode()
            sock.close()
            peer.close()
        receiver.close()
        receiver.close()
        giving.close()
        assert not [one for one in open_descriptors() - before if one.startswith("socket")]

    run(loop_factory, test)


@on_both_loops
def test_a_worker_that_takes_nothing_or_is_gone_is_noticed_at_once(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        giving, taking = socket.socketpair()
        giving.setblocking(False)
        ours, theirs = socket.socketpair()
        given = 0
        while hand_over(giving, Kind.CLIENT, theirs):
            given += 1
            assert given < 100_000, "its queue has no end"
        assert given > 0
        taking.close()
        assert not hand_over(giving, Kind.CLIENT, theirs)
        for sock in (giving, ours, theirs):
            sock.close()

    run(loop_factory, test)


@on_both_loops
def test_the_end_of_the_parent_is_the_end_of_the_receiver(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        giving, taking = socket.socketpair()
        Receiver(taking, lambda kind, number, sock: pytest.fail("nothing was sent"), lambda: None)
        giving.close()
        await eventually_async(lambda: taking.fileno() < 0, "the receiver to close")

    run(loop_factory, test)


def test_a_connection_for_which_there_is_no_descriptor_is_counted() -> None:
    async def test() -> None:
        giving, taking = socket.socketpair()
        lost: list[int] = []
        Receiver(taking, lambda kind, number, sock: pytest.fail("there is none"), lambda: lost.append(1))
        giving.sendall(b"c0000000")  # as the kernel passes it on that could not make the descriptor
        await eventually_async(lambda: lost == [1], "it to be counted")
        giving.close()
        await eventually_async(lambda: taking.fileno() < 0, "the receiver to close")

    run(LOOP_FACTORIES["asyncio"], test)
