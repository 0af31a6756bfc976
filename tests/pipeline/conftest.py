"""One Spark session for every test that wants one, in whichever worker they run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.session import make_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = make_session(
        "headrace tests",
        master="local[2]",
        shuffle_partitions=1,
        conf={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "512m",
            # Most of a test's time is code that runs once: the quick compiler is the faster one.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        },
    )
    yield session
    session.stop()
