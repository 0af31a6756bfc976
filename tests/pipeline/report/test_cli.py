"""The command: what it prints, where files go, what it loads, and the one line when it cannot."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import cli
from tests.pipeline.report.kinds import KINDS
from tests.pipeline.report.lakes import healthy, merged, publish, refused, troubled, write_lake
from tests.pipeline.report.pages import Page

SOURCES = Path(__file__).resolve().parents[3] / "src"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    later = {"stream": "live/later", "stream_id": "n1.b.2"}
    return write_lake(tmp_path / "data" / "lake", merged(troubled(), {"sessions": [publish(3600, 3700, **later)]}))


def report(*words: str | Path) -> int:
    return cli.main(["report", *map(str, words)])


def test_alone_it_prints_the_newest_as_text(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report() == 0
    assert capsys.readouterr().out.startswith("live/later\n")


def test_a_stream_as_json(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("live/show", "--format", "json", "--lake", lake) == 0
    assert json.loads(capsys.readouterr().out)["stream_id"] == "n1.b.1"


def test_a_recording_as_a_page_in_the_working_directory(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report("live_show_20261116_080000.flv", "--format", "html", "--data-dir", "data") == 0
    (name,) = capsys.readouterr().out.split()
    assert name.startswith("live_show_20261116_080000_")
    assert "youtube" in Page((tmp_path / name).read_text("utf-8")).text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_output_s_name_chooses_the_format(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, start in (("a.html", "<!doctype html>"), ("a.json", "{"), ("a.txt", "live/show")):
        assert report("live/show", "--output", tmp_path / "new" / name) == 0
        assert (tmp_path / "new" / name).read_text("utf-8").startswith(start)
    assert report("live/show", "--output", tmp_path / "new") == 0
    assert report("live/show", "--format", "html", "--output", "-") == 0
    assert "<!doctype html>" in capsys.readouterr().out
    assert len(list((tmp_path / "new").glob("live_show_*.html"))) == 1


def test_a_day_is_an_index_and_a_page_each(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("2026-11-16", "--format", "html") == 0
    folder = tmp_path / "headrace-report-2026-11-16"
    assert capsys.readouterr().out == "headrace-report-2026-11-16/index.html\n"
    links = [str(one["href"]) for one in Page((folder / "index.html").read_text("utf-8")).tags("a")]
    assert len(links) == 2
    for link in links:
        page = Page((folder / link).read_text("utf-8"))
        assert page.tags("a")[0]["href"] == "index.html"


def test_a_day_as_text_and_as_json(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("2026-11-16") == 0
    assert capsys.readouterr().out.count("How it came in") == 2
    assert report("2026-11-16", "--format", "json") == 0
    assert [one["stream"] for one in json.loads(capsys.readouterr().out)] == ["live/show", "live/later"]


def test_the_list_names_every_broadcast_and_can_be_narrowed(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--list") == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        *("live/later", "n1.b.2"),
        *("live/show", "n1.b.1"),
    ]
    assert report("live/show", "--list") == 0
    assert "n1.b.2" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["live/zzz"], 1, "no broadcast of live/zzz in the lake"),
        (["2026-01-01"], 1, "no broadcast on 2026-01-01 (UTC)"),
        (["9999-12-31"], 1, "no broadcast on 9999-12-31 (UTC)"),
        (["2026-99-01"], 1, "expected a day such as 2026-01-31"),
        (["--lake", "nowhere"], 1, "nowhere: `headrace pipeline run` or `batch` makes one"),
        (["--format", "pdf"], 2, "invalid choice: 'pdf'"),
        (["a", "b"], 2, "unrecognized arguments: b"),
        (["2026-11-16", "--output", "day.html"], 1, "expected a directory, for a day's pages"),
        (["--output", "data/lake/_lake.json/x.html"], 1, "cannot be written"),
        (["live/zzz\nsecond line\x1b[2J"], 1, "no broadcast of live/zzz\\nsecond line\\x1b[2J"),
    ],
)
def test_what_cannot_be_is_one_line(
    lake: Path, words: list[str], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(*words) == status
    said = capsys.readouterr()
    assert complaint in said.err
    assert said.err.startswith("headrace report: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_an_empty_lake_and_one_of_refusals_have_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--lake", write_lake(tmp_path / "empty", {})) == 1
    assert "it holds none yet" in capsys.readouterr().err
    assert report("--lake", write_lake(tmp_path / "refused", KINDS["only refusals"])) == 0
    assert "Never published" in capsys.readouterr().out


def test_without_the_packages_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert report("--format", "html") == 1
    assert "needs pyarrow, matplotlib, jinja2; install headrace[pipeline]" in capsys.readouterr().err


def test_a_file_name_is_safe_whatever_the_stream_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = merged(healthy(), {"sessions": [refused(1)]})
    for table in rows.values():
        for row in table:
            row["stream"] = "../../../etc/<x>\n" + "é" * 300
    lake = write_lake(tmp_path / "lake", rows)
    assert report("--lake", lake, "--format", "json", "--output", f"{tmp_path / 'out'}/") == 0
    (written,) = (tmp_path / "out").iterdir()
    assert written.name.isascii()
    assert written.name.startswith("_.._.._etc")


@pytest.mark.parametrize(
    ("form", "unwanted"),
    [
        ("text", {"pyspark", "matplotlib", "jinja2", "duckdb"}),
        ("json", {"pyspark", "matplotlib", "rich"}),
        ("html", {"pyspark"}),
    ],
)
def test_only_what_the_form_needs_is_loaded_and_nothing_is_complained_of(
    lake: Path, form: str, unwanted: set[str]
) -> None:
    """Also where there is no home to write caches to, and a notebook has left its backend."""
    code = (
        "import sys\nfrom headrace.cli import main\n"
        f"status = main(['report', 'live/show', '--format', {form!r}, '--output', '-'])\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        f"sys.exit(status or sorted(loaded & {unwanted!r}) or 0)\n"
    )
    unset = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR")
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ |= {"HOME": "/dev/null/nobody", "MPLBACKEND": "module://somebodys_notebook", "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=False, timeout=110)
    assert done.stderr == b""
    assert done.returncode == 0
    assert b"live/show" in done.stdout


def test_a_terminal_that_knows_no_blocks_gets_question_marks(lake: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-m", "headrace", "report", "live/show"]
    done = subprocess.run(command, env=environ, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"????" in done.stdout
