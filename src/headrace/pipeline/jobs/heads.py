"""Of a live stream, what is final: everything that was built from the tags before one of its keyframes.

A stream's tables are built from all its tags, which grow with its length. But rows of media time depend only on what
came before, and there on little: the media time and the log position of the keyframe, the last frame of each track,
and sums. So a build takes the tags from that keyframe on (the tail), and adds what it has of those before (the head):
the same rows, at a cost that does not grow. Where that cannot be shown (tags that came late, a file that somebody else
claims, a track that pauses), there is no head, and all tags are taken.

Owns when a head holds, and how it moves on. Kept in memory: a job that starts anew builds a stream once from all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipeline.tables import recordings, stream_windows, timeline

# A head moves on when the tail is so long, and then to a keyframe so far from its end.
MOVES_AFTER_MS = 30_000
STAYS_BEHIND_MS = 10_000
# Within this each track must have a frame behind the keyframe: from the second after that on, rows know the last ones.
_TRACKS_WITHIN_MS = 1000
_SETTLED_AFTER_MS = 2000
_SECOND_MS, _MINUTE_MS, _HOUR_MS = 1000, 60_000, 3_600_000
_HALF, _WHOLE = 1 << 31, 1 << 32

SUMS = to_arrow_schema(stream_windows.SUMS, timezone="UTC")
CONTENTS = to_arrow_schema(recordings.CONTENTS, timezone="UTC")
Claims = frozenset[tuple[Any, ...]]


@dataclass(frozen=True)
class Cut:
    """A keyframe in the order of a stream's tags."""

    opened_seq: int
    path: str
    byte_offset: int


@dataclass(frozen=True)
class Head:
    """Everything before `cut`."""

    cut: Cut
    base_ms: int  # the keyframe's media time
    position: int | None  # in the log
    tags: dict[str, int]  # how many, by path
    kinds: frozenset[str]
    claims: Claims
    from_ms: int  # the first second of media time that the tail makes itself
    seen: int  # how many tags behind the cut were there: those that come later must not go back before from_ms
    sums: pa.Table
    windows: pa.Table
    gops: pa.Table
    contents: pa.Table


