"""One client's session: what it asked for, what it was granted, and what is logged about it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import PeerError, StreamError
from headrace.logs import get_logger
from headrace.net.fanout import Fanout, Player
from headrace.net.link import Link
from headrace.protocol import events
from headrace.protocol.chunks import Buffer, RawMessage
from headrace.protocol.handshake import NONCE_BYTES
from headrace.protocol.messages import Message
from headrace.protocol.server import ServerConnection
from headrace.server.publication import Publication
from headrace.server.reporter import PlayRecord, SessionReporter
from headrace.server.route import CONN, PATH, REMOTE, STREAM, VIA, decode_ids, encode_ids
from headrace.server.source import Intake
from headrace.stream.cadence import Due, Prepare
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.registry import Stream, StreamState, not_found
from headrace.telemetry.proof import emit_nothing

if TYPE_CHECKING:
    from headrace.server.server import Server


class Session:
    """Drives one `ServerConnection` over one `Link`."""

    def __init__(
        self,
        server: Server,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        conn_id: str,
        remote: str,
        now_s: float,
        *,
        is_internal: bool = False,
    ) -> None:
        self.is_internal = is_internal  # another worker of this server: it counts and tells of its own connections
        self._server = server
        self._loop = loop
        self.conn_id = conn_id
        self.remote = remote
        self._log = get_logger(__name__).bind(conn_id=conn_id)
        self._protocol = ServerConnection(
            nonce=os.urandom(NONCE_BYTES), epoch_ms=int(now_s * 1000), chunk_size=server.chunk_size
        )
        self._app = ""
        self.via: tuple[str, ...] = ()  # of another server that pulls from us: through whom the request came
        self._publications: dict[int, Intake] = {}
        self._claimed: dict[int, asyncio.Future[Intake | None]] = {}  # publishes that other workers may have
        self._players: dict[int, tuple[Fanout, Player]] = {}
        self._play_records: dict[int, PlayRecord] = {}
        self._sought: dict[int, asyncio.Future[Stream]] = {}  # plays whose stream is looked for elsewhere
        self._opened_s = now_s
        self._idle_since_s = now_s
        self._pinged_s = now_s
        self.last_received_s = now_s
        self._is_handshaken = False
        self._is_over = False
        self._leaving: str | None = None
        self._lines: list[tuple[str, dict[str, Any]]] = []  # to be written once the answer has left
        emit, say = (emit_nothing, self._log.debug) if is_internal else (server.emit, self._log.info)
        self._report = SessionReporter(emit, conn_id, server.viewer_name(remote), now_s)
        say("Connection accepted", remote=remote)
        self.link = Link(loop, sock, self)

    # The link's side ------------------------------------------------------------------------------------------

    def data_received(self, data: Buffer) -> None:
        # Once it is over its last bytes are on their way out, and what the peer still says changes nothing.
        if self._is_over:
            return
        now_s = self.last_received_s = self._loop.time()
        try:
            if self._publications:
                # In one piece with what follows from it: a process that has just woken up takes 5 us and more for each
                # call on the way of a message to its readers.
                batch: list[RawMessage] = []
                is_all = True
                try:
                    is_all = self._protocol.read_media(data, batch)
                finally:  # what came before a fault is not lost with it
                    other = None if is_all else batch.pop()
                    if batch:
                        taken = 0
                        for message_stream_id, publication in self._publications.items():
                            taken += publication.receive(batch, message_stream_id, now_s)
                        self._protocol.ignored_media_messages += len(batch) - taken
                    self._protocol.media_was_read(len(data))
                if other is not None:
                    self._handle(self._protocol.receive_after(other), now_s)
            else:
                if self._idle_since_s:
                    self.link.acknowledge_now()
                self._handle(self._protocol.receive_data(bytes(data)), now_s)
            self._flush()
        except PeerError as error:
            self._write_lines()
            self._server.metrics.peer_errors += 1
            self._log.warn("Protocol error", error=str(error), remote=self.remote)
            self._flush()
            self.close(f"protocol error: {error}")
            return
        finally:
            if self._lines:
                self._write_lines()

    def _handle(self, found: Iterator[events.Event | Message], now_s: float) -> None:
        for event in found:
            if type(event) is Message:
                message_stream_id = event.message_stream_id
                if publication := self._publications.get(message_stream_id):
                    raw = (event.type_id, event.timestamp_ms, message_stream_id, event.payload)
                    publication.receive((raw,), message_stream_id, now_s)
            else:
                _HANDLERS[type(event)](self, event)
                if self._is_over:
                    break

    def link_drained(self) -> None:
        for fanout, player in list(self._players.values()):
            fanout.serve(player)

    def link_lost(self, reason: str) -> None:
        self._is_over = True
        self._write_lines()
        if not self._is_handshaken:
            self._server.metrics.handshakes_failed += 1
        now_s = self._loop.time()
        for publication in list(self._publications.values()):
            publication.leave(self._log, reason, _LEFT_BY_FORCE.get(reason, "lost"), now_s)
            self._server.publisher_lost(publication.stream, self, now_s)
        self._publications.clear()
        for message_stream_id in [*self._players, *self._sought]:
            self._stop_playing(message_stream_id, reason)
        for claimed in self._claimed.values():
            claimed.cancel()
        self._claimed.clear()
        say = self._log.debug if self.is_internal else self._log.info
        say("Connection closed", reason=reason, received_bytes=self._protocol.received_bytes)
        self._report.connection_closed(reason, now_s, self._protocol.received_bytes, self.link.sent_bytes)
        self._server.session_over(self)

    # The server's side ----------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Send what is queued, then close. From here on the peer is not listened to."""
        self._is_over = True
        self.link.close(reason, flush=True)

    def leave(self, reason: str) -> None:
        """Close once the players that are behind have had the rest of their streams and the end of them."""
        if self._players:
            self._leaving = reason
        else:
            self.close(reason)

    def describe_publication(self, stream: Stream) -> dict[str, Any]:
        """What this session publishes as `stream`, for the status page."""
        publication = next((one for one in self._publications.values() if one.stream is stream), None)
        if publication is None:
            return {}
        return {"publisher": {"conn_id": self.conn_id, "remote": self.remote}, **publication.describe()}

    def plays(self, stream: Stream) -> bool:
        return any(record.stream is stream for record in self._play_records.values())

    def stop_telling(self, stream: Stream) -> None:
        """To the event log this stream is over, though its players stay: it goes on under another id."""
        now_s = self._loop.time()
        for message_stream_id, record in self._play_records.items():
            if record.stream is stream:
                self._report.play_stopped(record, self._players[message_stream_id][1], "worker lost", now_s)

    def tell_anew(self, stream: Stream) -> None:
        for message_stream_id, record in self._play_records.items():
            if record.stream is stream:
                _, player = self._players[message_stream_id]
                self._play_records[message_stream_id] = record.again(player, self.link.sent_bytes, self._loop.time())
                self._report.play_started(stream)

    def displace(self) -> None:
        """Another publisher took the stream that this one left silent."""
        self._log.info("Publisher replaced", silent_s=round(self._loop.time() - self.last_received_s, 1))
        self._is_over = True  # what it sends in this very turn must not mix with the new publisher's
        self._loop.call_soon(self.link.close, "replaced by a new publisher")

    def rest(self, until_s: float) -> float:
        return self.link.rest(until_s)

    def expect(self, due: Due, prepare: Prepare) -> bool:
        return self.link.expect(due.at_s, partial(self._prepare, due, prepare))

    def _prepare(self, due: Due, prepare: Prepare) -> None:
        if prepare(due):
            self._server.rehearsal.go(due.like, self._protocol.in_chunk_size, self._loop.time())

    def sweep(self, now_s: float) -> None:
        """Once a second: deadlines, pings, and the lines that are due."""
        deadlines = self._server.deadlines
        if not self._is_handshaken:
            if now_s - self._opened_s > deadlines.handshake_s:
                self._expire("handshake", "handshake deadline passed")
            return
        if self.link.is_blocked and now_s - self.link.blocked_since_s > deadlines.stalled_s:
            self._expire("stalled", f"peer took no bytes for {deadlines.stalled_s:g} s")
        elif now_s - self.last_received_s > deadlines.silent_s:
            self._expire("silent", f"nothing heard for {deadlines.silent_s:g} s")
        elif self._idle_since_s and now_s - self._idle_since_s > deadlines.idle_s:
            self._expire("idle", f"neither publishing nor playing for {deadlines.idle_s:g} s")
        elif now_s - max(self.last_received_s, self._pinged_s) > deadlines.ping_after_s:
            self._pinged_s = now_s
            self._protocol.send_ping(int(now_s * 1000) & 0xFFFFFFFF)
            self._flush()
        for publication in self._publications.values():
            publication.sweep(self._log, now_s)
        for message_stream_id, (_, player) in self._players.items():
            self._report.sample_play(self._play_records[message_stream_id], player, now_s)

    def _expire(self, deadline: str, reason: str) -> None:
        self._server.metrics.connections_closed[deadline] += 1
        self._log.warn("Deadline passed", deadline=deadline, reason=reason)
        self._is_over = True
        self.link.close(reason)

    def _say_later(self, line: str, **fields: Any) -> None:
        """Into the log once the answer is on its way: a line takes a tenth of a millisecond, and a start has six."""
        self._lines.append((line, fields))

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        for line, fields in lines:
            self._log.info(line, **fields)

    def _flush(self) -> None:
        if data := self._protocol.data_to_send():
            self.link.write(data)

    # Events ---------------------------------------------------------------------------------------------------

    def _handshake_completed(self, event: events.HandshakeCompleted) -> None:
        self._is_handshaken = True
        self._idle_since_s = self._loop.time()
        self._say_later("Handshake completed", digest=event.is_digest)

    def _connect_requested(self, event: events.ConnectRequested) -> None:
        self._app = event.app
        if self.is_internal:
            self._speak_for(event.properties)
        self.via = decode_ids(event.properties.get(VIA))
        hops = {"hops": len(self.via)} if self.via else {}
        self._say_later("connect command", app=event.app, client=event.flash_version, **hops)
        self._protocol.accept_connect()

    def _speak_for(self, properties: Mapping[str, Any]) -> None:
        """The other worker sends what one of its connections publishes: here it goes by that one's name."""
        conn_id, remote = properties.get(CONN), properties.get(REMOTE)
        if isinstance(conn_id, str) and isinstance(remote, str):
            self.conn_id, self.remote = conn_id, remote
            self._report = SessionReporter(
                self._server.emit, conn_id, self._server.viewer_name(remote), self._opened_s, is_accepted=False
            )

    def _stream_created(self, event: events.StreamCreated) -> None:
        self._say_later("createStream", message_stream_id=event.message_stream_id)

    def _publish_requested(self, event: events.PublishRequested) -> None:
        self._write_lines()
        self._log.info("publish command", stream_key=f"{self._app}/{event.name}", kind=event.kind)
        claims = self._server.claims
        if claims is None:
            self._publish(event.message_stream_id, event.name)
            return
        claimed = claims.claim(
            self._app,
            event.name,
            conn_id=self.conn_id,
            remote=self.remote,
            is_internal=self.is_internal,
            on_lost=self.link.close,
        )
        self._claimed[event.message_stream_id] = claimed
        claimed.add_done_callback(lambda done: self._publish_claimed(event.message_stream_id, event.name, done))

    def _publish_claimed(self, message_stream_id: int, name: str, claimed: asyncio.Future[Intake | None]) -> None:
        """The stream is ours to publish, or another worker takes it from us, or it is not to be had."""
        if self._claimed.get(message_stream_id) is not claimed:
            if not claimed.cancelled():
                claimed.exception()  # looked at, or asyncio complains that nobody did
            return
        del self._claimed[message_stream_id]
        try:
            intake = claimed.result()
        except StreamError as error:
            self._refuse_publish(message_stream_id, name, error)
            return
        if intake is None:
            self._publish(message_stream_id, name)
        else:
            self._accept_publish(message_stream_id, intake)
        self._flush()

    def _publish(self, message_stream_id: int, name: str) -> None:
        try:
            stream = self._server.publish(self._app, name, self)
        except StreamError as error:
            self._refuse_publish(message_stream_id, name, error)
            return
        now_s = self._loop.time()
        self._report.publish_started(stream, resumed=stream.is_resumed, now_s=now_s)
        self._accept_publish(message_stream_id, Publication(self._server.metrics, self._report, stream, now_s))

    def _accept_publish(self, message_stream_id: int, intake: Intake) -> None:
        self._publications[message_stream_id] = intake
        if self._server.rounds is not None:
            self.link.read_in_rounds(self._server.rounds, self.data_received)
        self._idle_since_s = 0.0
        self._protocol.accept_publish(message_stream_id)

    def _refuse_publish(self, message_stream_id: int, name: str, error: StreamError) -> None:
        key = f"{self._app}/{name}"
        self._log.warn("Publish refused", stream_key=key, code=error.code, reason=error.description)
        if not self.is_internal:
            self._report.publish_refused(key, error.code)
        self._protocol.reject_publish(message_stream_id, error.code, error.description)
        self._flush()
        self.close(f"publish refused: {error.code}")

    def _unpublished(self, event: events.Unpublished) -> None:
        if claimed := self._claimed.pop(event.message_stream_id, None):
            claimed.cancel()
        publication = self._publications.pop(event.message_stream_id, None)
        if publication is not None:
            publication.leave(self._log, "unpublished", "unpublished", self._loop.time())
            self._server.unpublish(publication.stream, self)
            self._settle_idle()

    def _play_requested(self, event: events.PlayRequested) -> None:
        message_stream_id = event.message_stream_id
        self._say_later("play command", stream_key=f"{self._app}/{event.name}")
        try:
            found = self._server.find(self._app, event.name, self.via, is_internal=self.is_internal)
        except StreamError as error:
            self._refuse_play(message_stream_id, event.name, error)
            return
        if isinstance(found, Stream):
            self._play(message_stream_id, found)
        else:
            self._sought[message_stream_id] = found
            found.add_done_callback(lambda done: self._play_found(message_stream_id, event.name, done))

    def _play_found(self, message_stream_id: int, name: str, found: asyncio.Future[Stream]) -> None:
        """What was looked for elsewhere is here, or is not to be had."""
        if self._sought.get(message_stream_id) is not found:
            if not found.cancelled():
                found.exception()  # looked at, or asyncio complains that nobody did
            return  # the player left, or wants something else
        del self._sought[message_stream_id]
        if self._is_over:
            return
        try:
            stream = found.result()
            if stream.state is StreamState.ENDED:  # in the very moment between
                raise not_found(name)
        except StreamError as error:
            self._refuse_play(message_stream_id, name, error)
        else:
            self._play(message_stream_id, stream)
        self._flush()
        self._write_lines()

    def _refuse_play(self, message_stream_id: int, name: str, error: StreamError) -> None:
        key = f"{self._app}/{name}"
        self._write_lines()
        self._log.info("Play refused", stream_key=key, code=error.code, reason=error.description)
        self._server.metrics.plays_refused += not self.is_internal
        self._report.play_refused(key, error.code)
        self._protocol.reject_play(message_stream_id, error.code, error.description)

    def _play(self, message_stream_id: int, stream: Stream) -> None:
        self._server.metrics.plays_started += not self.is_internal
        more = {PATH: encode_ids((self._server.id, *stream.path))} if self.via or self.is_internal else {}
        if self.is_internal:
            more[STREAM] = stream.id
        self._protocol.accept_play(message_stream_id, more)
        self._flush()
        cursor = Cursor(stream.log, max_lag_s=self._server.max_lag_s, on_skip=self._skipped)
        now_s = self._loop.time()
        player = Player(
            cursor,
            self.link,
            message_stream_id,
            lambda reason: self._stream_ended(message_stream_id, reason),
            since_s=now_s,
            is_viewer=not self.is_internal,
            is_internal=self.is_internal,
        )
        fanout = self._server.fanout(stream)
        self._players[message_stream_id] = (fanout, player)
        self._play_records[message_stream_id] = PlayRecord(stream, self.link.sent_bytes, now_s)
        self._report.play_started(stream)
        self._idle_since_s = 0.0
        self._server.metrics.subscribers += not self.is_internal
        fanout.attach(player)
        if not self.is_internal:
            self._say_later("Subscriber added", stream_key=stream.key, subscribers=fanout.viewers)

    def _play_stopped(self, event: events.PlayStopped) -> None:
        self._stop_playing(event.message_stream_id, "stopped by player")

    def _pause_changed(self, event: events.PauseChanged) -> None:
        if found := self._players.get(event.message_stream_id):
            fanout, player = found
            self._flush()
            fanout.pause(player, event.is_paused)

    def _receive_changed(self, event: events.ReceiveChanged) -> None:
        if found := self._players.get(event.message_stream_id):
            _, player = found
            if event.audio is not None:
                player.cursor.wants_audio = event.audio
            if event.video is not None:
                player.cursor.wants_video = event.video
            player.settle()

    def _seek_answered(self, event: events.SeekAnswered) -> None:
        self._log.debug("seek command", position_ms=event.position_ms)

    def _command_ignored(self, event: events.CommandIgnored) -> None:
        self._log.debug("Command ignored", command=event.name)

    # Playing --------------------------------------------------------------------------------------------------

    def _stream_ended(self, message_stream_id: int, reason: str) -> None:
        self._protocol.end_play(message_stream_id)
        self._flush()
        self._stop_playing(message_stream_id, reason)
        if self._leaving is not None and not self._players:
            self.close(self._leaving)

    def _stop_playing(self, message_stream_id: int, reason: str) -> None:
        if sought := self._sought.pop(message_stream_id, None):
            sought.cancel()
        found = self._players.pop(message_stream_id, None)
        if found is None:
            return
        fanout, player = found
        fanout.detach(player)
        self._report.play_stopped(self._play_records.pop(message_stream_id), player, reason, self._loop.time())
        self._server.metrics.subscribers -= not self.is_internal
        skipped = {skip.value: count for skip, count in player.cursor.skipped.items()}
        say = self._log.debug if self.is_internal else self._log.info
        say(
            "Subscriber removed", stream_key=fanout.stream_key, reason=reason, messages=player.messages, skipped=skipped
        )
        self._settle_idle()

    def _skipped(self, reason: SkipReason, start: int, stop: int) -> None:
        if not self.is_internal:
            self._server.metrics.messages_dropped[reason.value] += stop - start
        if reason in (SkipReason.LAG, SkipReason.EVICTED):
            self._log.warn("Subscriber is too slow", remote=self.remote, reason=reason.value, skipped=stop - start)

    def _settle_idle(self) -> None:
        if not self._publications and not self._players:
            self._idle_since_s = self._loop.time()


# Why its link was closed -> how the event log calls that.
_LEFT_BY_FORCE = {"replaced by a new publisher": "replaced", "dropped": "dropped"}

_HANDLERS: dict[type, Callable[[Session, Any], None]] = {
    events.HandshakeCompleted: Session._handshake_completed,
    events.ConnectRequested: Session._connect_requested,
    events.StreamCreated: Session._stream_created,
    events.PublishRequested: Session._publish_requested,
    events.PlayRequested: Session._play_requested,
    events.Unpublished: Session._unpublished,
    events.PlayStopped: Session._play_stopped,
    events.PauseChanged: Session._pause_changed,
    events.ReceiveChanged: Session._receive_changed,
    events.SeekAnswered: Session._seek_answered,
    events.CommandIgnored: Session._command_ignored,
}
