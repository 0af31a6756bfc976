"""A job whose executors are pods of a real Kubernetes: `make kubernetes test-kubernetes`, not with the other tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from tests.pipeline.clusters.conftest import Logs
from tests.pipeline.clusters.kubernetes.cluster import kubernetes, missing
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
        pods.cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{at_first[0]}", at_once=True)
        eventually(lambda: set(pods.running()) - set(at_first), "a pod instead of the lost one", DEADLINE_S)
        assert job.is_running
        said = job.wait_done()
    finally:
        job.stop()
    assert executors_in(said)["headrace"] == "headrace.zip"
    assert set(executors_in(said)["hosts"].split(",")) <= set(at_first), "executors that are no pods"
    assert_same(lake, local_tables)
    eventually(lambda: not pods.pods(), "pods that are gone", DEADLINE_S)
