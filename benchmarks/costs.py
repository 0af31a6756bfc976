"""What a command costs with all its children: time, processors, memory."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Looking at a JVM of a gigabyte takes milliseconds of a processor: of what takes long, less often.
_LOOK_S, _LOOK_SHARE, _MAX_LOOK_S = 0.1, 0.01, 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Memory is the most that was in use at one time: of the JVM, and of all processes together."""

    wall_s: float
    cpu_s: float
    jvm_mb: int
    all_mb: int
    said: str


def run_measured(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Cost:
    """Raises SystemExit if it fails. Its processes are looked at ten times a second at first."""
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
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                name, fields = Path(f"/proc/{pid}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except OSError:
                continue  # it has ended
            cpu_s[pid] = sum(map(int, fields.split()[11:13])) / _TICKS
            # What is theirs alone, and their share of what they have in common.
            mb = next((int(line.split()[1]) / 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0.0)
            everything += mb
            jvm += mb if name == "java" else 0
        jvm_mb, all_mb = max(jvm_mb, jvm), max(all_mb, everything)
        time.sleep(min(max(_LOOK_S, _LOOK_SHARE * (time.monotonic() - began_s)), _MAX_LOOK_S))
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
