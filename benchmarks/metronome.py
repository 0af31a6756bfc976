"""How late the machine itself is: a process that wakes every 2 ms on one core and notes by how much it overslept.

    .venv/bin/python -m benchmarks.metronome CORE SECONDS

Run beside a benchmark it tells what part of a latency nobody's code can help: other tenants of a shared machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

_BEAT_NS = 2_000_000
_STALL_NS = 2_000_000  # a beat that is later than this is told by itself, from when to when


def start(core: int, seconds: float) -> subprocess.Popen[str]:
    """A metronome that beats already."""
    command = [sys.executable, "-m", "benchmarks.metronome", str(core), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def stolen_s() -> float:
    """Time that the host gave to others while this machine wanted to run, of all cores, since it started."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    # Above everybody's share, so that what it waits for is the machine and not its neighbours here.
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        is_first = True
    except PermissionError:
        is_first = False
    print("beating", flush=True)
    late_ns = []
    stalls_ns = []
    stop_ns = time.monotonic_ns() + int(float(sys.argv[2]) * 1e9)
    while (began_ns := time.monotonic_ns()) < stop_ns:
        time.sleep(_BEAT_NS / 1e9)
        ended_ns = time.monotonic_ns()
        late_ns.append(ended_ns - began_ns - _BEAT_NS)
        if late_ns[-1] > _STALL_NS:
            stalls_ns.append((began_ns, ended_ns))
    late_ns.sort()
    found = {
        "late_p99_ms": round(late_ns[len(late_ns) * 99 // 100] / 1e6, 2),
        "late_max_ms": round(late_ns[-1] / 1e6, 1),
        "is_first": is_first,
        "stalls_ns": stalls_ns,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
