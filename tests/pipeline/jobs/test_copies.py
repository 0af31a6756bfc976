from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.copies import has_copies
from headrace.pipeline.jobs.lake import open_lake
from tests.pipeline.tables.rows import event, frame_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def numbered(*numbers: int, **fields: Any) -> list[dict[str, Any]]:
    return [event("publish_started", 1000 + number, number, **fields) for number in numbers]


@pytest.mark.parametrize(
    ("new", "is_copied"),
    [
        (numbered(4, 5, 6), False),
        (numbered(), False),
        (numbered(4, 5, 4), True),
        (numbered(3, 4), True),
        (numbered(2, 3, node="n2"), False),
        (numbered(2, 3, boot="b2"), False),
        (numbered(2, 3, time_ms=5), False),  # another event by its time: such numbers came from a damaged file
    ],
    ids=["behind", "none", "within", "again", "other node", "other boot", "other time"],
)
def test_copies_are_told_by_their_numbers(
    spark: SparkSession, tmp_path: Path, new: list[dict[str, Any]], is_copied: bool
) -> None:
    with open_lake(tmp_path / "lake", "test") as lake:
        lake.add_part("events", "p1", frame_of(spark, numbered(1, 2, 3)))
        with lake.staged("events", frame_of(spark, new)) as staged:
            assert staged.rows == len(new)
            assert has_copies(lake, staged) is is_copied
