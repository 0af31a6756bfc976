"""All figures of the pipeline, one benchmark after the other: `make bench-pipeline`.

    .venv/bin/python -m benchmarks.pipeline [--quick] [--json build/bench-pipeline.json]

About an hour, and 40 GB of temporary files; --quick takes some minutes, for a look at whether it works. Nothing else
should run meanwhile: each part says what the load was when it began. What the figures mean: docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import provenance

# Part -> the words behind it: in full, and quick.
PARTS = {
    "flv_source": ("", "--sizes-mb 64 --counts 10 --runs 1"),
    "startup": ("", "--runs 1"),
    "freshness": ("--streams 10 --minutes 5", "--streams 2 --minutes 1.5"),
    "scale": ("--hours 1 2 4 8", "--streams 5 --hours 0.1 0.2"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("build/bench-pipeline.json"))
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for part, (full, quick) in PARTS.items():
            print(f"== {part}", flush=True)
            out = Path(name) / f"{part}.json"
            words = (quick if options.quick else full).split()
            done = subprocess.run([sys.executable, "-m", f"benchmarks.{part}", *words, "--json", str(out)])
            results[part] = json.loads(out.read_text()) if done.returncode == 0 else {"failed": done.returncode}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"provenance": provenance(), **results}, indent=2) + "\n")
    print(f"results in {options.json}")
    if any("failed" in result for result in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
