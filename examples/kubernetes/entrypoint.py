#!/usr/bin/env python3
"""Starts Spark's executor in a pod, as the driver asks for it by the pod's environment.

Owns nothing else: this is for an image of executors that was not made from Spark's own, which has a script for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"
# The words of the executor, and the variables that the driver gives the pod for them.
_WORDS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(environ: Mapping[str, str]) -> list[str]:
    home = environ["SPARK_HOME"]
    numbers = sorted(int(name.removeprefix(_JAVA_OPTION)) for name in environ if name.startswith(_JAVA_OPTION))
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    path = [environ.get("SPARK_CONF_DIR", f"{home}/conf"), environ.get("SPARK_CLASSPATH", ""), f"{home}/jars/*"]
    return [
        f"{environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in environ else "java",
        *(environ[f"{_JAVA_OPTION}{number}"] for number in numbers),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(filter(None, path)),
        _MAIN,
        *(word for name, variable in _WORDS.items() for word in (name, environ[variable])),
    ]


def main() -> None:
    if sys.argv[1:2] != ["executor"]:
        sys.exit(f"found {sys.argv[1:]}, expected executor: this image is for nothing else")
    words = command(os.environ)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
