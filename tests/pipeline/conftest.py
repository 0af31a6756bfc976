"""One Spark session for every test that wants one, in whichever worker they run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.jobs.plans import quick_plans
from headrace.pipeline.session import make_session
from headrace.pipeline.sources.flv.source import register
from tests.pipeline.hadoop import has_maven
from tests.pipeline.hdfs import Hdfs, start_hdfs
from tests.pipeline.object_store import ObjectServer, start_object_store

# Against hanging: the first query of a JVM takes five seconds, and twenty times that on a machine with other work.
SPARK_DEADLINE_S = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_DEADLINE_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = make_session(
        "headrace tests",
        master="local[2]",
        shuffle_partitions=1,
        conf={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.memory": "512m",
            # Most of a test's time is code that runs once: the quick compiler is the faster one. It has less room.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m",
        },
    )
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Minutes on a busy machine, so one for all tests: those that use it are of the group `spark`."""
    if not has_maven():
        pytest.skip("HDFS is fetched by mvn, which is not installed")
    with start_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with start_object_store(tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture(autouse=True)
def plans_for_few_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    with quick_plans(request.getfixturevalue("spark")):
        yield
