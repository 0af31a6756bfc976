"""One connection to a destination, from the first packet to the last: dialled, handshaken, publishing.

Owns the client's command flow over one link. When to connect, and what an end means, is the feed's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.errors import PeerError
from headrace.net.dial import dial, link_for
from headrace.net.fanout import Fanout, Player
from headrace.protocol import client
from headrace.protocol.client import ClientConnection, ClientState, Role
from headrace.protocol.handshake import NONCE_BYTES
from headrace.protocol.messages import Message
from headrace.relay.failure import (
    MAX_SAID_CHARACTERS,
    ErrorClass,
    RelayError,
    of_lost_connection,
    of_os_error,
    of_refusal,
)
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


class DestinationSession:
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
        self.target = target
        self.reconnect_url: str | None = None  # set when the far end asked us to come again; "" is the same place
        self._protocol = ClientConnection(
            role=Role.PUBLISH,
            app=target.app,
            tc_url=target.tc_url,
            name=name,
            nonce=os.urandom(NONCE_BYTES),
            epoch_ms=int(loop.time() * 1000),
            chunk_size=chunk_size,
            connect_more=connect_more,
        )
        self.refused: client.Refused | None = None  # in the far end's own words
        self._handshaken: asyncio.Future[None] = loop.create_future()
        self._started: asyncio.Future[int] = loop.create_future()
        # Done when the connection is over: None if that was meant, else the reason.
        self.ended: asyncio.Future[RelayError | None] = loop.create_future()
        self._fanout: Fanout | None = None
        self._player: Player | None = None
        self._error: RelayError | None = None
        self._is_finished = False
        self._name = name
        self.link = link_for(loop, sock, self)
        self._flush()

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

    def finish(self) -> None:
        """The stream is over: say so, send what is queued, close."""
        if not self._is_finished:
            self._is_finished = True
            self._protocol.finish()
            self._flush()
            self.link.close("finished", flush=True)

    def fail(self, error: RelayError) -> None:
        self._error = self._error or error
        self.link.close(str(error))

    # The link's side ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._protocol.receive_data(data):
                self._handle(event)
        except PeerError as error:
            during = self._protocol.state
            error_class = ErrorClass.HANDSHAKE if during is ClientState.HANDSHAKE else ErrorClass.RESET
            found = self.target.redact(str(error))[:MAX_SAID_CHARACTERS]
            self.fail(RelayError(error_class, f"broke the protocol: {found}"))
            return
        self._flush()

    def link_drained(self) -> None:
        if self._fanout is not None and self._player is not None:
            self._fanout.serve(self._player)

    def link_lost(self, reason: str) -> None:
        if self._fanout is not None and self._player is not None:
            self._fanout.detach(self._player)
        error = self._error
        if error is None and not self._is_finished:
            error = of_lost_connection(self._protocol.state, reason)
        if not self.ended.done():
            self.ended.set_result(error)

    def _handle(self, event: client.ClientEvent | Message) -> None:
        match event:
            case client.ClientHandshakeCompleted():
                self._handshaken.set_result(None)
            case client.Started(message_stream_id):
                self._started.set_result(message_stream_id)
            case client.Refused():
                self.refused = event
                self.fail(of_refusal(event, self._name, self.target.redact))
            case client.ReconnectRequested(tc_url, _):
                self.reconnect_url = tc_url
                self.finish()
            case _:
                pass  # statuses on the way, and media that a publisher has no use for

    def _flush(self) -> None:
        self.link.write(self._protocol.data_to_send())


async def open_session(
    target: Target, name: str, *, chunk_size: int, tls: ssl.SSLContext | None
) -> tuple[DestinationSession, int]:
    """A session that may publish, and its message stream id; RelayError says why not."""
    try:
        sock = await dial(target.host, target.port, tls=tls, timeout_s=CONNECT_S)
    except TimeoutError:
        raise RelayError(ErrorClass.TIMEOUT, f"no connection within {CONNECT_S:g} s") from None
    except OSError as error:
        raise of_os_error(error) from None
    session = DestinationSession(sock, target, name, chunk_size)
    return session, await session.start()
