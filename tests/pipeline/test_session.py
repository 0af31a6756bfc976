"""The session that every job gets."""

from __future__ import annotations

import os
import sys

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.session import is_connect, is_in_process, make_session


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_session_has_the_settings_that_tables_rely_on(spark: SparkSession) -> None:
    expected = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
    }
    assert {name: spark.conf.get(name) for name in expected} == expected
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions") or ""
    assert "-XX:+UseSerialGC" in options
    assert "log4j2.properties" in options
    assert "TieredStopAtLevel=1" in options
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert (is_in_process(spark), is_connect(spark)) == (True, False)


def test_a_python_for_executors_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/bin/python3")
    with pytest.raises(PipelineError, match="PYSPARK_PYTHON is /nowhere/bin/python3, expected a Python that is here"):
        make_session("a test", master="local-cluster[2,1,1024]")
