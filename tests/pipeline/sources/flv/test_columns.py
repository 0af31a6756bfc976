"""Tags and problems as Arrow batches, and files by their names."""

from __future__ import annotations

from typing import Any

import pytest
import xxhash
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.sources.flv.columns import Run, problem_batch, tag_batch
from headrace.pipeline.sources.flv.filters import RowFilter
from headrace.pipeline.sources.flv.names import stream_of
from headrace.pipeline.sources.flv.pieces import Range
from headrace.pipeline.sources.flv.schema import (
    PROBLEM_SCHEMA,
    PROBLEMS,
    TAG_SCHEMA_WITH_PAYLOAD,
    TAGS,
    require_columns,
)
from headrace.pipeline.sources.flv.walk import Problem, Tags, walk
from tests.pipeline.flv_files import (
    AAC_FRAME,
    AUDIO,
    AVC_CONFIG,
    AVC_KEYFRAME,
    HEADER,
    METADATA,
    SCRIPT,
    VIDEO,
    MemoryFile,
    encode_tag,
)

PATH = "/rec/live_cam_20260102_030405.flv"
DATA = HEADER + b"".join(
    (
        encode_tag(SCRIPT, METADATA),
        encode_tag(VIDEO, AVC_CONFIG),
        encode_tag(VIDEO, AVC_KEYFRAME, 40),
        encode_tag(AUDIO, AAC_FRAME, 0xFFFFFFFE),
        encode_tag(AUDIO, b"", 50),
    )
)


def rows(wanted: RowFilter = RowFilter(), schema: StructType = TAG_SCHEMA_WITH_PAYLOAD) -> list[dict[str, Any]]:  # noqa: B008
    (tags,) = walk(MemoryFile(DATA), Range.whole(len(DATA)))
    assert isinstance(tags, Tags)
    found: list[dict[str, Any]] = tag_batch([Run(PATH, tags)], schema, wanted).to_pylist()
    return found


def signed_digest(payload: bytes) -> int:
    value = xxhash.xxh3_64_intdigest(payload)
    return value - (1 << 64) if value >> 63 else value


def test_a_row_holds_what_its_tag_says() -> None:
    assert rows()[2] == {
        "path": PATH,
        "stream": "live/cam",
        "tag_index": 2,
        "log_position": None,
        "byte_offset": 13 + 15 + len(METADATA) + 15 + len(AVC_CONFIG),
        "kind": "video",
        "timestamp_ms": 40,
        "composition_ms": 80,
        "size_bytes": len(AVC_KEYFRAME),
        "codec": "h264",
        "is_keyframe": True,
        "is_config": False,
        "is_frame": True,
        "payload_digest": signed_digest(AVC_KEYFRAME),
        "payload": AVC_KEYFRAME,
    }


def test_every_kind_of_tag_has_a_row_in_the_order_of_the_file() -> None:
    found = [(row["kind"], row["codec"], row["timestamp_ms"], row["payload"]) for row in rows()]
    assert found == [
        ("script", None, 0, METADATA),
        ("video", "h264", 0, AVC_CONFIG),
        ("video", "h264", 40, AVC_KEYFRAME),
        ("audio", "aac", 0xFFFFFFFE, AAC_FRAME),
        ("audio", None, 50, b""),
    ]
    assert [row["payload_digest"] for row in rows()] == [signed_digest(row["payload"]) for row in rows()]


def test_the_digest_of_nothing_is_that_of_the_specification() -> None:
    # XXH3_64bits of no bytes with seed 0, from the reference implementation's sanity test.
    assert rows()[-1]["payload_digest"] == 0x2D06800538D394C2


def test_rows_are_filtered_before_their_columns_are_made() -> None:
    assert [row["tag_index"] for row in rows(RowFilter(frozenset({"video"})))] == [1, 2]
    assert [row["tag_index"] for row in rows(RowFilter(flags={"is_config": True}))] == [1]
    assert [row["tag_index"] for row in rows(RowFilter(flags={"is_frame": True}))] == [2, 3]
    keyframes = rows(RowFilter(frozenset({"video", "audio"}), {"is_keyframe": True, "is_config": False}))
    assert [row["payload"] for row in keyframes] == [AVC_KEYFRAME]
    assert rows(RowFilter(frozenset({"smell"}))) == []


def test_fewer_columns_in_another_order_and_wider_than_declared() -> None:
    schema = StructType([StructField("size_bytes", LongType()), StructField("kind", StringType())])
    assert rows(schema=schema)[0] == {"size_bytes": len(METADATA), "kind": "script"}
    assert list(rows(schema=schema)[0]) == ["size_bytes", "kind"]


def test_an_unknown_column_is_refused_by_name() -> None:
    require_columns(TAG_SCHEMA_WITH_PAYLOAD, TAGS)
    with pytest.raises(PipelineError, match="column bitrate, expected one of path, stream, tag_index") as caught:
        require_columns(StructType([StructField("bitrate", LongType())]), TAGS)
    assert caught.value.condition == "COLUMN_NOT_FOUND"
    with pytest.raises(PipelineError, match="column path, expected one of file, stream"):
        require_columns(TAG_SCHEMA_WITH_PAYLOAD, PROBLEMS)


def test_problems_are_rows_too() -> None:
    batch = problem_batch([(PATH, Problem(29, "tag type 0x00", "8, 9 or 18", 44))], PROBLEM_SCHEMA)
    assert batch.to_pylist() == [
        {
            "file": PATH,
            "stream": "live/cam",
            "byte_offset": 29,
            "found": "tag type 0x00",
            "expected": "8, 9 or 18",
            "resumed_at": 44,
        }
    ]


@pytest.mark.parametrize(
    ("path", "stream"),
    [
        ("/rec/live_cam_20260102_030405.flv", "live/cam"),
        ("/rec/live_cam_20260102_030405_seg012.flv", "live/cam"),
        ("/rec/live_cam_20260102_030405_seg1000-2.flv", "live/cam"),
        ("/rec/live_cam_20260102_030405-3.flv", "live/cam"),
        ("/rec/live_my_cam_2_20260102_030405.flv", "live/my_cam_2"),
        ("s3://bucket/rec/_live_cam_20260102_030405.flv", "_live/cam"),
        ("/rec/live_\N{LATIN SMALL LETTER U WITH DIAERESIS}ber_20260102_030405.flv", "live/über"),
        ("/rec/holiday.flv", "holiday"),
        ("/rec/a.b.flv", "a.b"),
        ("/rec/live_20260102_030405.flv", "live_20260102_030405"),
        ("noise", "noise"),
    ],
)
def test_a_stream_is_told_by_the_name_of_its_recording(path: str, stream: str) -> None:
    assert stream_of(path) == stream
