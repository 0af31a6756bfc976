"""Plans that are made once and run again and again, over rows that come and go.

Making a plan from a table's function costs hundreds of calls to the JVM and seconds of a core, and to optimise it costs
more than to run it over the rows of a live stream. So the inputs of such plans are slots: files whose rows are replaced
and which Spark reads anew whenever it runs a plan. Owns the slots and how a plan is run again. For masters on this
machine, which see the slots' files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipeline.session import SESSION_CONF, is_connect

# Rules of the optimiser that look through every plan again and again for what these have none of, or would save a
# moment of running one for a tenth of a second of planning. A seventh of a small batch's processor time.
_UNNEEDED_RULES = (
    "EliminateOuterJoin",
    "FoldablePropagation",
    "GenerateOptimization",
    "InferFiltersFromConstraints",
    "OptimizeCsvJsonExprs",
    "OptimizeOneRowRelationSubquery",
    "OptimizeUpdateFields",
    "OptimizeWindowFunctions",
    "PruneFilters",
    "PushFoldableIntoBranches",
    "RemoveRedundantAliases",
    "ReorderAssociativeOperator",
    "UnwrapCastInBinaryComparison",
)
# Compiling a plan to Java, and planning it anew after every stage, pays for millions of rows.
QUICK = {
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in _UNNEEDED_RULES
    ),
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A broadcast is a job of its own.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


# A slot's file is listed once, with this size, of which nothing is on the disk. Every file that takes its place is
# smaller, so the one split that Spark makes of it covers all of that too.
_LISTED_BYTES = 1 << 40
_ONE_PARTITION = {
    "spark.sql.files.maxPartitionBytes": str(_LISTED_BYTES),
    "spark.sql.files.minPartitionNum": "1",
    # Or Spark would think that there is much to join, and shuffle it: it multiplies the sizes of what is joined.
    "spark.sql.sources.fileCompressionFactor": str(1 / _LISTED_BYTES),
    "spark.sql.maxSinglePartitionBytes": str(1 << 62),
}
# What keeps the rows of a plan's first run, as it is called in a plan.
_KEEPERS = ("Exchange", "Subquery", "InMemoryTableScan", "AdaptiveSparkPlan")


class Slot:
    """Rows that plans are made of, and that can be replaced under them. In a `quick_session`."""

    def __init__(self, spark: SparkSession, directory: Path, name: str, schema: StructType) -> None:
        self._file = directory / f"{name}.parquet"
        self._unfinished = directory / f"{name}.new"
        with self._unfinished.open("wb") as file:
            file.truncate(_LISTED_BYTES)
        os.replace(self._unfinished, self._file)
        # In one partition, and said so: then no join, window or aggregate needs a shuffle, and a plan is one task.
        self.frame = spark.read.schema(schema).parquet(str(self._file)).coalesce(1)
        self.put(to_arrow_schema(schema, timezone="UTC").empty_table())

    def put(self, rows: pa.Table) -> None:
        pq.write_table(rows, self._unfinished, compression="none")
        os.replace(self._unfinished, self._file)


class Plan:
    """Made once, and run over what its slots hold at that time."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self.schema = frame.schema
        physical = frame._jdf.queryExecution().executedPlan().toString()
        self.is_kept = not any(keeper in physical for keeper in _KEEPERS)

    def run(self) -> pa.Table:
        # A frame on top of it shares its analysis and is planned anew, which costs more than to run it.
        return (self._frame if self.is_kept else self._frame.select("*")).toArrow()


def quick_session(spark: SparkSession) -> SparkSession:
    """Another session of the same Spark, all of whose plans are for few rows."""
    # A new one of Spark Connect would know nothing of the settings that its client made; only that one can be cloned.
    session = spark.cloneSession() if is_connect(spark) else spark.newSession()  # type: ignore[attr-defined]
    for name, value in {**SESSION_CONF, **QUICK, **_ONE_PARTITION}.items():
        session.conf.set(name, value)
    return session


@contextmanager
def quick_plans(spark: SparkSession) -> Iterator[None]:
    """Plans made in here are for few rows. The rows are the same either way."""
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
            else:
                spark.conf.unset(name)
