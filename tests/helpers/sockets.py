"""Pairs of connected sockets with small buffers, so that a peer that does not read is noticed after kilobytes."""

from __future__ import annotations

import os
import socket
import struct

from tests.helpers.waiting import eventually_async

SMALL_BUFFER_BYTES = 8 << 10


def unix_pair(buffer_bytes: int | None = SMALL_BUFFER_BYTES) -> tuple[socket.socket, socket.socket]:
    """(ours, the peer's), both non-blocking."""
    ours, peer = socket.socketpair()
    for sock in (ours, peer):
        sock.setblocking(False)
        if buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    return ours, peer


def tcp_pair(buffer_bytes: int | None = SMALL_BUFFER_BYTES) -> tuple[socket.socket, socket.socket]:
    """The same over loopback TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.socket()
        if buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            # Before connecting: the window that is offered at first stands for good.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        peer.connect(listener.getsockname())
        ours, _ = listener.accept()
    for sock in (ours, peer):
        sock.setblocking(False)
    return ours, peer


def reset(sock: socket.socket) -> None:
    """Close with a TCP reset, as a crashed or killed peer's kernel does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_available(sock: socket.socket) -> bytes:
    """What has arrived at a non-blocking socket; nothing once the other end has closed."""
    pieces: list[bytes] = []
    try:
        while piece := sock.recv(1 << 16):
            pieces.append(piece)
    except (BlockingIOError, ConnectionError):
        pass
    return b"".join(pieces)


async def read_exactly(sock: socket.socket, size: int) -> bytes:
    """The next `size` bytes, or more if they are there; the loop goes on meanwhile."""
    data = bytearray()

    def is_enough() -> bool:
        data.extend(read_available(sock))
        return len(data) >= size

    await eventually_async(is_enough, f"{size} bytes from the peer")
    return bytes(data)


def is_at_end(sock: socket.socket) -> bool:
    """True once everything was read and the other end has closed or reset the connection."""
    try:
        return sock.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def open_descriptors() -> set[str]:
    """What this process holds open: `socket:[12345]` and the like, which are never used twice, as numbers are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return found


def descriptor_of(sock: socket.socket) -> str:
    return os.readlink(f"/proc/self/fd/{sock.fileno()}")


def free_port() -> int:
    """A port nobody listens on now: what a refused connection needs."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
