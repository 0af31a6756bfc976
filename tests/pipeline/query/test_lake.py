from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.pipeline.errors import PipelineError
from headrace.pipeline.jobs.lake import open_lake
from headrace.pipeline.query.lake import PAUSE_S, TRIES, find_tables, parquet_files
from headrace.pipeline.query.types import spark_type
from headrace.pipeline.tables.catalog import TABLES


@pytest.fixture
def lake_dir(tmp_path: Path) -> Path:
    with open_lake(tmp_path / "lake", "a test"):
        pass
    return tmp_path / "lake"


def test_a_lake_tells_its_tables_and_their_columns_as_they_are_declared(lake_dir: Path) -> None:
    found = find_tables(lake_dir, made_by="")
    assert list(found) == list(TABLES)
    for name, table in TABLES.items():
        assert found[name].layer == table.layer
        assert found[name].directory == lake_dir / table.layer / name
        columns = {column: spark_type(kind) for column, kind in found[name].columns.items()}
        assert columns == {field.name: field.dataType.simpleString() for field in table.schema.fields}


@pytest.mark.parametrize("kind", ["nothing", "a folder without a lake", "a file"])
def test_without_a_lake_the_command_that_makes_one_is_told(tmp_path: Path, kind: str) -> None:
    if kind == "a file":
        (tmp_path / "lake").touch()
    elif kind != "nothing":
        (tmp_path / "lake").mkdir()
    with pytest.raises(PipelineError, match=r"there is no lake at .*/lake: headrace pipeline batch makes one$"):
        find_tables(tmp_path / "lake", made_by="headrace pipeline batch")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layout": 1}', '{"layout": 1, "tables": 7}', "7"])
def test_a_damaged_note_of_the_lake_is_told(lake_dir: Path, text: str) -> None:
    (lake_dir / "_lake.json").write_text(text)
    with pytest.raises(PipelineError, match=r"cannot be read: _lake\.json is damaged"):
        find_tables(lake_dir, made_by="")


def test_a_lake_of_another_layout_is_refused(lake_dir: Path) -> None:
    known = json.loads((lake_dir / "_lake.json").read_text())
    (lake_dir / "_lake.json").write_text(json.dumps({**known, "layout": 9}))
    with pytest.raises(PipelineError, match="has layout 9, expected 1"):
        find_tables(lake_dir, made_by="")


def test_a_table_that_is_being_made_again_is_waited_for(lake_dir: Path) -> None:
    away = lake_dir / "silver" / "sessions"
    away.rename(lake_dir / "_tmp" / "sessions")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            (lake_dir / "_tmp" / "sessions").rename(away)

    assert find_tables(lake_dir, made_by="", pause=pause)["sessions"].layer == "silver"
    assert pauses == [PAUSE_S, PAUSE_S]


def test_but_not_for_ever(lake_dir: Path) -> None:
    shutil.rmtree(lake_dir / "silver" / "sessions")
    pauses: list[float] = []
    with pytest.raises(PipelineError, match=r"sessions is not there, at 20 looks"):
        find_tables(lake_dir, made_by="", pause=pauses.append)
    assert len(pauses) == TRIES - 1


def test_what_other_readers_of_parquet_pass_over_is_no_file_of_a_table(tmp_path: Path) -> None:
    for name in ("a.parquet", "part/b.parquet", "_tmp/c.parquet", ".d.parquet", "_e.parquet", "part/_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {Path(file).name for file in parquet_files(tmp_path)} == {"a.parquet", "b.parquet"}
