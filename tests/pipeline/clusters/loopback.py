"""Clusters on this machine: Spark's own processes on loopback, as pip installed them, and our jobs on them.

Nothing that is started here inherits a path to the package: executors have what they are sent.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from headrace.pipeline.java import find_java, user_cache_dir
from headrace.pipeline.jobs.plans import QUICK
from tests.helpers.waiting import eventually

LOOPBACK = "127.0.0.1"
DEADLINE_S = 600.0  # against hanging: with ten other jobs on two cores one took three minutes
# Small and quick to start: most of the time of a test is code that runs once.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {"spark.executor.memory": "512m", **QUICK}
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
# The package by the path that this process has it by. Its children see none of that.
_MAIN = """\
import sys
sys.path[:] = sys.argv.pop(1).splitlines()
from headrace.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Spark:
    """Where Spark is, with a folder of its own for what its workers leave behind, and the executors' Python."""

    folder: Path
    python: Path

    def __post_init__(self) -> None:
        self.home = self.folder / "spark"
        self.home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "work":
                (self.home / entry.name).symlink_to(entry)

    @property
    def environ(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        return {
            **inherited,
            "JAVA_HOME": str(find_java(os.environ, user_cache_dir(os.environ)).home),
            "JAVA_TOOL_OPTIONS": _JAVA,
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "PYSPARK_PYTHON": str(self.python),
        }

    def start(self, name: str, program: str, *words: str) -> Process:
        return Process(name, [str(self.home / "bin" / program), *words], self.folder, self.environ)

    def start_job(self, name: str, *words: str, environ: Mapping[str, str] | None = None) -> Process:
        """`headrace pipeline …` with the settings that make it small."""
        settings = [word for key, value in _SETTINGS.items() for word in ("--conf", f"{key}={value}")]
        command = [sys.executable, "-c", _MAIN, "\n".join(sys.path), "pipeline", *words, *settings]
        return Process(name, command, self.folder, {**self.environ, **(environ or {})})


class Process:
    """One process and all that it says."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environ: dict[str, str]) -> None:
        self._said = folder / f"{name}.log"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(command, cwd=folder, env=environ, stdout=said, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self._said.read_text("utf-8", "replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_said(self, pattern: str) -> str:
        """The first group of what it says."""
        found: list[str] = []

        def is_said() -> bool:
            assert self.is_running, self.said
            found[:] = re.findall(pattern, self.said)
            return bool(found)

        eventually(is_said, f"{pattern} in {self._said.name}", DEADLINE_S)
        return found[0]

    def terminate(self) -> None:
        self._process.terminate()

    def wait_done(self, expected: int = 0) -> str:
        status = self._process.wait(DEADLINE_S)
        assert status == expected, self.said
        return self.said

    def children(self) -> list[int]:
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        return [int(word) for thread in threads for word in thread.read_text().split()]

    def kill_with_children(self) -> None:
        """At once, without a word to anybody."""
        children = self.children()
        assert children, "there is no executor to kill"
        for pid in (self._process.pid, *children):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@dataclass
class Standalone:
    """A master, and workers of one core each."""

    spark: Spark
    master: str
    workers: list[Process]


@contextmanager
def standalone(spark: Spark, workers: int) -> Iterator[Standalone]:
    # Port 0: each takes a free one and says which.
    anywhere = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
    master = spark.start("master", "spark-class", _MASTER, *anywhere)
    workers_started: list[Process] = []
    try:
        address = master.wait_said(r"Starting Spark master at (spark://\S+)")
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(spark.folder / "work")]
        workers_started += [
            spark.start(f"worker{number}", "spark-class", _WORKER, *anywhere, *room, address)
            for number in range(workers)
        ]
        for worker in workers_started:
            worker.wait_said("Successfully registered with master")
        yield Standalone(spark, address, workers_started)
    finally:
        for process in [*workers_started, master]:
            process.stop()


@contextmanager
def connect_server(cluster: Standalone) -> Iterator[str]:
    """A Spark Connect server whose executors are the cluster's. Its address."""
    settings = {
        **_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    server = cluster.spark.start("connect", "spark-submit", "--class", _CONNECT, "--master", cluster.master, *words)
    try:
        port = server.wait_said(r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.stop()
