"""A stream on its way into its log: counted, watched, and told to the event log, whoever it comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from headrace.logs import Logger
from headrace.protocol import messages
from headrace.protocol.chunks import RawMessage
from headrace.protocol.metadata import reader_form
from headrace.server.media_watch import MediaWatch
from headrace.server.reporter import SessionReporter
from headrace.stream.log import Entry, is_metadata
from headrace.stream.registry import Stream


class IngestCounters(Protocol):
    """What is added to with every message."""

    messages_in: int
    bytes_in: int


class Publication:
    """One source of one stream, from its first message to its last."""

    __slots__ = ("_counters", "_is_told", "_report", "stream", "watch")

    def __init__(
        self, counters: IngestCounters, report: SessionReporter, stream: Stream, now_s: float, *, is_told: bool = True
    ) -> None:
        self.stream = stream
        self._is_told = is_told  # in the log; of a copy of what another worker has, that one writes
        self._report = report
        self.watch = MediaWatch(now_s)
        self._counters = counters

    def receive(self, batch: Sequence[RawMessage], message_stream_id: int, now_s: float) -> int:
        """Take the messages of this message stream out of a batch; readers are told once. How many those were."""
        stream = self.stream
        append = stream.log.append  # what `stream.add` does, without another call
        added: list[Entry] = []
        count = size_bytes = 0
        for type_id, timestamp_ms, its_stream_id, payload in batch:
            if its_stream_id != message_stream_id:
                continue
            count += 1
            size_bytes += len(payload)
            if type_id == messages.DATA:
                form = reader_form(payload)
                if form is None:
                    continue
                payload = form
                if is_metadata(payload):
                    self._report.metadata_received(stream, payload)
            if stream.is_shifted:
                timestamp_ms = stream.shift(type_id, timestamp_ms, payload)
            added.append(append(type_id, timestamp_ms, payload))
        counters = self._counters  # before: whoever has a message finds it counted
        counters.messages_in += count
        counters.bytes_in += size_bytes
        stream.tell()
        observe = self.watch.observe  # readers do not wait for that
        for entry in added:
            observe(entry, now_s)
        return count

    def sweep(self, log: Logger, now_s: float) -> None:
        """Once a second: the lines and the sample that are due."""
        self.watch.sample(now_s)
        self._tell_codecs(log, now_s)
        if self._is_told and (fields := self.watch.report(now_s)):
            log.info("Media report", stream_key=self.stream.key, **fields)
        self._report.sample_publication(self.stream, self.watch, now_s)

    def leave(self, log: Logger, reason: str, kind: str, now_s: float) -> None:
        """The source is gone; `kind` is how the event log calls the reason."""
        self._tell_codecs(log, math.inf)  # one that was shorter than a sweep has not been told yet
        if self._is_told:
            log.info("publisher disconnected", stream_key=self.stream.key, reason=reason)
        self._report.sample_publication(self.stream, self.watch, now_s)
        self._report.publish_stopped(self.stream, kind)

    def describe(self) -> dict[str, Any]:
        """What comes in, for the status page."""
        rates = self.watch.rates()
        return {
            "codecs": self.watch.describe(),
            "video_bps": round(rates.video_bps),
            "audio_bps": round(rates.audio_bps),
            "frame_rate": round(rates.frame_rate, 2),
        }

    def _tell_codecs(self, log: Logger, now_s: float) -> None:
        if self._is_told and (fields := self.watch.detected(now_s)):
            log.info("Codec detected", stream_key=self.stream.key, **fields)
            self._report.codec_detected(self.stream, fields)
