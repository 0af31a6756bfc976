"""One connection to an origin, from the first packet to the last: dialled, handshaken, playing.

When to connect, and what an end means, is the pull's.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from headrace.edge.origin import Upstream
from headrace.protocol import client, messages
from headrace.protocol.client import Role
from headrace.protocol.messages import Message
from headrace.relay.client_session import ClientSession, connected
from headrace.relay.failure import ErrorClass, RelayError
from headrace.relay.target import Target
from headrace.server.route import PATH, STREAM, VIA, decode_ids, encode_ids

# Nothing heard: ask, and after the second time without an answer give up. Short, so that a publisher here does not take
# a stream whose origin is only quiet for one that is lost.
PING_AFTER_S = 2.0
SILENT_S = 10.0

# What servers say to a player in data messages; it is not the publisher's, and each of our players gets it from us.
_SERVER_DATA = (b"\x02\x00\x11|RtmpSampleAccess", b"\x02\x00\x08onStatus")


class PullSession(ClientSession):
    """Plays one stream of one origin over one connection."""

    def __init__(
        self,
        sock: socket.socket,
        target: Target,
        name: str,
        via: tuple[str, ...],
        on_media: Callable[[PullSession, Sequence[Message], float], None],
    ) -> None:
        self._on_media = on_media
        self._read: list[Message] = []  # what came in one go is handed over in one go, or each would be sent by itself
        self.path: tuple[str, ...] = ()  # through which servers the stream came, as far as the origin says
        self.stream_id: str | None = None  # of the stream, as another worker of this server calls it
        self.last_received_s = self._pinged_s = asyncio.get_running_loop().time()
        super().__init__(sock, Role.PLAY, target, name, connect_more={VIA: encode_ids(via)})

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
        self.last_received_s = self._loop.time()
        super().data_received(data)
        self._hand_over()

    def link_drained(self) -> None:
        pass  # nothing but commands and acknowledgements is sent

    def _hand_over(self) -> None:
        if read := self._read:
            self._read = []
            self._on_media(self, read, self.last_received_s)

    def _handle(self, event: client.ClientEvent | Message) -> None:
        if not isinstance(event, Message):
            self._hand_over()  # what came before an end is not lost with it
        match event:
            case _ if self._is_finished:
                pass  # what was on its way when we left
            case Message():
                if event.type_id != messages.DATA or not event.payload.startswith(_SERVER_DATA):
                    self._read.append(event)
            case client.Started(_, info):
                self.path = decode_ids(info.get(PATH))
                stream_id = info.get(STREAM)
                self.stream_id = stream_id if isinstance(stream_id, str) else None
            case client.Refused():
                self._refuse(event)
            case client.Ended():
                self._is_finished = True
                self._end(None)  # now, and not when the origin has closed its side
                self.link.close("the stream ended", flush=True)
            case _:
                pass  # statuses on the way; an origin that asks us to reconnect serves us until it closes


async def open_session(
    upstream: Upstream,
    app: str,
    name: str,
    *,
    via: tuple[str, ...],
    on_media: Callable[[PullSession, Sequence[Message], float], None],
    timeout_s: float,
) -> PullSession:
    """A session that has been begun; RelayError if there is no connection to be had."""
    sock = await connected(upstream.dial(timeout_s), timeout_s)
    return PullSession(sock, upstream.target(app), name, via, on_media)
