"""A worker's side of the directory: what it has, what others have, and the ways to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.edge.origin import Origin, Upstream
from headrace.edge.pull import Pull
from headrace.edge.service import EdgeService, PullCounters
from headrace.errors import StreamError
from headrace.relay.failure import ErrorClass, RelayError
from headrace.relay.session import DestinationSession
from headrace.relay.target import Target
from headrace.server.route import CONN, REMOTE
from headrace.server.server import Server
from headrace.server.source import Intake
from headrace.workers.channel import Channel, ChannelError
from headrace.workers.forward import open_forward

_DIAL_S = 2.0
# Streams looked for at other workers at a time: each costs a question to the parent.
_MAX_ASKING = 5000


class Paths:
    """Connections to other workers: asked of the parent, which gives one end to each."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._dialled: dict[int, asyncio.Future[socket.socket]] = {}
        self._count = 0

    async def dial(self, worker: int, timeout_s: float = _DIAL_S) -> socket.socket:
        """A connection to that worker; OSError if there is none to be had."""
        self._count += 1
        number = self._count
        arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._dialled[number] = arrived
        try:
            if not await self._channel.ask("dial", min(timeout_s, _DIAL_S), worker=worker, number=number):
                raise OSError(f"worker {worker} takes no connection")
            async with asyncio.timeout(timeout_s):
                return await arrived
        except ChannelError as error:
            raise OSError(str(error)) from None
        finally:
            del self._dialled[number]

    def arrived(self, number: int, sock: socket.socket) -> None:
        """The parent has sent the end that was asked for."""
        arrived = self._dialled.get(number)
        if arrived is None or arrived.done():
            sock.close()  # nobody waits any more
        else:
            sock.setblocking(False)
            arrived.set_result(sock)


@dataclass(frozen=True, slots=True)
class Fellows:
    """What a worker knows of the others."""

    worker: int  # its own number
    server_id: str  # the same for all
    channel: Channel  # to the parent
    paths: Paths

    @property
    def conn_prefix(self) -> str:
        """Connections are numbered by each worker: with this their names are their own."""
        return f"w{self.worker}-"


class WorkerUpstream:
    """Another worker, to pull a stream from."""

    is_internal = True

    def __init__(self, paths: Paths, worker: int) -> None:
        self._paths = paths
        self._worker = worker

    def target(self, app: str) -> Target:
        return worker_target(self._worker, app)

    async def dial(self, timeout_s: float) -> socket.socket:
        return await self._paths.dial(self._worker, timeout_s)


def worker_target(worker: int, app: str) -> Target:
    return Target("rtmp", f"worker-{worker}", 1935, app, None)


class WorkerPulls(EdgeService):
    """Looks for streams at the other workers first, and then at the origins."""

    def __init__(self, server: Server, claims: WorkerClaims, origins: Sequence[Origin], *, linger_s: float) -> None:
        super().__init__(server, origins, linger_s=linger_s, conn_prefix=claims.fellows.conn_prefix)
        self._claims = claims
        claims.pulls = self
        self._channel = claims.fellows.channel
        self._paths = claims.fellows.paths
        self._internal = PullCounters()  # what comes from other workers, which have counted it

    async def upstreams(self, pull: Pull) -> Sequence[Upstream]:
        try:
            # Whoever asks an origin has the stream, as a publisher's worker has it: the others pull from there.
            may_ask = bool(self._origins) and not (pull.stream is None and self._is_missing(pull.key))
            owner = await (self._claims.hold(pull.key) if may_ask else self._channel.ask("find", key=pull.key))
        except ChannelError as error:
            raise RelayError(ErrorClass.TIMEOUT, str(error)) from None
        if owner is None:
            return []
        if owner != self._claims.worker:
            return [WorkerUpstream(self._paths, owner)]
        if not may_ask:
            return []  # it ended here in the very moment between
        return await super().upstreams(pull)

    def counters_of(self, upstream: Upstream) -> PullCounters:
        return self._internal if upstream.is_internal else self.counters

    def pull_failed(self, upstream: Upstream, error: RelayError) -> None:
        if upstream.is_internal:
            self._internal.failures[error.error_class.value] += 1
        else:
            super().pull_failed(upstream, error)

    def pull_connected(self, upstream: Upstream, *, is_first: bool) -> None:
        if not upstream.is_internal:
            super().pull_connected(upstream, is_first=is_first)

    def pull_over(self, pull: Pull) -> None:
        super().pull_over(pull)
        self._claims.settle(pull.key)

    def make_way(self, app: str, name: str) -> None:
        # The stream is ours to be published now. A copy of what another worker had is over, or that worker is:
        # whoever watches it stays.
        pull = self._pulls.get(f"{app}/{name}")
        if pull is not None and pull.is_internal:
            pull.give_way()
        else:
            super().make_way(app, name)

    def is_asking(self, key: str) -> bool:
        """A pull may need its claim."""
        return key in self._pulls

    def _check(self, key: str, name: str) -> None:
        # Other workers are asked for everything: what is missing at an origin may be published at one of them.
        opening = sum(not pull.is_internal and pull.stream is None for pull in self._pulls.values())
        if opening >= (self._max_opening if self._origins else _MAX_ASKING):
            raise self._refuse(name, "too_many")
        if not name:
            raise self._refuse(name, "missing")


