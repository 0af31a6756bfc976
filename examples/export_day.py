"""Export a day (UTC) of a lake to CSV, a file for each table, by `headrace query`. May run beside a job.

    python examples/export_day.py 2027-01-14 export --lake data/lake

A row belongs to the day that its own time is in. Tables whose rows have no time go by the streams or recordings of the
day; `problems` have neither, and come whole.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

STREAMS = "(node, stream_id) in (select (node, stream_id) from stream_health where {started_at})"
RECORDINGS = "path in (select found_path from recordings where {opened_at})"
# Table -> which of its rows; {column} stands for "that time is in the day".
ROWS = {
    "events": "{epoch_ms}",
    "tags": RECORDINGS,
    "problems": "true",
    "gops": RECORDINGS,
    "stream_windows": "{started_at} or clock = 'media' and " + STREAMS,
    "sessions": "{started_at}",
    "destination_states": "{started_at}",
    "stream_health": "{started_at}",
    "destination_health": "{first_seen_at}",
    "audience": "{first_at}",
    "relay_audit": STREAMS,
    "incidents": "{started_at}",
    "recordings": "{opened_at}",
}


def condition(table: str, day: date) -> str:
    start, end = f"timestamptz '{day}'", f"timestamptz '{day + timedelta(days=1)}'"
    within = {
        name: f"({name} >= {start} and {name} < {end})"
        for name in ("started_at", "opened_at", "first_seen_at", "first_at")
    }
    within["epoch_ms"] = f"(time_ms >= epoch_ms({start}) and time_ms < epoch_ms({end}))"
    return ROWS[table].format(**within)


def main() -> None:
    parser = argparse.ArgumentParser(description="Export a day of a lake to CSV, a file for each table.")
    parser.add_argument("day", type=date.fromisoformat, help="such as 2027-01-14, in UTC")
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--lake", type=Path, default=Path("data/lake"), help="(default data/lake)")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for table in ROWS:
        path = options.folder / f"{table}.csv"
        sql = f"select * from {table} where {condition(table, options.day)} order by all"
        query = [sys.executable, "-m", "headrace", "query", sql, "--lake", options.lake, "--format", "csv"]
        with path.open("wb") as out:
            if subprocess.run(query, stdout=out, check=False).returncode:
                raise SystemExit(1)  # the query has said why
        with path.open(newline="", encoding="utf-8") as written:
            print(f"{path}: {sum(1 for _ in csv.reader(written)) - 1} rows")


if __name__ == "__main__":
    main()
