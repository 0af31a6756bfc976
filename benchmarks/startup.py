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
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.costs import run_measured
from benchmarks.processes import provenance
from tests.pipeline.flv_files import recording, write_flv
from tests.pipeline.jobs.logs_on_disk import some_stream, write_events

_QUERY = """
import time
began = time.time()
from headrace.pipeline.session import make_session
spark = make_session("startup", is_short=True)
session = time.time()
spark.range(1000).selectExpr("sum(id)").collect()
print(session - began, time.time() - session)
spark.stop()
"""


def measure(what: str, command: list[str], cache: Path) -> dict[str, Any]:
    cost = run_measured(command, {"XDG_CACHE_HOME": str(cache)})
    answered_s = round(sum(map(float, cost.said.split())), 2) if "query" in what else None
    shown = "" if answered_s is None else f"answered after {answered_s:5.1f} s, "
    print(
        f"{what:28} {shown}{cost.wall_s:5.1f} s in all, CPU {cost.cpu_s:5.1f} s, "
        f"JVM {cost.jvm_mb:4} MB, all {cost.all_mb:4} MB",
        flush=True,
    )
    return {
        "what": what,
        "answered_s": answered_s,
        **{name: value for name, value in asdict(cost).items() if name != "said"},
    }


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
        facts = {"provenance": provenance(), "runs": runs}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
