"""Bronze `tags`: every FLV tag of every recording once, as the `flv` source gives it.

Without that source's `tag_index`, which depends on how a file was split: `byte_offset` orders the tags of a file.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.pipeline.schema import select_as
from headrace.pipeline.sources.flv.schema import TAG_SCHEMA

SCHEMA = StructType([field for field in TAG_SCHEMA.fields if field.name != "tag_index"])
KEY = ("path", "byte_offset")


def build(rows: DataFrame) -> DataFrame:
    return select_as(rows.dropDuplicates(list(KEY)), SCHEMA)
