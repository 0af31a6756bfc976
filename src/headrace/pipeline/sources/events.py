"""The event log as rows: `DATA/events/date=…/hour=…/*.jsonl` by Spark's own file source, batch or stream.

Owns what is an event and what is not: a line that is not JSON, lacks its envelope, has a value of another type or
another schema version becomes a row of `problems`. An event type that is not known yet is kept, with the fields that
are known.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.pipeline.schema import ENVELOPE_NAMES, EVENTS
from headrace.telemetry.events import SCHEMA_VERSION

FOLDER = "events"
MAX_FILES_PER_BATCH = 1000
_BAD = "_not_json"
_SHOWN_CHARACTERS = 200
_PARSED = StructType([*EVENTS.fields, StructField(_BAD, StringType())])


def read_lines(spark: SparkSession, data_dir: Path, folders: list[str] | None = None) -> DataFrame:
    """Every line of the finished files, or of those in some folders, with the file it is from."""
    reader = spark.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.jsonl")
    return _with_file(reader.text([str(data_dir / FOLDER)] if folders is None else folders))


def stream_lines(spark: SparkSession, folder: Path) -> DataFrame:
    """The same of the files in one folder as a stream: a file is read once, when it has been renamed into place."""
    reader = spark.readStream.option("maxFilesPerTrigger", MAX_FILES_PER_BATCH)
    return _with_file(reader.text(str(folder / "*.jsonl")))


def parse(lines: DataFrame) -> DataFrame:
    """Lines (`line`, `file`) with `event` and, where that is none, with what was `found` and `expected`."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parsed = lines.where(F.trim("line") != "").withColumn("event", F.from_json("line", _PARSED, options))
    return parsed.select("line", "file", "event", *_judgement())


def good(parsed: DataFrame) -> DataFrame:
    """The events among parsed lines, `line` beside them."""
    return parsed.where(F.col("found").isNull()).select(
        *[F.col(f"event.{name}").alias(name) for name in EVENTS.names], "line"
    )


def bad(parsed: DataFrame) -> DataFrame:
    """The lines that are no events: file, text, found, expected."""
    return parsed.where(F.col("found").isNotNull()).select(
        "file", F.substring("line", 1, _SHOWN_CHARACTERS).alias("text"), "found", "expected"
    )


def _judgement() -> tuple[Column, Column]:
    event = F.col("event")
    missing = F.concat_ws(", ", *[F.when(event[name].isNull(), name) for name in ENVELOPE_NAMES])
    is_unreadable = event.isNull() | event[_BAD].isNotNull()
    is_of_other_version = event["v"] != SCHEMA_VERSION
    found = (
        # A later version may have changed its types: that is told as what it is.
        F.when(is_of_other_version, F.concat(F.lit("schema version "), event["v"]))
        .when(is_unreadable, "no event, or a value of another type")
        .when(missing != "", F.concat(F.lit("no "), missing))
    )
    expected = (
        F.when(is_of_other_version, str(SCHEMA_VERSION))
        .when(is_unreadable, "one JSON object as in the contract")
        .when(missing != "", "the whole envelope")
    )
    return found.alias("found"), expected.alias("expected")


def _with_file(text: DataFrame) -> DataFrame:
    # The name comes as an address, with what is special in one escaped.
    path = F.regexp_replace(F.col("_metadata.file_path"), "^file:(//)?", "")
    return text.select(
        F.col("value").alias("line"), F.url_decode(F.replace(path, F.lit("+"), F.lit("%2B"))).alias("file")
    )
