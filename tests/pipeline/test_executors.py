"""Executors that cannot do the work are told of in one line, before the work begins."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.executors import NEEDED, require, require_executors
from headrace.pipeline.probe import PROBE_FILE, Answer, Question, answer, read_answer
from tests.pipeline.bare_python import NOT_ON_EXECUTORS, make_python

ROOT = Path(__file__).resolve().parents[2]
GOOD = Answer("worker-7", "3.11.7", "/usr/bin/python3", "/tmp/headrace.zip/headrace", dict(NEEDED), {}, "mark")


def test_what_is_expected_is_what_the_project_asks_for() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["pipeline"]
    least = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(extra), re.MULTILINE))
    assert {name: least[name] for name in NEEDED} == NEEDED


@pytest.mark.parametrize(
    ("packages", "complaint"),
    [
        ({"xxhash": None}, "has no xxhash for /usr/bin/python3, expected at least xxhash 3.5"),
        ({"numpy": "1.26.4", "pyarrow": None}, "has no pyarrow, numpy 1.26.4 for .*at least pyarrow 19, numpy 2$"),
        ({"pyspark": "4.2.1"}, "has pyspark 4.2.1 for .*at least pyspark 4.3"),
        ({"pyarrow": "19.0.0", "numpy": "10.0", "xxhash": "", "pyspark": "4.3.0.dev1"}, None),
    ],
)
def test_packages_are_judged_by_their_versions(
    packages: dict[str, str | None], complaint: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mark").touch()
    one = GOOD._replace(packages={**GOOD.packages, **packages})
    if complaint is None:
        require(one, tmp_path)
        return
    with pytest.raises(PipelineError, match=f"^the executor on worker-7 {complaint}"):
        require(one, tmp_path)


def test_what_an_executor_wrote_must_be_seen_here(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"worker-7 cannot use .* \(what it wrote there is not here\)"):
        require(GOOD, tmp_path)


def test_an_executor_tells_what_it_does_not_see(tmp_path: Path) -> None:
    for name in ("shared", "other", "read"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / PROBE_FILE).touch()
    gone, read, file = (str(tmp_path / name) for name in ("gone", "read", "shared/probe"))
    asked = Question(("pytest", "no_such_module"), [gone, read, file], str(tmp_path / "shared"), "job 1")
    found = read_answer(answer(json.dumps(asked._asdict())))
    assert found.packages == {"pytest": pytest.__version__, "no_such_module": None}
    assert found.unseen == {gone: "No such file or directory", file: "Not a directory"}
    assert (tmp_path / "shared" / found.mark).exists()
    again = read_answer(answer(json.dumps(asked._replace(job="job 2")._asdict())))
    assert again.mark != found.mark, "the next job's own"
    for name, why in {"other": "another directory of that name", "nowhere": "not there"}.items():
        asked = Question((), [], str(tmp_path / name), "job 1")
        assert read_answer(answer(json.dumps(asked._asdict()))).unseen == {asked.shared: why}


# A Python that takes itself for an older one: it is by that word that PySpark refuses it.
OTHER = """\
import collections, sys
Version = collections.namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = Version(3, 6, *sys.version_info[2:])
"""


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pythons")
    return {
        "bare": str(make_python(folder / "bare", without=NOT_ON_EXECUTORS)),
        "lacking": str(make_python(folder / "lacking", without=(*NOT_ON_EXECUTORS, "xxhash", "pyarrow"))),
        "other": str(make_python(folder / "other", without=NOT_ON_EXECUTORS, at_start=OTHER)),
        "gone": str(folder / "gone" / "python"),
    }


@pytest.fixture
def executor(spark: SparkSession, pythons: dict[str, str], request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session of all tests, whose tasks run in another Python meanwhile."""
    before = spark.sparkContext.pythonExec
    spark.sparkContext.pythonExec = pythons[request.param]
    yield spark
    spark.sparkContext.pythonExec = before


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestAsked:
    @pytest.mark.parametrize("executor", ["bare"], indirect=True)
    def test_good_ones_say_what_they_are(self, executor: SparkSession, tmp_path: Path) -> None:
        said: list[str] = []
        found = require_executors(executor, tmp_path, [tmp_path, tmp_path / "not yet"], said.append)
        assert found
        assert {Path(one.executable).parent.parent.name for one in found} == {"bare"}
        assert all(one.packages.keys() == NEEDED.keys() for one in found)
        # On a busy machine a line before it says that it waits.
        assert said[-1].startswith(f"executors processes={len(found)} hosts=")

    @pytest.mark.parametrize(
        ("executor", "complaint"),
        [
            ("lacking", r"the executor on \S+ has no pyarrow, no xxhash for \S+/lacking/bin/python, expected at least"),
            ("other", r"the executor on \S+ has Python 3\.6, expected Python 3\.\d+: see PYSPARK_PYTHON"),
            ("gone", r"the executor on \S+ has no \S+/gone/python \(no such file or directory\), expected Python 3"),
        ],
        indirect=["executor"],
    )
    def test_bad_ones_are_refused_in_one_line(
        self, executor: SparkSession, complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(PipelineError, match=f"^{complaint}[^\n]*$"):
            require_executors(executor, tmp_path, [], lambda line: None)
        assert "Exception" not in capfd.readouterr().err, "Spark's own words beside ours"

    def test_executors_that_see_other_files_are_refused(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Each process has a directory of that name, and tasks have another one than we.
        (tmp_path / "lake").mkdir()
        monkeypatch.chdir(tmp_path)
        with pytest.raises(
            PipelineError, match=r"cannot use /proc/self/cwd/lake \(not there\), expected the same files"
        ):
            require_executors(spark, Path("/proc/self/cwd/lake"), [], lambda line: None)

    def test_a_cluster_without_executors_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        with pytest.raises(PipelineError, match="no executor began to work within 0 s"):
            require_executors(spark, tmp_path, [], lambda line: None, deadline_s=0.01)
