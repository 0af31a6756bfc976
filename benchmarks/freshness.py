"""How far the tables are behind: an event's time to its row being readable, while streams are live.

    .venv/bin/python -m benchmarks.freshness [--streams 1] [--minutes 3] [--json out.json]

Streams of 1 Mbit/s from the load generator, a player each, the server with `-record-all -pipeline on`. Twice a second
the newest time in the tables is read by pyarrow, as any reader would: of gold `audience`, which is made of events, and
of silver `stream_windows` of one second, which is made of recordings. How old it is tells how far behind the tables
are. The first minute, in which Spark starts, is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.processes import ServerProcess, build_rtmpload, provenance

_LOOK_S = 0.5


def newest_events_s(lake: Path) -> dict[str, float]:
    """The time of each stream's newest event in gold `audience`."""
    rows = ds.dataset(lake / "gold/audience", format="parquet").to_table(columns=["stream_id", "last_at"]).to_pylist()
    # A player that came before the publisher was refused, and is in a row of no stream.
    return {row["stream_id"]: row["last_at"].timestamp() for row in rows if row["stream_id"] and row["last_at"]}


def newest_media_s(lake: Path) -> dict[str, float]:
    """The end of each stream's newest second in silver `stream_windows`, whose clock begins with the stream."""
    sessions = ds.dataset(lake / "silver/sessions", format="parquet")
    publishes = sessions.to_table(columns=["stream_id", "started_at"], filter=pc.field("kind") == "publish")
    began_s = {row["stream_id"]: row["started_at"].timestamp() for row in publishes.to_pylist()}
    windows = ds.dataset(lake / "silver/stream_windows", format="parquet")
    is_second = (pc.field("clock") == "media") & (pc.field("window_s") == 1)
    seconds = windows.to_table(columns=["stream_id", "start_ms"], filter=is_second)
    newest = seconds.group_by("stream_id").aggregate([("start_ms", "max")]).to_pylist()
    return {row["stream_id"]: began_s[row["stream_id"]] + row["start_ms_max"] / 1000 + 1 for row in newest}


TABLES = {"audience": newest_events_s, "stream_windows": newest_media_s}


def measure(streams: int, minutes: float) -> dict[str, Any]:
    rtmpload = build_rtmpload()
    behind_s: dict[str, list[float]] = {name: [] for name in TABLES}
    first_s: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data, recordings = Path(folder) / "data", Path(folder) / "recordings"
        server = ServerProcess("-data-dir", str(data), "-record-all", "-record-dir", str(recordings), "-pipeline", "on")
        duration_s = minutes * 60
        load = [
            _load(rtmpload, server.port, number, *flags)
            for flags in (
                ("publish", "--kbps", "1000", "--duration", str(round(duration_s) + 5)),
                ("play", "--subs", "1", "--warmup", "1", "--measure", str(round(duration_s))),
            )
            for number in range(streams)
        ]
        began_s = time.monotonic()
        try:
            while (age_s := time.monotonic() - began_s) < duration_s:
                time.sleep(_LOOK_S)
                for name, newest_s in TABLES.items() if (data / "lake/gold/recordings").exists() else ():
                    newest = newest_s(data / "lake")
                    if len(newest) == streams:
                        first_s.setdefault(name, round(age_s, 1))
                        behind_s[name] += [time.time() - one for one in newest.values() if age_s > 60]
        finally:
            for process in load:
                process.kill()
                process.wait()
            server.stop()
    found = {name: {"first_rows_s": first_s.get(name), **_percentiles(ages)} for name, ages in behind_s.items()}
    return {"streams": streams, "minutes": minutes, **found}


def _load(rtmpload: Path, port: int, number: int, role: str, *flags: str) -> subprocess.Popen[bytes]:
    command = [str(rtmpload), role, "--port", str(port), "--app", f"live{number}", *flags]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _percentiles(behind_s: list[float]) -> dict[str, float]:
    behind_s.sort()
    places = {"p50": len(behind_s) // 2, "p95": len(behind_s) * 95 // 100, "max": len(behind_s) - 1}
    return {f"behind_{name}_s": round(behind_s[place], 1) for name, place in places.items()} if behind_s else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    found = measure(options.streams, options.minutes)
    print(json.dumps(found))
    if options.json:
        options.json.write_text(json.dumps({"provenance": provenance(), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
