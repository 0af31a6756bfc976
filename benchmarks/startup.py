"""How long until Spark answers, and what it takes: a session and its first query, and a whole small batch job.

    .venv/bin/python -m benchmarks.startup [--runs 3] [--json out.json]

Each run is a process of its own, as a person's command is. The first is with an empty cache, so that it makes whatever
later ones start faster with; all others find it there. Memory is the most that the process and its children had in
memory at one time, looked at ten times a second: that of the JVM, and of all together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.processes import provenance
from tests.pipeline.flv_files import recording, write_flv
from tests.pipeline.jobs.logs_on_disk import some_stream, write_events

_LOOK_S = 0.1
_QUERY = """
import time
began = time.time()
from headrace.pipeline.session import make_session
spark = make_session("startup")
session = time.time()
spark.range(1000).selectExpr("sum(id)").collect()
print(session - began, time.time() - session)
spark.stop()
"""


@dataclass
class Run:
    what: str
    wall_s: float
    answered_s: float | None
    jvm_mb: float
    all_mb: float


def children_of(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def memory_mb(pid: int) -> tuple[float, float]:
    """Of the JVM, and of all: what is theirs alone, and their share of what they have in common."""
    jvm = everything = 0.0
    for one in children_of(pid):
        try:
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        kb = next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
        everything += kb / 1024
        jvm += kb / 1024 if name == "java" else 0
    return jvm, everything


def measure(what: str, command: list[str], cache: Path) -> Run:
    environ = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    began_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ)
    jvm_mb = all_mb = 0.0
    while process.poll() is None:
        jvm, everything = memory_mb(process.pid)
        jvm_mb, all_mb = max(jvm_mb, jvm), max(all_mb, everything)
        time.sleep(_LOOK_S)
    wall_s = time.monotonic() - began_s
    assert process.stdout is not None
    said = process.stdout.read().split()
    assert process.returncode == 0, f"{what} ended with {process.returncode}"
    answered_s = sum(map(float, said)) if "query" in what else None
    run = Run(what, round(wall_s, 2), answered_s and round(answered_s, 2), round(jvm_mb), round(all_mb))
    shown = "" if answered_s is None else f"answered after {answered_s:5.1f} s, "
    print(f"{what:28} {shown}{wall_s:5.1f} s in all, JVM {jvm_mb:4.0f} MB, all {all_mb:4.0f} MB", flush=True)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        write_events(folder / "data", "a", some_stream("n1", "n1.b.1", 1))
        (folder / "rec-n1").mkdir()
        write_flv(folder / "rec-n1" / "live_show_20270115_080000.flv", recording(2000))
        for number in range(options.runs + 1):
            kind = "first" if not number else "later"
            job = [sys.executable, "-m", "headrace", "pipeline", "batch", "--data-dir", str(folder / "data")]
            job += ["--record-dir", str(folder / "rec-n1"), "--lake", str(folder / f"lake-{number}")]
            runs.append(measure(f"small batch, {kind}", job, cache))
        query = [sys.executable, "-c", _QUERY]
        runs += [measure("session and query, later", query, cache) for _ in range(options.runs)]
    if options.json:
        facts = {"provenance": provenance(), "runs": [asdict(run) for run in runs]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
