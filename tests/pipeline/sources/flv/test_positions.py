"""Where tags are in their stream's log: what is taken from events, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.options import FlvOptions
from headrace.pipeline.sources.flv.pieces import Place
from headrace.pipeline.sources.flv.positions import Counter, Places
from headrace.pipeline.sources.flv.schema import TAG_SCHEMA
from headrace.pipeline.sources.flv.source import FlvDataSource, FlvReader
from tests.pipeline.flv_files import recording, write_flv


def opened(path: str, frame_position: int | None, *, node: str = "n1", stream_id: str = "s1") -> bytes:
    event = {"type": "recording_opened", "node": node, "stream_id": stream_id, "path": path}
    return json.dumps({**event, "frame_position": frame_position}).encode()


def delivery(start: int, outcome: str = "skipped", reader: str = "recorder", *, stream_id: str = "s1") -> bytes:
    event = {"type": "delivery", "node": "n1", "stream_id": stream_id, "reader": reader, "outcome": outcome}
    return json.dumps({**event, "start": start, "stop": start + 5}).encode()


FILE = opened("rec/a.flv", 40)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        pytest.param([FILE], Place(40, None), id="told"),
        pytest.param([opened("/data/rec/a.flv", 40)], Place(40, None), id="told with its whole path"),
        pytest.param([FILE, FILE], Place(40, None), id="told twice"),
        pytest.param([FILE, delivery(90), delivery(70)], Place(40, 70), id="up to the first skip"),
        pytest.param([FILE, delivery(30)], Place(40, None), id="a skip before it"),
        pytest.param([FILE, delivery(70, stream_id="s2")], Place(40, None), id="a skip of another stream"),
        pytest.param([FILE, delivery(70, "delivered")], Place(40, None), id="no skip"),
        pytest.param([FILE, delivery(70, reader="destination")], Place(40, None), id="a skip of a destination"),
        pytest.param([FILE, opened("rec/a.flv", 40, stream_id="s2")], None, id="claimed by two streams"),
        pytest.param([FILE, opened("rec/a.flv", 40, node="n2")], None, id="claimed by two nodes"),
        pytest.param([opened("rec/a.flv", None)], None, id="without a frame"),
        pytest.param([opened("rec/b.flv", 40)], None, id="of another file"),
        pytest.param([opened("ec/a.flv", 40)], None, id="of another directory"),
        pytest.param([b"", b'{"type": "recording_opened"', b'["recording_opened"]', FILE], Place(40, None), id="junk"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_a_files_place_is_what_its_own_recorder_told(lines: list[bytes], place: Place | None) -> None:
    assert Places(lines).of("/data/rec/a.flv") == place


def positions(counter: Counter, is_frame: list[int]) -> list[int | None]:
    found, is_known = counter.count(np.array(is_frame, np.bool_))
    return [int(position) if known else None for position, known in zip(found, is_known, strict=True)]


def test_tags_are_counted_from_the_first_frame_on_across_batches() -> None:
    counter = Counter(Place(40, None))
    assert positions(counter, [0, 0]) == [None, None]
    assert positions(counter, [0, 1, 0]) == [None, 40, 41]
    assert positions(counter, [1, 1]) == [42, 43]


def test_nothing_is_known_behind_a_skip_or_behind_damage() -> None:
    assert positions(Counter(Place(40, 42)), [1, 1, 1]) == [40, 41, None]
    damaged = Counter(Place(40, None))
    assert positions(damaged, [1, 1]) == [40, 41]
    damaged.stop()
    assert positions(damaged, [1, 1]) == [None, None]


def read(folder: Path, **options: str) -> list[dict[str, Any]]:
    reader = FlvReader(FlvOptions.parse({"path": str(folder), "events": str(folder / "data"), **options}), TAG_SCHEMA)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_rows_have_their_positions_however_small_a_split_may_be(tmp_path: Path) -> None:
    write_flv(tmp_path / "a.flv", recording(20))
    write_flv(tmp_path / "b.flv", recording(20))
    log = tmp_path / "data/events/date=2026-11-16/hour=04"
    log.mkdir(parents=True)
    (log / "n1-1.jsonl").write_bytes(opened(str(tmp_path / "a.flv"), 40) + b"\n")
    rows = read(tmp_path, maxSplitBytes="64")
    places = {name: [row["log_position"] for row in rows if row["path"].endswith(name)] for name in ("a.flv", "b.flv")}
    assert places["a.flv"] == [None, None, None, *range(40, 80)]
    assert places["b.flv"] == [None] * 43


def test_events_that_are_not_there_and_a_stream_that_asks_for_them_are_refused(tmp_path: Path) -> None:
    write_flv(tmp_path / "a.flv", recording(2))
    with pytest.raises(PipelineError, match="data"):
        read(tmp_path)
    source = FlvDataSource({"path": str(tmp_path), "events": "data"})
    with pytest.raises(PipelineError, match="none in a stream"):
        source.streamReader(TAG_SCHEMA)
