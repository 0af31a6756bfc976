"""The fan-out of one stream: what is new in the log is joined once and sent to every player that stands there.

Owns the flush and the players' states. A flush goes from one small group of players to the next, and each gets what is
there when it is its turn: what comes during a long flush does not wait for the next one. A player that does not take
its bytes is passed over until its socket drains, and then goes on from its own cursor: nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic

import msgspec

from headrace.net.link import Link
from headrace.protocol import media, messages
from headrace.stream.cadence import Cadence, Due, Prepare
from headrace.stream.cursor import Cursor, SkipReason
from headrace.stream.log import MESSAGE_STREAM_ID, NO_POSITION, Entry, encode_entries
from headrace.stream.registry import Stream
from headrace.telemetry.metrics import ServerMetrics

# After a flush the next one waits for so many times as long as one usually takes, and begins `merge_s` after it at the
# latest: then what comes meanwhile is joined. A send costs 4 to 8 us however small it is. Where players are few and
# flushes are short nothing waits. By the time alone 200 players did not wait on a machine that was twice as fast as the
# one before, and cost 0.8 times what they cost nginx instead of 0.5.
_PAUSE_FACTOR = 40
_SHORT_FLUSH_S = 0.0015
_FEW_GROUPS = 3
# What is usual is what half of them take: each flush moves it by this share towards its own time, however far that
# is. A keyframe takes several times as long as the others, and a machine that others use too stands still now and
# then: in a mean, a few of these made fifty players wait.
_USUAL_STEP = 1 / 8
_LEAST_STEP_S = 0.00005
# Players of one group. Between two of them the loop turns, once so long has gone into a flush.
_GROUP_PLAYERS = 32
_TURN_S = 0.0005
# Timers are exact to a millisecond: a flush that is due so soon is due now.
_SOON_S = 0.001
# A source that rests is read when the flush is due, and its messages begin it. Without any it begins so much later.
_SOURCE_LATE_S = 0.002
# Bytes joined for one send. A blocked player keeps a reference to its batch: this bounds what it holds.
BATCH_BYTES = 256 << 10


Expect = Callable[[Due, Prepare], bool]


class Player:
    """One reader on one connection."""

    __slots__ = (
        "batch_frames",
        "batch_keyframes",
        "batch_position",
        "cursor",
        "first_picture_s",
        "frames",
        "group",
        "handed_s",
        "is_ending",
        "is_internal",
        "is_paused",
        "is_plain",
        "is_viewer",
        "keyframes",
        "link",
        "max_gap_s",
        "message_stream_id",
        "messages",
        "on_ended",
    )

    def __init__(
        self,
        cursor: Cursor,
        link: Link,
        message_stream_id: int,
        on_ended: Callable[[str], None],
        *,
        since_s: float,
        is_viewer: bool = True,
        is_internal: bool = False,
    ) -> None:
        self.is_viewer = is_viewer  # a destination reads too, but nobody watches there
        self.is_internal = is_internal  # another worker of this server, which counts its own players
        self.cursor = cursor
        self.link = link
        self.message_stream_id = message_stream_id
        self.on_ended = on_ended
        self.messages = 0
        self.frames = 0  # of video, main track
        self.keyframes = 0
        self.handed_s = since_s  # when its last batch was handed to its socket; before the first, since when it waits
        self.max_gap_s = 0.0  # the longest time between two batches since take_max_gap_s
        self.first_picture_s: float | None = None  # when its first keyframe, or without video its first frame, left
        # Where the last batch began that its socket did not take at once, and what had been counted up to there.
        self.batch_position = cursor.position
        self.batch_frames = self.batch_keyframes = 0
        self.is_paused = False
        self.is_ending: str | None = None
        self.group: _Group | None = None  # while it is attached
        self.is_plain = False  # its next bytes are the log's own: it takes part in the joined send

    def settle(self) -> None:
        """Find out again whether it can take part in the joined send."""
        self.is_plain = not self.is_paused and self.message_stream_id == MESSAGE_STREAM_ID and self.cursor.is_plain

    def take_max_gap_s(self, now_s: float) -> float:
        """The longest gap since this was last called; the one that goes on counts from where it began."""
        gap_s, self.max_gap_s = max(self.max_gap_s, now_s - self.handed_s), 0.0
        return gap_s


def count_frames(entries: Iterable[Entry]) -> tuple[int, int]:
    """Video frames of the main track, and the keyframes among them."""
    frames = keyframes = 0
    for entry in entries:
        if entry.type_id == messages.VIDEO and entry.flags & _MAIN_FRAME == media.FRAME:
            frames += 1
            if entry.flags & media.KEYFRAME:
                keyframes += 1
    return frames, keyframes


_MAIN_FRAME = media.FRAME | media.SIDE_TRACK


class _Group:
    """Players that are served in one go."""

    __slots__ = ("players", "position")

    def __init__(self, position: int) -> None:
        self.players: list[Player] = []
        self.position = position  # where those of them stand that keep up


class _Batch(msgspec.Struct, eq=False, gc=False):
    """What is sent to everybody who stands at `start`."""

    data: bytes
    start: int
    stop: int
    entries: Sequence[Entry]


class _Handed(msgspec.Struct, eq=False):
    """A batch that was sent to a group: who stood there, how many bytes each socket took, and who stood elsewhere."""

    batch: _Batch
    now_s: float
    players: list[Player]
    sizes: list[int]
    others: list[Player]


def _first_bytes(entries: Sequence[Entry]) -> Sequence[Entry]:
    """As many of them as come to about `BATCH_BYTES`."""
    size = 0
    for index, entry in enumerate(entries):
        size += len(entry.payload)
        if size >= BATCH_BYTES:
            return entries[: index + 1]
    return entries


def _send(batch: _Batch, players: list[Player], now_s: float) -> _Handed:
    """The same bytes to every one of them that stands where they begin. Nothing is counted meanwhile."""
    data, start = batch.data, batch.start
    handed: list[Player] = []
    sizes: list[int] = []
    others: list[Player] = []
    for player in players:
        link = player.link
        if link.is_blocked:
            continue
        if not player.is_plain or player.cursor.position != start:
            others.append(player)
            continue
        try:
            sizes.append(link.send_now(data))
        except (BlockingIOError, InterruptedError):
            sizes.append(0)
        except OSError as error:
            link.fail(error)
            continue
        handed.append(player)
    return _Handed(batch, now_s, handed, sizes, others)


class Fanout:
    """All players of one stream, on one loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: Stream,
        metrics: ServerMetrics,
        chunk_size: int,
        *,
        merge_s: float = 0.0,
        rest: Callable[[float], float] = lambda until_s: 0.0,
        expect: Expect = lambda due, prepare: False,
    ) -> None:
        self._loop = loop
        self.stream_key = stream.key
        self._log = stream.log
        self._metrics = metrics
        self._chunk_size = chunk_size
        self._groups: list[_Group] = []  # all but the last are full
        self._merge_s = merge_s
        # Tells the stream's source until when nobody wants anything of it; how long it waits with that in any case.
        self._rest = rest
        # Tells it what is due next, where that will be sent at once, and what to do shortly before.
        self._expect = expect
        self._cadence = Cadence()
        self._is_prepared_for = False  # the next message: `_prepare` will be called
        self._next_flush_s = 0.0
        self._timer: asyncio.TimerHandle | None = None  # of a flush that is due later
        self._viewers = 0
        self._due: list[_Group] = []  # whose turn is yet to come in the flush that is under way, the next one last
        self._joined: tuple[tuple[int, int], _Batch] | None = None  # the newest batch of it, by its start and the tail
        self._began_s = 0.0  # when it began
        self._took_s = 0.0  # what it has taken so far
        self._usual_s = 0.0  # what one takes: about the median
        stream.add_listener(self)

    def __len__(self) -> int:
        return sum(len(group.players) for group in self._groups)

    @property
    def viewers(self) -> int:
        return self._viewers

    @property
    def is_watched(self) -> bool:
        """Somebody watches, here or by another worker of this server."""
        return any(player.is_viewer or player.is_internal for player in self._players())

    def attach(self, player: Player) -> None:
        """Serve a new player at once: the newest keyframe leaves without waiting for the next message."""
        if not self._groups or len(self._groups[-1].players) >= _GROUP_PLAYERS:
            self._groups.append(_Group(self._log.tail))
        player.group = self._groups[-1]
        player.group.players.append(player)
        self._viewers += player.is_viewer
        self._serve(player)

    def detach(self, player: Player) -> None:
        group = player.group
        if group is None:
            return
        player.group = None
        player.is_plain = False
        self._viewers -= player.is_viewer
        group.players.remove(player)
        last = self._groups[-1]
        if group is not last:  # the gap is filled, or there would be a group for every player at last
            moved = last.players.pop()
            moved.group = group
            group.players.append(moved)
            self._serve(moved)  # its new group may have had its turn
        if not last.players:
            self._groups.pop()

    def serve(self, player: Player) -> None:
        """The player's socket has room again, or its wishes changed."""
        self._serve(player)

    def stream_appended(self) -> None:
        # At light load a message leaves at once: not at the next turn of the loop, which cost 1 us for every message of
        # every stream. The longer a flush takes, the more is joined.
        if self._due:
            return
        if self._next_flush_s:
            wait_s = self._next_flush_s - monotonic()
            if wait_s > _SOON_S:
                if self._timer is None:
                    self._timer = self._loop.call_later(wait_s + _SOURCE_LATE_S, self._flush)
                return
            self._flush()
        elif not self._send_on(_TURN_S):
            self._loop.call_soon(self._flush)

    def _prepare(self, due: Due) -> bool:
        """The next message is due in a moment: do what it will take but for the sending, to have that in the caches."""
        self._is_prepared_for = False
        if monotonic() >= due.at_s or not self._cadence.is_awaited(due):
            return False
        data = encode_entries((due.like,), self._chunk_size)
        nowhere = _Batch(data, NO_POSITION, NO_POSITION, ())  # nobody stands there: nothing is sent
        for group in self._groups[:1]:
            _send(nowhere, group.players[:1], 0.0)
        return True

    def flush(self) -> None:
        """Send what is there now, all of it."""
        self._send_on(math.inf)  # the rest of a flush that is under way
        self._send_on(math.inf)

    def stream_ended(self, reason: str) -> None:
        self.flush()
        for player in list(self._players()):
            player.is_ending = reason
            self._serve(player)

    def _players(self) -> Iterator[Player]:
        return (player for group in self._groups for player in group.players)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._send_on(_TURN_S):
            self._loop.call_soon(self._flush)
        elif len(self._groups) > 1 and any(group.position < self._log.tail for group in self._groups):
            self.stream_appended()  # it came when they had had their turn

    def _send_on(self, for_s: float) -> bool:
        """Begin a flush, or go on with the last for about so long; False if there is more to do.

        A send takes 8 us and more, so a thousand players take 10 ms. In one piece, whoever joined meanwhile waited for
        all of them, in each of the five steps of its start: a first keyframe took 13 to 20 ms at p99, and 6 ms since.
        """
        began_s = now_s = monotonic()
        if not self._due:
            self._due = self._groups[::-1]
            self._began_s = began_s
        due = self._due
        log = self._log
        handed: list[_Handed] = []  # not counted yet: the last of the players need not wait for that
        while due:
            group = due.pop()
            if group.position < log.tail:
                batch = self._join(max(group.position, log.head))
                group.position = batch.stop
                sent = _send(batch, group.players, now_s)
                handed.append(sent)
                is_more = group.position < log.tail
                if is_more:
                    due.insert(0, group)  # there is more than a batch: once more, after all the others
                if is_more or sent.others:
                    self._settle(handed)
                now_s = monotonic()
            if due and now_s - began_s > for_s:
                self._settle(handed)
                self._took_s += monotonic() - began_s
                return False
        self._settle(handed)
        now_s = monotonic()
        took_s = self._took_s + now_s - began_s
        step_s = self._usual_s * _USUAL_STEP + _LEAST_STEP_S
        self._usual_s += max(min(took_s - self._usual_s, step_s), -step_s)
        self._took_s = 0.0
        joined, self._joined = self._joined, None
        self._next_flush_s = 0.0
        if self._merge_s and (self._usual_s > _SHORT_FLUSH_S or len(self._groups) > _FEW_GROUPS):
            pause_s = max(min(self._usual_s * _PAUSE_FACTOR, self._began_s + self._merge_s - now_s), 0.0)
            self._next_flush_s = now_s + pause_s - min(self._rest(now_s + pause_s), pause_s)
        elif joined is not None:
            next_due = self._cadence.observe(joined[1].entries, self._began_s)
            if next_due is not None and not self._is_prepared_for:
                self._is_prepared_for = self._expect(next_due, self._prepare)
        return True

    def _settle(self, handed: list[_Handed]) -> None:
        """Count what was sent, and only then serve those who stood elsewhere: that may move players to other groups."""
        for sent in handed:
            self._count(sent)
        for sent in handed:
            for player in sent.others:
                self._serve(player)
        handed.clear()

    def _count(self, handed: _Handed) -> None:
        batch, now_s = handed.batch, handed.now_s
        start, stop = batch.start, batch.stop
        frames, keyframes = count_frames(batch.entries)
        size = len(batch.data)
        count = stop - start
        served = 0
        for player, sent in zip(handed.players, handed.sizes, strict=True):
            link = player.link
            player.cursor.position = stop
            if player.first_picture_s is None and self._has_picture(batch.entries):
                player.first_picture_s = now_s
            if sent == size:
                link.sent_bytes += sent
            else:
                player.batch_position = start
                player.batch_frames = player.frames
                player.batch_keyframes = player.keyframes
                link.keep_rest(batch.data, sent)
            player.messages += count
            if frames:
                player.frames += frames
                player.keyframes += keyframes
            gap_s = now_s - player.handed_s
            player.handed_s = now_s
            if gap_s > player.max_gap_s:
                player.max_gap_s = gap_s
            if not player.is_internal:
                served += 1
        self._metrics.messages_relayed += count * served
        self._metrics.bytes_relayed += size * served

    def _join(self, start: int) -> _Batch:
        """The messages from `start` on, about `BATCH_BYTES` at most: once, for all players that stand there."""
        log = self._log
        key = start, log.tail
        if self._joined is not None and self._joined[0] == key:
            return self._joined[1]
        entries = log.entries(start, log.tail)
        if len(entries) > 1:
            entries = _first_bytes(entries)
        batch = _Batch(encode_entries(entries, self._chunk_size), start, start + len(entries), entries)
        self._joined = key, batch
        return batch

    def _serve(self, player: Player) -> None:
        """Everything between the player's cursor and the end of the log, as far as its socket takes it."""
        link = player.link
        cursor = player.cursor
        while not link.is_blocked and not player.is_paused:
            player.batch_position = cursor.position
            player.batch_frames = player.frames
            player.batch_keyframes = player.keyframes
            entries = cursor.take(BATCH_BYTES)
            if not entries:
                if cursor.position >= self._log.tail:
                    break
                continue
            if player.message_stream_id == MESSAGE_STREAM_ID:
                data = encode_entries(entries, self._chunk_size)
            else:
                data = b"".join([entry.encode(self._chunk_size, player.message_stream_id) for entry in entries])
            frames, keyframes = count_frames(entries)
            player.messages += len(entries)
            player.frames += frames
            player.keyframes += keyframes
            now_s = monotonic()
            player.max_gap_s = max(player.max_gap_s, now_s - player.handed_s)
            player.handed_s = now_s
            if player.first_picture_s is None and self._has_picture(entries):
                player.first_picture_s = now_s
            if not player.is_internal:
                self._metrics.messages_relayed += len(entries)
                self._metrics.bytes_relayed += len(data)
            link.offer(data)
        player.settle()
        # A paused player is told of the end at once: it might never go on, and nothing else would end its session.
        is_done = player.is_paused or cursor.position >= self._log.tail
        if player.is_ending is not None and not link.is_blocked and is_done:
            self.detach(player)
            player.on_ended(player.is_ending)

    def _has_picture(self, entries: Sequence[Entry]) -> bool:
        wanted = media.KEYFRAME if self._log.has_video else media.FRAME
        return any(entry.flags & wanted for entry in entries)

    def pause(self, player: Player, is_paused: bool) -> None:
        player.is_paused = is_paused
        if is_paused:
            player.settle()
        else:
            player.cursor.skip_to_live(SkipReason.PAUSED)
            self._serve(player)
