"""What the benchmarks share: our server and the load generator as processes, and what they cost."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def build_rtmpload() -> Path:
    """The load generator, compiled into the temporary folder."""
    program = Path(tempfile.gettempdir()) / f"rtmpload.{os.getuid()}"
    source = _HERE / "rtmpload.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-o", str(program), str(source)], check=True)
    return program


class ServerProcess:
    """`headrace serve` on a free loopback port."""

    def __init__(self, *flags: str, cores: set[int] | None = None) -> None:
        self._data = tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "headrace", "serve", "-listen", "127.0.0.1:0", "-log-format", "json"]
        command += ["-data-dir", self._data.name, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.http_port = 0
        for line in self.process.stderr:
            fields = json.loads(line) if line.startswith("{") else {}
            if fields.get("msg") == "HTTP listening":
                self.http_port = int(fields["addresses"][0].rpartition(":")[2])
            if fields.get("msg") == "Listening":
                self.port = int(fields["addresses"][0].rpartition(":")[2])
                break
        else:
            raise SystemExit("the server did not start")
        if cores:
            for task in os.listdir(f"/proc/{self.pid}/task"):
                os.sched_setaffinity(int(task), cores)
        self._drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_s(self) -> float:
        return (
            sum(
                int(Path(f"/proc/{self.pid}/task/{task}/schedstat").read_text().split()[0])
                for task in os.listdir(f"/proc/{self.pid}/task")
            )
            / 1e9
        )

    def rss_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._drain.wait(10)
        self._data.cleanup()


def last_json(text: str) -> dict[str, Any]:
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def provenance() -> dict[str, str]:
    """Where a result comes from: machine, commit, command."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=_HERE, capture_output=True, text=True)
    return {
        "command": " ".join(sys.argv),
        "commit": commit.stdout.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
