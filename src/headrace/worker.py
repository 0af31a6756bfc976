"""A worker: the process that the parent starts as `python -m headrace.worker CHANNEL HANDOVER`, two descriptors.

It is a server that gets its connections, its options and its orders from the parent, and ends when that does.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

from headrace import garbage, logs
from headrace.logs import get_logger
from headrace.net.listener import format_address
from headrace.node import Node
from headrace.relay.config import DestinationConfig, read_destination
from headrace.workers.channel import Channel
from headrace.workers.claims import Fellows, Paths
from headrace.workers.handover import Kind, Receiver
from headrace.workers.start import WorkerStart


def main(argv: list[str]) -> int:
    channel, handover = (socket.socket(fileno=int(word)) for word in argv[1:3])
    start = _read_start(channel)
    logs.configure(start.options.log_level, start.options.log_format, fields={"worker": start.worker})
    try:
        import uvloop

        return uvloop.run(_serve(start, channel, handover))
    except ImportError:  # no wheel for this platform: the standard loop does the same, slower
        return asyncio.run(_serve(start, channel, handover))


def _read_start(channel: socket.socket) -> WorkerStart:
    """The first thing that the parent says: what to do. It comes from the process that started us, and no other."""
    size = int.from_bytes(_read_exactly(channel, 8), "big")
    start = pickle.loads(_read_exactly(channel, size))  # noqa: S301 from the parent, over a pair of its own
    assert isinstance(start, WorkerStart)
    return start


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise SystemExit(1)  # the parent is gone before it began
        data += piece
    return data


def read_destinations(items: list[dict[str, Any]]) -> list[DestinationConfig]:
    """Destinations as the parent has checked them."""
    return [read_destination(item, None, "destination") for item in items]


async def _serve(start: WorkerStart, channel_socket: socket.socket, handover: socket.socket) -> int:
    log = get_logger("headrace.worker")  # not __main__, as which it runs
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    for number in (signal.SIGINT, signal.SIGHUP):  # the parent's to hear
        loop.add_signal_handler(number, lambda: None)
    orders: dict[str, Any] = {}
    channel = await Channel.over(channel_socket, orders)
    paths = Paths(channel)
    node = Node(
        start.options,
        read_destinations(start.destinations),
        start.origins,
        Fellows(worker=start.worker, server_id=start.server_id, channel=channel, paths=paths),
    )
    garbage.spare()
    assert node.claims is not None
    server, claims = node.server, node.claims

    def connection(kind: Kind, number: int, sock: socket.socket) -> None:
        if kind is Kind.CLIENT:
            try:
                remote = format_address(sock.getpeername())
            except OSError:  # gone before it arrived
                sock.close()
                return
            server.accept(sock, remote)
        elif kind is Kind.INTERNAL:
            server.accept_internal(sock)
        else:
            paths.arrived(number, sock)

    def change_destinations(message: Mapping[str, Any]) -> None:
        node.relay.reload(read_destinations(message["destinations"]))

    orders |= {
        "stop": lambda message: stop.set(),
        "snapshot": lambda message: _snapshot(node),
        "destinations": change_destinations,
        "drop": lambda message: server.drop_publisher(message["key"]),
        "lease": claims.lease_granted,
    }
    server.watch()
    receiver = Receiver(handover, connection, server.connection_lost)
    listening = loop.create_task(channel.run())
    listening.add_done_callback(lambda _: stop.set())  # without its parent nobody would know of it
    channel.tell("ready")
    await stop.wait()
    log.info("Shutting down")
    receiver.close()
    is_clean = await node.close()
    channel.tell("counters", snapshot=_snapshot(node))
    channel.close()
    if not is_clean:
        sys.stderr.flush()
        os._exit(0)
    return 0


def _snapshot(node: Node) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "counters": node.control.counters(),
        "streams": node.control.describe_streams(),
        "destinations": node.control.destinations(),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "memory_bytes": _resident_bytes(),
    }


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0  # a platform without it


if __name__ == "__main__":
    sys.exit(main(sys.argv))
