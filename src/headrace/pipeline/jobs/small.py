"""Few rows: in the driver, as Arrow, where a plan over them needs no scan, no shuffle of files and no write job.

Of a live stream's tables the rows cost nothing and the plans everything: see docs/decisions/0005.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def fetch(rows: DataFrame, limit: int) -> pa.Table | None:
    """The rows; None if there are more than `limit`."""
    found = rows.limit(limit + 1).toArrow()
    return found if found.num_rows <= limit else None


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    return spark.createDataFrame(rows, schema=schema)


# Compiling a plan to Java, and planning it anew after every stage, pays for millions of rows.
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def quick_plans(spark: SparkSession) -> Iterator[None]:
    """Plans made in here are for few rows. The rows are the same either way."""
    before = {name: spark.conf.get(name) for name in _QUICK}
    for name, value in _QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
