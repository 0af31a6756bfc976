"""What destinations cost: one stream pushed to 1, 5, 10, 50 destinations, every byte checked at the far end.

    .venv/bin/python -m benchmarks.destinations [--counts 1,5,10,50] [--kbps 4000] [--repeat 1] [--json out.json]

The far end is a second server, with one application per destination; a player reads some of them there, and one reads
at the first server. What the hop adds is taken message by message: the time at which the far player had it, less the
time at which the near one had it; the percentiles are over all messages of all far players.

The machine is shared, so two things stand beside each figure. A metronome of real-time priority on each core tells when
the machine itself stood still: `quiet` percentiles leave out the messages that were under way in such a moment. And
where nginx with its RTMP module is installed, each row is followed by one with nginx as the first server.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import metronome
from benchmarks.processes import NginxProcess, ServerProcess, build_rtmpload, last_json, provenance

SAMPLED = 5  # far-end players; more would measure the player's machine

Message = tuple[int, int]  # when it was sent (ns), and whether it is video
Pair = tuple[int, int, int]  # sent, arrived at the far player, and what the hop added (all ns)


def measure(rtmpload: Path, peer: str, count: int, kbps: int, warmup_s: float, measure_s: float) -> dict[str, Any]:
    far = ServerProcess(cores={1})
    urls = [f"rtmp://127.0.0.1:{far.port}/d{i}" for i in range(count)]
    near = NginxProcess(push=urls, cores={0}) if peer == "nginx" else ServerProcess(*_relay_to(urls), cores={0})
    seconds = warmup_s + measure_s
    publish = [str(rtmpload), "publish", "--port", str(near.port), "--kbps", str(kbps), "--duration", str(seconds + 30)]
    play = [str(rtmpload), "play", "--subs", "1", "--warmup", str(warmup_s), "--measure", str(measure_s)]
    publisher = subprocess.Popen(publish, stdout=subprocess.DEVNULL)
    try:
        time.sleep(2.5)  # the publisher runs, the destinations connect
        sampled = range(0, count, max(count // SAMPLED, 1))[:SAMPLED]
        with tempfile.TemporaryDirectory() as folder:
            players = [
                subprocess.Popen(
                    [*play, "--port", str(port), "--app", app, "--each", f"{folder}/{app}"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
                for port, app in [(near.port, "live"), *((far.port, f"d{i}") for i in sampled)]
            ]
            time.sleep(warmup_s)
            beats = [metronome.start(core, measure_s) for core in (0, 1)]
            stolen_s = metronome.stolen_s()
            cpu_s, began_ns = near.cpu_s(), time.monotonic_ns()
            time.sleep(measure_s - 0.5)
            ended_ns = time.monotonic_ns()
            cpu = (near.cpu_s() - cpu_s) * 1e9 / (ended_ns - began_ns)
            rss_mb = near.rss_mb()
            stolen_s = metronome.stolen_s() - stolen_s
            results = [last_json(player.communicate()[0]) for player in players]
            late = [last_json(beat.communicate()[0]) for beat in beats]
            here = _latencies(Path(folder) / "live", began_ns, ended_ns)
            there = [_latencies(Path(folder) / f"d{i}", began_ns, ended_ns) for i in sampled]
    finally:
        publisher.kill()
        near.stop()
        far.stop()
    pairs = [(at[0], at[0] + ns, ns - here[at]) for one in there for at, ns in one.items() if at in here]
    quiet = _undisturbed(pairs, sorted(tuple(stall) for one in late for stall in one["stalls_ns"]))
    return {
        "server": peer,
        "destinations": count,
        "kbps": kbps,
        "cpu_percent": round(cpu * 100, 1),
        "rss_mb": round(rss_mb, 1),
        **_percentiles("player", list(here.values())),
        **_percentiles("far", [ns for one in there for ns in one.values()]),
        **_percentiles("added", [added for _, _, added in pairs]),
        **_percentiles("quiet_added", [added for _, _, added in quiet]),
        "messages": len(pairs),
        "quiet_percent": round(100 * len(quiet) / max(len(pairs), 1), 1),
        # What the machine itself was late, on the near server's core and on the other, and the time it was taken away.
        "machine_stolen_s": round(stolen_s, 2),
        "machine_late_p99_ms": [one["late_p99_ms"] for one in late],
        "machine_late_max_ms": [one["late_max_ms"] for one in late],
        "missing": sum(one["missing"] for one in results),
        "corrupt": sum(one["corrupt"] for one in results),
    }


def _relay_to(urls: list[str]) -> list[str]:
    return [flag for url in urls for flag in ("-relay-to", url)]


def _latencies(path: Path, began_ns: int, ended_ns: int) -> dict[Message, int]:
    """What a player wrote down (`--each`): how long each message sent in these seconds took to reach it, in ns."""
    rows = (tuple(map(int, line.split())) for line in path.read_text().splitlines())
    return {(sent, is_video): us * 1000 for sent, is_video, us in rows if began_ns <= sent < ended_ns}


def _undisturbed(pairs: list[Pair], stalls: list[tuple[int, int]]) -> list[Pair]:
    return [pair for pair in pairs if not any(began < pair[1] and pair[0] < ended for began, ended in stalls)]


def _percentiles(name: str, found_ns: list[int]) -> dict[str, float | None]:
    found_ns.sort()
    at = {50: len(found_ns) // 2, 99: len(found_ns) * 99 // 100}
    return {f"{name}_p{p}_ms": round(found_ns[i] / 1e6, 2) if found_ns else None for p, i in at.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1,5,10,50")
    parser.add_argument("--kbps", type=int, default=4000)
    parser.add_argument("--warmup", type=float, default=3)
    parser.add_argument("--measure", type=float, default=20)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rtmpload = build_rtmpload()
    peers = ["headrace", *(["nginx"] if NginxProcess.is_installed() else [])]
    rows = []
    for count in [int(text) for text in options.counts.split(",")] * options.repeat:
        for peer in peers:
            rows.append(measure(rtmpload, peer, count, options.kbps, options.warmup, options.measure))
            print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({**provenance(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
