"""The command that the entry point of an executor's image becomes, from the environment that Spark gives a pod."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.kubernetes.entrypoint import command

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "entrypoint.py"
POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.9:7078",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "4096m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_ID": "2",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_IP": "10.1.0.7",
    "SPARK_EXECUTOR_POD_NAME": "exec-2",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_HOME": "/opt/spark",
}


def test_the_entry_point_becomes_the_executor_that_was_asked_for() -> None:
    assert command(POD) == [
        *("java", "-Xms4096m", "-Xmx4096m", "-cp", "/opt/spark/conf:/opt/spark/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@10.0.0.9:7078", "--executor-id", "2", "--cores", "4"),
        *("--app-id", "spark-1", "--hostname", "10.1.0.7", "--resourceProfileId", "0", "--podName", "exec-2"),
    ]


def test_java_options_keep_their_order_and_their_spaces() -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Done={number} two" for number in range(11)}
    found = command({**POD, **options, "JAVA_HOME": "/opt/java"})
    assert found[:12] == ["/opt/java/bin/java", *(f"-Done={number} two" for number in range(11))]


@pytest.mark.parametrize("words", [[], ["driver"]])
def test_anything_but_an_executor_is_refused(words: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"found {words}, expected executor: this image is for nothing else\n"
