"""The columns of the two tables that FLV files give: tags and problems."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.pipeline.errors import PipelineError

TAGS = "tags"
PROBLEMS = "problems"


def _column(name: str, kind: DataType, comment: str) -> StructField:
    return StructField(name, kind, metadata={"comment": comment})


TAG_SCHEMA = StructType(
    [
        _column("path", StringType(), "absolute, or an address without credentials; with byte_offset the key"),
        _column("stream", StringType(), "app/name as far as the file's name tells, else that name"),
        _column("tag_index", LongType(), "from 0 among the file's rows; null where a split began in its middle"),
        _column(
            "log_position", LongType(), "in the stream's log, where option `events` is given; in a lake see `gops`"
        ),
        _column("byte_offset", LongType(), "of the tag's header"),
        _column("kind", StringType(), "video, audio or script"),
        _column("timestamp_ms", LongType(), "0 to 2^32 - 1 as in the file, where it wraps"),
        _column("composition_ms", IntegerType(), "presentation after timestamp_ms; null unless readable video"),
        _column("size_bytes", IntegerType(), "of the payload"),
        _column("codec", StringType(), "of the first track; null for script data and what does not tell"),
        _column("is_keyframe", BooleanType(), "a picture can start here"),
        _column("is_config", BooleanType(), "a codec's sequence header"),
        _column(
            "is_frame", BooleanType(), "coded audio or video; false for headers, metadata, ends and what does not tell"
        ),
        _column("payload_digest", LongType(), "XXH3-64, as a signed number: from 2^63 on less 2^64"),
    ]
)
TAG_SCHEMA_WITH_PAYLOAD = StructType([*TAG_SCHEMA.fields, _column("payload", BinaryType(), "the tag's bytes")])
PROBLEM_SCHEMA = StructType(
    [
        _column("file", StringType(), "as path of tags"),
        _column("stream", StringType(), "as stream of tags"),
        _column("byte_offset", LongType(), "of what is no tag"),
        _column("found", StringType(), "what is there"),
        _column("expected", StringType(), "what should be"),
        _column("resumed_at", LongType(), "byte_offset of the next tag; null if there is none"),
    ]
)


def schema_of(rows: str, *, has_payload: bool) -> StructType:
    if rows == PROBLEMS:
        return PROBLEM_SCHEMA
    return TAG_SCHEMA_WITH_PAYLOAD if has_payload else TAG_SCHEMA


def require_columns(schema: StructType, rows: str) -> None:
    """A reader may be asked for fewer columns, in any order: `spark.read.schema(…)` is how columns are pruned."""
    known = schema_of(rows, has_payload=True).names
    for name in schema.names:
        if name not in known:
            raise PipelineError("COLUMN_NOT_FOUND", column=name, columns=", ".join(known))
