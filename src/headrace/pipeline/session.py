"""The Spark session of every job: quiet, small on one machine, and the same code on a cluster.

Owns the settings. What a job does with the session is its own business.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

import headrace
from headrace.pipeline.java import find_java, user_cache_dir
from headrace.pipeline.sources.flv.source import register

PACKAGE = Path(headrace.__file__).parent
_LOGGING = Path(__file__).with_name("log4j2.properties")
_LOCAL = re.compile(r"local(\[[^\]]*\])?")  # not local-cluster[…], whose executors are processes of their own

_LOOPBACK = "127.0.0.1"
# One machine has the server to run too: a small heap, and no threads that only collect garbage.
_LOCAL_JAVA = "-XX:+UseSerialGC"
_LOCAL_CONF = {
    "spark.driver.memory": "1g",
    # The name of a laptop may resolve to an address of the network it was in yesterday.
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
}
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Times with their zone, as pyarrow writes them: a table has files of both. Spark's own choice is one of Impala's.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Else every column that a plan is made of costs several calls to the JVM, to say in which line it was written.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Without it a source that takes filters is refused altogether.
    "spark.sql.python.filterPushdown.enabled": "true",
}


def make_session(
    app_name: str,
    *,
    master: str = "local[*]",
    remote: str | None = None,
    shuffle_partitions: int = 2,
    conf: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
) -> SparkSession:
    """A session with our sources registered, or the one that this process has already.

    `remote` is the address of a Spark Connect server, and then `master` is that server's business. `conf` goes
    over every setting here; Java options in it are added to ours. Raises PipelineError without a Java to run on.
    """
    settings = {**_CONF, "spark.sql.shuffle.partitions": str(shuffle_partitions)}
    if remote is not None:
        return _connect(app_name, remote, {**settings, **(conf or {})})
    is_here = is_local(master)
    _prepare_environment(cache_dir or user_cache_dir(os.environ), is_local=is_here)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in {**settings, **_machine_settings(is_here), **(conf or {})}.items():
        if key == "spark.driver.extraJavaOptions":
            value = f"{_java_options(is_here)} {value}"
        builder = builder.config(key, value)
    if not conf or "spark.driver.extraJavaOptions" not in conf:
        builder = builder.config("spark.driver.extraJavaOptions", _java_options(is_here))
    session = builder.getOrCreate()
    if not is_here:
        session.sparkContext.addPyFile(str(pack_package(_temporary_directory())))
    register(session)
    return session


def is_local(master: str) -> bool:
    """Whether everything runs in this process's own JVM."""
    return _LOCAL.fullmatch(master) is not None


def pack_package(directory: Path) -> Path:
    """The installed package as an archive that Python imports from: what executors elsewhere are sent."""
    archive = directory / "headrace.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                package.write(path, path.relative_to(PACKAGE.parent))
    return archive


def _temporary_directory() -> Path:
    """For as long as this process: executors that start late fetch the archive late."""
    directory = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def _prepare_environment(cache_dir: Path, *, is_local: bool) -> None:
    """What the JVM and its Python workers inherit."""
    os.environ["JAVA_HOME"] = str(find_java(os.environ, cache_dir))
    if is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    else:
        # On other machines Python may be elsewhere, which only the user knows.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _machine_settings(is_local: bool) -> dict[str, str]:
    if not is_local:
        return {}
    # The package may be on the path of this process alone, as in a checkout that nobody installed.
    return {**_LOCAL_CONF, "spark.executorEnv.PYTHONPATH": str(PACKAGE.parent)}


def _java_options(is_local: bool) -> str:
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return f"{_LOCAL_JAVA} {logging}" if is_local else logging


def _connect(app_name: str, remote: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in settings.items():
        if key.startswith("spark.sql."):  # the rest was settled when the server started
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.addArtifacts(str(pack_package(_temporary_directory())), pyfile=True)
    register(session)
    return session
