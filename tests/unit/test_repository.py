"""Rules about the repository itself that no tool checks: who imports whom, and what the papers must say."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import __version__
from headrace.options import SERVE_FLAGS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "headrace"

# --- who may import whom

# Part of the package -> the other parts it may import: cli -> app -> {server, relay, record, web} -> net ->
# stream -> protocol, with telemetry beside net and pipeline apart. A part that is not listed here fails the
# test below, so that a new one is placed on purpose.
LEAVES = {"errors", "units", "logs", "options", "__init__"}  # __init__ is the version, and no more
BELOW_SERVER = {"net", "stream", "protocol", "telemetry"} | LEAVES
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "options": {"errors", "units"},
    "logs": {"errors", "units"},
    "protocol": {"errors"},
    "stream": {"protocol", "errors"},
    "telemetry": {"stream", "protocol"} | LEAVES,
    "net": {"stream", "protocol", "telemetry"} | LEAVES,
    "server": BELOW_SERVER,
    "relay": BELOW_SERVER,
    "record": BELOW_SERVER - {"net"},
    "web": BELOW_SERVER - {"protocol"},
    "edge": {"server", "relay"}
    | BELOW_SERVER,  # a player elsewhere, with a destination's ways to fail, and a publisher here
    "pipeline": {"telemetry", "stream", "protocol"} | LEAVES,
    "control": {"server", "relay", "edge", "record", "web"}
    | BELOW_SERVER,  # the app layer's other half: what HTTP sees
    "garbage": set(),  # how the processes that serve collect theirs
    "companion": {"logs"},  # the pipeline is another process: nothing of it is imported
    "workers": {"server", "relay", "edge", "web"} | BELOW_SERVER,  # what makes several processes one server
    "node": {"control", "workers", "edge", "server", "relay", "record"}
    | BELOW_SERVER,  # one process with all its parts
    "worker": {"garbage", "node", "workers", "edge", "relay"} | BELOW_SERVER,
    "app": {"companion", "garbage", "node", "workers", "edge", "relay", "web"} | BELOW_SERVER,
    "cli": {"app", "pipeline", "errors", "options", "units", "__init__"},
    "__main__": {"cli"},
    "__init__": set(),
}

CLOCKS_AND_CHANCE = {"time", "datetime", "random", "secrets", "sched"}
INPUT_AND_OUTPUT = {"asyncio", "socket", "select", "selectors", "ssl", "socketserver", "signal", "subprocess"}
FILES = {"os", "pathlib", "shutil", "tempfile", "glob", "io", "mmap"}
TASKS = {"threading", "multiprocessing", "concurrent", "queue", "contextvars"}
LOGGING = {"logging", "structlog", "warnings", "sys"}
NOT_PURE = CLOCKS_AND_CHANCE | INPUT_AND_OUTPUT | FILES | TASKS | LOGGING | {"uvloop"}

# Part of the package -> what it must not import from outside, and so cannot know.
MUST_NOT_IMPORT: dict[str, set[str]] = {
    "protocol": NOT_PURE,
    "stream": NOT_PURE,
    "record": {"socket", "ssl", "asyncio.streams"},
}
# Hundreds of megabytes and a JVM, or what only reports and queries are made of: nothing that serves may load them.
HEAVY = {"pyspark", "pyarrow", "pandas", "duckdb", "matplotlib", "jinja2", "rich"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names and their lines, wherever in the module the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                yield "a relative import", node.lineno
            elif node.module == "headrace":
                yield from ((f"headrace.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


def part_imported(name: str) -> str | None:
    """The part of the package that an import names, or None for an import from outside."""
    if name.split(".")[0] != "headrace":
        return None
    part = name.split(".")[1] if "." in name else "__init__"
    is_module = (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file()
    return part if is_module or part in MAY_IMPORT else "__init__"  # `from headrace import __version__`


def forbidden_imports(source: str, part: str) -> list[str]:
    found = []
    for name, line in imports_of(ast.parse(source)):
        imported = part_imported(name)
        banned = MUST_NOT_IMPORT.get(part, set()) | (HEAVY if part != "pipeline" else set())
        if name == "a relative import":
            found.append(f"line {line}: a relative import")
        elif imported is None and (name in banned or name.split(".")[0] in banned):
            found.append(f"line {line}: {name}")
        elif imported is not None and imported != part and imported not in MAY_IMPORT[part]:
            found.append(f"line {line}: headrace.{imported}")
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_package_may_know(module: Path) -> None:
    part = part_of(module)
    assert part in MAY_IMPORT, f"{part} is new: say in MAY_IMPORT what it may know"
    assert forbidden_imports(module.read_text("utf-8"), part) == []


@pytest.mark.parametrize(
    ("part", "source", "found"),
    [
        ("protocol", "import struct, hashlib\nfrom headrace.errors import PeerError", []),
        ("protocol", "def f():\n    import time", ["line 2: time"]),
        ("protocol", "from os.path import join", ["line 1: os.path"]),
        ("protocol", "from headrace.stream.log import StreamLog", ["line 1: headrace.stream"]),
        ("protocol", "from headrace import logs", ["line 1: headrace.logs"]),
        ("stream", "from headrace.net import link", ["line 1: headrace.net"]),
        ("stream", "import headrace.protocol.chunks", []),
        ("server", "from headrace.record.flv import X", ["line 1: headrace.record"]),
        ("server", "import pyspark.sql", ["line 1: pyspark.sql"]),
        ("web", "def page():\n    import duckdb", ["line 2: duckdb"]),
        ("record", "from headrace.net.link import Link", ["line 1: headrace.net"]),
        ("pipeline", "import pyspark\nfrom headrace.app import run", ["line 2: headrace.app"]),
        ("cli", "from headrace import __version__\nfrom headrace.app import run", []),
        ("net", "from .link import Link", ["line 1: a relative import"]),
    ],
)
def test_the_import_rules_find_what_they_should(part: str, source: str, found: list[str]) -> None:
    assert forbidden_imports(source, part) == found


def test_the_command_line_loads_jobs_only_inside_their_commands() -> None:
    tree = ast.parse((PACKAGE / "cli.py").read_text("utf-8"))
    at_start = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    loaded = {part_imported(name) for node in at_start for name, _ in imports_of(node)}
    assert not loaded & {"app", "pipeline"}


def test_a_process_that_serves_loads_nothing_heavy_by_way_of_others_either() -> None:
    serving = "import headrace.cli, headrace.app, headrace.node, headrace.worker, headrace.workers.supervisor"
    serving += ", headrace.web.api, headrace.web.server"
    look = f"{serving}, sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(found.stdout.split())
    assert {"headrace", "uvicorn"} <= loaded
    assert not loaded & (HEAVY | {"numpy", "py4j"})


# --- what is in the repository


def tracked_files() -> list[Path]:
    """What is committed or would be: everything that git does not ignore."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    return [path for name in listed.decode().split("\0") if name and (path := ROOT / name).is_file()]


