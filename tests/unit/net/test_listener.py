"""Listening: every address that was named, one clear line when it cannot be, and life without descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.net.listener import Listener, ListenError, bind, format_address
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.sockets import descriptor_of, open_descriptors
from tests.helpers.waiting import DEADLINE_S, eventually_async, turns

ROOT = Path(__file__).resolve().parents[3]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def close_all(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


class Door:
    """A listener with the connections it accepted."""

    def __init__(self, host: str | None = "127.0.0.1") -> None:
        self.accepted: list[tuple[socket.socket, str]] = []
        self.errors: list[OSError] = []
        self.listener = Listener(
            asyncio.get_running_loop(),
            bind(host, 0),
            lambda sock, remote: self.accepted.append((sock, remote)),
            self.errors.append,
        )

    def close(self) -> None:
        self.listener.close()
        close_all([sock for sock, _ in self.accepted])


def with_door(
    loop_factory: LoopFactory, test: Callable[[Door], Coroutine[Any, Any, None]], host: str | None = "127.0.0.1"
) -> None:
    async def body() -> None:
        door = Door(host)
        try:
            await test(door)
        finally:
            door.close()

    run(loop_factory, body)


# --- addresses


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("127.0.0.1", 1935), "127.0.0.1:1935"),
        (("::1", 1935, 0, 0), "[::1]:1935"),
        (("::ffff:10.0.0.7", 50412, 0, 0), "10.0.0.7:50412"),
        (("localhost", 0), "localhost:0"),
        ("", "unix"),
        ("/run/headrace.sock", "/run/headrace.sock"),
    ],
)
def test_an_address_reads_as_host_and_port(address: object, expected: str) -> None:
    assert format_address(address) == expected


@on_both_loops
def test_port_zero_picks_a_port_and_says_which(loop_factory: LoopFactory) -> None:
    async def test(door: Door) -> None:
        assert door.listener.port > 0
        assert door.listener.addresses == [f"127.0.0.1:{door.listener.port}"]
        with socket.create_connection(("127.0.0.1", door.listener.port), DEADLINE_S) as client:
            await eventually_async(lambda: door.accepted, "the connection")
            assert door.accepted[0][1] == format_address(client.getsockname())

    with_door(loop_factory, test)


@needs_ipv6
@on_both_loops
def test_an_ipv6_address_is_listened_on_alone(loop_factory: LoopFactory) -> None:
    async def test(door: Door) -> None:
        assert door.listener.addresses == [f"[::1]:{door.listener.port}"]
        with socket.create_connection(("::1", door.listener.port), DEADLINE_S):
            await eventually_async(lambda: door.accepted, "the connection")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", door.listener.port), DEADLINE_S)

    with_door(loop_factory, test, "::1")


@needs_ipv6
@on_both_loops
def test_no_host_means_every_address_of_both_families(loop_factory: LoopFactory) -> None:
    async def test(door: Door) -> None:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, door.listener.port), DEADLINE_S) as client:
                expected = format_address(client.getsockname())
                await eventually_async(lambda: door.accepted, "the connection")
                sock, remote = door.accepted.pop()
                assert remote == expected  # an IPv4 client reads as one
                sock.close()

    with_door(loop_factory, test, None)


def test_a_name_is_listened_on_at_all_its_addresses_with_one_port() -> None:
    sockets = bind("localhost", 0)
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        assert {sock.getsockname()[0] for sock in sockets} <= {"127.0.0.1", "::1"}
        assert "127.0.0.1" in {sock.getsockname()[0] for sock in sockets}
    finally:
        close_all(sockets)


def test_an_address_of_a_name_that_this_machine_lacks_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # `localhost` is ::1 and 127.0.0.1 in /etc/hosts of containers that have no IPv6.
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),  # RFC 5737: nobody's address
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    sockets = bind("localhost", 0)
    assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1"]
    close_all(sockets)


def test_a_machine_without_ipv6_listens_on_every_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def without_ipv6(family: int = socket.AF_INET, *args: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *args, **options)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    sockets = bind(None, 0)
    assert [sock.getsockname()[0] for sock in sockets] == ["0.0.0.0"]
    close_all(sockets)


# --- what cannot be


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", None])
def test_a_port_in_use_is_one_line_with_the_address(host: str | None) -> None:
    before = open_descriptors()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError) as refused:
            bind(host, port)
    assert str(refused.value) == f"cannot listen on {host or ''}:{port}: Address already in use"
    assert open_descriptors() == before


@needs_ipv6
def test_an_ipv6_address_in_use_is_named_in_brackets() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenError, match=rf"cannot listen on \[::1\]:{port}: Address already in use"):
            bind("::1", port)


def test_an_address_of_another_machine_is_one_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        bind("192.0.2.1", 0)


def test_a_name_that_does_not_resolve_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ListenError, match="cannot listen on nowhere:1935: Name or service not known"):
        bind("nowhere", 1935)


def test_a_port_can_be_used_again_right_after_its_server_stopped() -> None:
    first = bind("127.0.0.1", 0)
    port = first[0].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
        served, _ = first[0].accept()
        served.close()  # the server closes first: its port is in TIME_WAIT
        close_all(first)
        assert client.recv(1) == b""
    close_all(bind("127.0.0.1", port))


# --- accepting


@on_both_loops
def test_a_flood_of_connections_is_accepted_to_the_last(loop_factory: LoopFactory) -> None:
    async def test(door: Door) -> None:
        clients = [socket.create_connection(("127.0.0.1", door.listener.port), DEADLINE_S) for _ in range(150)]
        await eventually_async(lambda: len(door.accepted) == 150, "150 connections")
        remotes = {remote for _, remote in door.accepted}
        assert remotes == {format_address(client.getsockname()) for client in clients}
        close_all(clients)

    with_door(loop_factory, test)


@on_both_loops
def test_a_closed_listener_accepts_nobody_and_gives_its_descriptors_back(loop_factory: LoopFactory) -> None:
    async def body() -> None:
        door = Door()
        port = door.listener.port
        descriptor = descriptor_of(door.listener._sockets[0])
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S):
            door.listener.close()  # the connection is in the backlog, and its callback due
            await turns(10)
        assert door.accepted == []
        assert descriptor not in open_descriptors()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        door.listener.close()

    run(loop_factory, body)


class BrokenSocket:
    """A listening socket whose accept fails with one error, once, and then has nothing."""

    def __init__(self, real: socket.socket, error: OSError) -> None:
        self._real = real
        self._error: OSError | None = error

    def accept(self) -> tuple[socket.socket, object]:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@on_both_loops
@pytest.mark.parametrize(
    ("number", "is_told"),
    [
        (errno.ECONNABORTED, False),  # the client left before its turn: nobody's loss
        (errno.EPROTO, True),
        (errno.EMFILE, True),
        (errno.ENOBUFS, True),
    ],
    ids=["aborted", "protocol", "descriptors", "buffers"],
)
def test_an_error_of_accept_is_told_and_the_next_connection_is_accepted(
    loop_factory: LoopFactory, number: int, is_told: bool
) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        accepted: list[socket.socket] = []
        errors: list[OSError] = []
        broken: Any = BrokenSocket(bind("127.0.0.1", 0)[0], OSError(number, "broken"))
        listener = Listener(loop, [broken], lambda sock, _: accepted.append(sock), errors.append)
        with socket.create_connection(("127.0.0.1", listener.port), DEADLINE_S):
            await eventually_async(lambda: accepted, "the connection after the error")
        assert [error.errno for error in errors] == ([number] if is_told else [])
        listener.close()
        close_all(accepted)

    run(loop_factory, body)


@on_both_loops
def test_a_listener_closed_while_it_waits_for_descriptors_stays_closed(loop_factory: LoopFactory) -> None:
    async def body() -> None:
        loop = asyncio.get_running_loop()
        errors: list[OSError] = []
        broken: Any = BrokenSocket(bind("127.0.0.1", 0)[0], OSError(errno.EMFILE, "too many open files"))
        listener = Listener(loop, [broken], lambda *_: pytest.fail("accepted"), errors.append)
        with socket.create_connection(("127.0.0.1", listener.port), DEADLINE_S):
            await eventually_async(lambda: errors, "the error")
            listener.close()
            listener._resume(broken)  # the timer that was set when it paused
            await turns(10)

    run(loop_factory, body)


OUT_OF_DESCRIPTORS = """
    import asyncio, os, resource, socket, sys
    import uvloop
    from headrace.net.listener import Listener, bind

    async def main():
        loop = asyncio.get_running_loop()
        accepted, errors = [], []
        listener = Listener(loop, bind("127.0.0.1", 0), lambda sock, remote: accepted.append(sock), errors.append)
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(14)]
        free = 8  # of the 14 that wait, this many can be accepted
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + free, highest + free))
        async with asyncio.timeout(20):
            while not errors:
                await asyncio.sleep(0.001)
            assert 0 < len(accepted) < 14, len(accepted)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(errors) <= 2, "it spins while nothing can be accepted"
            count = 0
            while count < 14:  # each that leaves makes room for one that waits
                count += len(accepted)
                while accepted:
                    accepted.pop().close()
                await asyncio.sleep(0.01)
        listener.close()
        print("survived", errors[0].strerror)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[1] == "uvloop" else None) as runner:
        runner.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_running_out_of_descriptors_is_survived(loop: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUT_OF_DESCRIPTORS), loop],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert child.stderr == ""
    assert child.stdout == "survived Too many open files\n"
