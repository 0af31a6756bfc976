"""What the benchmarks share: our server and the load generator as processes, and what they cost."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
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


class Measured(ABC):
    """A process that listens for RTMP, and what it costs."""

    process: subprocess.Popen[str]
    port: int

    @property
    def pid(self) -> int:
        return self.process.pid

    def pin(self, cores: set[int] | None) -> None:
        if cores is not None:
            for task in os.listdir(f"/proc/{self.pid}/task"):
                os.sched_setaffinity(int(task), cores)

    def cpu_s(self) -> float:
        return process_cpu_s(self.pid)

    @abstractmethod
    def stop(self) -> None: ...

    def rss_mb(self) -> float:
        return process_rss_mb(self.pid)


def process_cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def process_rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


class ServerProcess(Measured):
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
        self.pin(cores)
        self._drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._drain.wait(10)
        self._data.cleanup()


class NginxProcess(Measured):
    """nginx with its RTMP module on a free loopback port, pushing what is published to the given URLs."""

    _PROGRAM = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    _MODULE = Path("/usr/lib/nginx/modules/ngx_rtmp_module.so")

    def __init__(self, push: Sequence[str] = (), cores: set[int] | None = None) -> None:
        assert self._PROGRAM is not None
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name) / "nginx.conf"
        pushes = " ".join(f"push {url};" for url in push)
        config.write_text(
            f"load_module {self._MODULE}; daemon off; master_process off; pid nginx.pid; error_log error.log warn;\n"
            "worker_rlimit_nofile 20000; events { worker_connections 10000; }\n"
            f"rtmp {{ access_log off; server {{ listen 127.0.0.1:{self.port};\n"
            f"application live {{ live on; {pushes} }} }} }}\n"
        )
        command = [self._PROGRAM, "-p", self._folder.name, "-e", f"{self._folder.name}/error.log", "-c", str(config)]
        self.process = subprocess.Popen(command, text=True)
        wait_until_it_listens(self, "nginx")
        self.pin(cores)

    @classmethod
    def is_installed(cls) -> bool:
        return cls._PROGRAM is not None and cls._MODULE.exists()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self._folder.cleanup()


def wait_until_it_listens(server: Measured, name: str) -> None:
    deadline_s = time.monotonic() + 10
    while not _listens(server.port):
        if time.monotonic() > deadline_s or server.process.poll() is not None:
            raise SystemExit(f"{name} did not start")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


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
