"""Spark itself on a lake in an object store: the commands as a person types them, and the tables of a local run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.clusters.conftest import Logs
from tests.pipeline.clusters.loopback import DEADLINE_S, LOOPBACK
from tests.pipeline.clusters.same_tables import Tables
from tests.pipeline.hadoop import has_maven, s3a_jars
from tests.pipeline.object_store import KEY, SECRET
from tests.pipeline.stores.places import Place, place_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(1800)]


def run(*words: str) -> str:
    """What `headrace` answers. The key of the bucket is in nothing that it says."""
    environ = {**os.environ, "SPARK_LOCAL_IP": LOOPBACK}
    command = [sys.executable, "-m", "headrace", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    return done.stdout


def tables_at(place: Place) -> Tables:
    return {
        table: sorted(json.dumps(row, default=str, sort_keys=True) for row in place.rows(table)) for table in TABLES
    }


@pytest.fixture(scope="module")
def jars() -> list[str]:
    if not has_maven():
        pytest.fail("Maven, which brings Amazon's client, is not on PATH")
    return ["--conf", f"spark.jars={','.join(map(str, s3a_jars()))}"]


def test_batch_stream_and_query_by_spark_in_an_object_store(
    request: pytest.FixtureRequest, jars: list[str], logs: Logs, local_tables: Tables, tmp_path: Path
) -> None:
    place = place_of("s3", request, tmp_path)
    run("pipeline", "batch", *logs.words(place.address), *jars)
    found = tables_at(place)
    for table, rows in local_tables.items():
        assert found[table] == rows, table

    asked = "select count(*) as n, count(distinct stream_id) as streams from events"
    by_spark = run("query", asked, "--lake", place.address, "--master", "local[2]", "--format", "json", *jars)
    copied = run("query", asked, "--lake", place.address, "--format", "json")
    assert json.loads(by_spark) == json.loads(copied) == {"n": len(local_tables["events"]), "streams": 2}

    # A stream with checkpoints in the store, beside what batch had taken in: nothing is there twice.
    run("pipeline", "run", "--once", *logs.words(place.address), *jars)
    assert tables_at(place) == found
    status = json.loads(run("pipeline", "status", "--lake", place.address, "--format", "json"))
    counted = {table["table"]: table["rows"] for table in status["tables"]}
    assert counted == {table: len(rows) for table, rows in found.items()}
