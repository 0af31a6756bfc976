"""`headrace pipeline simulate` as a person types it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from headrace import cli
from tests.pipeline.simulate.simulated import lines_of


def words(folder: Path, *more: str) -> list[str]:
    places = ["--data-dir", str(folder / "data"), "--record-dir", str(folder / "recordings"), "--jobs", "1"]
    return ["pipeline", "simulate", "--streams", "2", "--hours", "0.02", *places, *more]


def test_it_says_before_how_much_it_will_write_and_after_how_much_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words(tmp_path, "--recordings")) == 0
    about, events, recordings = capsys.readouterr().out.splitlines()
    paths = list((tmp_path / "data").rglob("*.jsonl"))
    lines = lines_of(tmp_path / "data")
    size = sum(path.stat().st_size for path in paths)
    assert about.startswith("about ")
    assert events.startswith(f"events files={len(paths)} rows={len(lines)} bytes={size} took=")
    told = int(about.split()[1].replace(",", ""))
    assert abs(told - len(lines)) < 0.1 * len(lines)
    assert recordings.startswith("recordings files=2 bytes=")
    assert lines[0]["time_ms"] == 1_767_225_600_000, "unless another start is asked for: 2026-01-01T00:00Z"


def test_a_data_directory_with_events_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words(tmp_path)) == 0
    before = sorted((tmp_path / "data").rglob("*"))
    capsys.readouterr()
    assert cli.main(words(tmp_path, "--seed", "2")) == 1
    said = capsys.readouterr().err
    assert "has events already (events/date=2026-01-01/hour=00/" in said
    assert said.count("\n") == 1
    assert sorted((tmp_path / "data").rglob("*")) == before


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6, 999))
    assert cli.main(words(tmp_path)) == 1
    assert "has room for 999 B, expected about" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--streams", "none"), "found 'none', expected a whole number from 1 to 10000"),
        (("--hours", "0.001"), "found '0.001', expected a number from 0.01 to 8784"),
        (("--hours", "nan"), "found 'nan', expected a number"),
        (("--faults", "-1"), "expected"),
        (("--start", "1999-12-31"), "found '1999-12-31', expected a time from 2000 to 2099"),
        (("--recordings", "fat"), "invalid choice"),
        (("--force",), "unrecognized arguments"),
    ],
)
def test_a_wrong_word_is_one_line_and_status_2(
    tmp_path: Path, more: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words(tmp_path, *more)) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_it_needs_no_spark(tmp_path: Path) -> None:
    code = (
        "import sys; from headrace import cli; status = cli.main(sys.argv[1:]); "
        "sys.exit(status or any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code, *words(tmp_path)], check=True, timeout=60, capture_output=True)
