"""Bronze `events`: every event once, as the server wrote it."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headrace.pipeline.schema import EVENTS, select_as

SCHEMA = EVENTS
KEY = ("node", "boot", "seq")


def build(parsed: DataFrame) -> DataFrame:
    """From events with the `line` they were read from. Of two with one key the line that sorts first is kept, so
    that a rerun keeps the same."""
    first = Window.partitionBy(*KEY).orderBy("line")
    return select_as(parsed.withColumn("_copy", F.row_number().over(first)).where("_copy = 1"), SCHEMA)
