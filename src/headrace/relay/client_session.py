"""One connection of ours to another server: what publishing to it and playing from it have in common.

Owns the client's command flow over one link, and what its end is called. When to connect, and what an end means, is
the business of whoever opened it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from typing import Any

from headrace.errors import PeerError
from headrace.net.dial import link_for
from headrace.protocol import client
from headrace.protocol.client import CHUNK_SIZE, ClientConnection, ClientState, Role
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


class ClientSession(ABC):
    """Publishes or plays one stream of one target over one connection."""

    def __init__(
        self,
        sock: socket.socket,
        role: Role,
        target: Target,
        name: str,
        *,
        chunk_size: int = CHUNK_SIZE,
        connect_more: Mapping[str, Any] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.target = target
        self._name = name
        self._protocol = ClientConnection(
            role=role,
            app=target.app,
            tc_url=target.tc_url,
            name=name,
            nonce=os.urandom(NONCE_BYTES),
            epoch_ms=int(self._loop.time() * 1000),
            chunk_size=chunk_size,
            connect_more=connect_more,
        )
        # Done when the connection is over: None if that was meant, else the reason.
        self.ended: asyncio.Future[RelayError | None] = self._loop.create_future()
        self._error: RelayError | None = None
        self._is_finished = False
        self.link = link_for(self._loop, sock, self)
        self._flush()

    @property
    def is_handshaken(self) -> bool:
        return self._protocol.state is not ClientState.HANDSHAKE

    def finish(self) -> None:
        """It is over for us: say so, send what is queued, close."""
        if not self._is_finished:
            self._is_finished = True
            self._protocol.finish()
            self._flush()
            self.link.close("finished", flush=True)

    def fail(self, error: RelayError) -> None:
        self._error = self._error or error
        self.link.close(str(error))

    @abstractmethod
    def _handle(self, event: client.ClientEvent | Message) -> None:
        """What the other side said."""

    def _refuse(self, refused: client.Refused) -> None:
        self.fail(of_refusal(refused, self._name, self.target.redact))

    def _end(self, error: RelayError | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def _flush(self) -> None:
        self.link.write(self._protocol.data_to_send())

    # The link's side ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._protocol.receive_data(data):
                self._handle(event)
        except PeerError as error:
            error_class = ErrorClass.RESET if self.is_handshaken else ErrorClass.HANDSHAKE
            found = self.target.redact(str(error))[:MAX_SAID_CHARACTERS]
            self.fail(RelayError(error_class, f"broke the protocol: {found}"))
            return
        self._flush()

    @abstractmethod
    def link_drained(self) -> None:
        """Room again in a link that was full."""

    def link_lost(self, reason: str) -> None:
        error = self._error
        if error is None and not self._is_finished:
            error = of_lost_connection(self._protocol.state, reason)
        self._end(error)


async def connected(dialled: Awaitable[socket.socket], timeout_s: float) -> socket.socket:
    """The connection that is being dialled; RelayError if there is none to be had."""
    try:
        return await dialled
    except TimeoutError:
        raise RelayError(ErrorClass.TIMEOUT, f"no connection within {timeout_s:g} s") from None
    except OSError as error:
        raise of_os_error(error) from None
