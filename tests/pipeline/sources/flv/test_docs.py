from __future__ import annotations

import re
from pathlib import Path

from headrace.pipeline.sources.flv import options
from headrace.pipeline.sources.flv.schema import PROBLEM_SCHEMA, TAG_SCHEMA_WITH_PAYLOAD

PAPER = (Path(__file__).resolve().parents[4] / "docs" / "flv-source.md").read_text("utf-8")


def test_the_paper_lists_every_option() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAPER.partition("## Options")[2].partition("##")[0], re.MULTILINE)
    told = re.findall(r"^(\w+)  ", options.__doc__ or "", re.MULTILINE)
    assert ["path", *rows] == told


def test_the_paper_lists_every_column() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", PAPER.partition("## Columns")[2], re.MULTILINE)
    fields = [*TAG_SCHEMA_WITH_PAYLOAD.fields, *PROBLEM_SCHEMA.fields]
    assert rows == [(field.name, field.dataType.simpleString(), field.metadata["comment"]) for field in fields]
