"""Recordings of few bytes into bronze: by the `flv` source's own reader, here in the driver.

For Spark to call a source in Python takes several processes that each import pyspark, some six seconds of processor
time before the first tag. What is out of the ordinary (many tags, bytes that are no tags) is left to `ingest`, which
does the same for any number of files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipeline.jobs.lake import Lake
from headrace.pipeline.jobs.units import MAX_FEW_TAGS
from headrace.pipeline.sources.flv.options import FlvOptions
from headrace.pipeline.sources.flv.schema import PROBLEM_SCHEMA, PROBLEMS, TAGS
from headrace.pipeline.sources.flv.source import FlvReader
from headrace.pipeline.tables import tags

MAX_BYTES = 256 << 20  # a tenth of a second to read; how many tags there are is known after that


def take_in_few_tags(lake: Lake, part: str, paths: Sequence[str]) -> int | None:
    """How many tags are new; None where it is not for us, and nothing has been done."""
    if not paths:
        return 0
    rows = _read(lake, paths)
    if rows is None or _has_problems(paths):
        return None
    known = _known(lake, sorted(set(rows["path"].to_pylist())))
    if known.num_rows:
        rows = rows.join(known, keys=list(tags.KEY), join_type="left anti").sort_by(
            [(key, "ascending") for key in tags.KEY]
        )
    return lake.add_part("tags", part, rows.cast(lake.arrow_schema("tags")))


def _read(lake: Lake, paths: Sequence[str]) -> pa.Table | None:
    reader = FlvReader(_options(paths, TAGS), tags.SCHEMA)
    found, count = [lake.arrow_schema("tags").empty_table()], 0
    for partition in reader.partitions():
        for batch in reader.read(partition):
            count += batch.num_rows
            if count > MAX_FEW_TAGS:
                return None
            found.append(pa.Table.from_batches([batch]).cast(lake.arrow_schema("tags")))
    return pa.concat_tables(found)


def _has_problems(paths: Sequence[str]) -> bool:
    reader = FlvReader(_options(paths, PROBLEMS), PROBLEM_SCHEMA)
    return any(True for partition in reader.partitions() for _ in reader.read(partition))


def _known(lake: Lake, paths: Sequence[str]) -> pa.Table:
    """The keys of these files' tags that the lake has already."""
    is_of_them = pc.field("path").isin(pa.array(paths, pa.string()))
    return lake.dataset("tags", lake.parts("tags")).to_table(columns=list(tags.KEY), filter=is_of_them)


def _options(paths: Sequence[str], rows: str) -> FlvOptions:
    return FlvOptions.parse({"paths": json.dumps(list(paths)), "rows": rows})
