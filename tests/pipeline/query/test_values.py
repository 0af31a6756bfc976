from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from headrace.pipeline.query.result import distinct
from headrace.pipeline.query.values import as_json, text

MOMENT = datetime(2027, 1, 14, 20, 5, 3, tzinfo=UTC)
VALUES: list[tuple[Any, str, str]] = [
    # value, as JSON, as a cell
    (None, "null", ""),
    (True, "true", "true"),
    (2**63 - 1, "9223372036854775807", "9223372036854775807"),
    (0.1, "0.1", "0.1"),
    (float("nan"), "null", "nan"),
    (float("-inf"), "null", "-inf"),
    (Decimal("1.50"), "1.5", "1.50"),
    (Decimal("12345678901234567890"), "12345678901234567890", "12345678901234567890"),
    (Decimal("NaN"), "null", "NaN"),
    ("é\n", '"é\\n"', "é\n"),
    (MOMENT, '"2027-01-14T20:05:03.000Z"', "2027-01-14T20:05:03.000Z"),
    (MOMENT.replace(microsecond=1), '"2027-01-14T20:05:03.000001Z"', "2027-01-14T20:05:03.000001Z"),
    (MOMENT.astimezone(timezone(timedelta(hours=5))), '"2027-01-14T20:05:03.000Z"', "2027-01-14T20:05:03.000Z"),
    (MOMENT.replace(tzinfo=None), '"2027-01-14T20:05:03.000Z"', "2027-01-14T20:05:03.000Z"),
    (date(2027, 1, 14), '"2027-01-14"', "2027-01-14"),
    (time(20, 5), '"20:05:00"', "20:05:00"),
    (timedelta(seconds=90.5), '"PT90.5S"', "PT90.5S"),
    (timedelta(days=-1), '"-PT86400S"', "-PT86400S"),
    (b"\x00\xff", '"00ff"', "00ff"),
    (UUID(int=1), '"00000000-0000-0000-0000-000000000001"', "00000000-0000-0000-0000-000000000001"),
    (
        [{"at": MOMENT}, None],
        '[{"at": "2027-01-14T20:05:03.000Z"}, null]',
        '[{"at": "2027-01-14T20:05:03.000Z"}, null]',
    ),
    ({1: {"lag": 2}}, '{"1": {"lag": 2}}', '{"1": {"lag": 2}}'),
]


@pytest.mark.parametrize(("value", "json_text", "cell"), VALUES, ids=[repr(row[0])[:30] for row in VALUES])
def test_a_value_is_written_typed_in_json_and_plain_in_a_cell(value: Any, json_text: str, cell: str) -> None:
    assert as_json(value) == json_text
    assert text(value) == cell


def test_columns_of_one_name_are_told_apart() -> None:
    assert distinct(["a", "b", "a", "a_2", "a"]) == ["a", "b", "a_2", "a_2_2", "a_3"]
