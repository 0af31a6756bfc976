from __future__ import annotations

import re
from pathlib import Path

from headrace.pipeline.tables.catalog import TABLES

DOCS = Path(__file__).resolve().parents[3] / "docs" / "pipeline.md"


def test_the_paper_lists_every_column_of_every_table() -> None:
    sections = re.split(r"^### ", DOCS.read_text("utf-8"), flags=re.MULTILINE)[1:]
    listed = {
        section.split("\n", 1)[0]: re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE) for section in sections
    }
    assert listed.keys() == TABLES.keys()
    for name, table in TABLES.items():
        if name != "events":  # which are those of the contract
            assert listed[name] == [(field.name, field.dataType.simpleString()) for field in table.schema.fields], name
