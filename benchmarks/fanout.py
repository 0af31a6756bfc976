"""What readers and publishers cost, and how late they get their media: ours and its peers in turn, every byte checked.

    .venv/bin/python -m benchmarks.fanout [--only fanout publishers …] [--repeat 1] [--seconds 8] [--json FILE]

The parts, each of which may be run alone:

    fanout       one publisher of 2 Mbit/s and sound, N readers that join within 1.5 s
    publishers   publishers with a reader each, in chunks of 4096 and of 128 bytes
    joiners      readers that come one after another while a thousand play
    idle         memory of a server that has nothing to do
    timestamps   timestamps that cross 0xFFFFFF, and 2^32
    stalled      100 readers with and without 20 more that read nothing
    extras       a destination and a recorder against a reader; 500 readers with and without telemetry and metrics
    workers      1000 readers of one process and of two, on both cores, which they share with the load generator

Servers run on core 0, the load generator on core 1. CPU is that of the server while the load generator measures, per
10^9 bytes delivered; latency is from the publisher's send to the reader's read. Compare figures of one run only: the
machine may be shared. With `--repeat` everything is done so many times in turn, and a row shows the medians. Peers that
are not installed are left out (see `peers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.costs import family
from benchmarks.load import FAULTS, Load, run_load
from benchmarks.peers import installed_peers
from benchmarks.processes import Measured, ServerProcess, build_rtmpload, process_cpu_s, process_rss_mb, provenance

_SERVER_CORES = {0}
_IDLE_S = 5.0
_ALIKE = 8  # destinations, or recorders, or readers more: what one of them costs is an eighth of what they add

Row = dict[str, Any]
Start = Callable[[], Measured]


class Bench:
    """Runs loads, prints a line for each, and keeps the rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rtmpload = build_rtmpload()
        self.rows: list[Row] = []
        self.servers: dict[str, Start] = installed_peers(_SERVER_CORES)
        for merge_ms in options.merge_ms:
            self.servers[f"ours, {merge_ms} ms"] = partial(_ours, "-merge-ms", str(merge_ms))
        self.ours = f"ours, {options.merge_ms[0]} ms"

    def measure(self, part: str, servers: dict[str, Start], load: Load, **more: Any) -> dict[str, Row]:
        """The medians of all repetitions, for each server; the servers take turns."""
        found: dict[str, list[Row]] = {name: [] for name in servers}
        for _ in range(self.options.repeat):
            for name, start in servers.items():
                server = start()
                try:
                    found[name].append(run_load(self.rtmpload, server, load))
                finally:
                    server.stop()
        rows = {name: self.keep({"part": part, "server": name, **more, **_middle(few)}) for name, few in found.items()}
        base = rows.get("nginx")
        for name, row in rows.items():
            if base is not None and name != "nginx":
                row["cpu_x_nginx"] = round(row["cpu_s_per_gb"] / base["cpu_s_per_gb"], 2)
            _show(row)
        return rows

    def keep(self, row: Row) -> Row:
        self.rows.append(row)
        return row

    def note(self, part: str, **figures: Any) -> None:
        """A figure that follows from several rows."""
        self.keep({"part": part, **figures})
        print(f"{part:12} {', '.join(f'{name} {value}' for name, value in figures.items())}", flush=True)

    def load(self, **fields: Any) -> Load:
        return Load(seconds=self.options.seconds, **fields)


def _ours(*flags: str) -> Measured:
    return ServerProcess(*flags, cores=_SERVER_CORES)


def _middle(rows: Sequence[Row]) -> Row:
    """The median of each figure; of faults the sum, since one is too many."""
    middle: Row = {}
    for name, first in rows[0].items():
        values = [row[name] for row in rows if row[name] is not None]
        if name in FAULTS:
            middle[name] = sum(values)
        elif isinstance(first, float) and values:
            middle[name] = round(statistics.median(values), 2)
        else:
            middle[name] = first
    return middle


def _show(row: Row) -> None:
    ratio = f"{row['cpu_x_nginx']:.2f} x" if "cpu_x_nginx" in row else ""
    faults = " ".join(f"{word} {row[word]}" for word in FAULTS)
    joiners = ""
    if "joiners" in row:
        joiners = f"  joiners: keyframe {row['joiner_first_keyframe_p50_ms']} / {row['joiner_first_keyframe_p99_ms']}"
        joiners += f", set-up {row['joiner_setup_p50_ms']} / {row['joiner_setup_p99_ms']} ms"
    print(
        f"{row['part']:10} {row['server']:18} {row['streams']:3} to {row['readers']:4} {row.get('what', ''):10}"
        f" {row['cpu_s_per_gb']:6.2f} CPU s/GB {ratio:>7} {row['cpu_percent']:5.1f} %"
        f"  p50 {row['p50_ms']:6.2f} p99 {row['p99_ms']:6.1f}  keyframe p99 {row['first_keyframe_p99_ms']!s:>7}"
        f" set-up {row['setup_p50_ms']!s:>5} ms{joiners}  {row['rss_mb']:6.1f} MB  {faults}"
        f" alive {row['alive']}",
        flush=True,
    )


def fanout(bench: Bench) -> None:
    for readers in bench.options.readers:
        bench.measure("fanout", bench.servers, bench.load(readers=readers))


def publishers(bench: Bench) -> None:
    count = bench.options.publishers
    rows = {}
    for chunk in (4096, 128):
        load = bench.load(streams=count, readers=count, chunk=chunk)
        rows[chunk] = bench.measure("publishers", bench.servers, load, chunk=chunk, what=f"chunk {chunk}")
    for name in bench.servers:
        ratio = rows[128][name]["cpu_s_per_gb"] / rows[4096][name]["cpu_s_per_gb"]
        bench.note("publishers", server=name, chunk_128_x_4096=round(ratio, 2))


