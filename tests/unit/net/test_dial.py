"""Connections to named hosts: every address tried in its turn, TLS verified, deadlines kept, nothing left open."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from headrace.net.dial import TlsLink, dial, link_for
from headrace.net.link import Link
from tests.helpers.far_end import FarEnd, Visit, then_closes
from tests.helpers.loops import LoopFactory, on_both_loops, run
from tests.helpers.sockets import open_descriptors
from tests.helpers.waiting import DEADLINE_S, eventually_async, turns

AUTHORITY = trustme.CA()
OTHER_AUTHORITY = trustme.CA()


def server_context(*names: str, authority: trustme.CA = AUTHORITY) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    return context


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


async def stays(visit: Visit) -> None:
    while await visit.reader.read(1 << 16):
        pass


async def echoes(visit: Visit) -> None:
    while data := await visit.reader.read(1 << 16):
        visit.writer.write(data)
        await visit.writer.drain()


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class ScriptedLoop(asyncio.SelectorEventLoop):
    """A loop on which some addresses never answer."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[tuple[Any, ...]] = set()
        self.tried: list[tuple[Any, ...]] = []

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self.tried.append(address)
        if address in self.silent:
            await asyncio.Event().wait()
        await super().sock_connect(sock, address)


def scripted() -> ScriptedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ScriptedLoop)
    return loop


