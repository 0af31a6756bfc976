"""A real HDFS on loopback: Hadoop's own name node and data node."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSystem

from headrace.pipeline.filesystems import connect
from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually
from tests.pipeline.hadoop import ANY_PORT, start, write_conf

_SERVERS = "org.apache.hadoop.hdfs.server"


class Hdfs:
    def __init__(self, port: int) -> None:
        self.address = f"hdfs://127.0.0.1:{port}"

    def filesystem(self) -> FileSystem:
        return connect(self.address)[0]

    def is_ready(self) -> bool:
        """A file can be written: there is a data node, and the name node knows it."""
        try:
            self.put("/ready", b"ready")
        except (OSError, RuntimeError):  # nobody, or a name node without data nodes
            return False
        return True

    def put(self, path: str, content: bytes) -> None:
        with self.filesystem().open_output_stream(path) as file:
            file.write(content)

    def append(self, path: str, content: bytes) -> None:
        with self.filesystem().open_append_stream(path) as file:
            file.write(content)


@contextmanager
def start_hdfs(folder: Path) -> Iterator[Hdfs]:
    port = free_port()
    write_conf(folder, _settings(port, folder))
    running: list[subprocess.Popen[bytes]] = []
    try:
        start(folder, f"{_SERVERS}.namenode.NameNode", "-format", "-force").wait(timeout=100)
        running.append(start(folder, f"{_SERVERS}.namenode.NameNode"))
        running.append(start(folder, f"{_SERVERS}.datanode.DataNode"))
        found = Hdfs(port)
        eventually(found.is_ready, "HDFS", deadline_s=100)
        yield found
    finally:
        for process in running:
            process.kill()
            process.wait()


def _settings(port: int, data: Path) -> dict[str, dict[str, Any]]:
    return {
        "core-site.xml": {"fs.defaultFS": f"hdfs://127.0.0.1:{port}"},
        "hdfs-site.xml": {
            "dfs.namenode.name.dir": data / "names",
            "dfs.datanode.data.dir": data / "blocks",
            "dfs.namenode.http-address": ANY_PORT,
            "dfs.datanode.address": ANY_PORT,
            "dfs.datanode.ipc.address": ANY_PORT,
            "dfs.datanode.http.address": ANY_PORT,
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.permissions.enabled": "false",
        },
    }
