from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.jobs.plans import Plan, Slot, quick_session
from headrace.pipeline.schema import COUNTS, LONG, STRING, TIMESTAMP, table

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = table(("key", STRING, ""), ("value", LONG, ""))


def rows_of(**values: int) -> pa.Table:
    return pa.table({"key": list(values), "value": pa.array(list(values.values()), pa.int64())})


def test_a_plan_with_joins_and_sums_is_run_again_over_the_newest_rows(spark: SparkSession, tmp_path: Path) -> None:
    quick = quick_session(spark)
    left, right = Slot(quick, tmp_path, "left", SCHEMA), Slot(quick, tmp_path, "right", SCHEMA)
    names = right.frame.select("key", F.col("value").alias("other"))
    # The same slot twice, as in a table that is joined with itself.
    total = left.frame.groupBy().agg(F.sum("value").alias("total"))
    plan = Plan(left.frame.join(names, on="key", how="left").crossJoin(total))

    assert plan.run().num_rows == 0
    left.put(rows_of(a=1, b=2))
    right.put(rows_of(b=20))
    found = plan.run().sort_by("key").to_pylist()
    assert [(row["key"], row["other"], row["total"]) for row in found] == [("a", None, 3), ("b", 20, 3)]
    right.put(rows_of(a=10))
    left.put(rows_of(a=5))
    assert plan.run().to_pylist() == [{"key": "a", "value": 5, "other": 10, "total": 5}]
    left.put(rows_of())
    assert plan.run().num_rows == 0


def test_a_plan_over_slots_shuffles_nothing_and_is_planned_once(spark: SparkSession, tmp_path: Path) -> None:
    slot = Slot(quick_session(spark), tmp_path, "slot", SCHEMA)
    plan = Plan(slot.frame.groupBy("key").agg(F.sum("value").alias("sum")).join(slot.frame, on="key"))
    assert plan.is_kept
    for size in (0, 3, 50_000, 1, 400):
        slot.put(rows_of(**{f"k{number}": number for number in range(size)}))
        rows = plan.run()
        assert (rows.num_rows, sum(rows["sum"].to_pylist())) == (size, size * (size - 1) // 2)


def test_a_plan_that_would_keep_rows_is_planned_anew(spark: SparkSession, tmp_path: Path) -> None:
    slot = Slot(quick_session(spark), tmp_path, "slot", SCHEMA)
    plan = Plan(slot.frame.repartition(2, "key").groupBy("key").agg(F.sum("value").alias("sum")))
    assert not plan.is_kept
    for size in (0, 3, 1):
        slot.put(rows_of(**{f"k{number}": number for number in range(size)}))
        assert plan.run().num_rows == size


def test_a_quick_session_leaves_the_other_one_alone(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    assert quick_session(spark).conf.get("spark.sql.autoBroadcastJoinThreshold") == "-1"
    assert spark.conf.get("spark.sql.autoBroadcastJoinThreshold") == before


def test_times_and_maps_come_back_as_they_went_in(spark: SparkSession, tmp_path: Path) -> None:
    slot = Slot(quick_session(spark), tmp_path, "slot", table(("at", TIMESTAMP, ""), ("counts", COUNTS, "")))
    times = pa.array([1_800_000_000_123_456, None], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": times, "counts": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))})
    slot.put(rows)
    assert Plan(slot.frame).run().to_pylist() == rows.to_pylist()
