from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.report.as_json import render_json, render_json_list
from headrace.pipeline.report.facts import Report
from tests.pipeline.report.kinds import KINDS
from tests.pipeline.report.lakes import report_of, troubled
from tests.pipeline.report.test_html import HOSTILE, hostile_report

TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_broadcast_is_one_object_with_the_same_names(tmp_path: Path, kind: str) -> None:
    report = report_of(tmp_path, KINDS[kind], "live/show" if kind == "cut off" else None)
    found = json.loads(render_json(report), parse_constant=refuse)
    assert list(found) == ["schema_version", *(field.name for field in dataclasses.fields(Report))]
    assert found["schema_version"] == 1
    for path, value in walk(found):
        if path.endswith(("_at", ".at")):
            assert value is None or TIME.fullmatch(value), path


def walk(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [one for name, inner in value.items() for one in walk(inner, f"{path}.{name}")]
    if isinstance(value, list):
        return [one for inner in value for one in walk(inner, path)]
    return [(path, value)]


def test_a_number_that_json_lacks_is_null(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    assert report.ingest is not None
    broken = dataclasses.replace(report.ingest, total_bps_mean=float("nan"), frame_rate_mean=float("inf"))
    found = json.loads(render_json(dataclasses.replace(report, ingest=broken)), parse_constant=refuse)
    assert (found["ingest"]["total_bps_mean"], found["ingest"]["frame_rate_mean"]) == (None, None)


def test_figures_are_those_of_the_tables(tmp_path: Path) -> None:
    found = json.loads(render_json(report_of(tmp_path, troubled())))
    assert found["started_at"] == "2026-11-16T08:00:00.000Z"
    youtube = found["destinations"][1]
    assert (youtube["name"], youtube["missed"], youtube["down_ms"]) == ("youtube", 1204, 20_020)
    assert youtube["audits"][0]["skipped_by_reason"] == {"evicted": 1200, "no_keyframe": 4}
    assert found["incidents"][1]["cause_number"] == 1
    assert found["issues"][0]["measured"] == 6012
    assert len(found["ingest"]["points"]) == 60


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_as_they_came(tmp_path: Path, name: str) -> None:
    assert json.loads(render_json(hostile_report(tmp_path, name)))["stream"] == name


def test_a_day_is_a_list(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    assert [one["stream_id"] for one in json.loads(render_json_list([report, report]))] == ["n1.b.1", "n1.b.1"]
