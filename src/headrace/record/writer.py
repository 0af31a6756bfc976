"""What goes into which file: a stream's messages in, FLV files out.

Owns the order of tags, where a file ends and the next begins, and what a file must begin with to play by
itself. Runs in a worker thread, one call at a time, and may block there. Knows nothing of the event loop or
of cursors.

A new file begins, always at a media frame:
- when a sequence header came that differs from the one in force. Whatever comes with it (the other track's
  header, new metadata) is waited for, so that one change of the encoder's settings gives one new file;
- with a segment duration, at the first video keyframe after it, or at an audio frame if there was no video
  for that long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.protocol import media, messages
from headrace.protocol.flv import encode_tag
from headrace.record import flvfile, names
from headrace.stream.log import NO_POSITION, Entry

# What is held for the next frame: metadata and two headers as a rule. A peer that sends nothing else gets its
# file without a frame.
MAX_HELD_MESSAGES = 64
MAX_HELD_BYTES = 1 << 20
# Sequence headers in force, as many and as long as the log keeps for late joiners: a message may have 16 MB.
_MAX_HEADERS = 64
_MAX_HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class FileStarted:
    path: Path
    position: int | None  # of the first message of the log that goes into it
    frame_position: int | None  # of its first frame, from which on a tag is a message


@dataclass(frozen=True, slots=True)
class FileFinished:
    path: Path
    size_bytes: int
    tags: int
    duration_s: float  # of media


class RecordingWriter:
    """Writes one recording: one file, or several that follow each other without a gap."""

    def __init__(
        self,
        directory: Path,
        app: str,
        name: str,
        *,
        segment_duration_s: float | None = None,
        wall_time: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._app = app
        self._name = name
        self._segment_ms = None if segment_duration_s is None else segment_duration_s * 1000
        self._wall_time = wall_time
        self._file: flvfile.FlvFile | None = None
        self._batch: list[bytes] = []
        self._batch_ms: list[int] = []  # media time of each
        self._events: list[FileStarted | FileFinished] = []
        self._stem = ""
        self._number = 1  # what was added to the name because others had it
        self.files = 0
        self._finished_tags = 0
        self._finished_bytes = 0
        self._metadata: Entry | None = None
        self._headers: dict[object, Entry] = {}
        self._needs_file = True  # at the next frame
        # What waits for the next frame to know its file: metadata may announce headers that differ.
        self._held: list[Entry] = []
        self._held_bytes = 0
        # Media time: of the file's first frame, of its newest video (else its start), of its newest message on disk.
        self._start_ms = 0
        self._video_ms = 0
        self._newest_ms = 0

    @property
    def tags(self) -> int:
        return self._finished_tags + (self._file.tags if self._file else 0)

    @property
    def size_bytes(self) -> int:
        return self._finished_bytes + (self._file.size_bytes if self._file else 0)

    @property
    def path(self) -> Path:
        """The file being written; before there is one, the directory it will be in."""
        return self._file.path if self._file else self._directory

    def write(self, entries: Sequence[Entry]) -> None:
        """Append messages, in one system call unless a file ends among them. Raises OSError: use no more."""
        for entry in entries:
            if entry.flags & media.FRAME:
                self._add_frame(entry)
            else:
                self._add_other(entry)
        self._flush()

    def close(self) -> None:
        """Finish the file. A stream of metadata and headers without media leaves none. Raises OSError."""
        if not self._needs_file:
            self._release()
        elif any(_rank(entry) == _OTHER for entry in self._held):
            self._begin_file(self._held[-1])
        self._finish_file()

    @property
    def unfinished(self) -> FileFinished | None:
        """The file that is open, as far as it is written: what there is of it after an error."""
        file = self._file
        if file is None:
            return None
        return FileFinished(file.path, file.size_bytes, file.tags, (self._newest_ms - self._start_ms) / 1000)

    def take_events(self) -> list[FileStarted | FileFinished]:
        """What happened since the last call, also when a write has failed."""
        events, self._events = self._events, []
        return events

    def _add_frame(self, entry: Entry) -> None:
        if self._needs_file or self._is_segment_due(entry):
            self._begin_file(entry)
        elif self._held:
            self._release()
        if entry.type_id == messages.VIDEO:
            self._video_ms = entry.media_ms
        self._put(entry)

    def _add_other(self, entry: Entry) -> None:
        if entry.flags & (media.CONFIG | media.METADATA):
            is_new = self._remember(entry)
            # What the log repeats after a skip was never on the wire there: no tag unless it says something.
            if not is_new and entry.position == NO_POSITION:
                return
        if not (self._needs_file or self._held or _rank(entry) == _METADATA):
            self._put(entry)
            return
        self._held.append(entry)
        self._held_bytes += len(entry.payload)
        if len(self._held) >= MAX_HELD_MESSAGES or self._held_bytes >= MAX_HELD_BYTES:
            if self._needs_file:
                self._begin_file(entry)
            else:
                self._release()

    def _release(self) -> None:
        for entry in self._held:
            self._put(entry)
        self._held = []
        self._held_bytes = 0

    def _remember(self, entry: Entry) -> bool:
        """True if it differs from what was in force. A sequence header that does ends the file."""
        is_kept = len(entry.payload) <= _MAX_HEADER_BYTES
        if entry.type_id == messages.DATA:
            known, self._metadata = self._metadata, entry if is_kept else None
            return known is None or known.payload != entry.payload
        # As the log does it: a broken header is still one, of the only track.
        slot = media.config_slot("video" if entry.type_id == messages.VIDEO else "audio", entry.payload)
        key = slot or entry.type_id
        known = self._headers.get(key)
        if is_kept:
            self._headers[key] = entry
        else:
            self._headers.pop(key, None)  # what it replaces is no longer true either
        if len(self._headers) > _MAX_HEADERS:
            self._headers.pop(next(iter(self._headers)))
        is_new = known is None or known.payload != entry.payload
        # Video metadata (colour, say) may change from scene to scene; it is no sequence header.
        if known is not None and is_new and entry.flags & media.CONFIG:
            self._needs_file = True
        return is_new

    def _is_segment_due(self, entry: Entry) -> bool:
        if self._segment_ms is None or entry.media_ms - self._start_ms < self._segment_ms:
            return False
        if entry.type_id == messages.VIDEO:
            return entry.is_keyframe
        return entry.media_ms - self._video_ms >= self._segment_ms

    def _begin_file(self, first: Entry) -> None:
        self._finish_file()
        positions = [entry.position for entry in (*self._held, first) if entry.position != NO_POSITION]
        preface = sorted(self._held, key=_rank)
        if self.files:
            preface = [entry for entry in preface if _rank(entry) == _OTHER]
            in_force = [*self._headers.values()]
            if self._metadata is not None:
                in_force.insert(0, self._metadata)
            # They take the timestamp of what follows, so that the file has no hole at its beginning.
            preface = [entry.at(first.timestamp_ms, first.media_ms) for entry in in_force] + preface
        self._needs_file = False
        self._held = []
        self._held_bytes = 0
        self._start_ms = self._video_ms = self._newest_ms = first.media_ms
        is_frame = first.flags & media.FRAME and first.position != NO_POSITION
        self._create_file(min(positions, default=None), first.position if is_frame else None)
        for entry in preface:
            if _rank(entry) == _METADATA and entry.position == NO_POSITION:
                # FFmpeg shows a repeated onMetaData at any other time as a track of subtitles.
                entry = entry.at(0, entry.media_ms)
            self._put(entry)

    def _create_file(self, position: int | None, frame_position: int | None) -> None:
        if self._segment_ms is None:
            # Each file is a recording of its own, with its own start.
            stem = names.recording_stem(self._app, self._name, self._wall_time())
            self._file, _ = flvfile.create(self._directory, stem)
        else:
            if not self.files:
                self._stem = names.recording_stem(self._app, self._name, self._wall_time())
            stem = names.segment_stem(self._stem, self.files + 1)
            # The next segment keeps the number, so that those of two recordings with one name are told apart.
            self._file, self._number = flvfile.create(self._directory, stem, self._number)
        self.files += 1
        self._events.append(FileStarted(self._file.path, position, frame_position))

    def _put(self, entry: Entry) -> None:
        self._batch.append(encode_tag(entry.type_id, entry.timestamp_ms, entry.payload))
        self._batch_ms.append(entry.media_ms)

    def _flush(self) -> None:
        file = self._file
        if file is None:
            return
        batch, self._batch = self._batch, []
        batch_ms, self._batch_ms = self._batch_ms, []
        tags = file.tags
        try:
            file.append(batch)
        finally:  # a disk that fills up takes a part of it
            self._newest_ms = max([self._newest_ms, *batch_ms[: file.tags - tags]])

    def _finish_file(self) -> None:
        self._flush()
        file, finished = self._file, self.unfinished
        if file is None or finished is None:
            return
        file.close()
        self._file = None
        self._finished_tags += file.tags
        self._finished_bytes += file.size_bytes
        self._events.append(finished)


_METADATA, _HEADER, _OTHER = range(3)


def _rank(entry: Entry) -> int:
    """The order of what stands before the first frame: players read onMetaData where it is the first tag."""
    if entry.type_id == messages.DATA and entry.flags & media.METADATA:
        return _METADATA
    return _HEADER if entry.flags & (media.CONFIG | media.METADATA) else _OTHER
