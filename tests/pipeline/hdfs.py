"""A real HDFS on loopback: Hadoop's own name node and data node, from Maven and the jars that Spark brings."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyarrow.fs import FileSystem

from headrace.pipeline.filesystems import connect
from headrace.pipeline.java import find_java, user_cache_dir
from tests.helpers.sockets import free_port
from tests.helpers.waiting import eventually

_JARS = Path(pyspark.__file__).parent / "jars"
_SERVERS = "org.apache.hadoop.hdfs.server"
_ANY_PORT = "127.0.0.1:0"


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


def has_maven() -> bool:
    return shutil.which("mvn") is not None


@contextmanager
def start_hdfs(folder: Path) -> Iterator[Hdfs]:
    port = free_port()
    _write_conf(folder / "conf", port, folder)
    running: list[subprocess.Popen[bytes]] = []
    try:
        _run(folder, f"{_SERVERS}.namenode.NameNode", "-format", "-force").wait(timeout=100)
        running.append(_run(folder, f"{_SERVERS}.namenode.NameNode"))
        running.append(_run(folder, f"{_SERVERS}.datanode.DataNode"))
        found = Hdfs(port)
        eventually(found.is_ready, "HDFS", deadline_s=100)
        yield found
    finally:
        for process in running:
            process.kill()
            process.wait()


def _run(folder: Path, main: str, *arguments: str) -> subprocess.Popen[bytes]:
    java = find_java(os.environ, user_cache_dir(os.environ)).home / "bin" / "java"
    path = f"{folder / 'conf'}:{_server_jar()}:{_JARS}/*"
    with (folder / f"{main.rpartition('.')[2]}.log").open("ab") as log:
        return subprocess.Popen([str(java), "-Xmx256m", "-cp", path, main, *arguments], stdout=log, stderr=log)


def _server_jar() -> Path:
    """Of the version that Spark's client is of: Maven fetches it once."""
    (client,) = _JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.rpartition("-")[2]
    name = "hadoop-client-minicluster"
    # Said, because Java's idea of a home is not that of $HOME.
    repository = Path.home() / ".m2" / "repository"
    path = repository / f"org/apache/hadoop/{name}/{version}/{name}-{version}.jar"
    if not path.exists():
        get = ["mvn", "-q", "-B", f"-Dmaven.repo.local={repository}", "dependency:get", "-Dtransitive=false"]
        subprocess.run([*get, f"-Dartifact=org.apache.hadoop:{name}:{version}"], check=True, timeout=300)
    return path


def _write_conf(folder: Path, port: int, data: Path) -> None:
    folder.mkdir(parents=True)
    settings: dict[str, dict[str, Any]] = {
        "core-site.xml": {"fs.defaultFS": f"hdfs://127.0.0.1:{port}"},
        "hdfs-site.xml": {
            "dfs.namenode.name.dir": data / "names",
            "dfs.datanode.data.dir": data / "blocks",
            "dfs.namenode.http-address": _ANY_PORT,
            "dfs.datanode.address": _ANY_PORT,
            "dfs.datanode.ipc.address": _ANY_PORT,
            "dfs.datanode.http.address": _ANY_PORT,
            "dfs.replication": 1,
            "dfs.namenode.safemode.extension": 0,
            "dfs.permissions.enabled": "false",
        },
    }
    for name, values in settings.items():
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items()]
        (folder / name).write_text(f"<configuration>{''.join(lines)}</configuration>")