def lines_matching(pattern: re.Pattern[bytes]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100].decode(errors='replace')}"
        for path in tracked_files()
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    # The machine that installs decides where packages come from.
    # Spelled in pieces, as this file is searched too.
    hosts = [
        "py" + "pi.org",
        "python" + "hosted.org",
        "npm" + "js.org",
        "proxy." + "golang.org",
        "maven." + "org",
    ]
    words = [re.escape(host) for host in hosts] + ["--(extra-)?" + "index-url[= ]", "--" + "find-links[= ]"]
    assert lines_matching(re.compile("|".join(words).encode())) == []


def test_no_file_holds_a_path_of_somebodys_machine() -> None:
    folders = [
        "ho" + "me/[a-z]",
        "Us" + "ers/[a-z]",
        "ro" + "ot/",
        "wo" + r"rk/(main|shared)",
        "opt/" + "wheels",
    ]
    pattern = re.compile(rb"(?<![\w.])/(" + "|".join(folders).encode() + rb")")
    assert lines_matching(pattern) == []


def test_text_files_end_with_one_newline_and_have_no_trailing_space() -> None:
    wrong = []
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" in data or path.suffix in (".flv", ".bin", ".hex") or "seeds" in path.parts:
            continue
        if data and (not data.endswith(b"\n") or data.endswith(b"\n\n")):
            wrong.append(f"{path.relative_to(ROOT)}: its end")
        if re.search(rb"[ \t\r]\n", data):
            wrong.append(f"{path.relative_to(ROOT)}: trailing space")
    assert wrong == []


# --- what the papers say


def table_rows(text: str) -> dict[str, list[str]]:
    """First cell -> all cells, of every table in a Markdown text."""
    rows = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells] for cells in rows}


def test_the_readme_lists_every_flag_with_its_default() -> None:
    rows = table_rows((ROOT / "README.md").read_text("utf-8"))
    for flag in SERVE_FLAGS:
        assert f"`-{flag.name}`" in rows, f"-{flag.name} is not in the README's table of flags"
        assert rows[f"`-{flag.name}`"][1] == f"`{flag.default}`", f"-{flag.name}: another default in the README"
    listed = {cell.strip("`") for cell in rows if cell.startswith("`-")}
    assert listed == {f"-{flag.name}" for flag in SERVE_FLAGS} | {"-version", "-help"}


def test_the_readme_justifies_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    rows = table_rows((ROOT / "README.md").read_text("utf-8"))
    groups = project["dependency-groups"].values()
    wanted = project["project"]["dependencies"] + [w for group in groups for w in group if isinstance(w, str)]
    names = {re.split(r"[<>=!~; \[]", requirement)[0] for requirement in wanted}
    assert names <= {cell.strip("`") for cell in rows}


def test_the_changelog_has_the_current_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## \[{re.escape(__version__)}\]", changelog, re.MULTILINE)


def test_every_link_between_papers_leads_somewhere() -> None:
    papers = [path for path in tracked_files() if path.suffix == ".md"]
    for paper in papers:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", paper.read_text("utf-8")):
            assert (paper.parent / target).exists(), f"{paper.relative_to(ROOT)} links to {target}"


def pins(lock: str) -> dict[str, set[str]]:
    text = (ROOT / "requirements" / lock).read_text("utf-8")
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_the_locks_agree_and_pin_everything_by_hash() -> None:
    run, test = pins("run.txt"), pins("test.txt")
    assert {"structlog", "uvloop", "hatchling"} <= run.keys()
    assert all(test[name] == versions for name, versions in run.items())
    for lock in ("run.txt", "test.txt"):
        entries = re.split(r"\n(?=[a-z])", (ROOT / "requirements" / lock).read_text("utf-8"))[1:]
        assert all("--hash=sha256:" in entry for entry in entries)