def joiners(bench: Bench) -> None:
    bench.measure("joiners", bench.servers, bench.load(readers=1000, joiners=200))


def idle(bench: Bench) -> None:
    for name, start in bench.servers.items():
        server = start()
        try:
            time.sleep(1.0)
            first_mb = server.rss_mb()
            cpu_s = server.cpu_s()
            time.sleep(_IDLE_S)
            used = (server.cpu_s() - cpu_s) / _IDLE_S
            grown_mb = server.rss_mb() - first_mb
            bench.note(
                "idle",
                server=name,
                rss_mb=round(server.rss_mb(), 1),
                grown_mb=round(grown_mb, 1),
                cpu_percent=round(100 * used, 2),
            )
        finally:
            server.stop()


def timestamps(bench: Bench) -> None:
    ours = {bench.ours: bench.servers[bench.ours]}
    for name, crossed in (("0xFFFFFF", 1 << 24), ("2^32", 1 << 32)):
        # Crossed while it is measured: the readers have come by then.
        first_ms = crossed - round((6.0 + bench.options.seconds / 2) * 1000)
        bench.measure("timestamps", ours, bench.load(timestamp_ms=first_ms), what=name)


def stalled(bench: Bench) -> None:
    ours = {bench.ours: bench.servers[bench.ours]}
    healthy = bench.measure("stalled", ours, bench.load(readers=100), what="none")[bench.ours]
    beside = bench.measure("stalled", ours, bench.load(readers=120, stalled=20), what="20 stall")[bench.ours]
    bench.note("stalled", p99_ratio=round(beside["p99_ms"] / healthy["p99_ms"], 2), p50_ms=beside["p50_ms"])


def extras(bench: Bench) -> None:
    """What is added to one load, as the CPU it adds; both with a reader in its place."""
    _destinations(bench)
    _recorders(bench)
    _telemetry(bench)


def _destinations(bench: Bench) -> None:
    far = ServerProcess(cores={1})
    try:
        urls = [f"rtmp://127.0.0.1:{far.port}/d{number}" for number in range(_ALIKE)]
        pushed = partial(_ours, *(word for url in urls for word in ("-relay-to", url)))
        _compare(bench, "destination", pushed, bench.load(readers=_ALIKE), bench.load(readers=2 * _ALIKE))
    finally:
        far.stop()


def _recorders(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recording = partial(_ours, "-record-all", "-record-dir", folder)
        few = bench.load(streams=_ALIKE, readers=_ALIKE)
        many = bench.load(streams=_ALIKE, readers=2 * _ALIKE)
        _compare(bench, "recorder", recording, few, many)


def _compare(bench: Bench, what: str, other: Start, few: Load, many: Load) -> None:
    """Readers, more readers, and the other in the place of those, in turn: differences within one turn are compared,
    because a machine that is shared gets faster and slower by more than they are."""
    readers, others = [], []
    for _ in range(bench.options.repeat):
        used = []
        for start, load in ((_ours, few), (_ours, many), (other, few)):
            server = start()
            try:
                used.append(run_load(bench.rtmpload, server, load)["cpu_percent"])
            finally:
                server.stop()
        alone, more, its = used
        readers.append((more - alone) / _ALIKE)
        others.append((its - alone) / _ALIKE)
    bench.note(
        "extras",
        of=what,
        cpu_percent=round(statistics.median(others), 3),
        reader_cpu_percent=round(statistics.median(readers), 3),
        all=[round(value, 2) for value in others],
        all_readers=[round(value, 2) for value in readers],
    )


class _Scraped(ServerProcess):
    """One whose metrics are asked for every five seconds."""

    def __init__(self) -> None:
        super().__init__("-http-status", "127.0.0.1:0", cores=_SERVER_CORES)
        self._over = threading.Event()
        self._scraper = threading.Thread(target=self._scrape, daemon=True)
        self._scraper.start()

    def _scrape(self) -> None:
        while not self._over.wait(5.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=10) as answer:
                answer.read()

    def stop(self) -> None:
        self._over.set()
        self._scraper.join(10)
        super().stop()


def _telemetry(bench: Bench) -> None:
    servers: dict[str, Start] = {"ours, without": partial(_ours, "-telemetry", "off"), "ours, with": _Scraped}
    rows = bench.measure("extras", servers, bench.load(readers=500), what="telemetry")
    without, with_it = (rows[name]["cpu_s_per_gb"] for name in servers)
    bench.note("extras", of="telemetry and metrics", cpu_percent_more=round(100 * (with_it / without - 1), 1))


class _Workers(ServerProcess):
    """All its processes as one."""

    def cpu_s(self) -> float:
        return sum(map(process_cpu_s, family(self.pid)))

    def rss_mb(self) -> float:
        return sum(map(process_rss_mb, family(self.pid)))


def workers(bench: Bench) -> None:
    servers: dict[str, Start] = {
        f"ours, {count} workers": partial(_Workers, "-workers", str(count)) for count in (1, 2)
    }
    bench.measure("workers", servers, bench.load(readers=1000))


PARTS: dict[str, Callable[[Bench], None]] = {
    "fanout": fanout,
    "publishers": publishers,
    "joiners": joiners,
    "idle": idle,
    "timestamps": timestamps,
    "stalled": stalled,
    "extras": extras,
    "workers": workers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--readers", type=int, nargs="*", default=[50, 200, 500, 1000])
    parser.add_argument("--publishers", type=int, default=50)
    parser.add_argument("--merge-ms", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    bench = Bench(options)
    for part in options.only:
        PARTS[part](bench)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps({"provenance": provenance(), "results": bench.rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
