"""Who left during which incident, and how much of the audience that was: `incidents` joined with `audience`.

    python examples/who_left.py data/lake

The tables are plain parquet files, so this needs DuckDB and nothing of Headrace. Viewers are keyed hashes of addresses.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import duckdb

# What an incident caused is in its own row; who it was is in the sessions that ended because of it: while it went on or
# up to ten seconds later, which is how `incidents` counts too.
SQL = """
select i.stream, i.kind, strftime(i.started_at, '%Y-%m-%d %H:%M:%S') as began, i.viewers_exited as exited,
    a.unique_viewers as audience, round(100 * i.viewers_exited / a.unique_viewers) as percent,
    array_to_string(list(s.viewer order by s.stopped_at), ' ') as viewers
from incidents i
join audience a on a.node = i.node and a.stream_id = i.stream_id
join sessions s on s.node = i.node and s.stream_id = i.stream_id and s.kind = 'play'
    and s.stopped_at between i.started_at and coalesce(i.ended_at, s.stopped_at) + interval 10 seconds
where i.viewers_exited > 0
group by all
order by began
"""
LAYERS = {"incidents": "gold", "audience": "gold", "sessions": "silver"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Who left during which incident.")
    parser.add_argument("lake", type=Path, help="such as data/lake")
    lake = parser.parse_args().lake
    if not lake.is_dir():
        raise SystemExit(f"there is no lake at {lake}: headrace pipeline batch makes one")
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    for table, layer in LAYERS.items():
        connection.read_parquet(str(lake / layer / table / "*.parquet"), union_by_name=True).create_view(table)
    rows = connection.execute(SQL).fetchall()
    for stream, kind, began, exited, audience, percent, viewers in rows:
        print(f"{began} {stream} {kind}: {exited} of {audience} viewers left ({percent:.0f} %): {viewers}")
    if not rows:
        print("nobody left because of an incident")


if __name__ == "__main__":
    main()