class Tail:
    """The tags of one stream from its head on, in their order, and where the head can move on to."""

    def __init__(self, rows: pa.Table, head: Head | None) -> None:
        order = [("opened_seq", "ascending"), ("path", "ascending"), ("byte_offset", "ascending")]
        self.rows = rows.sort_by(order)
        self.head = head
        self.next_cut = self._find_cut()

    def follows(self, counts: dict[str | None, int], claims: Claims) -> bool:
        """Whether the head holds: nothing has come before it, and nobody has said another thing of its files."""
        head = self.head
        if head is None:
            return True
        if not self.rows.num_rows or claims != head.claims:
            return False
        first = Cut(*(self.rows[name][0].as_py() for name in ("opened_seq", "path", "byte_offset")))
        in_tail = dict(zip(*(column.to_pylist() for column in self._counted()), strict=True))
        is_complete = all(
            counts.get(path, 0) == head.tags.get(path, 0) + in_tail.get(path, 0)
            for path in head.tags.keys() | in_tail.keys()
        )
        frames, media_ms = self._media_ms()
        new_ms = head.base_ms + media_ms[frames >= head.seen]
        return is_complete and first == head.cut and bool((new_ms >= head.from_ms).all())

    def marked(self) -> pa.Table:
        """As tables take them: with what is known of the first tag, and cut where the head could move on to."""
        rows, head = self.rows, self.head
        if head is not None:
            rows = _with(rows, "base_ms", pa.array([head.base_ms] * rows.num_rows, pa.int64()))
            in_file = pc.equal(rows["path"], head.cut.path)
            position = pa.scalar(head.position, pa.int64())
            rows = _with(rows, "frame_position", pc.if_else(in_file, position, rows["frame_position"]))
        piece = np.zeros(rows.num_rows, np.int32)
        if self.next_cut is not None:
            piece[self.next_cut :] = 1
        return _with(rows, "piece", pa.array(piece))

    def cut_at(self, index: int) -> Cut:
        return Cut(*(self.rows[name][index].as_py() for name in ("opened_seq", "path", "byte_offset")))

    def tags_before(self, index: int) -> dict[str, int]:
        counted = dict(self.head.tags) if self.head is not None else {}
        for path in self.rows["path"].slice(0, index).to_pylist():
            counted[path] = counted.get(path, 0) + 1
        return counted

    def kinds(self) -> frozenset[str]:
        own = {kind for kind, is_frame in zip(self._kinds(), self._is_frame(), strict=True) if is_frame}
        return frozenset(own | (self.head.kinds if self.head is not None else set()))

    def keyframes_behind(self, index: int) -> set[tuple[str, int]]:
        rows = self.rows.slice(index).filter(pc.field("is_keyframe"))
        return set(zip(rows["path"].to_pylist(), rows["byte_offset"].to_pylist(), strict=True))

    def _media_ms(self) -> tuple[Any, Any]:
        """Which tags are frames, and their media time since the first, as `timeline.with_media_time` has it."""
        frames = np.flatnonzero(np.array(self._is_frame()))
        steps = np.diff(self.rows["timestamp_ms"].to_numpy()[frames].astype(np.int64))
        steps = (steps + _HALF) % _WHOLE - _HALF
        steps[np.abs(steps) > timeline.JUMP_MS] = 0
        return frames, np.concatenate((np.zeros(min(1, len(frames)), np.int64), np.cumsum(steps)))

    def _counted(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        counted = self.rows.group_by("path").aggregate([([], "count_all")])
        return counted["path"], counted["count_all"]

    def _kinds(self) -> list[str]:
        kinds: list[str] = self.rows["kind"].to_pylist()
        return kinds

    def _is_frame(self) -> list[bool]:
        media = pc.is_in(self.rows["kind"], value_set=pa.array(["audio", "video"]))
        is_frame = pc.coalesce(self.rows["is_frame"], pc.invert(self.rows["is_config"]), pa.scalar(True))
        found: list[bool] = pc.and_(media, is_frame).to_pylist()
        return found

    def _find_cut(self) -> int | None:
        """The newest keyframe that is far enough from the end and has all tracks close behind it."""
        frames, media_ms = self._media_ms()
        if not len(frames) or media_ms[-1] < MOVES_AFTER_MS:
            return None
        kinds = np.array(self._kinds())[frames]
        is_keyframe = np.array(self.rows["is_keyframe"].to_pylist())[frames]
        known = self.kinds()
        for place in np.flatnonzero(is_keyframe & (media_ms <= media_ms[-1] - STAYS_BEHIND_MS))[::-1]:
            if frames[place] == 0:
                return None
            since_ms = media_ms[place:] - media_ms[place]
            near = since_ms[: int(np.argmax(since_ms > _TRACKS_WITHIN_MS))]
            is_steady = bool((near >= -_TRACKS_WITHIN_MS).all())
            if is_steady and known <= set(kinds[place : place + len(near)].tolist()):
                return int(frames[place])
            if media_ms[-1] - media_ms[place] > MOVES_AFTER_MS:
                return None
        return None


def move_on(
    tail: Tail, claims: Claims, sums: pa.Table, windows: pa.Table, gops: pa.Table, contents: pa.Table
) -> Head | None:
    """The head behind which the tail was cut, if there is one. The tables are this stream's, with the old head's."""
    if tail.next_cut is None:
        return tail.head
    cut = tail.cut_at(tail.next_cut)
    found = gops.filter((pc.field("path") == cut.path) & (pc.field("byte_offset") == cut.byte_offset))
    if found.num_rows != 1:
        return tail.head
    base_ms, position = found["start_ms"][0].as_py(), found["first_position"][0].as_py()
    from_ms = base_ms // _SECOND_MS * _SECOND_MS + _SETTLED_AFTER_MS
    newest_ms = pc.max(sums["last_ms"]).as_py()
    is_before = pc.field("start_ms") < from_ms
    own = contents.filter(pc.field("piece") == 0)
    # Everything before the cut is before that second too, unless time went back.
    if newest_ms < from_ms + _SECOND_MS or pc.max(own["last_ms"]).as_py() >= from_ms:
        return tail.head
    is_short = pc.field("window_s") * _SECOND_MS <= _MINUTE_MS
    minute_ms, hour_ms = from_ms // _MINUTE_MS * _MINUTE_MS, from_ms // _HOUR_MS * _HOUR_MS
    is_final = (is_short & (pc.field("start_ms") < minute_ms)) | (~is_short & (pc.field("start_ms") < hour_ms))
    files = tail.tags_before(tail.next_cut)
    behind = tail.keyframes_behind(tail.next_cut)
    return Head(
        cut,
        base_ms,
        position,
        files,
        tail.kinds(),
        claims,
        from_ms,
        tail.rows.num_rows - tail.next_cut,
        _folded(sums.filter(is_before), minute_ms, hour_ms),
        windows.filter((pc.field("clock") == "media") & is_final),
        gops.filter(pa.array([key not in behind for key in _keys(gops)], pa.bool_())),
        _added(own),
    )


def _keys(gops: pa.Table) -> Iterable[tuple[str, int]]:
    return zip(gops["path"].to_pylist(), gops["byte_offset"].to_pylist(), strict=True)


def _folded(sums: pa.Table, minute_ms: int, hour_ms: int) -> pa.Table:
    """Seconds of whole minutes become those minutes; whole hours are over."""
    rows = sums.filter(pc.field("start_ms") >= hour_ms).to_pylist()
    kept = [row for row in rows if row["start_ms"] >= minute_ms]
    minutes: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["start_ms"] < minute_ms:
            minutes.setdefault(row["start_ms"] // _MINUTE_MS * _MINUTE_MS, []).append(row)
    kept += [_sum(own, start_ms) for start_ms, own in minutes.items()]
    return pa.Table.from_pylist(kept, schema=SUMS)


def _sum(rows: list[dict[str, Any]], start_ms: int) -> dict[str, Any]:
    skews = [row["av_skew_ms"] for row in rows if row["av_skew_ms"] is not None]
    return {
        **{name: rows[0][name] for name in ("node", "stream", "stream_id")},
        "of_s": _MINUTE_MS // _SECOND_MS,
        "start_ms": start_ms,
        **{name: _total(row[name] for row in rows) for name in stream_windows.ADDED},
        **{name: _largest(row[name] for row in rows) for name in stream_windows.LARGEST},
        # Of -3 and 3 the larger, as in stream_windows.
        "av_skew_ms": max(skews, key=lambda skew: (abs(skew), skew), default=None),
    }


def _added(contents: pa.Table) -> pa.Table:
    """A row for each file, from the rows of its pieces."""
    files: dict[str, list[dict[str, Any]]] = {}
    for row in contents.to_pylist():
        files.setdefault(row["path"], []).append(row)
    return pa.Table.from_pylist([_add(rows) for rows in files.values()], schema=CONTENTS)


def _add(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: int(row["byte_offset"]))
    digests = ("digest_low", "digest_high")
    return {
        **rows[0],
        **{name: _total(row[name] for row in rows) for name in ("found_tags", "video_frames", "audio_frames")},
        **{
            name: next((row[name] for row in rows if row[name] is not None), None)
            for name in ("first_ms", "video_codec", "audio_codec")
        },
        "last_ms": _largest(row["last_ms"] for row in rows),
        "keyframes": [one for row in rows for one in row["keyframes"] or ()],
        **{name: _xor(row[name] for row in rows) for name in digests},
        "piece": 0,
    }


def _total(values: Iterable[int | None]) -> int | None:
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _xor(values: Iterable[int | None]) -> int | None:
    there = [value for value in values if value is not None]
    found = 0
    for value in there:
        found ^= value
    return found if there else None


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values.cast(rows.schema.field(name).type))
