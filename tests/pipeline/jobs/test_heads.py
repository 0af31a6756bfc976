"""Tables of a live stream from its head and its tail are those that all its tags give at once, whatever it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs import few, heads
from headrace.pipeline.jobs.build import EventTables, RecordingTables
from headrace.pipeline.jobs.lake import Lake, open_lake
from tests.pipeline.jobs.logs_on_disk import read
from tests.pipeline.tables.rows import event, sample, tag

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

LENGTH_S, STEP_S, WRAP = 84, 12, 1 << 32
BUILT = ("stream_windows", "gops", "recordings", "relay_audit")
Stamp = Callable[[int], int]


def path_of(name: str, part: int = 0) -> str:
    return f"/rec/live_{name}_2027011{part}_080000.flv"


def tags_of(name: str, stamp: Stamp, *, has_video: bool = True, has_audio: bool = True) -> Iterator[tuple[int, Any]]:
    """A tag with the second in which it comes. Four frames and three of sound a second, a keyframe every two."""
    offset = 13
    for number in range(LENGTH_S * 4):
        at_ms = number * 250
        if has_video:
            is_keyframe = number % 8 == 0
            yield number // 4, tag(offset, stamp(at_ms), is_keyframe=is_keyframe, is_frame=True, path=path_of(name))
            offset += 1000
        if has_audio and number % 4 != 3:
            yield number // 4, tag(offset, stamp(at_ms + 90), "audio", is_frame=True, path=path_of(name))
            offset += 1000
        if number % 40 == 0:
            yield number // 4, tag(offset, stamp(at_ms), "video", is_config=True, is_frame=False, path=path_of(name))
            offset += 1000


def jumping(at_ms: int) -> int:
    return at_ms + 3_600_000 if 20_000 <= at_ms < 50_000 else at_ms


def going_back(at_ms: int) -> int:
    return at_ms if at_ms < 40_000 else at_ms - 7000


def streams() -> dict[str, list[tuple[int, Any]]]:
    plain = list(tags_of("plain", lambda at_ms: at_ms))
    found = {
        "plain": plain,
        "video": list(tags_of("video", lambda at_ms: at_ms, has_audio=False)),
        "audio": list(tags_of("audio", lambda at_ms: at_ms, has_video=False)),
        "wraps": list(tags_of("wraps", lambda at_ms: (at_ms + WRAP - 33_000) % WRAP)),
        "jumps": list(tags_of("jumps", jumping)),
        "back": list(tags_of("back", going_back)),
        # Sound pauses for half a minute.
        "pauses": [
            (when, one)
            for when, one in tags_of("pauses", lambda at_ms: at_ms)
            if not (one["kind"] == "audio" and 20 <= when < 50)
        ],
        # A second file, and a third.
        "files": [
            (when, {**one, "path": path_of("files", min(when // 31, 2))})
            for when, one in tags_of("files", lambda at_ms: at_ms)
        ],
        # Some come late.
        "late": [
            (when if not 24 <= when < 26 else when + 30, one) for when, one in tags_of("late", lambda at_ms: at_ms)
        ],
        "skipped": list(tags_of("skipped", lambda at_ms: at_ms)),
        "claimed": list(tags_of("claimed", lambda at_ms: at_ms)),
        # More than an hour of media time.
        "slow": [
            (number // 6, tag(1000 * number, 9000 * number, is_keyframe=True, is_frame=True, path=path_of("slow")))
            for number in range(LENGTH_S * 6)
        ],
    }
    return {name: sorted(rows, key=lambda row: row[0]) for name, rows in found.items()}


def events_of(name: str) -> list[tuple[int, dict[str, Any]]]:
    own = {"stream": f"live/{name}", "stream_id": f"n1.b.{name}"}
    parts = range(3) if name == "files" else range(1)
    found = [
        (
            31 * part,
            event("recording_opened", 31_000 * part, 0, path=path_of(name, part), frame_position=500 * part, **own),
        )
        for part in parts
    ]
    found.append((0, event("publish_started", 0, 0, conn="c", resumed=False, position=0, **own)))
    found += [(when, sample(1000 * when, 0, **own)) for when in range(1, LENGTH_S)]
    if name == "skipped":
        skip = {"reader": "recorder", "name": "recorder", "outcome": "skipped", "reason": "lag"}
        found.append((40, event("delivery", 40_000, 0, start=270, stop=290, **skip, **own)))
    if name == "claimed":
        found.append((60, event("recording_opened", 60_000, 0, node="n2", path=path_of(name), stream_id="n2.b.1")))
    return found


def add(lake: Lake, part: str, events: list[dict[str, Any]], tags: list[dict[str, Any]]) -> None:
    lake.add_part("events", part, pa.Table.from_pylist(events, schema=lake.arrow_schema("events")))
    lake.add_part("tags", part, pa.Table.from_pylist(tags, schema=lake.arrow_schema("tags")))


def test_from_heads_and_tails_or_at_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "MOVES_AFTER_MS", 9000)
    monkeypatch.setattr(heads, "STAYS_BEHIND_MS", 4000)
    all_streams = streams()
    events = [one for name in all_streams for one in events_of(name)]
    for seq, (_, one) in enumerate(events):
        one["seq"] = seq
    tags = [one for rows in all_streams.values() for one in rows]
    taken: list[int] = []
    used: set[str] = set()
    real = heads.Tail.marked

    def marked(self: heads.Tail) -> pa.Table:
        taken.append(self.rows.num_rows)
        if self.head is not None:
            used.add(self.head.cut.path)
        return real(self)

    monkeypatch.setattr(heads.Tail, "marked", marked)
    with open_lake(tmp_path / "steps", "a test") as lake:
        told, rest = EventTables(spark, lake), RecordingTables(spark, lake)
        for start in range(0, LENGTH_S + 40, STEP_S):
            new = range(start, start + STEP_S)
            add(
                lake,
                f"p{start:03d}",
                [one for when, one in events if when in new],
                [one for when, one in tags if when in new],
            )
            told.build()
            rest.build()
            if start == 48:
                compare(spark, tmp_path / f"once{start}", lake, events, tags, start + STEP_S)
        compare(spark, tmp_path / "once", lake, events, tags, 1000)
    # Heads were of use, and tails short: otherwise this would show nothing.
    missing = {path_of(name) for name in all_streams if name not in ("audio", "files")} - used
    assert not missing
    assert sum(taken) < len(tags) * 5
    assert len(all_streams) * 2 < len(taken)


def compare(
    spark: SparkSession,
    at_once: Path,
    lake: Lake,
    events: list[tuple[int, dict[str, Any]]],
    tags: list[tuple[int, dict[str, Any]]],
    until: int,
) -> None:
    with open_lake(at_once, "a test") as other:
        add(other, "all", [one for when, one in events if when < until], [one for when, one in tags if when < until])
        EventTables(spark, other).build()
        RecordingTables(spark, other).build()
    for table in BUILT:
        found, expected = read(Path(lake.address), table), read(at_once, table)
        assert expected
        assert [row for row in found if row not in expected] == [], table
        assert [row for row in expected if row not in found] == [], table
        assert len(found) == len(expected), table


def test_heads_have_a_cap(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "MAX_HEADS", 1)
    with open_lake(tmp_path, "a test") as lake:
        kept = few.FewRecordings(spark, lake)
        for number in range(3):
            kept._keep(("n1", str(number)), _head())
        assert list(kept._heads) == [("n1", "2")]


def _head() -> heads.Head:
    empty = pa.table({})
    cut = heads.Cut(1, "/rec/a.flv", 13)
    return heads.Head(cut, 0, None, {}, frozenset(), frozenset(), 0, 0, empty, empty, empty, empty)
