"""A cursor: one reader's place in a log. It never waits for anybody, and what it skips is counted with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum

from headrace.protocol import media, messages
from headrace.stream.log import Entry, StreamLog


class SkipReason(Enum):
    """Why a reader did not get a message."""

    LAG = "lag"  # further behind than allowed: jumped to the newest keyframe
    EVICTED = "evicted"  # so far behind that the log had dropped the place
    NO_KEYFRAME = "no_keyframe"  # frames that cannot be decoded without the keyframe before them
    PAUSED = "paused"  # the player asked for a pause, or for no audio or no video


SkipListener = Callable[[SkipReason, int, int], None]


class Cursor:
    """Reads a log in order from a start point; jumps to keyframes only."""

    __slots__ = (
        "_log",
        "_max_lag_ms",
        "_on_skip",
        "_pending",
        "awaits_keyframe",
        "position",
        "skipped",
        "wants_audio",
        "wants_video",
    )

    def __init__(self, log: StreamLog, *, max_lag_s: float | None = None, on_skip: SkipListener | None = None) -> None:
        self._log = log
        self._max_lag_ms = None if max_lag_s is None else max_lag_s * 1000
        self._on_skip = on_skip
        self.skipped: Counter[SkipReason] = Counter()
        self.wants_audio = True
        self.wants_video = True
        self.position = 0
        self.awaits_keyframe = False
        self._pending: tuple[Entry, ...] = ()
        self.start()

    @classmethod
    def resume(
        cls, log: StreamLog, position: int, *, max_lag_s: float | None = None, on_skip: SkipListener | None = None
    ) -> Cursor:
        """A cursor for a reader that lost its connection at `position`: it goes on there as far as the log has it.

        The reader at the far end is a new one, so metadata and sequence headers come first, and video from the next
        keyframe on; sound goes on at once. Nothing is sent twice, so timestamps never step back.
        """
        cursor = cls(log, max_lag_s=max_lag_s, on_skip=on_skip)
        cursor.position = position
        cursor._pending = log.preface_at(position)
        cursor.awaits_keyframe = log.has_video
        return cursor

    def start(self) -> None:
        """Stand at the log's start point, with the metadata and sequence headers of that place to be read first."""
        point = self._log.start_point()
        self.position = point.position
        self._pending = point.preface
        self.awaits_keyframe = self._log.has_video and self._log.newest_keyframe is None

    @property
    def is_plain(self) -> bool:
        """True if the next bytes are the log's own, the same for every reader at this position."""
        return not (self.awaits_keyframe or self._pending) and self.wants_audio and self.wants_video

    @property
    def lag_ms(self) -> int:
        """Media time between the next message to read and the newest."""
        return self._log.media_ms - self.media_ms

    @property
    def media_ms(self) -> int:
        """Media time of the next message to read, or of the newest where everything is read."""
        return self._log.media_ms_at(self.position)

    def catch_up(self) -> None:
        """Jump ahead if the place is gone or too far behind, and a keyframe to jump to is there."""
        log = self._log
        position = self.position
        if position < log.head:
            self._skip(SkipReason.EVICTED)
        elif self._max_lag_ms is not None and self.lag_ms > self._max_lag_ms:
            # A newest keyframe behind us means a group of pictures longer than the lag allowed: reading on is the
            # only way to keep the picture.
            keyframe = log.newest_keyframe
            if not log.has_video or (keyframe is not None and keyframe.position > position):
                self._skip(SkipReason.LAG)

    def take(self, max_bytes: int) -> list[Entry]:
        """The next messages, at least one if there is any, at most about `max_bytes` of payload."""
        self.catch_up()
        taken = list(self._pending)
        self._pending = ()
        size = 0
        log = self._log
        position = self.position
        for entry in log.entries(position, log.tail):
            if size >= max_bytes:
                break
            position += 1
            if self._passes(entry):
                taken.append(entry)
                size += len(entry.payload)
        self.position = position
        return taken

    def skip_to_live(self, reason: SkipReason) -> None:
        """Go to the log's start point if that is ahead, as after a pause."""
        self._skip(reason)

    def _passes(self, entry: Entry) -> bool:
        flags = entry.flags
        if flags & (media.CONFIG | media.METADATA):
            return True  # whoever switches a track on again later needs them
        if entry.type_id == messages.VIDEO:
            if self.awaits_keyframe:
                if not entry.is_keyframe:
                    self._count(SkipReason.NO_KEYFRAME, entry.position, entry.position + 1)
                    return False
                self.awaits_keyframe = not self.wants_video
            if not self.wants_video:
                self.awaits_keyframe = True
                self._count(SkipReason.PAUSED, entry.position, entry.position + 1)
                return False
        elif entry.type_id == messages.AUDIO and not self.wants_audio:
            self._count(SkipReason.PAUSED, entry.position, entry.position + 1)
            return False
        return True

    def _skip(self, reason: SkipReason) -> None:
        position = self.position
        point = self._log.start_point()
        if point.position <= position:
            return
        self.start()
        self._count(reason, position, self.position)

    def _count(self, reason: SkipReason, start: int, stop: int) -> None:
        self.skipped[reason] += stop - start
        if self._on_skip is not None:
            self._on_skip(reason, start, stop)