class Names:
    """Names that only this test knows. One without an answer is looked up for as long as the test goes on."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[tuple[Any, ...]] | None] = {}
        self.errors: dict[str, OSError] = {}
        self.waiting = 0
        self.over = threading.Event()
        self._look_up = socket.getaddrinfo

    def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        if host in self.errors:
            raise self.errors[host]
        if host not in self.addresses:
            return self._look_up(host, port, **options)
        addresses = self.addresses[host]
        if addresses is None:
            self.waiting += 1
            self.over.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "too late")
        return [
            (socket.AF_INET6 if ":" in one[0] else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", one)
            for one in addresses
        ]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.over.set()


# --- addresses


@on_both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_of_either_family_is_reached(loop_factory: LoopFactory, host: str) -> None:
    async def test() -> None:
        async with FarEnd(stays, host=host) as far_end:
            with await dial(host, far_end.port, tls=None, timeout_s=DEADLINE_S) as sock:
                assert sock.getpeername()[:2] == (host, far_end.port)
                assert sock.gettimeout() == 0.0
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(loop_factory, test)


@on_both_loops
def test_a_name_is_looked_up(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(stays) as far_end:
            (await dial("localhost", far_end.port, tls=None, timeout_s=DEADLINE_S)).close()

    run(loop_factory, test)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_name_of_one_family_only_is_reached(host: str, names: Names) -> None:
    async def test() -> None:
        async with FarEnd(stays, host=host) as far_end:
            address = (host, far_end.port, 0, 0) if ":" in host else (host, far_end.port)
            names.addresses["one"] = [address]
            with await dial("one", far_end.port, tls=None, timeout_s=DEADLINE_S) as sock:
                assert sock.getpeername()[0] == host

    run(ScriptedLoop, test)


def test_every_address_is_tried_until_one_answers_and_the_same_one_once(names: Names) -> None:
    async def test() -> None:
        refused = ("127.0.0.1", closed_port())
        async with FarEnd(stays) as far_end:
            good = ("127.0.0.1", far_end.port)
            loop = scripted()
            names.addresses["many"] = [("::1", refused[1], 0, 0), refused, refused, good]
            (await dial("many", 1, tls=None, timeout_s=DEADLINE_S)).close()
            assert loop.tried == [("::1", refused[1], 0, 0), refused, good]

    run(ScriptedLoop, test)


def test_addresses_that_do_not_answer_leave_time_for_the_last_one(names: Names) -> None:
    async def test() -> None:
        silent = [("192.0.2.1", port) for port in range(1, 5)]
        async with FarEnd(stays) as far_end:
            good = ("127.0.0.1", far_end.port)
            loop = scripted()
            names.addresses["many"] = [*silent, good]
            loop.silent.update(silent)
            (await dial("many", 1, tls=None, timeout_s=1.0)).close()
            assert loop.tried == [*silent, good]

    run(ScriptedLoop, test)


def test_the_error_is_that_of_the_last_address(names: Names) -> None:
    async def test() -> None:
        loop = scripted()
        names.addresses["dead"] = [("192.0.2.1", 1), ("127.0.0.1", closed_port())]
        loop.silent.add(("192.0.2.1", 1))
        with pytest.raises(ConnectionRefusedError):
            await dial("dead", 1, tls=None, timeout_s=0.5)

    run(ScriptedLoop, test)


def test_when_nobody_answers_the_deadline_ends_it_and_nothing_stays_open(names: Names) -> None:
    async def test() -> None:
        silent = [("192.0.2.1", 1), ("192.0.2.1", 2)]
        loop = scripted()
        names.addresses["dead"] = [*silent]
        loop.silent.update(silent)
        before = open_descriptors()
        with pytest.raises(TimeoutError):
            await dial("dead", 1, tls=None, timeout_s=0.05)
        assert open_descriptors() == before

    run(ScriptedLoop, test)


def test_a_name_without_an_address_is_an_error_that_names_it(names: Names) -> None:
    async def test() -> None:
        names.addresses["empty"] = []
        with pytest.raises(OSError, match="empty has no address"):
            await dial("empty", 1, tls=None, timeout_s=DEADLINE_S)

    run(ScriptedLoop, test)


@on_both_loops
@pytest.mark.parametrize("host", ["unknown", "a..b", "x" * 64 + ".example"])
def test_a_name_that_does_not_exist_or_cannot_is_an_error_of_the_lookup(
    loop_factory: LoopFactory, host: str, names: Names
) -> None:
    names.errors["unknown"] = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def test() -> None:
        with pytest.raises(socket.gaierror):
            await dial(host, 1935, tls=None, timeout_s=DEADLINE_S)

    run(loop_factory, test)


@on_both_loops
def test_a_name_that_cannot_exist_is_an_error_of_the_real_resolver_too(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        # RFC 6761, section 6.4. A resolver that is cut off says nothing instead.
        with pytest.raises((socket.gaierror, TimeoutError)):
            await dial("nonexistent.invalid", 1935, tls=None, timeout_s=2.0)

    run(loop_factory, test)


@on_both_loops
def test_a_resolver_that_does_not_answer_keeps_neither_others_nor_the_end_waiting(
    loop_factory: LoopFactory, names: Names
) -> None:
    names.addresses["lost"] = None

    async def test() -> None:
        loop = asyncio.get_running_loop()
        hanging = [loop.create_task(dial("lost", 1935, tls=None, timeout_s=DEADLINE_S)) for _ in range(40)]
        await eventually_async(lambda: names.waiting == 40, "every lookup to begin")
        async with FarEnd(stays) as far_end:
            (await dial("localhost", far_end.port, tls=None, timeout_s=DEADLINE_S)).close()
        with pytest.raises(TimeoutError):
            await dial("lost", 1935, tls=None, timeout_s=0.01)
        hanging[0].cancel()  # one is called off, the others are left behind

    run(loop_factory, test)
    assert names.waiting == 41
    names.over.set()


@on_both_loops
def test_an_answer_of_the_resolver_that_comes_too_late_is_nobodys(loop_factory: LoopFactory, names: Names) -> None:
    names.addresses["slow"] = None

    async def test() -> None:
        with pytest.raises(TimeoutError):
            await dial("slow", 1935, tls=None, timeout_s=0.01)
        await eventually_async(lambda: names.waiting == 1, "the lookup to begin")
        names.over.set()
        await eventually_async(
            lambda: not [one for one in threading.enumerate() if one.name == "look up slow"], "the lookup to end"
        )
        await turns()

    run(loop_factory, test)


@on_both_loops
def test_without_a_thread_to_be_had_it_is_an_error_like_any_other(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def test() -> None:
        with pytest.raises(OSError, match="can't start new thread"):
            await dial("localhost", 1935, tls=None, timeout_s=DEADLINE_S)

    run(loop_factory, test)


@on_both_loops
def test_a_port_that_nobody_listens_on_is_refused(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        before = open_descriptors()
        with pytest.raises(ConnectionRefusedError):
            await dial("127.0.0.1", closed_port(), tls=None, timeout_s=DEADLINE_S)
        assert open_descriptors() == before

    run(loop_factory, test)


def test_calling_it_off_closes_what_was_begun(names: Names) -> None:
    async def test() -> None:
        loop = scripted()
        names.addresses["slow"] = [("192.0.2.1", 1)]
        loop.silent.add(("192.0.2.1", 1))
        before = open_descriptors()
        dialling = loop.create_task(dial("slow", 1, tls=None, timeout_s=DEADLINE_S))
        await eventually_async(lambda: loop.tried, "the attempt to begin")
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        assert open_descriptors() == before

    run(ScriptedLoop, test)


# --- TLS


@on_both_loops
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_of_a_trusted_authority_for_that_host_is_accepted(loop_factory: LoopFactory, host: str) -> None:
    async def test() -> None:
        async with FarEnd(stays, tls=server_context(host)) as far_end:
            sock = await dial(host, far_end.port, tls=client_context(), timeout_s=DEADLINE_S)
            assert isinstance(sock, ssl.SSLSocket)
            assert sock.cipher() is not None
            sock.close()

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize(
    ("names", "authority", "words"),
    [
        (["other.example"], AUTHORITY, "Hostname mismatch"),
        (["localhost"], OTHER_AUTHORITY, "unable to get local issuer certificate"),
    ],
)
def test_a_certificate_for_another_host_or_of_an_unknown_authority_is_not_accepted(
    loop_factory: LoopFactory, names: list[str], authority: trustme.CA, words: str
) -> None:
    async def test() -> None:
        async with FarEnd(stays, tls=server_context(*names, authority=authority)) as far_end:
            with pytest.raises(ssl.SSLCertVerificationError, match=words):
                await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)

    run(loop_factory, test)


@on_both_loops
def test_a_self_signed_certificate_is_not_accepted(loop_factory: LoopFactory) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with OTHER_AUTHORITY.cert_pem.tempfile() as certificate, OTHER_AUTHORITY.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)

    async def test() -> None:
        async with FarEnd(stays, tls=context) as far_end:
            with pytest.raises(ssl.SSLCertVerificationError, match="self-signed certificate"):
                await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)

    run(loop_factory, test)


async def speaks_rtmp_first(visit: Visit) -> None:
    visit.say(b"\x03" + bytes(1536))
    await stays(visit)


async def nothing(visit: Visit) -> None:
    """Closes at once."""


@on_both_loops
@pytest.mark.parametrize("script", [speaks_rtmp_first, then_closes(nothing)], ids=["plain", "closes"])
def test_a_plain_server_behind_a_tls_address_is_an_error_of_tls(loop_factory: LoopFactory, script: Any) -> None:
    async def test() -> None:
        before = open_descriptors()
        async with FarEnd(script) as far_end:
            # Where the server closes, the kernel may say so before TLS can.
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)
        await eventually_async(lambda: open_descriptors() <= before, "every socket to be closed")

    run(loop_factory, test)


@on_both_loops
def test_a_server_that_never_shakes_hands_is_left_at_the_deadline(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(stays) as far_end:
            before = open_descriptors()
            with pytest.raises(TimeoutError):
                await dial("localhost", far_end.port, tls=client_context(), timeout_s=0.3)
            await eventually_async(lambda: open_descriptors() <= before, "every socket to be closed")

    run(loop_factory, test)


# --- links


class Handler:
    """Notes what a link tells."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.drained = 0
        self.lost: list[str] = []
        self.on_drained: Callable[[], None] = lambda: None

    def data_received(self, data: bytes) -> None:
        self.received += data

    def link_drained(self) -> None:
        self.drained += 1
        self.on_drained()

    def link_lost(self, reason: str) -> None:
        self.lost.append(reason)


