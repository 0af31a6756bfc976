from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.layout import Unit, file_of
from headrace.pipeline.tables.catalog import TABLES
from tests.pipeline.jobs.logs_on_disk import all_tables, folder


def test_a_new_lake_has_every_table_without_rows(tmp_path: Path) -> None:
    with open_lake(tmp_path / "lake", "a test") as lake:
        assert lake.pending() == {"events": [], "tags": []}
    assert all_tables(tmp_path / "lake") == {name: [] for name in TABLES}


def test_a_second_job_on_one_lake_is_refused(tmp_path: Path) -> None:
    refusal = pytest.raises(PipelineError, match=r"in use by headrace pipeline run, process \d+: one job at a time")
    with open_lake(tmp_path, "headrace pipeline run"), refusal:
        open_lake(tmp_path, "another").__enter__()
    with open_lake(tmp_path, "the next"):
        pass


def test_a_lake_of_another_version_is_refused(tmp_path: Path) -> None:
    with open_lake(tmp_path, "a test"):
        pass
    known = json.loads((tmp_path / "_lake.json").read_text())
    (tmp_path / "_lake.json").write_text(json.dumps({**known, "events": 0}))
    with pytest.raises(PipelineError, match="event schema version 0, expected 1"):
        open_lake(tmp_path, "a test").__enter__()
    known["tables"]["events"]["seq"] = "string"
    (tmp_path / "_lake.json").write_text(json.dumps(known))
    with pytest.raises(PipelineError, match=r"events\.seq as string, expected long"):
        open_lake(tmp_path, "a test").__enter__()


@pytest.mark.parametrize(("table", "column"), [("audience", "plays"), ("events", "error")])
def test_after_a_new_column_of_any_table_the_derived_ones_are_built_again(
    tmp_path: Path, table: str, column: str
) -> None:
    with open_lake(tmp_path, "a test") as lake:
        (folder(lake, "events") / "part").mkdir()
        assert (lake.untold(), lake.pending()["events"]) == (["part"], [])
        lake.mark_told(["part"])
        assert (lake.untold(), lake.pending()["events"]) == ([], ["part"])
        lake.mark_built({"events": ["part"]})
        assert (lake.untold(), lake.pending()["events"]) == ([], [])
    known = json.loads((tmp_path / "_lake.json").read_text())
    del known["tables"][table][column]  # a column that bronze has since got is null in old rows
    (tmp_path / "_lake.json").write_text(json.dumps(known))
    with open_lake(tmp_path, "a test") as lake:
        assert lake.untold() == ["part"]


@pytest.mark.parametrize("place", ["ftp://host/lake", "gs://bucket/lake", "hdfs://", "s3a:///lake"])
def test_an_address_of_another_kind_is_no_lake(place: str) -> None:
    with pytest.raises(PipelineError, match="expected a directory, hdfs://host:port/path or s3a://bucket/path"):
        open_lake(place, "a test").__enter__()


def test_names_of_files_are_safe_and_tell_streams_apart() -> None:
    odd = file_of(Unit("n1", "../../é\n" + "x" * 300, None))
    assert "/" not in odd
    assert len(odd) < 120
    names = {
        file_of(Unit("n1", "a", None)),
        file_of(Unit("n2", "a", None)),
        file_of(Unit("n1", None, "a")),
        file_of(Unit("n1", "a/b", None)),
        file_of(Unit("n1", "a_b", None)),
    }
    assert len(names) == 5
