"""Which filters are applied while reading, and which stay with Spark."""

from __future__ import annotations

from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, GreaterThan, In, IsNotNull, Not

from headrace.pipeline.sources.flv.filters import Wanted, push

CAM = "/rec/live_cam_20260102_030405.flv"
OTHER = "/rec/live_other_20260102_030405.flv"


def pushed(*filters: Filter, rows: str = "tags") -> Wanted:
    wanted, left = push(filters, rows)
    assert left == []
    return wanted


def test_files_are_chosen_by_path_and_by_stream() -> None:
    by_path = pushed(IsNotNull(("path",)), EqualTo(("path",), CAM))
    by_stream = pushed(In(("stream",), ("live/cam", "live/nobody")))
    for wanted in (by_path, by_stream):
        assert [wanted.has_file(path) for path in (CAM, OTHER)] == [True, False]
    both = pushed(EqualTo(("path",), CAM), EqualNullSafe(("stream",), "live/other"))
    assert not both.has_file(CAM)
    assert not both.has_file(OTHER)
    assert pushed(EqualTo(("file",), CAM), rows="problems").has_file(CAM)


def test_tags_are_chosen_by_kind_and_flags() -> None:
    wanted = pushed(EqualTo(("kind",), "video"), EqualTo(("is_keyframe",), True), Not(EqualTo(("is_config",), True)))
    assert wanted.rows.kinds == frozenset({"video"})
    assert wanted.rows.flags == {"is_keyframe": True, "is_config": False}
    assert wanted.has_file(CAM)


def test_filters_that_contradict_each_other_leave_nothing_to_read() -> None:
    assert not pushed(EqualTo(("is_config",), True), EqualTo(("is_config",), False)).has_file(CAM)
    assert pushed(EqualTo(("kind",), "video"), EqualTo(("kind",), "audio")).rows.kinds == frozenset()


def test_all_other_filters_stay_with_spark() -> None:
    filters: list[Filter] = [
        GreaterThan(("size_bytes",), 10),
        EqualTo(("codec",), "h264"),
        Not(EqualTo(("kind",), "video")),
        IsNotNull(("codec",)),
        EqualTo(("kind", "inner"), "video"),
        In(("kind",), ("video", None)),
    ]
    wanted, left = push(filters, "tags")
    assert left == filters
    assert wanted == Wanted()
    by_row: list[Filter] = [EqualTo(("kind",), "video")]
    assert push(by_row, "problems") == (Wanted(), by_row)
