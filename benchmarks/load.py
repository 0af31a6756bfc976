"""The load generator against one server: publishers and readers for some seconds, and what came of it."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import Measured, last_json

_JOIN_S, _SETTLE_S, _LEAD_S = 1.5, 3.0, 1.5
_ON_LOAD_CORE = ["taskset", "-c", "1"]


@dataclass(frozen=True)
class Load:
    """Streams of 2 Mbit/s and sound, and readers that are spread over them."""

    streams: int = 1
    readers: int = 50
    chunk: int = 4096  # the publishers'
    seconds: float = 8.0
    timestamp_ms: int = 0  # the first
    stalled: int = 0  # of the readers: they keep their sockets and read nothing
    joiners: int = 0  # more readers, that come one after another while those above play
    joiners_per_s: float = 25.0


def run_load(rtmpload: Path, server: Measured, load: Load) -> dict[str, Any]:
    """The figures of one load on one server, every byte checked."""
    ramp = max(load.readers / _JOIN_S, 20.0)
    warmup_s = load.readers / ramp + _SETTLE_S
    seconds = max(load.seconds, load.joiners / load.joiners_per_s + 1)
    common = ["--port", str(server.port), "--streams", str(load.streams)]
    publish = [*common, "--kbps", "2000", "--chunk", str(load.chunk), "--ts-base", str(load.timestamp_ms)]
    publish += ["--duration", f"{warmup_s + seconds + _LEAD_S + 1:.1f}"]
    play = [*common, "--subs", str(load.readers), "--ramp", f"{ramp:.1f}", "--warmup", f"{warmup_s:.1f}"]
    play += ["--measure", str(seconds), "--verify", "1", "--stall", str(load.stalled)]
    publisher = _start(rtmpload, "publish", publish, subprocess.DEVNULL)
    try:
        time.sleep(_LEAD_S)
        # Joiners share a core with the readers. Those step back, or what is measured is how long joiners wait for them.
        player = _start(rtmpload, "play", play, subprocess.PIPE, nice=5 if load.joiners else 0)
        assert player.stderr is not None
        assert player.stdout is not None
        cpu_s: dict[str, float] = {}
        joined: dict[str, Any] = {}
        for line in player.stderr:
            if line.startswith("MARK"):
                cpu_s[line.split()[1]] = server.cpu_s()
                if load.joiners and "end" not in cpu_s:
                    joined = _join(rtmpload, common, load)
        found = last_json(player.stdout.read())
        player.wait(30)
        rss_mb = server.rss_mb()
    finally:
        publisher.kill()
        publisher.wait()
    used_s = cpu_s["end"] - cpu_s["start"]
    checked = [found, joined] if joined else [found]
    figures = {
        "streams": load.streams,
        "readers": load.readers,
        "cpu_percent": round(100 * used_s / found["window_s"], 2),
        "cpu_s_per_gb": round(used_s / found["bytes"] * 1e9, 2),
        "us_per_message": round(used_s / found["msgs"] * 1e6, 1),
        "p50_ms": round(found["lat_p50_ms"], 2),
        "p99_ms": round(found["lat_p99_ms"], 1),
        "first_keyframe_p99_ms": _ms(found["first_key_ms"]["p99"]),
        "setup_p50_ms": _ms(found["setup_ms"]["p50"]),
        "rss_mb": round(rss_mb, 1),
        **{word: sum(one[word] for one in checked) for word in FAULTS},
        "alive": found["alive"],
        "reader_cpu": round(found["cpu_util"], 2),
    }
    if joined:
        figures["joiners"] = load.joiners
        for name, key in (("first_keyframe", "first_key_ms"), ("setup", "setup_ms")):
            figures |= {f"joiner_{name}_{p}_ms": _ms(joined[key][p]) for p in ("p50", "p99")}
    return figures


# What no run may show. A shift is a message whose timestamp differs from what was sent by another amount than before.
FAULTS = ("missing", "duplicated", "reordered", "corrupt", "ts_shift")


def _join(rtmpload: Path, common: list[str], load: Load) -> dict[str, Any]:
    joining_s = load.joiners / load.joiners_per_s
    play = [*common, "--subs", str(load.joiners), "--ramp", str(load.joiners_per_s)]
    play += ["--warmup", f"{joining_s:.1f}", "--measure", "0.5"]
    joiner = _start(rtmpload, "play", play, subprocess.PIPE)
    return last_json(joiner.communicate(timeout=joining_s + 30)[0])


def _start(rtmpload: Path, role: str, arguments: list[str], output: int, *, nice: int = 0) -> subprocess.Popen[str]:
    command = [*_ON_LOAD_CORE, "nice", "-n", str(nice), str(rtmpload), role, *arguments]
    return subprocess.Popen(command, stdout=output, stderr=output, text=True)


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
