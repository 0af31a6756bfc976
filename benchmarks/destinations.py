"""What destinations cost: one stream pushed to 1, 5, 10, 50 destinations, every byte checked at the far end.

    .venv/bin/python -m benchmarks.destinations [--counts 1,5,10,50] [--kbps 4000] [--json out.json]

The far end is a second server, with one application per destination; a player reads some of them there, and one reads
at the first server: the difference of their latencies (publisher's send to player's read) is what the hop adds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import metronome
from benchmarks.processes import ServerProcess, build_rtmpload, last_json, provenance

SAMPLED = 5  # far-end players; more would measure the player's machine


def measure(rtmpload: Path, count: int, kbps: int, warmup_s: float, measure_s: float) -> dict[str, Any]:
    far = ServerProcess(cores={1})
    flags = [flag for i in range(count) for flag in ("-relay-to", f"rtmp://127.0.0.1:{far.port}/d{i}")]
    near = ServerProcess(*flags, cores={0})
    play = ["--subs", "1", "--warmup", str(warmup_s), "--measure", str(measure_s)]
    publisher = subprocess.Popen(
        [str(rtmpload), "publish", "--port", str(near.port), "--kbps", str(kbps), "--duration", "60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        time.sleep(2.5)  # the publisher runs, the destinations connect
        step = max(count // SAMPLED, 1)
        apps = [(far.port, f"d{i}") for i in range(0, count, step)][:SAMPLED]
        players = [
            subprocess.Popen(
                [str(rtmpload), "play", "--port", str(port), "--app", app, *play],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for port, app in [(near.port, "live"), *apps]
        ]
        time.sleep(warmup_s)
        beats = [metronome.start(core, measure_s - 0.5) for core in (0, 1)]
        stolen_s = metronome.stolen_s()
        cpu_s, at_s = near.cpu_s(), time.monotonic()
        time.sleep(measure_s - 0.2)
        cpu = (near.cpu_s() - cpu_s) / (time.monotonic() - at_s)
        rss_mb = near.rss_mb()
        stolen_s = metronome.stolen_s() - stolen_s
        results = [last_json(player.communicate()[0]) for player in players]
        late = [last_json(beat.communicate()[0]) for beat in beats]
    finally:
        publisher.kill()
        near.stop()
        far.stop()
    here, there = results[0], results[1:]
    return {
        "destinations": count,
        "kbps": kbps,
        "cpu_percent": round(cpu * 100, 1),
        "rss_mb": round(rss_mb, 1),
        "player_p50_ms": here["lat_p50_ms"],
        "player_p99_ms": here["lat_p99_ms"],
        "far_p50_ms": max(one["lat_p50_ms"] for one in there),
        "far_p99_ms": max(one["lat_p99_ms"] for one in there),
        "added_p50_ms": round(max(one["lat_p50_ms"] for one in there) - here["lat_p50_ms"], 2),
        "added_p99_ms": round(max(one["lat_p99_ms"] for one in there) - here["lat_p99_ms"], 2),
        # What the machine itself was late, on the near server's core and on the other, and the time it was taken away.
        "machine_stolen_s": round(stolen_s, 2),
        "machine_late_p99_ms": [one["late_p99_ms"] for one in late],
        "machine_late_max_ms": [one["late_max_ms"] for one in late],
        "missing": sum(one["missing"] for one in results),
        "corrupt": sum(one["corrupt"] for one in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,5,10,50")
    parser.add_argument("--kbps", type=int, default=4000)
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--measure", type=float, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rtmpload = build_rtmpload()
    rows = []
    for count in (int(text) for text in options.counts.split(",")):
        rows.append(measure(rtmpload, count, options.kbps, options.warmup, options.measure))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({**provenance(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
