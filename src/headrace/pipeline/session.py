"""The Spark session of every job: quiet, small on one machine, and the same code on a cluster.

Owns the settings, and that executors get the package. What a job does with the session is its own business.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.pipeline.archive import PACKAGE, pack_for_this_process
from headrace.pipeline.bare_session import make_bare_session
from headrace.pipeline.class_archive import ClassArchive
from headrace.pipeline.errors import PipelineError
from headrace.pipeline.java import Java, find_java, user_cache_dir
from headrace.pipeline.jvm_functions import keep_objects, remember_functions
from headrace.pipeline.masters import is_kubernetes, is_local, is_on_this_machine, require_master, require_remote
from headrace.pipeline.reasons import reason_of
from headrace.pipeline.sources.flv.source import register

if TYPE_CHECKING:
    from headrace.pipeline.stores.store import Store

_LOGGING = Path(__file__).with_name("log4j2.properties")

_LOOPBACK = "127.0.0.1"
# What is left when Spark gives up: on Kubernetes after so many executors that it need not be the machines.
_NO_EXECUTOR_LASTS = "Spark context stopped while waiting for backend"
_MISSING_CLASS = re.compile(r"ClassNotFoundException: Class (org\.apache\.hadoop\.fs\.s3a\.\w+) not found")
_WRITING_S = 300.0  # against hanging: it takes ten on two cores
_written: ClassArchive | None = None  # by this process's JVM, when it ends
# One machine has the server to run too: a small heap, no threads that only collect garbage, and few partitions.
_LOCAL_JAVA = "-XX:+UseSerialGC"
# The compiler that makes fast code takes a third of a short job's processor time, and is done when the job is.
# A class is made for every method that is called by reflection a few times: 500, a tenth of that time.
_SHORT_JAVA = "-XX:TieredStopAtLevel=1 -Dsun.reflect.inflationThreshold=1000000"
_LOCAL_CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",  # on a cluster it is Spark's many, which adapt to how much there is
    # With two there is nothing to adapt. To plan anew behind every stage took a tenth of a batch of two million events,
    # and 15 ms of every query.
    "spark.sql.adaptive.enabled": "false",
    # The package may be on the path of this process alone, as in a checkout that nobody installed.
    "spark.executorEnv.PYTHONPATH": str(PACKAGE.parent),
}
# The name of a laptop may resolve to an address of the network it was in yesterday.
_THIS_MACHINE_CONF = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Times with their zone, as pyarrow writes them: a table has files of both. Spark's own choice is one of Impala's.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Else every column that a plan is made of costs several calls to the JVM, to say in which line it was written.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Files are listed here. Else a batch of a thousand event files is listed by a job of a thousand tasks, which takes
    # fifty times as long as to read them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Without it a source that takes filters is refused altogether.
    "spark.sql.python.filterPushdown.enabled": "true",
}
# Of each session, since Spark's own files are to stay where the cluster has them: a path is one of the file system,
# for Spark as for pyarrow. Else it would be one of HDFS on a cluster that has that.
SESSION_CONF = {"fs.defaultFS": "file:///"}


def make_session(
    app_name: str,
    *,
    master: str = "local[*]",
    remote: str | None = None,
    shuffle_partitions: int | None = None,
    conf: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
    leaves_classes: bool = False,
    is_short: bool = False,
) -> SparkSession:
    """A session, or the one that this process has already. See `prepare_flv` for our source, and `end_session`.

    One that `leaves_classes` makes the next ones start faster, and takes some seconds to end for it, once. One that
    `is_short` is for a minute's work at most.

    `remote` is the address of a Spark Connect server, and then `master` is that server's business. `conf` goes
    over every setting here; Java options in it are added to ours. Raises PipelineError if Spark cannot be had so.
    """
    own = {} if shuffle_partitions is None else {"spark.sql.shuffle.partitions": str(shuffle_partitions)}
    session = (
        _start(
            app_name, master, {**own, **(conf or {})}, cache_dir or user_cache_dir(os.environ), leaves_classes, is_short
        )
        if remote is None
        else _connect(app_name, remote, {**_CONF, **own, **(conf or {})})
    )
    for key, value in SESSION_CONF.items():
        session.conf.set(key, value)
    if _written is not None:
        register(session)  # so that its classes are among them
    return session


def end_session(spark: SparkSession, say: Callable[[str], None] = lambda line: None) -> None:
    """Stops it and, if it is to leave its classes, waits for the JVM to write them."""
    global _written
    gateway = None if is_connect(spark) else spark.sparkContext._gateway
    spark.stop()
    archive, _written = _written, None
    if archive is None or gateway is None:
        return
    say("this once, Spark's classes are written down: the next jobs start faster")
    jvm: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # a later session starts a JVM of its own
    assert jvm.stdin is not None
    jvm.stdin.close()  # it ends with us, and this is how it is told
    try:
        is_well = jvm.wait(_WRITING_S) == 0
    except subprocess.TimeoutExpired:
        jvm.kill()
        is_well = False
    if is_well:
        archive.keep()
    archive.discard()


def is_connect(spark: SparkSession) -> bool:
    """Whether a server has the JVM: what reaches into it from here is not to be had."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def is_in_process(spark: SparkSession) -> bool:
    """Whether everything runs in this process's own JVM, which sees our files as soon as they are written."""
    return not is_connect(spark) and is_local(spark.sparkContext.master or "")


