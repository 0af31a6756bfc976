"""What a command costs with all its children: time, processors, memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 0.1
_PAGES_PER_MB = (1 << 20) // os.sysconf("SC_PAGESIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Memory is the most that was in use at one time: of the JVM, and of all processes together.

    What processes share is counted in each of them. To ask for their parts of it takes so long of a processor that a
    session, looked at ten times a second, started a second later.
    """

    wall_s: float
    cpu_s: float
    jvm_mb: int
    all_mb: int
    said: str


def run_measured(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Cost:
    """Raises SystemExit if it fails. Its processes are looked at ten times a second."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=subprocess.DEVNULL, env={**os.environ, **(environ or {})}
        )
        wall_s, cpu_s, jvm_mb, all_mb = _watch(process)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        said.seek(0)
        return Cost(round(wall_s, 2), round(cpu_s, 1), round(jvm_mb), round(all_mb), said.read())


def _watch(process: subprocess.Popen[bytes]) -> tuple[float, float, float, float]:
    began_s = time.monotonic()
    cpu_s: dict[int, float] = {}
    jvm_mb = all_mb = 0.0
    while process.poll() is None:
        jvm = everything = 0.0
        for pid in family(process.pid):
            try:
                resident_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                name, fields = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue  # it has ended
            cpu_s[pid] = sum(map(int, fields.split()[11:13])) / _TICKS
            mb = resident_pages / _PAGES_PER_MB
            everything += mb
            jvm += mb if name == "java" else 0
        jvm_mb, all_mb = max(jvm_mb, jvm), max(all_mb, everything)
        time.sleep(_LOOK_S)
    return time.monotonic() - began_s, sum(cpu_s.values()), jvm_mb, all_mb


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:  # it has ended
            continue
    return found
