"""Planning a read, in a process of its own as Spark does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headrace.pipeline.archive import PACKAGE
from tests.pipeline.flv_files import recording, write_flv

_PLAN = """
import pickle, sys
from headrace.pipeline.sources.flv.source import FlvDataSource
source = pickle.loads(pickle.dumps(FlvDataSource({"path": sys.argv[1]})))
reader = source.reader(source.schema())
left = reader.pushFilters([])
partitions = pickle.loads(pickle.dumps(reader.partitions()))
print(sum(len(one.pieces) for one in partitions), left)
print(sorted({"numpy", "pandas", "pyarrow", "xxhash"} & set(sys.modules)))
"""


def test_planning_a_local_read_imports_nothing_that_only_reading_needs(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    for number in range(3):
        write_flv(tmp_path / "deeper" / f"live_s{number}_20260102_030405.flv", recording(1))
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", _PLAN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (["3 []", "[]"], "")
