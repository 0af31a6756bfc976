from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from headrace.pipeline.report.text import WIDTH, render_list, render_text, render_texts, sparkline, wrap
from tests.pipeline.report.kinds import KINDS
from tests.pipeline.report.lakes import catalogue, report_of, troubled, write_lake
from tests.pipeline.report.test_html import HOSTILE, hostile_report


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_broadcast_fits_eighty_columns(tmp_path: Path, kind: str) -> None:
    report = report_of(tmp_path, KINDS[kind], "live/show" if kind == "cut off" else None)
    text = render_text(report)
    assert_fits(text)
    assert report.verdict in " ".join(text.split())
    assert text.endswith("\n")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_neither_move_the_cursor_nor_break_the_columns(tmp_path: Path, name: str) -> None:
    assert_fits(render_text(hostile_report(tmp_path, name)))


def assert_fits(text: str) -> None:
    for line in text.splitlines():
        assert cell_len(line) <= WIDTH, line
        assert line.isprintable(), repr(line)
        assert line == line.rstrip()


def test_colours_are_only_for_terminals(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    coloured = render_text(report, is_terminal=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == render_text(report).split()


def test_the_text_has_the_figures_of_the_tables(tmp_path: Path) -> None:
    text = " ".join(render_text(report_of(tmp_path, troubled())).split())
    for wanted in (
        "2.5 Mbit/s on average",
        "2,796 delivered + 1,204 skipped = 4,000 that came in",
        "1,200 missed: away for longer than the log holds (30 s) (evicted)",
        "down 08:00:30 to 08:00:50 (20 s): the far end closed the connection",
        "1. 08:00:10 Nothing came from the encoder for 6 s; because of it 1 viewer left.",
        "1 min, 19.0 MB, h264 and aac, finished",
    ):
        assert wanted in text


def test_several_reports_come_one_after_the_other(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    text = render_texts([report, report])
    assert text.count(report.stream + "\n") == 2
    assert text.count("═" * WIDTH) == 1


def test_the_list_has_a_line_and_an_id_for_each(tmp_path: Path) -> None:
    known = catalogue(write_lake(tmp_path, KINDS["cut off"]))
    lines = render_list(known.broadcasts).splitlines()
    assert lines[0] == "2026-11-16 08:15:00       1 min          live/new"
    assert lines[1] == "    n1.c.1"
    assert "cut off live/show" in lines[2]


def test_a_chart_shows_gaps_and_silence_and_cuts_bursts() -> None:
    assert sparkline([8.0, 4.0, None, 0.0], 4) == "█▄·_"
    assert sparkline([8.0, 4.0], 4) == "██▄▄"
    assert sparkline([5.0] * 30 + [500.0], 31) == "▅" * 30 + "█"
    assert sparkline([], 4) == ""


def test_a_number_stays_with_its_unit() -> None:
    assert wrap("it took 6 s to end", 9) == ["it took", "6 s to", "end"]


@given(st.text(max_size=300), st.integers(2, 40))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    shown = " ".join(part for part in text.split() if part.isprintable())
    lines = wrap(shown, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(shown.split())
