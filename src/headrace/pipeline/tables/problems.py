"""Bronze `problems`: what was found in recordings and event files that is neither a tag nor an event."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.pipeline.schema import LONG, STRING, select_as, table

SCHEMA = table(
    ("source", STRING, "events or recordings"),
    ("file", STRING, "where it is"),
    ("byte_offset", LONG, "in a recording; null for a line of events"),
    ("text", STRING, "the first 200 characters of a line of events"),
    ("found", STRING, "what is there"),
    ("expected", STRING, "what should be"),
    ("count", LONG, "how many equal ones the file has"),
)
KEY = ("source", "file", "byte_offset", "text", "found")


def build_from_events(bad: DataFrame) -> DataFrame:
    """From `sources.events.bad`."""
    rows = bad.groupBy("file", "text", "found", "expected").agg(F.count(F.lit(1)).alias("count"))
    return select_as(rows.withColumns({"source": F.lit("events"), "byte_offset": F.lit(None)}), SCHEMA)


def build_from_recordings(found: DataFrame) -> DataFrame:
    """From `format("flv")` with `rows=problems`."""
    rows = found.groupBy("file", "byte_offset", "found", "expected").agg(F.count(F.lit(1)).alias("count"))
    return select_as(rows.withColumns({"source": F.lit("recordings"), "text": F.lit(None)}), SCHEMA)
