"""One connection to an origin, from the first packet to the last: dialled, handshaken, playing.

Owns the client's command flow over one link. When to connect, and what an end means, is the pull's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from headrace.edge.origin import Upstream
from headrace.errors import PeerError
from headrace.net.dial import link_for
from headrace.protocol import client, messages
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
from headrace.server.route import PATH, STREAM, VIA, decode_ids, encode_ids

# Nothing heard: ask, and after the second time without an answer give up. Short, so that a publisher here does not take
# a stream whose origin is only quiet for one that is lost.
PING_AFTER_S = 2.0
SILENT_S = 10.0

# What servers say to a player in data messages; it is not the publisher's, and each of our players gets it from us.
_SERVER_DATA = (b"\x02\x00\x11|RtmpSampleAccess", b"\x02\x00\x08onStatus")


class PullSession:
    """Plays one stream of one origin over one connection."""

    def __init__(
        self,
        sock: socket.socket,
        target: Target,
        name: str,
        via: tuple[str, ...],
        on_message: Callable[[PullSession, Message, float], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._target = target
        self._name = name
        self._on_message = on_message
        self._protocol = ClientConnection(
            role=Role.PLAY,
            app=target.app,
            tc_url=target.tc_url,
            name=name,
            nonce=os.urandom(NONCE_BYTES),
            epoch_ms=int(self._loop.time() * 1000),
            connect_more={VIA: encode_ids(via)},
        )
        self.path: tuple[str, ...] = ()  # through which servers the stream came, as far as the origin says
        self.stream_id: str | None = None  # of the stream, as another worker of this server calls it
        self.last_received_s = self._pinged_s = self._loop.time()
        # Done when the connection is over: None if the stream ended or we left, else the reason.
        self.ended: asyncio.Future[RelayError | None] = self._loop.create_future()
        self._error: RelayError | None = None
        self._is_finished = False
        self.link = link_for(self._loop, sock, self)
        self._flush()

    @property
    def is_handshaken(self) -> bool:
        return self._protocol.state is not ClientState.HANDSHAKE

    def finish(self) -> None:
        """We want no more of it: say so, close."""
        if not self._is_finished:
            self._is_finished = True
            self._protocol.finish()
            self._flush()
            self.link.close("finished", flush=True)

    def fail(self, error: RelayError) -> None:
        self._error = self._error or error
        self.link.close(str(error))

    def tick(self, now_s: float) -> None:
        """Once a second: is the origin still there."""
        if now_s - self.last_received_s > SILENT_S:
            self.fail(RelayError(ErrorClass.TIMEOUT, f"nothing heard for {SILENT_S:g} s"))
        elif now_s - max(self.last_received_s, self._pinged_s) > PING_AFTER_S:
            self._pinged_s = now_s
            self._protocol.send_ping(int(now_s * 1000) & 0xFFFFFFFF)
            self._flush()

    # The link's side ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        now_s = self.last_received_s = self._loop.time()
        try:
            for event in self._protocol.receive_data(data):
                if self._is_finished:
                    return
                if not isinstance(event, Message):
                    self._handle(event)
                elif event.type_id != messages.DATA or not event.payload.startswith(_SERVER_DATA):
                    self._on_message(self, event, now_s)
        except PeerError as error:
            error_class = ErrorClass.RESET if self.is_handshaken else ErrorClass.HANDSHAKE
            found = self._target.redact(str(error))[:MAX_SAID_CHARACTERS]
            self.fail(RelayError(error_class, f"broke the protocol: {found}"))
            return
        self._flush()

    def link_drained(self) -> None:
        pass  # nothing but commands and acknowledgements is sent

    def link_lost(self, reason: str) -> None:
        error = self._error
        if error is None and not self._is_finished:
            error = of_lost_connection(self._protocol.state, reason)
        if not self.ended.done():
            self.ended.set_result(error)

    def _handle(self, event: client.ClientEvent) -> None:
        match event:
            case client.Started(_, info):
                self.path = decode_ids(info.get(PATH))
                stream_id = info.get(STREAM)
                self.stream_id = stream_id if isinstance(stream_id, str) else None
            case client.Refused():
                self.fail(of_refusal(event, self._name, self._target.redact))
            case client.Ended():
                self._is_finished = True
                if not self.ended.done():
                    self.ended.set_result(None)  # now, and not when the origin has closed its side
                self.link.close("the stream ended", flush=True)
            case _:
                pass  # statuses on the way; an origin that asks us to reconnect serves us until it closes

    def _flush(self) -> None:
        self.link.write(self._protocol.data_to_send())


async def open_session(
    upstream: Upstream,
    app: str,
    name: str,
    *,
    via: tuple[str, ...],
    on_message: Callable[[PullSession, Message, float], None],
    timeout_s: float,
) -> PullSession:
    """A session that has been begun; RelayError if there is no connection to be had."""
    try:
        sock = await upstream.dial(timeout_s)
    except TimeoutError:
        raise RelayError(ErrorClass.TIMEOUT, f"no connection within {timeout_s:g} s") from None
    except OSError as error:
        raise of_os_error(error) from None
    return PullSession(sock, upstream.target(app), name, via, on_message)
