"""Addresses that cannot be reached from here get one line."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.filesystems import connect
from tests.pipeline.hdfs import Hdfs


def test_without_any_client_of_hdfs_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hdfs_native" else find(name))
    for variable in ("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.setenv(variable, "/nowhere")
    with pytest.raises(PipelineError) as refused:
        connect("hdfs://127.0.0.1:9/rec")
    assert refused.value.condition == "HDFS_CLIENT"
    assert "install headrace[hdfs]" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_hadoops_names_of_s3_are_s3() -> None:
    filesystem, path = connect("s3a://key:secret@bucket/rec?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1")
    assert (filesystem.type_name, path) == ("s3", "bucket/rec")


@pytest.mark.xdist_group("spark")
def test_who_has_asked_hdfs_can_start_other_programs(hdfs: Hdfs) -> None:
    filesystem, path = connect(f"{hdfs.address}/")
    assert filesystem.get_file_info(path).is_file is False
    # As PySpark starts the JVM: code of ours runs between the fork and the other program.
    done = subprocess.run([sys.executable, "-c", ""], preexec_fn=lambda: None, timeout=60, check=False)
    assert done.returncode == 0
