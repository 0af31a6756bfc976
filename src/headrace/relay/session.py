"""One connection to a destination, from the first packet to the last: dialled, handshaken, publishing.

When to connect, and what an end means, is the feed's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.net.dial import dial
from headrace.net.fanout import Fanout, Player
from headrace.protocol import client
from headrace.protocol.client import Role
from headrace.protocol.messages import Message
from headrace.relay.client_session import ClientSession, connected
from headrace.relay.failure import ErrorClass, RelayError
from headrace.relay.target import Target

T = TypeVar("T")

CONNECT_S = 10.0  # all addresses and TLS
HANDSHAKE_S = 10.0
PUBLISH_S = 15.0  # connect, createStream and publish: platforms look the key up before they answer


class RedirectedError(RelayError):
    """The far end asked us to come again, maybe elsewhere, before it let us publish: a load balancer, say."""

    def __init__(self, target: Target, reconnect_url: str) -> None:
        super().__init__(ErrorClass.REJECTED, "asked to reconnect before publishing began")
        self.target = target
        self.reconnect_url = reconnect_url


class DestinationSession(ClientSession):
    """Publishes one stream to one target over one connection."""

    def __init__(
        self,
        sock: socket.socket,
        target: Target,
        name: str,
        chunk_size: int,
        connect_more: Mapping[str, Any] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.reconnect_url: str | None = None  # set when the far end asked us to come again; "" is the same place
        self.refused: client.Refused | None = None  # in the far end's own words
        self._handshaken: asyncio.Future[None] = loop.create_future()
        self._started: asyncio.Future[int] = loop.create_future()
        self._fanout: Fanout | None = None
        self._player: Player | None = None
        super().__init__(sock, Role.PUBLISH, target, name, chunk_size=chunk_size, connect_more=connect_more)

    async def start(self) -> int:
        """The message stream id to publish on, once the far end granted it; RelayError otherwise."""
        try:
            await self._within(self._handshaken, HANDSHAKE_S, "answer to the handshake")
            return await self._within(self._started, PUBLISH_S, "permission to publish")
        except asyncio.CancelledError:
            self.finish()  # called off: the far end may have granted it already, and is to be told
            raise
        except BaseException:
            self.link.close("not started")
            raise

    async def _within(self, step: asyncio.Future[T], deadline_s: float, what: str) -> T:
        await asyncio.wait((step, self.ended), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if step.done():
            return step.result()
        if self.ended.done():
            if self.reconnect_url is not None:
                raise RedirectedError(self.target, self.reconnect_url)
            raise self.ended.result() or RelayError(ErrorClass.RESET, "closed")
        raise RelayError(ErrorClass.TIMEOUT, f"no {what} within {deadline_s:g} s")

    def attach(self, fanout: Fanout, player: Player) -> None:
        """Send the stream from the player's cursor on."""
        self._fanout, self._player = fanout, player
        fanout.attach(player)

    def detach(self) -> None:
        if self._fanout is not None and self._player is not None:
            self._fanout.detach(self._player)
        self._fanout = self._player = None

    def link_drained(self) -> None:
        if self._fanout is not None and self._player is not None:
            self._fanout.serve(self._player)

    def link_lost(self, reason: str) -> None:
        self.detach()
        super().link_lost(reason)

    def _handle(self, event: client.ClientEvent | Message) -> None:
        match event:
            case client.ClientHandshakeCompleted():
                self._handshaken.set_result(None)
            case client.Started(message_stream_id):
                self._started.set_result(message_stream_id)
            case client.Refused():
                self.refused = event
                self._refuse(event)
            case client.ReconnectRequested(tc_url, _):
                self.reconnect_url = tc_url
                self.finish()
            case _:
                pass  # statuses on the way, and media that a publisher has no use for


async def open_session(
    target: Target, name: str, *, chunk_size: int, tls: ssl.SSLContext | None
) -> tuple[DestinationSession, int]:
    """A session that may publish, and its message stream id; RelayError says why not."""
    sock = await connected(dial(target.host, target.port, tls=tls, timeout_s=CONNECT_S), CONNECT_S)
    session = DestinationSession(sock, target, name, chunk_size)
    return session, await session.start()
