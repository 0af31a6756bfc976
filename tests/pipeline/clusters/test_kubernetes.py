"""A job whose executors are pods of a real Kubernetes: `make kubernetes test-kubernetes`, not with the other tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from tests.pipeline.bare_python import NOT_ON_EXECUTORS, make_python
from tests.pipeline.clusters.conftest import Logs
from tests.pipeline.clusters.kubernetes.authority import Authority
from tests.pipeline.clusters.kubernetes.cluster import POLL_S, kubernetes, missing
from tests.pipeline.clusters.kubernetes.executors import NAMESPACE, Pods
from tests.pipeline.clusters.loopback import DEADLINE_S, Spark
from tests.pipeline.clusters.same_tables import Tables, assert_same, executors_in

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def pods(elsewhere: Spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    if wanted := missing():
        pytest.fail(f"not there: {', '.join(wanted)}; see docs/clusters/kubernetes.md")
    with kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as cluster:
        yield Pods(cluster, elsewhere)


def test_batch_on_kubernetes_that_loses_a_pod(pods: Pods, logs: Logs, local_tables: Tables, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    job = pods.spark.start_job("kubernetes", "batch", *pods.words(), *logs.words(lake))
    try:
        job.wait_said(r"(executors .*headrace=\S+)")
        at_first = pods.running()
        assert len(at_first) == 2, pods.pods()
        eventually(lambda: any(lake.glob("_tmp/*/_temporary")), "rows being written", DEADLINE_S)
        pods.cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{at_first[0]}")
        eventually(lambda: set(pods.running()) - set(at_first), "a pod instead of the lost one", DEADLINE_S, POLL_S)
        assert job.is_running
        said = job.wait_done()
    finally:
        job.stop()
    assert executors_in(said)["headrace"] == "headrace.zip"
    assert set(executors_in(said)["hosts"].split(",")) <= set(at_first), "executors that are no pods"
    assert_same(lake, local_tables)
    eventually(lambda: not pods.pods(), "pods that are gone", DEADLINE_S, POLL_S)
    assert pods.refusals() == []


def test_a_stream_on_kubernetes(pods: Pods, logs: Logs, local_tables: Tables, tmp_path: Path) -> None:
    job = pods.spark.start_job("stream", "run", "--once", *pods.words(), *logs.words(tmp_path / "lake"))
    try:
        said = job.wait_done()
    finally:
        job.stop()
    assert executors_in(said)["headrace"] == "headrace.zip"
    assert_same(tmp_path / "lake", local_tables)
    eventually(lambda: not pods.pods(), "pods that are gone", DEADLINE_S, POLL_S)
    assert pods.refusals() == []


def refusal(pods: Pods, logs: Logs, lake: Path, words: list[str], environ: dict[str, str] | None = None) -> str:
    """The line that a job ends with."""
    job = pods.spark.start_job("refused", "batch", *words, *logs.words(lake), environ=environ)
    try:
        said = job.wait_done(expected=1)
    finally:
        job.stop()
    return said.splitlines()[-1]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("token", "Unauthorized"),
        ("account", 'configmaps is forbidden: User "system:serviceaccount:headrace:stranger" cannot create resource'),
        ("namespace", 'configmaps is forbidden: .* cannot create resource "configmaps" .* in the namespace "nowhere"'),
        ("authority", "unable to find valid certification path to requested target"),
        ("token file", "(/nowhere/token|.*No such file or directory).*"),
    ],
)
def test_what_the_api_refuses_is_told_in_one_line(
    pods: Pods, logs: Logs, tmp_path: Path, wrong: str, told: str
) -> None:
    (tmp_path / "token").write_text("no token")
    (tmp_path / "authority").mkdir()
    if wrong == "account":
        pods.add_account("stranger", tmp_path / "stranger")
    changed = {
        "token": {"oauthTokenFile": str(tmp_path / "token")},
        "account": {"oauthTokenFile": str(tmp_path / "stranger")},
        "namespace": {"namespace": "nowhere"},
        "authority": {"caCertFile": str(Authority(tmp_path / "authority").certificate)},
        "token file": {"oauthTokenFile": "/nowhere/token"},
    }[wrong]
    line = refusal(pods, logs, tmp_path / "lake", pods.words(**changed))
    assert re.fullmatch(rf"headrace pipeline: Spark did not start on k8s://\S+: {told}.*", line)


def test_an_executor_that_lacks_a_package_is_told_by_its_pod(pods: Pods, logs: Logs, tmp_path: Path) -> None:
    python = make_python(pods.spark.folder / "bare", without=(*NOT_ON_EXECUTORS, "xxhash"))
    line = refusal(pods, logs, tmp_path / "lake", pods.words(), {"PYSPARK_PYTHON": str(python)})
    assert re.fullmatch(r"headrace pipeline: the executor on headrace-batch-\S+-exec-\d has no xxhash for .*", line)


def test_executors_that_end_at_once_are_told_and_their_pods_can_be_kept(pods: Pods, logs: Logs, tmp_path: Path) -> None:
    keep = ["--conf", "spark.kubernetes.executor.deleteOnTermination=false"]
    broken = ["--conf", "spark.executor.extraJavaOptions=-agentlib:nowhere"]
    line = refusal(pods, logs, tmp_path / "lake", [*pods.words(), *keep, *broken])
    assert re.fullmatch(r"headrace pipeline: no executor lasts on k8s://\S+: see .*deleteOnTermination=false.*", line)
    failed = [pod["metadata"]["name"] for pod in pods.pods() if pod["status"]["phase"] == "Failed"]
    assert "agent library nowhere" in pods.cluster.api.text(f"/api/v1/namespaces/{NAMESPACE}/pods/{failed[0]}/log")
    assert pods.refusals() == []
    pods.cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods")
