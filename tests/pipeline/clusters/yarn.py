"""A real YARN on loopback: Hadoop's own resource manager and node manager."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually
from tests.pipeline.clusters.loopback import DEADLINE_S, LOOPBACK
from tests.pipeline.hadoop import ANY_PORT, JARS, start, write_conf

_SERVERS = "org.apache.hadoop.yarn.server"


class Yarn:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._web = f"{LOOPBACK}:{free_port()}"
        manager = {
            f"yarn.resourcemanager.{name}address": f"{LOOPBACK}:{free_port()}"
            for name in ("", "scheduler.", "resource-tracker.", "admin.")
        }
        node = {f"yarn.nodemanager.{name}address": ANY_PORT for name in ("", "localizer.", "webapp.")}
        self.conf = write_conf(
            folder,
            {
                "core-site.xml": {"fs.defaultFS": "file:///", "hadoop.tmp.dir": folder / "tmp"},
                "yarn-site.xml": {
                    **manager,
                    **node,
                    "yarn.resourcemanager.hostname": LOOPBACK,
                    "yarn.resourcemanager.webapp.address": self._web,
                    "yarn.resourcemanager.scheduler.class": f"{_SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler",
                    "yarn.scheduler.minimum-allocation-mb": 256,
                    "yarn.nodemanager.hostname": LOOPBACK,
                    "yarn.nodemanager.local-dirs": folder / "local",
                    "yarn.nodemanager.log-dirs": folder / "containers",
                    "yarn.nodemanager.resource.memory-mb": 4096,
                    "yarn.nodemanager.resource.cpu-vcores": 4,
                    # How full the disk of this machine is is not the question.
                    "yarn.nodemanager.disk-health-checker.enable": "false",
                    # An address space is not memory, and a test is not a tenant.
                    "yarn.nodemanager.vmem-check-enabled": "false",
                    "yarn.nodemanager.pmem-check-enabled": "false",
                },
            },
        )

    def words(self) -> list[str]:
        """Of a job on it. Spark's jars are where every node has them, so that they need not be sent."""
        settings = {"spark.yarn.jars": f"local:{JARS}/*", "spark.yarn.stagingDir": f"file:{self.folder / 'staging'}"}
        return ["--master", "yarn", *(word for item in settings.items() for word in ("--conf", "=".join(item)))]

    def has_node(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/metrics", timeout=10) as answer:
                return bool(json.load(answer)["clusterMetrics"]["activeNodes"] == 1)
        except OSError:
            return False

    def applications(self) -> list[str]:
        """How each of them ended."""
        with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/apps", timeout=10) as answer:
            return [app["finalStatus"] for app in (json.load(answer)["apps"] or {"app": []})["app"]]


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    cluster = Yarn(folder)
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.append(start(folder, f"{_SERVERS}.resourcemanager.ResourceManager"))
        running.append(start(folder, f"{_SERVERS}.nodemanager.NodeManager"))

        def is_ready() -> bool:
            assert all(process.poll() is None for process in running), f"a server ended: see {folder}/*.log"
            return cluster.has_node()

        eventually(is_ready, "a node of YARN", DEADLINE_S)
        yield cluster
    finally:
        for process in reversed(running):
            process.terminate()  # a node manager that is asked ends its containers
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
