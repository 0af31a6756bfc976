"""The session that every job gets."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.archive import pack_package


def test_the_package_that_executors_are_sent_can_be_imported_from_its_archive(tmp_path: Path) -> None:
    archive = pack_package(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    assert "headrace/pipeline/sources/flv/walk.py" in names
    assert not [name for name in names if "__pycache__" in name]
    code = "import headrace.pipeline.sources.flv.walk as walk; print(walk.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == f"{archive}/headrace/pipeline/sources/flv/walk.py"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_session_has_the_settings_that_tables_rely_on(spark: SparkSession) -> None:
    expected = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
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
