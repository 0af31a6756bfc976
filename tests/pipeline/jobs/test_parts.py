from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.pipeline.jobs import parts
from headrace.pipeline.jobs.lake import Lake, open_lake
from headrace.pipeline.jobs.parts import EventParts, Parts
from tests.pipeline.tables.rows import event


def add(lake: Lake, part: str, *events: dict[str, Any]) -> None:
    lake.add_part("events", part, pa.Table.from_pylist(list(events), schema=lake.arrow_schema("events")))


def seqs(rows: pa.Table) -> list[int]:
    return sorted(rows["seq"].to_pylist())


@pytest.mark.parametrize("max_part_rows", [0, 20_000], ids=["read through", "kept"])
def test_rows_by_key_from_parts_old_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_part_rows: int
) -> None:
    monkeypatch.setattr(parts, "MAX_PART_ROWS", max_part_rows)
    with open_lake(tmp_path, "a test") as lake:
        events = Parts(lake, "events", "stream_id")
        assert events.rows(["a"]).num_rows == 0
        add(lake, "p1", event("play_started", 0, 1, stream_id="a"), event("play_started", 0, 2, stream_id="b"))
        assert (seqs(events.rows(["a"])), events.count(["a", "b", "c"])) == ([1], 2)
        add(lake, "p2", event("play_started", 0, 3, stream_id="a"), event("play_refused", 0, 4, stream_id=None))
        assert seqs(events.rows(["a"])) == [1, 3]
        assert seqs(events.rows([None])) == [4]
        assert seqs(events.rows([])) == []
        assert events.all_keys() == {"a", "b", None}
        assert events.distinct("p2", ("type",), pc.field("stream_id").is_valid()) == {("play_started",)}


def test_what_is_kept_has_a_cap_and_nothing_is_lost_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MAX_KEPT_ROWS", 2)
    with open_lake(tmp_path, "a test") as lake:
        events = Parts(lake, "events", "stream_id")
        for seq in range(6):
            add(lake, f"p{seq}", event("play_started", 0, seq, stream_id="a"))
        for _ in range(2):
            assert seqs(events.rows(["a"])) == list(range(6))
        assert len(events._kept) == 2


def test_recordings_are_known_of_every_stream(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test") as lake:
        events = EventParts(lake)
        add(lake, "p1", event("recording_opened", 0, 1, stream_id="a", path="/r/a.flv"), event("play_started", 0, 2))
        assert events.opened()["path"].to_pylist() == ["/r/a.flv"]
        add(lake, "p2", event("recording_opened", 0, 3, stream_id="b", path="/r/b.flv"))
        assert sorted(events.opened()["path"].to_pylist()) == ["/r/a.flv", "/r/b.flv"]
