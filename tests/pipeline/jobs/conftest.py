from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

# Ten rows through a plan that is used once: compiling it, and planning it anew after every stage, is most of the time.
_QUICK = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}


@pytest.fixture(autouse=True)
def quick_plans(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, old or "true")
