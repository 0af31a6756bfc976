from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import cli
from headrace.pipeline.jobs.lake import open_lake


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["pipeline"], "run|batch"),
        (["pipeline", "walk"], "invalid choice"),
        (["pipeline", "batch", "--from", "yesterday"], "found 'yesterday', expected 2026-01-31"),
        (["pipeline", "run", "--from", "2026-01-31"], "unrecognized arguments"),
        (["pipeline", "batch", "--remote", "sc://127.0.0.1:1", "--master", "yarn"], "not allowed with argument"),
        (["pipeline", "batch", "--conf", "executor.memory=1g"], "found 'executor.memory', expected spark.NAME=VALUE"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pipeline", "batch", "--help"]) == 0
    assert "--record-dir" in capsys.readouterr().out


def test_without_pyspark_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main(["pipeline", "run"]) == 1
    assert "install headrace[pipeline]" in capsys.readouterr().err


def test_a_second_job_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_lake(tmp_path / "lake", "headrace pipeline run"):
        words = ["pipeline", "batch", "--data-dir", str(tmp_path), "--lake", str(tmp_path / "lake")]
        assert cli.main(words) == 1
    assert "in use by headrace pipeline run" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words = ["pipeline", "batch", "--data-dir", str(tmp_path), "--master", f"spark://127.0.0.1:{port}"]
    assert cli.main(words) == 1
    said = capsys.readouterr().err
    assert said == f"headrace pipeline: nobody answers at spark://127.0.0.1:{port}: Connection refused\n"


def test_the_server_loads_no_spark() -> None:
    code = "import sys, headrace.cli, headrace.app; sys.exit(any(n.split('.')[0] == 'pyspark' for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
