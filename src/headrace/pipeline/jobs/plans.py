"""Plans that are made once and run again and again, over rows that come and go.

Making a plan from a table's function costs hundreds of calls to the JVM and seconds of a core; running it over the rows
of a live stream costs a tenth of that. So the inputs of such plans are slots: files whose rows are replaced. Owns the
slots and how a plan is run again. For masters on this machine, which see the slots' files.
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

# Compiling a plan to Java, and planning it anew after every stage, pays for millions of rows.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A broadcast is a job of its own.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}


class Slot:
    """Rows that plans are made of, and that can be replaced under them."""

    def __init__(self, spark: SparkSession, directory: Path, name: str, schema: StructType) -> None:
        self._file = directory / f"{name}.parquet"
        self._unfinished = directory / f"{name}.new"
        self._write(to_arrow_schema(schema, timezone="UTC").empty_table())
        self._relation = spark.read.schema(schema).parquet(str(self._file))
        # In one partition, and said so: then no join, window or aggregate needs a shuffle, and a plan is one task.
        self.frame = self._relation.coalesce(1)

    def put(self, rows: pa.Table) -> None:
        self._write(rows)
        # Spark lists a relation's files once. All plans made of the frame share the relation, and so this listing.
        self._relation._jdf.queryExecution().analyzed().relation().location().refresh()

    def _write(self, rows: pa.Table) -> None:
        pq.write_table(rows, self._unfinished, compression="none")
        os.replace(self._unfinished, self._file)


def run_again(plan: DataFrame) -> pa.Table:
    """The rows of a plan over what its slots hold now."""
    # A frame keeps its first result's shuffles and broadcasts. One on top of it shares no more than its analysis.
    return plan.select("*").toArrow()


def quick_session(spark: SparkSession) -> SparkSession:
    """Another session of the same Spark, all of whose plans are for few rows."""
    # A new one of Spark Connect would know nothing of the settings that its client made; only that one can be cloned.
    session = spark.cloneSession() if is_connect(spark) else spark.newSession()  # type: ignore[attr-defined]
    for name, value in {**SESSION_CONF, **QUICK}.items():
        session.conf.set(name, value)
    return session


@contextmanager
def quick_plans(spark: SparkSession) -> Iterator[None]:
    """Plans made in here are for few rows. The rows are the same either way."""
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)
