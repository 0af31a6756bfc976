"""Every question of docs/query.md is asked of the night in `night.py`, and answered as the paper says."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from headrace.pipeline.query import on_duckdb
from headrace.pipeline.query.lake import find_tables
from headrace.pipeline.query.table_text import write_table

PAPER = (Path(__file__).resolve().parents[3] / "docs" / "query.md").read_text("utf-8")
QUESTIONS = re.findall(r"^### (.+?)\n(?:(?!^#).)*?^```sql\n(.+?)^```\n\n^```text\n(.+?)^```$", PAPER, re.M | re.S)


def test_every_question_has_its_query_and_its_answer() -> None:
    assert len(QUESTIONS) == PAPER.count("```sql") == len(re.findall("^### ", PAPER, re.M)) > 10


@pytest.mark.parametrize(("sql", "answer"), [one[1:] for one in QUESTIONS], ids=[one[0] for one in QUESTIONS])
def test_a_question_is_answered_as_the_paper_says(night: Path, sql: str, answer: str) -> None:
    out = io.StringIO()
    with on_duckdb.run(find_tables(night, made_by=""), sql) as result:
        write_table(result, out, width=100)
    assert out.getvalue() == answer


def test_yesterday_is_a_day_of_utc(night: Path) -> None:
    (condition,) = re.findall(r"`(where started_at >= current_date - 1)`", PAPER)
    with on_duckdb.run(find_tables(night, made_by=""), f"select count(*) from stream_health {condition}") as result:
        assert len(list(result.rows)) == 1