def tell_hadoop(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Settings of Hadoop's file systems, which may hold keys: a setting of Spark would stand on the JVM's command line.

    What the user has set stays as it is. The server behind Spark Connect has settings of its own.
    """
    if is_connect(spark):
        return
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    given = spark.sparkContext.getConf()
    for key, value in conf.items():
        if not given.contains(f"spark.hadoop.{key}"):
            hadoop.set(key, value)


def reach_lake(spark: SparkSession, store: Store, file: str, schema: StructType) -> None:
    """Tell Spark how to reach a lake, and see by one of its files that it does. Raises PipelineError."""
    if store.is_on_this_machine:
        return
    tell_hadoop(spark, store.hadoop_conf)
    try:
        with silenced(spark):
            spark.read.schema(schema).parquet(store.spark_path(file)).isEmpty()
    except Exception as error:
        missing = _MISSING_CLASS.search(str(error))
        if missing is not None:
            packages = f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"
            raise PipelineError("LAKE_JARS", path=store.address, found=missing[1], packages=packages) from error
        raise PipelineError("LAKE_NOT_REACHED", path=store.address, who="Spark", reason=reason_of(error)) from error


def hadoop_version() -> str:
    """Of the client that Spark brings: other parts of Hadoop must be of the same."""
    jars = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return next((jar.stem.rpartition("-")[2] for jar in jars), "VERSION")


@contextmanager
def silenced(spark: SparkSession) -> Iterator[None]:
    """For what may fail: Spark tells it in a hundred lines, and we in one."""
    if is_connect(spark):  # the server's log is the server's
        yield
        return
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel("WARN")  # as log4j2.properties has it


def prepare_flv(spark: SparkSession) -> dict[str, str]:
    """Makes `format("flv")` known to the session, and tells the options it is read with there.

    Where it is read and not before: Spark then looks for sources in Python, which takes a cold JVM 1.7 s. The options
    are tasks for all its cores, where they are not the driver's.
    """
    register(spark)
    if is_connect(spark) or is_in_process(spark):  # over Spark Connect nobody tells how many there are
        return {}
    return {"minPartitions": str(spark.sparkContext.defaultParallelism)}


def _start(
    app_name: str, master: str, conf: Mapping[str, str], cache_dir: Path, leaves_classes: bool, is_short: bool
) -> SparkSession:
    require_master(master, os.environ)
    java = find_java(os.environ, cache_dir)
    _prepare_environment(master, java)
    archive = None if is_local(master) else pack_for_this_process()
    if archive is not None:
        # Spark gives it to executors, and forgets the Python that follows a stream's source beside the driver's JVM.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(archive), os.environ.get("PYTHONPATH"))))
    settings = {**_CONF, **_machine_settings(master), **conf}
    options = [_java_options(master), settings.get("spark.driver.extraJavaOptions")]
    if is_local(master) and SparkContext._gateway is None:
        classes = ClassArchive(cache_dir, java, Path(pyspark.__file__).parent)
        options.append(_class_options(classes, leaves_classes))
        # What a JVM writes down of what its compilers learned is for long jobs too.
        if is_short and (_written is None or not classes.holds_profiles):
            options.insert(0, _SHORT_JAVA)
    settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
    settings |= {"spark.app.name": app_name, "spark.master": master}
    try:
        with _without_stdout() if _written is not None else nullcontext():
            # A JVM that writes down its classes is to have them all.
            session = _get_or_create(settings, is_bare=is_short and is_local(master) and _written is None)
    except Exception as error:
        if is_kubernetes(master) and _NO_EXECUTOR_LASTS in str(error):
            raise PipelineError("EXECUTORS_ENDING", master=master) from error
        raise PipelineError("SPARK_NOT_STARTED", master=master, reason=reason_of(error)) from error
    remember_functions(session)
    if is_short and is_local(master):
        keep_objects(session)
    if archive is not None:
        session.sparkContext.addPyFile(str(archive))
    return session


def _get_or_create(settings: Mapping[str, str], *, is_bare: bool) -> SparkSession:
    session = None
    if is_bare and SparkContext._active_spark_context is None:
        session = make_bare_session(SparkContext(conf=SparkConf().setAll(list(settings.items()))))
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return session or builder.getOrCreate()


def _class_options(archive: ClassArchive, leaves_classes: bool) -> str | None:
    global _written
    if archive.exists():
        return archive.to_use()
    options = archive.to_write() if leaves_classes else None
    _written = None if options is None else archive
    return options


@contextmanager
def _without_stdout() -> Iterator[None]:
    """For a JVM that is started in here. One that writes its classes prints how it gets on, and no setting stops it."""
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _prepare_environment(master: str, java: Java) -> None:
    """What the JVM and its Python workers inherit."""
    os.environ["JAVA_HOME"] = str(java.home)
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        return
    # On other machines Python may be elsewhere, which only the user knows.
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if shutil.which(python) is None:
        raise PipelineError("PYTHON_NOT_FOUND", python=python)


def _machine_settings(master: str) -> dict[str, str]:
    return {
        **(_LOCAL_CONF if is_local(master) else {}),
        **(_THIS_MACHINE_CONF if is_on_this_machine(master) else {}),
    }


def _java_options(master: str) -> str:
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return f"{_LOCAL_JAVA} {logging}" if is_local(master) else logging


def _connect(app_name: str, remote: str, settings: Mapping[str, str]) -> SparkSession:
    shown = require_remote(remote)
    builder = SparkSession.builder.appName(app_name).remote(remote)
    for key, value in settings.items():
        if key.startswith("spark.sql."):  # the rest was settled when the server started
            builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
        session.addArtifacts(str(pack_for_this_process()), pyfile=True)
    except Exception as error:
        # The client's words may hold the address, and that a token.
        reason = reason_of(error).replace(remote, shown).replace(remote.partition("/;")[2] or remote, "…")
        raise PipelineError("SPARK_NOT_STARTED", master=shown, reason=reason) from None
    return session
