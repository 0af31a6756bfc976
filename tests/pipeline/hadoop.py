"""Hadoop's own servers on loopback, from Maven and the jars that Spark brings."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from headrace.pipeline.java import find_java, user_cache_dir
from headrace.pipeline.session import hadoop_version

JARS = Path(pyspark.__file__).parent / "jars"
ANY_PORT = "127.0.0.1:0"
# As Hadoop 3.5 has them.
_BOUNCY_CASTLE = "1.82"
_AMAZON_CLIENT = "2.35.4"
_AMAZON_ACCELERATOR = "1.3.1"


def has_maven() -> bool:
    return shutil.which("mvn") is not None


def start(folder: Path, main: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A server whose settings are in `conf` of the folder; what it says is there too."""
    java = find_java(os.environ, user_cache_dir(os.environ)).home / "bin" / "java"
    path = ":".join(map(str, (folder / "conf", *_server_jars(), JARS / "*")))
    with (folder / f"{main.rpartition('.')[2]}.log").open("ab") as log:
        return subprocess.Popen([str(java), "-Xmx256m", "-cp", path, main, *arguments], stdout=log, stderr=log)


def write_conf(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> Path:
    """By the names of the files."""
    conf = folder / "conf"
    conf.mkdir(parents=True)
    for name, values in settings.items():
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items()]
        (conf / name).write_text(f"<configuration>{''.join(lines)}</configuration>")
    return conf


def s3a_jars() -> list[Path]:
    """With which Spark reaches an object store: 690 MB."""
    return [
        _fetched("org.apache.hadoop", "hadoop-aws", hadoop_version()),
        _fetched("software.amazon.awssdk", "bundle", _AMAZON_CLIENT),
        _fetched("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", _AMAZON_ACCELERATOR),
    ]


def _server_jars() -> list[Path]:
    """Of the version that Spark's client is of, and what a resource manager makes its keys with."""
    return [
        _fetched("org.apache.hadoop", "hadoop-client-minicluster", hadoop_version()),
        *(_fetched("org.bouncycastle", f"{name}-jdk18on", _BOUNCY_CASTLE) for name in ("bcprov", "bcpkix", "bcutil")),
    ]


def _fetched(group: str, name: str, version: str) -> Path:
    """By Maven, once."""
    # Said, because Java's idea of a home is not that of $HOME.
    repository = Path.home() / ".m2" / "repository"
    path = repository / group.replace(".", "/") / name / version / f"{name}-{version}.jar"
    if not path.exists():
        get = ["mvn", "-q", "-B", f"-Dmaven.repo.local={repository}", "dependency:get", "-Dtransitive=false"]
        subprocess.run([*get, f"-Dartifact={group}:{name}:{version}"], check=True, timeout=300)
    return path
