"""The jobs on real clusters give the tables of a local run, with executors that have nothing but what they are sent."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from tests.pipeline.clusters.conftest import Logs
from tests.pipeline.clusters.loopback import DEADLINE_S, Spark, Standalone, connect_server
from tests.pipeline.clusters.same_tables import Tables, assert_same, executors_in
from tests.pipeline.clusters.yarn import yarn
from tests.pipeline.hadoop import has_maven
from tests.pipeline.jobs.logs_on_disk import all_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(1800)]


def test_the_executors_of_these_tests_have_no_headrace_of_their_own(elsewhere: Spark) -> None:
    for module, is_there in {"pyspark": True, "xxhash": True, "headrace": False, "pandas": False}.items():
        done = subprocess.run(
            [elsewhere.python, "-c", f"import {module}"],
            env=elsewhere.environ,
            cwd="/",
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode == 0) is is_there, module


def test_batch_on_a_local_cluster_with_another_default_file_system(
    elsewhere: Spark, logs: Logs, local_tables: Tables, tmp_path: Path
) -> None:
    words = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.hadoop.fs.defaultFS=hdfs://127.0.0.1:1"]
    job = elsewhere.start_job("local-cluster", "batch", *words, *logs.words(tmp_path / "lake"))
    try:
        said = job.wait_done()
    finally:
        job.stop()
    assert executors_in(said)["headrace"] == "headrace.zip"
    assert_same(tmp_path / "lake", local_tables)


def test_a_stream_on_yarn(elsewhere: Spark, logs: Logs, local_tables: Tables, tmp_path: Path) -> None:
    if not has_maven():
        pytest.fail("Maven, which brings Hadoop's servers, is not on PATH")
    with yarn(tmp_path / "yarn") as cluster:
        words = ["run", "--once", *cluster.words(), *logs.words(tmp_path / "lake")]
        job = elsewhere.start_job("yarn", *words, environ={"HADOOP_CONF_DIR": str(cluster.conf)})
        try:
            said = job.wait_done()
        finally:
            job.stop()
        assert executors_in(said)["headrace"] == "headrace.zip"
        assert_same(tmp_path / "lake", local_tables)
        assert cluster.applications() == ["SUCCEEDED"]


def test_batch_and_a_job_that_goes_on_over_spark_connect(
    cluster: Standalone, logs: Logs, local_tables: Tables, tmp_path: Path
) -> None:
    with connect_server(cluster) as remote:
        job = cluster.spark.start_job("client", "batch", "--remote", remote, *logs.words(tmp_path / "lake"))
        try:
            said = job.wait_done()
        finally:
            job.stop()
        assert executors_in(said)["headrace"] == "headrace.zip"
        assert_same(tmp_path / "lake", local_tables)
        _follow_over_connect(cluster, remote, logs, local_tables, tmp_path)


def _follow_over_connect(cluster: Standalone, remote: str, logs: Logs, local_tables: Tables, folder: Path) -> None:
    lake = folder / "followed"
    with ExitStack() as late:
        # One file of events and half of the recording come when the job has begun.
        (events,) = logs.data_dir.rglob("b.jsonl")
        held_back = events.rename(folder / "held-back")
        late.callback(held_back.rename, events)
        (flv,) = logs.record_dir.iterdir()
        whole = flv.read_bytes()
        flv.write_bytes(whole[: len(whole) // 2])
        late.callback(os.utime, flv, (0, 0))
        late.callback(flv.write_bytes, whole)
        job = cluster.spark.start_job("following", "run", "--remote", remote, *logs.words(lake))
        try:
            job.wait_said(r"tables (streams=[1-9])")
            late.close()
            eventually(lambda: all_tables(lake) == local_tables, "the tables of all files", DEADLINE_S)
            job.terminate()
            job.wait_done()
        finally:
            job.stop()
    assert_same(lake, local_tables)


def test_a_stream_on_a_standalone_cluster_that_loses_a_worker(
    cluster: Standalone, logs: Logs, local_tables: Tables, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    job = cluster.spark.start_job("stream", "run", "--once", "--master", cluster.master, *logs.words(lake))
    try:
        assert job.wait_said(r"executors .* headrace=(\S+)") == "headrace.zip"
        # A part is being written by the executors.
        eventually(lambda: any(lake.glob("_tmp/*/_temporary")), "rows being written", DEADLINE_S)
        cluster.workers[-1].kill_with_children()
        assert job.is_running
        said = job.wait_done()
    finally:
        job.stop()
    assert "Lost executor" in said
    assert_same(lake, local_tables)
