"""Executors as pods: their image, a namespace for them, and who may start them there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipeline.java import find_java, user_cache_dir
from tests.pipeline.clusters.kubernetes.cluster import NODE_ADDRESS, Kubernetes
from tests.pipeline.clusters.kubernetes.images import write_image
from tests.pipeline.clusters.loopback import Spark

NAMESPACE, ACCOUNT = "headrace", "headrace"
IMAGE = "headrace.test/executor:1"
_ENTRYPOINT = Path(__file__).resolve().parents[4] / "examples" / "kubernetes" / "entrypoint.py"
_PASSWD = b"root:x:0:0:root:/:/bin/sh\n"  # without a name Hadoop's client refuses its user
# As docs/clusters/kubernetes.md names them.
RIGHTS = {
    "pods": ["create", "delete", "deletecollection", "get", "list", "patch", "watch"],
    "configmaps": ["create", "deletecollection"],
    "services": ["deletecollection"],
    "persistentvolumeclaims": ["deletecollection"],
}


@dataclass
class Pods:
    """What a job is told to have its executors there."""

    cluster: Kubernetes
    spark: Spark

    def __post_init__(self) -> None:
        self.cluster.import_image(_executor_image(self.cluster.folder, self.spark))
        api, rbac = self.cluster.api, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.token = self.cluster.folder / "token"
        self.add_account(ACCOUNT, self.token)
        rules = [{"apiGroups": [""], "resources": [what], "verbs": verbs} for what, verbs in RIGHTS.items()]
        api.create(f"{rbac}/roles", {"metadata": {"name": ACCOUNT}, "rules": rules})
        binding = {
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        }
        api.create(f"{rbac}/rolebindings", binding)

    def add_account(self, name: str, token: Path) -> None:
        """One that may do nothing yet."""
        self.cluster.api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
        token.write_text(self.cluster.token_of(NAMESPACE, name))

    def words(self, **changed: str) -> list[str]:
        """Of a job on it, with some of the settings changed, by the last word of their names."""
        settings = {
            "spark.kubernetes.namespace": NAMESPACE,
            "spark.kubernetes.container.image": IMAGE,
            "spark.kubernetes.container.image.pullPolicy": "Never",
            "spark.kubernetes.authenticate.caCertFile": str(self.cluster.authority.certificate),
            "spark.kubernetes.authenticate.oauthTokenFile": str(self.token),
            "spark.driver.host": NODE_ADDRESS,
            "spark.executor.instances": "2",
            "spark.executor.memoryOverhead": "768m",
            "spark.kubernetes.executor.request.cores": "100m",  # how busy this machine is is not the question
        }
        for number, place in enumerate(_places(self.spark)):
            volume = f"spark.kubernetes.executor.volumes.hostPath.place{number}"
            settings |= {f"{volume}.mount.path": str(place), f"{volume}.options.path": str(place)}
        settings |= {next(key for key in settings if key.endswith(f".{name}")): to for name, to in changed.items()}
        words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        return ["--master", f"k8s://{self.cluster.address}", *words]

    def refusals(self) -> list[str]:
        """What the API did not let the account of the jobs do in its namespace."""
        lines = (self.cluster.folder / "audit.log").read_text().splitlines()
        return [
            f"{event['verb']} {event['requestURI']}: {event['responseStatus']['code']}"
            for event in map(json.loads, lines)
            if event["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
            and event.get("objectRef", {}).get("namespace") == NAMESPACE
            and event["responseStatus"]["code"] in (401, 403)
        ]

    def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def running(self) -> list[str]:
        """The names of the pods with an executor that runs."""
        return [
            pod["metadata"]["name"]
            for pod in self.pods()
            if pod["metadata"]["labels"].get("spark-role") == "executor" and pod["status"]["phase"] == "Running"
        ]


def _executor_image(folder: Path, spark: Spark) -> Path:
    """Only Spark's start is in it. Python, Java and Spark are this machine's, whose folders are mounted."""
    environ: Mapping[str, str] = {
        "PATH": f"{spark.python.parent}:/usr/bin:/bin",
        "SPARK_HOME": str(spark.home),
        "JAVA_HOME": spark.environ["JAVA_HOME"],
        "JAVA_TOOL_OPTIONS": spark.environ["JAVA_TOOL_OPTIONS"],
    }
    return write_image(
        folder / "executor.tar",
        IMAGE,
        files={"/opt/entrypoint.py": _ENTRYPOINT.read_bytes(), "/etc/passwd": _PASSWD},
        directories=["/etc", "/opt", "/tmp"],
        entrypoint=["/opt/entrypoint.py"],
        environ=environ,
    )


def _places(spark: Spark) -> list[Path]:
    """Folders of this machine that executors need, the logs and lakes of the tests among them."""
    java = find_java(os.environ, user_cache_dir(os.environ)).home
    wanted = {Path("/usr"), Path("/bin"), Path("/lib"), Path("/lib64"), java, java.resolve()}
    # Debian's Java has its settings in /etc.
    wanted |= {path.resolve().parent for path in java.resolve().rglob("*") if path.is_symlink()}
    wanted |= {Path(sys.prefix), Path(sys.prefix).resolve(), Path(sys.base_prefix), spark.folder.parent}
    there = sorted(path for path in wanted if path.is_dir())
    return [path for path in there if not any(other in path.parents for other in there)]
