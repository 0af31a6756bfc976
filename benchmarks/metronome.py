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

_BEAT_S = 0.002


def start(core: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.metronome", str(core), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


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
    late_ms = []
    stop_s = time.monotonic() + float(sys.argv[2])
    while (began_s := time.monotonic()) < stop_s:
        time.sleep(_BEAT_S)
        late_ms.append((time.monotonic() - began_s - _BEAT_S) * 1000)
    late_ms.sort()
    p99 = late_ms[len(late_ms) * 99 // 100]
    print(json.dumps({"late_p99_ms": round(p99, 2), "late_max_ms": round(late_ms[-1], 1), "is_first": is_first}))


if __name__ == "__main__":
    main()
