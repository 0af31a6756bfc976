"""What the parent and a worker say to each other: JSON lines over a socket pair, questions with answers and news.

Owns the framing and the deadlines. What is asked and told is the business of both ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from headrace.errors import HeadraceError
from headrace.logs import get_logger

# A snapshot of some ten thousand streams. Both ends are ours: more is a mistake, not a message.
_MAX_LINE_BYTES = 64 << 20
ASK_S = 2.0

# What a handler returns is the answer, where the message was a question.
Handlers = Mapping[str, Callable[[Mapping[str, Any]], Any]]


class ChannelError(HeadraceError):
    """The other end is gone, or did not answer in time."""


class Channel:
    """One end. `run` ends when the other end is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handlers: Handlers) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._log = get_logger(__name__)
        self.is_lost = False

    @classmethod
    async def over(cls, sock: socket.socket, handlers: Handlers) -> Channel:
        reader, writer = await asyncio.open_connection(sock=sock, limit=_MAX_LINE_BYTES)
        return cls(reader, writer, handlers)

    def tell(self, what: str, **fields: Any) -> None:
        self._send({"what": what, **fields})

    async def ask(self, what: str, timeout_s: float = ASK_S, **fields: Any) -> Any:
        """The other end's answer; ChannelError if there is none."""
        if self.is_lost:
            raise ChannelError("the other end is gone")
        self._count += 1
        number = self._count
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._send({"what": what, "id": number, **fields})
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise ChannelError(f"no answer to {what} within {timeout_s:g} s") from None
        finally:
            del self._asked[number]

    async def run(self) -> None:
        try:
            while line := await self._reader.readline():
                self._handle(json.loads(line))
        except (OSError, ValueError) as error:
            self._log.error("Channel failed", error=str(error))
        finally:
            self.close()

    def close(self) -> None:
        self.is_lost = True
        self._writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ChannelError("the other end is gone"))

    def _handle(self, message: Mapping[str, Any]) -> None:
        what, number = message["what"], message.get("id")
        if what == "answer":
            answer = self._asked.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message["value"])
            return
        try:
            value = self._handlers[what](message)
        except Exception as error:  # a mistake in one must not end the others, and the other end stops waiting
            self._log.error("Channel handler failed", what=what, exc_info=error)
            return
        if number is not None:
            self._send({"what": "answer", "id": number, "value": value})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self.is_lost:
            return
        if self._writer.transport.get_write_buffer_size() > _MAX_LINE_BYTES:
            self._log.error("Channel is stuck", unsent_bytes=self._writer.transport.get_write_buffer_size())
            self._writer.transport.abort()
            return
        # ASCII: names may hold what is no Unicode text.
        self._writer.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
