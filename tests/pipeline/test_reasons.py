"""Spark's words as it said them, and the one line that is left of them."""

from __future__ import annotations

import pytest

from headrace.pipeline.reasons import host_of, reason_of

NO_PROGRAM = """\
An error occurred while calling o114.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 4.0 (TID 4) (worker-7 executor 3): java.io.IOException: Cannot run program \
"/nowhere/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
OLD_PYTHON = """\
An error occurred while calling o198.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 7.0 (TID 10) (localhost executor driver): org.apache.spark.SparkException:\x20
Error from python worker:
  Traceback (most recent call last):
    File "/usr/lib/python3.6/runpy.py", line 183, in _run_module_as_main
      mod_name, mod_spec, code = _get_module_details(mod_name, _Error)
  ModuleNotFoundError: No module named 'importlib.resources'
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
"""
MISMATCH = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4174, in invoke_udf
    check_python_version(init_info.python_version)
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""
NO_RIGHT = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: POST at: \
https://10.0.0.1:6443/api/v1/namespaces/live/configmaps. Message: configmaps is forbidden: User \
"system:serviceaccount:live:viewer" cannot create resource "configmaps" in API group "" in the namespace "live". \
Received status: Status(apiVersion=v1, code=403, details=StatusDetails(causes=[], group=null, kind=configmaps))
\tat io.fabric8.kubernetes.client.KubernetesClientException.copyAsCause(KubernetesClientException.java:205)
"""
STRANGER = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.
\tat io.fabric8.kubernetes.client.KubernetesClientException.launderThrowable(KubernetesClientException.java:129)
Caused by: java.io.IOException: Failed to create SSL connection
\t... 20 more
Caused by: sun.security.provider.certpath.SunCertPathBuilderException: unable to find valid certification path to \
requested target
\t... 36 more
"""


@pytest.mark.parametrize(
    ("text", "host", "reason"),
    [
        (NO_PROGRAM, "worker-7", 'Cannot run program "/nowhere/python": error=2, No such file or directory'),
        (OLD_PYTHON, "localhost", "ModuleNotFoundError: No module named 'importlib.resources'"),
        (MISMATCH, None, "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12"),
        (
            NO_RIGHT,
            None,
            'configmaps is forbidden: User "system:serviceaccount:live:viewer" cannot create resource "con',
        ),
        (STRANGER, None, "unable to find valid certification path to requested target"),
        ("io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.", None, "An error has occurr"),
        ("org.apache.spark.SparkException: All masters are unresponsive!", None, "All masters are unresponsive!"),
        ("", None, "RuntimeError"),
    ],
)
def test_one_line_is_left(text: str, host: str | None, reason: str) -> None:
    error = RuntimeError(text)
    assert host_of(error) == host
    assert reason_of(error).startswith(reason)
    assert "\n" not in reason_of(error)
    assert len(reason_of(error)) <= 300
