"""The way of a publisher's message up to its readers, gone once more with a copy that nobody gets.

A process that has slept for some milliseconds is slow: most of what a message takes then is to have the code for it in
the caches again (decision 14). What is done here shortly before one is due is what that one will take.

Owns a stream that is in no registry. Nothing of a session, of its connection or of its stream is touched.
"""

from __future__ import annotations

from headrace.protocol.chunks import DEFAULT_CHUNK_SIZE, ChunkReader, RawMessage, encode_message
from headrace.server.publication import Publication
from headrace.server.reporter import SessionReporter
from headrace.stream.log import MESSAGE_STREAM_ID, Entry, LogLimits
from headrace.stream.registry import Stream
from headrace.telemetry.proof import emit_nothing

# What is kept of the copies: the way into a log is that into one that is full.
_LIMITS = LogLimits(retain_s=1.0, max_bytes=1 << 20, max_messages=128)
# Encoders send differences: theirs are never extended, however long they have been at it.
_NOT_EXTENDED = 0x7FFFFF


class _Uncounted:
    messages_in = 0
    bytes_in = 0


class Rehearsal:
    """For all publishers of a server: it is the code that is to be at hand, whoever's data it was used for."""

    def __init__(self) -> None:
        self._reader = ChunkReader()
        self._publication = Publication(
            _Uncounted(),
            SessionReporter(emit_nothing, "", "", 0.0, is_accepted=False),
            Stream("", "", _LIMITS, 0.0),
            0.0,
            is_told=False,
        )

    def go(self, like: Entry, chunk_size: int, now_s: float) -> None:
        """As if a message like this one came in such chunks."""
        # Smaller ones than a connection begins with are no encoder's choice, and a message would have thousands.
        self._reader.chunk_size = chunk_size = max(chunk_size, DEFAULT_CHUNK_SIZE)
        data = encode_message(
            like.type_id,
            like.timestamp_ms & _NOT_EXTENDED,
            MESSAGE_STREAM_ID,
            like.payload,
            chunk_stream_id=like.type_id,
            chunk_size=chunk_size,
        )
        batch: list[RawMessage] = []
        self._reader.read(memoryview(data), batch)
        self._publication.receive(batch, MESSAGE_STREAM_ID, now_s)
