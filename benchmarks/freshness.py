"""How far the tables are behind: an event's time to its row being readable, while streams are live.

    .venv/bin/python -m benchmarks.freshness [--streams 1] [--minutes 3]

Streams of 1 Mbit/s from the load generator, the server with `-record-all -pipeline on`. Twice a second the newest event
of each stream is read from silver `sessions`, which the same build puts in place as gold, by pyarrow, as any reader
would: how old it is tells how far behind the tables are. The first minute, in which Spark starts, is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.processes import ServerProcess, build_rtmpload, provenance

_LOOK_S = 0.5


def newest_s(lake: Path) -> dict[str, float]:
    """The time of the newest event in each stream's row of its publisher."""
    newest: dict[str, float] = {}
    for path in (lake / "silver" / "sessions").glob("*.parquet"):
        for row in pq.read_table(path, columns=["kind", "stream_id", "last_seen_at"]).to_pylist():
            if row["kind"] == "publish":
                newest[row["stream_id"]] = row["last_seen_at"].timestamp()
    return newest


def measure(streams: int, minutes: float) -> dict[str, Any]:
    rtmpload = build_rtmpload()
    with tempfile.TemporaryDirectory() as folder:
        data, recordings = Path(folder) / "data", Path(folder) / "recordings"
        server = ServerProcess("-data-dir", str(data), "-record-all", "-record-dir", str(recordings), "-pipeline", "on")
        duration_s = minutes * 60
        publish = [str(rtmpload), "publish", "--port", str(server.port), "--kbps", "1000"]
        publishers = [
            subprocess.Popen(
                [*publish, "--app", f"live{number}", "--duration", str(round(duration_s) + 5)],
                stdout=subprocess.DEVNULL,
            )
            for number in range(streams)
        ]
        began_s = time.monotonic()
        first_s: float | None = None
        behind_s: list[float] = []
        try:
            while (age_s := time.monotonic() - began_s) < duration_s:
                time.sleep(_LOOK_S)
                newest = newest_s(data / "lake")
                if len(newest) < streams:
                    continue
                first_s = first_s if first_s is not None else age_s
                if age_s > 60:
                    behind_s += [time.time() - one for one in newest.values()]
        finally:
            for publisher in publishers:
                publisher.kill()
                publisher.wait()
            server.stop()
    behind_s.sort()
    return {
        "streams": streams,
        "minutes": minutes,
        "first_rows_s": None if first_s is None else round(first_s, 1),
        "behind_p50_s": round(behind_s[len(behind_s) // 2], 1) if behind_s else None,
        "behind_p95_s": round(behind_s[len(behind_s) * 95 // 100], 1) if behind_s else None,
        "behind_max_s": round(behind_s[-1], 1) if behind_s else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3)
    options = parser.parse_args()
    print(json.dumps({**provenance(), **measure(options.streams, options.minutes)}))


if __name__ == "__main__":
    main()
