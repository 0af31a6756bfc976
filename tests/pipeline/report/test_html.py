"""The page: complete in itself, safe whatever a stream is called, and with the figures of the tables."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.report import words
from headrace.pipeline.report.facts import Report
from headrace.pipeline.report.html import render_index, render_page
from tests.pipeline.report.kinds import KINDS
from tests.pipeline.report.lakes import catalogue, healthy, merged, refused, report_of, troubled, write_lake
from tests.pipeline.report.pages import Page

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "]]></style><svg onload=x>",
    "$\\frac{1}{$ $x^2$",
    "a\x00b\x1b[31mc\r\n\u202etxet",
    "日本語 🎥 é",
    "&lt;b&gt; &amp; '",
    "x" * 5000,
]


@pytest.fixture(scope="module")
def troubled_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render_page(report_of(tmp_path_factory.mktemp("lake"), troubled()))


def hostile_report(folder: Path, name: str) -> Report:
    """The name everywhere that a stranger may put text, and only the one chart that shows it: others take time."""
    rows = troubled()
    del rows["stream_windows"], rows["audience"]
    for table in rows.values():
        for row in table:
            row["stream"] = name
            for field in ("destination", "error", "last_error", "url", "far_stream", "reason", "path", "video_codec"):
                if row.get(field) is not None and row.get("reader") != "recorder":
                    row[field] = name
            if row.get("reader") == "destination":
                row["name"] = name
            for one in row.get("issues") or ():
                one["name"] = name
    rows["destination_health"] = rows["destination_health"][:1]
    rows["sessions"].append(refused(5, name, reason=name))
    return report_of(folder, rows, "n1.b.1")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_broadcast_has_a_well_formed_page_that_loads_nothing(tmp_path: Path, kind: str) -> None:
    report = report_of(tmp_path, KINDS[kind], "live/show" if kind == "cut off" else None)
    content = render_page(report)
    page = Page(content)
    assert report.verdict in page.text
    assert_self_contained(page, content)
    assert len(page.tags("h1")) == 1
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {one["aria-labelledby"] for one in page.tags("section")} <= set(ids)


def assert_self_contained(page: Page, content: str) -> None:
    loading = {"src", "srcset", "data", "action", "poster", "background", "formaction", "xlink:href", "ping"}
    assert not {tag for tag, _ in page.elements} & {
        "script",
        "link",
        "iframe",
        "img",
        "object",
        "embed",
        "base",
        "form",
    }
    for tag, attributes in page.elements:
        assert not loading & attributes.keys(), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        href = attributes.get("href")
        assert href is None or href.startswith("#") or re.fullmatch(r"[\w.-]+\.html", href), href
    assert "http://" not in content
    assert "https://" not in content
    assert not re.search(r"url\((?!#)|@import", content)
    policy = [one["content"] for one in page.tags("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_the_page_has_the_figures_of_the_tables(troubled_page: str) -> None:
    page = Page(troubled_page)
    assert page.row("Bitrate")[1] == "2.5 Mbit/s on average, 2.5 Mbit/s at most"
    assert page.row("Frames a second")[1] == "30 on average; announced 30"
    assert page.row("Time between keyframes")[1] == "2.0 s on average, 2.0 s at most (by the recording)"
    assert page.row("Time by status")[1] == "good 50 s, bad 10 s"
    assert page.row("youtube")[1:7] == ["4,000", "2,796", "1,204", "0", "0", "yes"]
    assert page.row("studio")[1:7] == ["4,000", "4,000", "0", "0", "0", "yes"]
    assert ["08:00:30", "08:00:50", "20 s", "2"] in [cells[:4] for cells in page.cells]
    assert page.row("Watch time of all")[1] == "1 min 3 s"
    assert page.row("Plays with a picture")[1] == "2 of 3 attempts"
    assert page.row("away for longer than the log holds (30 s) (evicted)")[1] == "1,200"
    assert page.row("live_show_20261116_080000.flv")[1:6] == ["08:00:00", "1 min", "19.0 MB", "h264 and aac", "30"]
    assert "Check host and port of the address" in page.text


def test_charts_are_well_formed_titled_and_in_the_page_s_own_colours(troubled_page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", troubled_page, re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.attrib["role"] == "img"
        assert root[0].tag == "title"
        assert root[0].text == root.attrib["aria-label"]
        assert "var(--line)" in drawing or "var(--good)" in drawing
        assert not re.search(r"#[0-9a-f]{6}\b", drawing), "a colour of matplotlib's own"
        assert "font" not in drawing
        referenced = set(re.findall(r'(?:href="|url\()#([\w.-]+)', drawing))
        assert referenced <= {node.attrib["id"] for node in root.iter() if "id" in node.attrib}


def test_incidents_are_numbered_in_the_charts_as_in_the_table(troubled_page: str) -> None:
    bitrate = re.findall(r"<svg.*?</svg>", troubled_page, re.DOTALL)[0]
    labels = [node.text for node in ElementTree.fromstring(bitrate).iter("text")]
    assert {"1", "2", "3"} <= set(labels)


def test_the_page_is_for_light_dark_paper_and_phones(troubled_page: str) -> None:
    for wanted in ("prefers-color-scheme: dark", "@media print", "break-before: page", "max-width: 34rem"):
        assert wanted in troubled_page
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in Page(troubled_page).tags("meta")
    used, defined = set(re.findall(r"var\(--(\w+)\)", troubled_page)), re.findall(r"--(\w+): #", troubled_page)
    assert all(defined.count(name) == 3 for name in used), "each colour for light, dark and paper"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_shown_and_do_nothing(tmp_path: Path, name: str) -> None:
    content = render_page(hostile_report(tmp_path, name))
    page = Page(content)
    assert_self_contained(page, content)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202a-\u202e]", content)
    assert words.name(name) in [text.strip("\n") for text in page.texts]
    assert len(content) < 300_000


@settings(max_examples=8)
@given(name=st.text(min_size=1, max_size=80))
def test_any_name_gives_a_page_that_parses(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:  # a lone surrogate cannot be in a table
        return
    content = render_page(hostile_report(tmp_path_factory.mktemp("lake"), name))
    assert_self_contained(Page(content), content)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    report = report_of(tmp_path, troubled())
    assert render_page(report) == render_page(report)


def test_the_index_leads_to_every_page_and_names_what_was_refused(tmp_path: Path) -> None:
    rows = merged(healthy(), {"sessions": [refused(9, "<b>none</b>")]})
    known = catalogue(write_lake(tmp_path / "a", rows))
    report = report_of(tmp_path / "b", healthy())
    content = render_index("2026-11-16", [("one.html", report)], known.refusals)
    page = Page(content)
    assert_self_contained(page, content)
    assert [one["href"] for one in page.tags("a")] == ["one.html"]
    assert page.row("2026-11-16 08:00:00")[1:] == ["live/show", "n1", "1 min", "Good", report.verdict]
    assert "<b>none</b>" in page.text
