"""A short job's session, each in a process of its own: a JVM makes its first session once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

_START = """
import sys
from pyspark.sql import SparkSession
from headrace.pipeline.jobs.plans import quick_session
from headrace.pipeline.session import make_session
conf = dict(word.split("=", 1) for word in sys.argv[1:])
spark = make_session("a test", master="local[1]", shuffle_partitions=3, conf=conf, is_short=True)
catalyst = spark._jvm.org.apache.spark.sql.catalyst
registry = getattr(getattr(catalyst.analysis, "FunctionRegistry$"), "MODULE$")
print(registry.internal().functionExists(catalyst.FunctionIdentifier("vector_to_array")))
print(spark is SparkSession.getActiveSession(), spark.sparkContext.appName)
print(spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.session.timeZone"))
print(spark.range(4).selectExpr("sum(id)").collect()[0][0], quick_session(spark).sql("select 5").collect()[0][0])
spark.stop()
"""
_SAME = ["True a test", "3 UTC", "6 5"]


def _started(*conf: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _START, *conf], capture_output=True, text=True, timeout=300, check=True
    )
    assert "existing Spark session" not in done.stderr
    return done.stdout.splitlines()


def test_a_short_job_has_a_session_without_machine_learning() -> None:
    assert _started() == ["False", *_SAME]


def test_whoever_names_extensions_gets_all_of_them() -> None:
    assert _started("spark.sql.extensions=org.apache.spark.sql.ml.InternalFunctionRegistration") == ["True", *_SAME]
