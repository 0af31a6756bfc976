"""What does a day of many streams cost? Simulated event logs of growing length through `headrace pipeline batch`.

    .venv/bin/python -m benchmarks.scale [--streams 100] [--hours 1 2 4] [--viewers 10] [--recordings] [--json out.json]
    .venv/bin/python -m benchmarks.scale --simulated sim/data --simulated-hours 24 --hours 1 4 24

Each length is simulated, processed into an empty lake by the command as anyone would run it, and deleted again. Of a
log that has been simulated before, which takes a quarter of an hour for a day, each length takes the first part. A
growth of 1.00 means that twice the rows cost twice the time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.costs import run_measured
from benchmarks.processes import provenance


def count_files(folder: Path) -> tuple[int, int]:
    """How many, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return len(sizes), sum(sizes)


def link_first_part(whole: Path, part: Path, share: float) -> None:
    """The same files under a second name: nothing is copied."""
    files = sorted(whole.rglob("*.jsonl"))  # by hour, and by number within it
    for path in files[: round(len(files) * share)]:
        linked = part / path.relative_to(whole)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.hardlink_to(path)


def measure(options: argparse.Namespace, hours: float) -> dict[str, Any]:
    headrace = [sys.executable, "-m", "headrace", "pipeline"]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        data, recordings, lake = (Path(name) / part for part in ("data", "recordings", "lake"))
        places = ["--data-dir", str(data), "--record-dir", str(recordings)]
        if options.simulated is not None:
            link_first_part(options.simulated, data, hours / options.simulated_hours)
        else:
            size = ["--streams", options.streams, "--viewers", options.viewers, "--destinations", options.destinations]
            written = [*headrace, "simulate", *map(str, size), "--hours", str(hours), *places]
            run_measured([*written, "--recordings"] if options.recordings else written)
        event_files, event_bytes = count_files(data)
        recording_files, recording_bytes = count_files(recordings)
        settings = [word for setting in options.conf for word in ("--conf", setting)]
        cost = run_measured([*headrace, "batch", *places, "--lake", str(lake), *settings])
        status = run_measured([*headrace, "status", "--lake", str(lake), "--format", "json"])
        rows = {table["table"]: table["rows"] for table in json.loads(status.said)["tables"]}
        lake_files, lake_bytes = count_files(lake)
    inputs = rows["events"] + rows["tags"]
    result = {
        "hours": hours,
        "event_files": event_files,
        "event_bytes": event_bytes,
        "recording_files": recording_files,
        "recording_bytes": recording_bytes,
        "rows": rows,
        "lake_files": lake_files,
        "lake_bytes": lake_bytes,
        "rows_per_s": round(inputs / cost.wall_s),
        **{name: value for name, value in asdict(cost).items() if name != "said"},
    }
    print(
        f"{hours:5g} h: {rows['events']:>11,} events, {rows['tags']:>11,} tags, {event_bytes / 1e9:6.2f} GB in; "
        f"{cost.wall_s:7.1f} s, {result['rows_per_s']:>8,} rows/s, CPU {cost.cpu_s:7.1f} s, JVM {cost.jvm_mb} MB, "
        f"all {cost.all_mb} MB; lake {lake_bytes / 1e9:.2f} GB in {lake_files} files",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--hours", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--destinations", type=int, default=3)
    parser.add_argument("--recordings", action="store_true", help="thin ones too: a tag for every message")
    parser.add_argument("--simulated", type=Path, metavar="DIR", help="a data directory that simulate has written")
    parser.add_argument("--simulated-hours", type=float, default=24, help="how much is in it")
    parser.add_argument("--folder", type=Path, help="where there is room for it (default the temporary directory)")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="of Spark, repeatable")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; {options.streams} streams")
    results = [measure(options, hours) for hours in options.hours]
    for before, after in pairwise(results):
        growth = after["wall_s"] / before["wall_s"] / (after["rows"]["events"] / before["rows"]["events"])
        print(f"{before['hours']:g} to {after['hours']:g} h: {growth:.2f} x the time a row")
    if options.json:
        asked = {name: getattr(options, name) for name in ("streams", "viewers", "destinations", "recordings", "conf")}
        options.json.write_text(json.dumps({"provenance": provenance(), **asked, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
