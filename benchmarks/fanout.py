"""What readers and publishers cost, and how late they get their media: ours and nginx-rtmp in turn, every byte checked.

    .venv/bin/python -m benchmarks.fanout [--readers 50 200 500 1000] [--publishers 50] [--merge-ms 40 100]

One publisher of 2 Mbit/s and sound, N readers that join within 1.5 s; then publishers with a reader each. Servers run
on core 0, the load generator on core 1. CPU is that of the server while the load generator measures, per 10^9 bytes
delivered; latency is from the publisher's send to the reader's read. Compare figures of one run only: the machine may
be shared. nginx is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.processes import NginxProcess, ServerProcess, build_rtmpload, last_json, provenance

_JOIN_S, _SETTLE_S, _LEAD_S = 1.5, 3.0, 1.5
_SERVER_CORES = {0}
_ON_LOAD_CORE = ["taskset", "-c", "1"]
Peer = tuple[str, Callable[[], ServerProcess | NginxProcess]]


def measure(rtmpload: Path, peer: Peer, streams: int, readers: int, options: argparse.Namespace) -> dict[str, Any]:
    name, start = peer
    server = start()
    ramp = max(readers / _JOIN_S, 20.0)
    warmup_s = readers / ramp + _SETTLE_S
    common = ["--port", str(server.port), "--streams", str(streams)]
    publish = [*common, "--kbps", "2000", "--chunk", str(options.chunk)]
    publish += ["--duration", f"{warmup_s + options.seconds + _LEAD_S + 1:.1f}"]
    play = [*common, "--subs", str(readers), "--ramp", f"{ramp:.1f}", "--warmup", f"{warmup_s:.1f}"]
    play += ["--measure", str(options.seconds), "--verify", "1"]
    publisher = subprocess.Popen(
        [*_ON_LOAD_CORE, str(rtmpload), "publish", *publish], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(_LEAD_S)
        player = subprocess.Popen(
            [*_ON_LOAD_CORE, str(rtmpload), "play", *play], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert player.stderr is not None
        assert player.stdout is not None
        cpu_s: dict[str, float] = {}
        for line in player.stderr:
            if line.startswith("MARK"):
                cpu_s[line.split()[1]] = server.cpu_s()
        found = last_json(player.stdout.read())
        player.wait(30)
        rss_mb = server.rss_mb()
    finally:
        publisher.kill()
        publisher.wait()
        server.stop()
    used_s = cpu_s["end"] - cpu_s["start"]
    return {
        "server": name,
        "streams": streams,
        "readers": readers,
        "cpu_s_per_gb": round(used_s / found["bytes"] * 1e9, 2),
        "us_per_message": round(used_s / found["msgs"] * 1e6, 1),
        "p50_ms": round(found["lat_p50_ms"], 2),
        "p99_ms": round(found["lat_p99_ms"], 1),
        "first_keyframe_p99_ms": round(found["first_key_ms"]["p99"], 1),
        "setup_p50_ms": round(found["setup_ms"]["p50"], 1),
        "rss_mb": round(rss_mb, 1),
        "missing": found["missing"],
        "corrupt": found["corrupt"],
        "alive": found["alive"],
        "reader_cpu": round(found["cpu_util"], 2),
    }


def show(row: dict[str, Any], base: dict[str, Any] | None) -> None:
    ratio = f"{row['cpu_s_per_gb'] / base['cpu_s_per_gb']:.2f} x" if base is not None and base is not row else "-"
    print(
        f"{row['server']:16} {row['streams']:3} to {row['readers']:5}  {row['cpu_s_per_gb']:6.2f} CPU s/GB {ratio:>7}"
        f"  p50 {row['p50_ms']:7.2f}  p99 {row['p99_ms']:7.1f} ms  keyframe p99 {row['first_keyframe_p99_ms']:7.1f} ms"
        f"  {row['rss_mb']:6.1f} MB  missing {row['missing']} corrupt {row['corrupt']} alive {row['alive']}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, nargs="*", default=[50, 200, 500, 1000])
    parser.add_argument("--publishers", type=int, default=50, help="with a reader each; 0 for none")
    parser.add_argument("--merge-ms", type=int, nargs="+", default=[40, 100])
    parser.add_argument("--chunk", type=int, default=4096, help="the publisher's chunk size")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rtmpload = build_rtmpload()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    peers: list[Peer] = [
        (f"ours, {merge_ms} ms", partial(ServerProcess, "-merge-ms", str(merge_ms), cores=_SERVER_CORES))
        for merge_ms in options.merge_ms
    ]
    if NginxProcess.is_installed():
        peers.insert(0, ("nginx", partial(NginxProcess, cores=_SERVER_CORES)))
    loads = [(1, readers) for readers in options.readers]
    loads += [(options.publishers, options.publishers)] if options.publishers else []
    results = []
    for streams, readers in loads:
        base = None
        for peer in peers:
            row = measure(rtmpload, peer, streams, readers, options)
            base = base or (row if peer[0] == "nginx" else None)
            show(row, base)
            results.append(row)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"provenance": provenance(), "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
