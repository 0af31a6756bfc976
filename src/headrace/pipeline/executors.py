"""What executors must have, asked by a tiny job before anything else, and refused in one line.

Owns what is expected of them: a Python like ours, a few packages, and the same files. Executors that come later are not
asked. What they are asked is `probe`'s.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.masters import is_kubernetes
from headrace.pipeline.probe import PROBE_FILE, Answer, Question, answer, read_answer
from headrace.pipeline.reasons import host_of, reason_of
from headrace.pipeline.session import is_connect, silenced

# The oldest that do, by the names they are imported by. As in pyproject.toml, without what only the driver needs.
NEEDED = {"pyspark": "4.3", "pyarrow": "19", "numpy": "2", "xxhash": "3.5"}
_ROWS = 1000  # enough for a task on every core that Spark knows of
_DEADLINE_S = 300.0  # a queue or a container's image may take minutes
_PATIENCE_S = 10.0
_MISMATCH = re.compile(r"different version: (\S+) than that in driver")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)": (?:error=\d+, )?([^\n]+)')
_HOSTS = "SELECT DISTINCT java_method('java.net.InetAddress', 'getLocalHost') AS host FROM range(1000)"


def require_executors(
    spark: SparkSession,
    shared: Path | None,
    directories: Sequence[Path],
    say: Callable[[str], None],
    *,
    deadline_s: float = _DEADLINE_S,
) -> list[Answer]:
    """What the executors said, one answer for each of their Python processes. Raises PipelineError.

    `shared` is a directory of ours that executors must be able to write to, if any, `directories` those they must read.
    """
    if shared is not None:
        (shared / PROBE_FILE).touch()
    read = [str(path) for path in directories if path.is_dir()]
    question = Question(tuple(NEEDED), read, None if shared is None else str(shared), uuid.uuid4().hex)
    with silenced(spark):
        answers = _ask(spark, json.dumps(question._asdict()), say, deadline_s)
    for one in answers:
        require(one, shared)
    say(_describe(answers))
    return answers


def _ask(spark: SparkSession, question: str, say: Callable[[str], None], deadline_s: float) -> list[Answer]:
    # Neither Arrow nor pandas: whether they are there is what is asked.
    call = F.udf(answer, StringType(), useArrow=False).asNondeterministic()
    rows = spark.range(_ROWS).select(call(F.lit(question)).alias("answer")).distinct()
    found: list[Answer] = []
    errors: list[Exception] = []

    def collect() -> None:
        try:
            found.extend(read_answer(row.answer) for row in rows.collect())
        except Exception as error:  # told by the thread that waits
            errors.append(error)

    job = threading.Thread(target=collect, name="executors", daemon=True)
    job.start()
    job.join(min(_PATIENCE_S, deadline_s))
    if job.is_alive():
        say(f"executors: waiting for the first one{_where_to_look(spark)}")
        job.join(max(0.0, deadline_s - _PATIENCE_S))
    if job.is_alive():
        spark.interruptAll()
        raise PipelineError("EXECUTORS_MISSING", deadline_s=round(deadline_s))
    if errors:
        raise _translate(spark, errors[0]) from errors[0]
    return sorted(found, key=lambda one: (one.host, one.mark))


def _where_to_look(spark: SparkSession) -> str:
    """A pod may wait for a node or for its image, which only Kubernetes tells, and only while the job runs."""
    if is_connect(spark) or not is_kubernetes(spark.sparkContext.master or ""):
        return ""
    namespace = spark.conf.get("spark.kubernetes.namespace", "default")
    return f", see kubectl --namespace {namespace} describe pods --selector spark-role=executor"


def _translate(spark: SparkSession, error: Exception) -> PipelineError:
    """Python did not even begin on an executor."""
    host = host_of(error) or _hosts(spark)
    mismatch, no_program = _MISMATCH.search(str(error)), _NO_PROGRAM.search(str(error))
    if mismatch:
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        return PipelineError("EXECUTOR_PYTHON", host=host, found=f"Python {mismatch[1]}", expected=ours)
    if no_program:
        found = f"no {no_program[1]} ({no_program[2].lower()})"
        ours = f"{sys.version_info.major}.{sys.version_info.minor}"
        return PipelineError("EXECUTOR_PYTHON", host=host, found=found, expected=ours)
    return PipelineError("EXECUTOR_FAILED", host=host, reason=reason_of(error))


def _hosts(spark: SparkSession) -> str:
    """All machines with executors, by the JVMs alone, where Spark does not tell which one it was."""
    try:
        names = sorted({row.host.partition("/")[0] for row in spark.sql(_HOSTS).collect()})
    except Exception:  # it is about another error, and that one is told
        return "an unknown host"
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def require(one: Answer, shared: Path | None) -> None:
    """Raises PipelineError if what one executor said is not what it takes."""
    wrong = {name: one.packages[name] for name in NEEDED if not _is_new_enough(one.packages[name], NEEDED[name])}
    if wrong:
        raise PipelineError(
            "EXECUTOR_PACKAGES",
            host=one.host,
            python=one.executable,
            found=", ".join(
                f"no {name}" if version is None else f"{name} {version}" for name, version in wrong.items()
            ),
            expected=", ".join(f"{name} {NEEDED[name]}" for name in wrong),
        )
    for path, why in one.unseen.items():
        raise PipelineError("EXECUTOR_PATH", host=one.host, path=path, reason=why)
    if shared is not None and not (shared / one.mark).exists():
        raise PipelineError("EXECUTOR_PATH", host=one.host, path=shared, reason="what it wrote there is not here")


def _is_new_enough(version: str | None, least: str) -> bool:
    if version is None:
        return False
    return not version or _numbers(version) >= _numbers(least)  # a package need not tell its version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _describe(answers: Sequence[Answer]) -> str:
    hosts = ",".join(sorted({one.host for one in answers}))
    pythons = ",".join(sorted({one.python for one in answers}))
    # The name of the archive, or of the directory where somebody has installed the package.
    packages = ",".join(sorted({Path(one.headrace).parent.parent.name for one in answers}))
    return f"executors processes={len(answers)} hosts={hosts} python={pythons} headrace={packages}"
