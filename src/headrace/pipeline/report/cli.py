"""`headrace report`: words in, a report out, one clear line if it cannot be.

Owns arguments and where the output goes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.commands import Parser, exit_status, lake_place, require_packages
from headrace.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from headrace.pipeline.report.choosing import Broadcast, Catalogue
    from headrace.pipeline.report.facts import Report
    from headrace.pipeline.report.tables import LakeTables

_NEEDED = {"html": ("pyarrow", "matplotlib", "jinja2"), "text": ("pyarrow", "rich"), "json": ("pyarrow",)}
_SUFFIXES = {".html": "html", ".htm": "html", ".txt": "text", ".json": "json"}
_EXTENSIONS = {"html": "html", "text": "txt", "json": "json"}
_STDOUT = "-"


def main(argv: Sequence[str], program: str) -> int:
    """Called by `headrace.cli` with the arguments behind `report`."""
    return exit_status(program, lambda: _run(_parser(program).parse_args(argv)))


def _run(options: argparse.Namespace) -> None:
    kind = options.format or _format_of(options.output)
    require_packages(f"a report as {kind}", _NEEDED[kind])
    from headrace.pipeline.fetched import fetched
    from headrace.pipeline.report.tables import LAYERS, LakeTables

    place = options.lake or (options.data_dir or Path("data")) / "lake"
    with fetched(place, LAYERS.__contains__) as root:
        _answer(options, kind, LakeTables(root.absolute()))


def _answer(options: argparse.Namespace, kind: str, lake: LakeTables) -> None:
    from headrace.pipeline.report.choosing import Catalogue, as_day

    catalogue = Catalogue(lake)
    day = None if options.what is None else as_day(options.what)
    if options.list:
        _print_list(catalogue, options.what, day)
    elif day is not None:
        _write_day(lake, catalogue, day, kind, options.output)
    else:
        chosen = catalogue.newest() if options.what is None else catalogue.named(options.what)
        _write_one(lake, catalogue, chosen, kind, options.output)


def _print_list(catalogue: Catalogue, what: str | None, day: date | None) -> None:
    from headrace.pipeline.report.text import render_list

    chosen = [*catalogue.broadcasts, *catalogue.refusals]
    if day is not None:
        chosen = catalogue.on(day)
    elif what is not None:
        stream = catalogue.named(what).stream
        chosen = [one for one in chosen if one.stream == stream]
    _print(render_list(chosen, is_terminal=_is_terminal()))


def _write_one(lake: LakeTables, catalogue: Catalogue, chosen: Broadcast, kind: str, output: str | None) -> None:
    report = _report(lake, catalogue, chosen)
    content = _render(report, kind, is_terminal=output is None and _is_terminal())
    if output == _STDOUT or (output is None and kind != "html"):
        _print(content)
        return
    path = Path(output) if output is not None else Path()
    if path.is_dir() or (output is not None and output.endswith("/")):
        path = path / f"{file_stem(chosen)}.{_EXTENSIONS[kind]}"
    _write(path, content)
    _print(f"{path}\n")


def _write_day(lake: LakeTables, catalogue: Catalogue, day: date, kind: str, output: str | None) -> None:
    chosen = catalogue.on(day)
    if kind == "html":
        _write_pages(lake, catalogue, chosen, day, output)
        return
    reports = [_report(lake, catalogue, one) for one in chosen]
    if kind == "json":
        from headrace.pipeline.report.as_json import render_json_list

        content = render_json_list(reports)
    else:
        from headrace.pipeline.report.text import render_texts

        content = render_texts(reports, is_terminal=output is None and _is_terminal())
    if output is None or output == _STDOUT:
        _print(content)
        return
    path = Path(output)
    if path.is_dir() or output.endswith("/"):
        path = path / f"headrace-report-{day.isoformat()}.{_EXTENSIONS[kind]}"
    _write(path, content)
    _print(f"{path}\n")


def _write_pages(
    lake: LakeTables, catalogue: Catalogue, chosen: Sequence[Broadcast], day: date, output: str | None
) -> None:
    """An index and a page each, in a directory."""
    from headrace.pipeline.report.html import render_index, render_page

    directory = Path(f"headrace-report-{day.isoformat()}" if output is None else output)
    if output == _STDOUT or (directory.exists() and not directory.is_dir()) or directory.suffix in _SUFFIXES:
        raise PipelineError(
            "OPTION_INVALID", option="--output", value=output, expected="a directory, for a day's pages"
        )
    entries: list[tuple[str, Report]] = []
    for one in chosen:
        report = _report(lake, catalogue, one)
        link = f"{file_stem(one)}.html"
        _write(directory / link, render_page(report, index_link="index.html"))
        entries.append((link, report))
    refusals = [one for one in catalogue.refusals if one.is_on(day)]
    _write(directory / "index.html", render_index(day.isoformat(), entries, refusals))
    _print(f"{directory / 'index.html'}\n")


def _report(lake: LakeTables, catalogue: Catalogue, chosen: Broadcast) -> Report:
    from headrace.pipeline.report.gather import build_report

    return build_report(lake, chosen, catalogue.refusals_beside(chosen))


def _render(report: Report, kind: str, *, is_terminal: bool) -> str:
    # Each form loads what it needs and no more.
    if kind == "html":
        from headrace.pipeline.report.html import render_page

        return render_page(report)
    if kind == "json":
        from headrace.pipeline.report.as_json import render_json

        return render_json(report)
    from headrace.pipeline.report.text import render_text

    return render_text(report, is_terminal=is_terminal)


def file_stem(one: Broadcast) -> str:
    """The name of a broadcast's file: readable, safe whatever a stream is called, and of this broadcast alone."""
    shown = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "_" for c in one.stream)[:80]
    return f"{shown.lstrip('.-') or 'unnamed'}_{one.started_at:%Y%m%d_%H%M%S}_{one.unit[:6]}"


def _format_of(output: str | None) -> str:
    """Text where it is printed; in a file what its name says, and a page otherwise."""
    if output is None or output == _STDOUT:
        return "text"
    return _SUFFIXES.get(Path(output).suffix.lower(), "html")


def _write(path: Path, content: str) -> None:
    """In one step: whoever has the page open never sees half of one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(content, "utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise PipelineError("OUTPUT_NOT_WRITABLE", path=path, reason=error.strerror or error) from None


def _print(content: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal that cannot show a block shows a question mark, not a traceback.
    sys.stdout.write(content.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        allow_abbrev=False,
        description="What the tables say of a broadcast: was it healthy, what did each destination miss, who watched.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        metavar="STREAM|RECORDING|DATE",
        help="app/name (its newest broadcast), an id that --list shows, an FLV file, or a day such as 2026-01-31 "
        "(UTC); without it the newest broadcast",
    )
    parser.add_argument("--list", action="store_true", help="list the broadcasts instead, newest first")
    parser.add_argument(
        "--format",
        choices=("html", "text", "json"),
        help="default: as --output ends, else text; html is a file",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the server's (default data)")
    parser.add_argument(
        "--lake",
        type=lake_place,
        metavar="PLACE",
        help="the tables: a directory, hdfs://… or s3a://… (default lake in the data directory)",
    )
    parser.add_argument("--output", metavar="FILE_OR_DIR", help="where it goes; - is standard output")
    return parser
