"""A report as JSON: the facts under their names, times as ISO 8601 in UTC, no number that JSON lacks. Pure."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from headrace.pipeline.report.facts import Report

SCHEMA_VERSION = 1  # raised when a field changes its meaning or goes away; a new one does not raise it


def render_json(report: Report) -> str:
    return _dump(_object(report))


def render_json_list(reports: Sequence[Report]) -> str:
    return _dump([_object(report) for report in reports])


def _object(report: Report) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **_plain(dataclasses.asdict(report))}


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