@on_both_loops
def test_a_plain_socket_gets_a_plain_link(loop_factory: LoopFactory) -> None:
    async def test() -> None:
        async with FarEnd(echoes) as far_end:
            sock = await dial("127.0.0.1", far_end.port, tls=None, timeout_s=DEADLINE_S)
            handler = Handler()
            link = link_for(asyncio.get_running_loop(), sock, handler)
            assert type(link) is Link
            link.write(b"hello")
            await eventually_async(lambda: handler.received == b"hello", "the echo")
            link.close("done")
            assert handler.lost == ["done"]

    run(loop_factory, test)


@on_both_loops
def test_megabytes_go_out_and_come_back_whole_over_tls(loop_factory: LoopFactory) -> None:
    sent = bytes(range(256)) * 12_000  # more than any buffer holds, so that sends are cut and taken up again

    async def test() -> None:
        async with FarEnd(echoes, tls=server_context("localhost")) as far_end:
            sock = await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)
            handler = Handler()
            link = link_for(asyncio.get_running_loop(), sock, handler)
            assert isinstance(link, TlsLink)
            link.offer(sent)
            was_blocked = link.is_blocked
            link.write(b"the end")  # waits behind the rest, in its place
            await eventually_async(lambda: len(handler.received) >= len(sent) + 7, "everything to come back")
            assert handler.received == sent + b"the end"
            assert link.sent_bytes == len(sent) + 7
            assert was_blocked
            assert not link.is_blocked
            assert handler.drained >= 1
            link.close("done")
            assert handler.lost == ["done"]

    run(loop_factory, test)


@on_both_loops
def test_what_lies_decrypted_is_read_without_another_packet(loop_factory: LoopFactory) -> None:
    async def sends_a_lot(visit: Visit) -> None:
        visit.say(b"x" * 1_000_000)
        await stays(visit)

    async def test() -> None:
        async with FarEnd(sends_a_lot, tls=server_context("localhost")) as far_end:
            sock = await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)
            handler = Handler()
            link = link_for(asyncio.get_running_loop(), sock, handler)
            await eventually_async(lambda: len(handler.received) == 1_000_000, "all of it")
            link.close("done")

    run(loop_factory, test)


@on_both_loops
@pytest.mark.parametrize("is_reset", [False, True], ids=["closes", "resets"])
def test_an_end_over_tls_is_told_once(loop_factory: LoopFactory, is_reset: bool) -> None:
    async def leaves(visit: Visit) -> None:
        await visit.reader.readexactly(5)
        visit.reset() if is_reset else visit.close()

    async def test() -> None:
        async with FarEnd(leaves, tls=server_context("localhost")) as far_end:
            sock = await dial("localhost", far_end.port, tls=client_context(), timeout_s=DEADLINE_S)
            handler = Handler()
            link = link_for(asyncio.get_running_loop(), sock, handler)
            link.write(b"hello")
            await eventually_async(lambda: handler.lost, "the end")
            link.write(b"into the void")
            link.close("again")
            assert len(handler.lost) == 1
            assert link.is_closed

    run(loop_factory, test)