class WorkerClaims:
    """The `Claims` of a worker's server, and the leases of its destinations."""

    def __init__(self, server: Server, fellows: Fellows) -> None:
        self.fellows = fellows
        self.worker = fellows.worker
        self.pulls: WorkerPulls | None = None
        self._server = server
        self._channel = fellows.channel
        self._paths = fellows.paths
        self._held: set[str] = set()
        self._claiming: dict[str, int] = {}  # publishes on their way, by stream
        self._tasks: set[asyncio.Task[None]] = set()
        self._leases: dict[str, list[Callable[[], None]]] = {}

    # Streams --------------------------------------------------------------------------------------------------

    def claim(
        self, app: str, name: str, *, conn_id: str, remote: str, is_internal: bool, on_lost: Callable[[str], None]
    ) -> asyncio.Future[Intake | None]:
        loop = asyncio.get_running_loop()
        claimed: asyncio.Future[Intake | None] = loop.create_future()
        key = f"{app}/{name}"
        self._claiming[key] = self._claiming.get(key, 0) + 1

        def done(_: asyncio.Future[Intake | None]) -> None:
            self._claiming[key] -= 1
            if not self._claiming[key]:
                del self._claiming[key]
            # After the session has had its turn, which publishes or does not.
            loop.call_soon(self.settle, key)

        claimed.add_done_callback(done)
        task = loop.create_task(self._claim(app, name, conn_id, remote, is_internal, on_lost, claimed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return claimed

    async def _claim(
        self,
        app: str,
        name: str,
        conn_id: str,
        remote: str,
        is_internal: bool,
        on_lost: Callable[[str], None],
        claimed: asyncio.Future[Intake | None],
    ) -> None:
        intake: Intake | None = None
        try:
            owner = await self.hold(f"{app}/{name}")
            if owner != self.worker:
                if is_internal:
                    raise StreamError("NetStream.Publish.BadName", f"{name} is already being published.")
                intake = await self._forward(owner, app, name, conn_id, remote, on_lost)
        except StreamError as error:
            if not claimed.done():
                claimed.set_exception(error)
            return
        except (ChannelError, OSError) as error:
            if not claimed.done():
                denied = f"The stream cannot be published now: {error}."
                claimed.set_exception(StreamError("NetStream.Publish.Denied", denied))
            return
        if not claimed.done():
            claimed.set_result(intake)
        elif intake is not None:
            intake.leave(self._server.log, "publisher left", "lost", 0.0)

    async def _forward(
        self, owner: int, app: str, name: str, conn_id: str, remote: str, on_lost: Callable[[str], None]
    ) -> Intake:
        sock = await self._paths.dial(owner)
        chunk_size = self._server.chunk_size
        session = DestinationSession(
            sock, worker_target(owner, app), name, chunk_size, connect_more={CONN: conn_id, REMOTE: remote}
        )
        return await open_forward(session, app, name, chunk_size=chunk_size, on_lost=on_lost)

    async def hold(self, key: str) -> int:
        """The worker that has the stream from now on: this one, unless another does."""
        self._held.add(key)  # before the answer: whoever settles meanwhile must give it back
        owner: int = await self._channel.ask("claim", key=key)
        if owner != self.worker:
            self._held.discard(key)
        return owner

    def settle(self, key: str) -> None:
        """Give a stream back that is neither here nor on its way."""
        if key not in self._held or key in self._claiming:
            return
        if self.pulls is not None and self.pulls.is_asking(key):
            return
        app, _, name = key.rpartition("/")
        stream = self._server.streams.find(app, name)
        if stream is None or stream.is_internal:
            self._held.discard(key)
            self._channel.tell("release", key=key)

    # Destinations ---------------------------------------------------------------------------------------------

    def acquire(self, name: str, granted: Callable[[], None]) -> None:
        waiting = self._leases.setdefault(name, [])
        waiting.append(granted)
        self._channel.tell("acquire", name=name)

    def release(self, name: str, granted: Callable[[], None]) -> None:
        waiting = self._leases.get(name, [])
        if granted in waiting:
            waiting.remove(granted)
        if not waiting and self._leases.pop(name, None) is not None:
            self._channel.tell("let_go", name=name)

    def lease_granted(self, message: Mapping[str, Any]) -> None:
        for granted in list(self._leases.get(message["name"], [])):
            granted()
